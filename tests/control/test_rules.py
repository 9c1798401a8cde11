"""What people see of rules, and what they do with what fires them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from flyball.config import Settings
from flyball.config.build import rule_policies
from flyball.config.rules import (
    Action,
    Approval,
    Command,
    Cron,
    Every,
    FileChange,
    Http,
    Notify,
    Rule,
    Startup,
    Trigger,
    UnitEvent,
    Webhook,
    When,
)
from flyball.config.units import Unit
from flyball.control.commands import answer
from flyball.control.context import CommandError
from flyball.control.rules import in_words
from flyball.core.codec import decode_body
from flyball.core.event import Asked, Cause, Exited, Fired, Held, Start
from flyball.core.policy import Key
from flyball.core.time import HOUR, MINUTE, SECOND
from flyball.runtimes.holder import me
from flyball.store import Draft, firings
from flyball.store.firings import Firing
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene

KEY = "a secret of 16 letters"
RULE = Rule(
    name="price",
    triggers=(Every(every=5 * MINUTE), Webhook(hook="price", secret=KEY)),
    when='trigger.kind == "every"',
    actions=(
        Action(id="fetch", deed=Http(url="http://shop.test/?key=secret")),
        Action(id="pay", deed=Notify(text="paid"), approve=Approval(text="Pay?")),
    ),
    labels={"provider": "shop", "user": "ann"},
    priority=5,
)
LABELS = {**RULE.labels, "runtime": "rule"}


@dataclass
class Named:
    """Settings that name a rule and a unit."""

    units: Sequence[Unit] = (Unit(name="web", command=("true",)),)
    rules: Sequence[Rule] = (RULE,)


class Shop:
    """A scene with one rule."""

    def __init__(self) -> None:
        self.scene = Scene(MemoryStore(), ago=0)
        self.governor, self.clock = self.scene.governor, self.scene.clock
        for name, policies in rule_policies(Settings(), (RULE,)).items():
            self.governor.panel.put(name, policies)
        self.pokes: list[tuple[str, str]] = []

    def ask(self, verb: str, **args: Any) -> Any:
        return answer(self.scene.context(settings=Named()), verb, args)

    def ask_daemon(self, verb: str, **args: Any) -> Any:
        """The same, where a daemon runs."""

        def poke(unit: str, said: str) -> None:
            self.pokes.append((unit, said))

        context = self.scene.context(settings=Named(), poke=poke, firings=lambda rule: {"queued": len(rule)})
        return answer(context, verb, args)

    def rule(self) -> Any:
        (found,) = self.ask("rules")["rules"]
        return found

    def fire(self, id_: str, **more: Any) -> Firing:
        """Something waits in the queue."""
        firing = Firing(id=id_, rule="price", trigger="webhook price", at=self.clock.now(), **more)
        self.governor.submit(
            Fired(unit="price", id=id_, trigger=firing.trigger), {firing.key: msgspec.json.encode(firing)}
        )
        return firing

    def run(self, id_: str = "a", attempt: int = 1) -> None:
        """A run of it begins."""
        self.governor.submit(Start(unit="price", run=f"{id_}.{attempt}", labels=LABELS, holder=me()))

    def ended(self, cause: Cause = Cause.DONE, run: str = "a.1", **more: Any) -> None:
        self.governor.submit(Exited(unit="price", run=run, labels=LABELS, cause=cause, **more))

    def put(self, key: Key, data: bytes) -> None:
        self.governor.store.transact([key], lambda snapshot: Draft(snapshot.at, {key: data}, None))


@pytest.fixture
def shop() -> Shop:
    return Shop()


# What is seen.


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        (Every(every=90 * SECOND), "every 1 min 30 s"),
        (
            Cron(expression="0 7 * * mon-fri", timezone="Europe/Berlin"),
            "cron 0 7 * * mon-fri Europe/Berlin",
        ),
        (FileChange(pattern="/in/*.csv"), "file /in/*.csv (created, modified)"),
        (Webhook(hook="price", secret=KEY), "webhook price"),
        (UnitEvent(unit="other-*", on=(When.DONE, When.FAILED)), "event other-* (done, failed)"),
        (Command(), "command"),
        (Startup(), "startup"),
    ],
)
def test_triggers_in_words(trigger: Trigger, text: str) -> None:
    """Each kind says what fires the rule."""
    assert in_words(trigger) == text


def test_rule_that_never_ran(shop: Shop) -> None:
    """It is healthy, and known by the settings: what fires it and what it does, without secrets."""
    rule = shop.rule()
    assert (rule["state"], rule["held"], rule["running"], rule["defined"]) == ("healthy", False, False, True)
    assert [trigger["text"] for trigger in rule["triggers"]] == ["every 5 min", "webhook price"]
    assert rule["actions"] == ["fetch: http", "pay: notify, after approval"]
    assert (rule["when"], rule["priority"], rule["waiting"], rule["last_run"]) == (RULE.when, 5, 0, None)
    assert rule["labels"] == LABELS
    assert "secret" not in str(rule)


def test_among_the_units(shop: Shop) -> None:
    """The status has rules and units, and says which is what."""
    kinds = {unit["name"]: unit["kind"] for unit in shop.ask("status")["units"]}
    assert kinds == {"price": "rule", "web": "unit"}


@pytest.mark.parametrize("cause", [Cause.DONE, Cause.STOPPED])
def test_healthy_when_its_last_run_ended(shop: Shop, cause: Cause) -> None:
    """A rule is neither finished nor stopped by the end of one run: the next thing that fires it begins another."""
    shop.run()
    assert shop.rule()["running"]
    shop.ended(cause)
    rule = shop.rule()
    assert (rule["state"], rule["reasons"], rule["last_run"]["cause"]) == ("healthy", [], str(cause))
    said = shop.ask("why", unit="price")
    assert said["events"][-1]["text"] == f"exited: {cause}"
    assert not [one for one in said["opinions"] if one["reasons"]]
    assert said["start"]["verb"] == "proceed"


def test_cooling_then_healthy(shop: Shop) -> None:
    """After a failure it waits by its ladder, and is healthy again when the wait is over."""
    shop.run()
    shop.ended(Cause.ERROR, error="HttpStatus", fingerprint="f1")
    rule = shop.rule()
    assert (rule["state"], rule["held"]) == ("cooling", False)
    assert rule["until"] == pytest.approx((shop.clock.now() + SECOND) / 1e6)
    shop.clock.move(2 * SECOND)
    assert shop.rule()["state"] == "healthy"


def test_ended_by_a_policy(shop: Shop) -> None:
    """What was stopped as a loop is stopped, and says that a person has to resume it; then it is healthy."""
    shop.run()
    shop.ended(Cause.STOPPED, error="loop_detected", policy="loop")
    rule = shop.rule()
    assert (rule["state"], rule["reasons"][0]["code"]) == ("stopped", "ended_by_policy")
    assert "flyball resume price" in rule["reasons"][0]["remedy"]
    shop.ask("resume", units=["price"])
    assert shop.rule()["state"] == "healthy"


def test_held_words(shop: Shop) -> None:
    """Paused and quarantined are said as of every unit."""
    shop.governor.submit(Held(unit="price", by="ann"))
    assert (shop.rule()["state"], shop.rule()["held"]) == ("paused", True)
    shop.ask("resume", units=["price"])
    for number in range(6):
        shop.clock.move(31 * MINUTE)
        shop.run("a", number)
        shop.clock.move(2 * MINUTE)
        shop.ended(Cause.ERROR, f"a.{number}", error="SelectorNotFound", fingerprint="abcdef0123456789")
    assert (shop.rule()["state"], shop.rule()["held"]) == ("quarantined", True)
    said = shop.ask("reset", fingerprint="abcdef")
    assert [one["unit"] for one in said["cleared"]] == ["price"]
    assert not shop.rule()["held"]


def test_no_run_of_a_rule_is_by_hand(shop: Shop) -> None:
    """What fires a rule is no person who starts it."""
    for number in range(3):
        shop.run("a", number)
        shop.ended(run=f"a.{number}")
    assert shop.ask("unit", unit="price")["restarts"]["by_hand"] == 0


def test_restarts_of_a_rule(shop: Shop) -> None:
    """A run after a failure is a restart, whatever fired it: as many in all as in the last hour."""
    for number, cause in enumerate((Cause.DONE, Cause.ERROR, Cause.ERROR, Cause.DONE)):
        shop.clock.move(20 * MINUTE if number else 0)
        shop.run("a", number)
        shop.ended(cause, f"a.{number}", error="E" * (cause is Cause.ERROR), fingerprint=f"{number:016}")
    restarts = shop.ask("unit", unit="price")["restarts"]
    assert (restarts["last_hour"], restarts["total"]) == (2, 2)


def test_rule_that_is_gone_from_the_settings(shop: Shop) -> None:
    """It is known by its runs, still as a rule, and says that nothing fires it."""
    shop.run()
    shop.ended()
    (rule,) = answer(shop.scene.context(), "rules", {})["rules"]
    assert (rule["name"], rule["state"], rule["defined"], rule["triggers"]) == ("price", "healthy", False, [])


# The queue.


def test_queue(shop: Shop) -> None:
    """The oldest first. What a run has does not wait; what a trigger said is not shown."""
    shop.fire("b", data={"body": "private"}, joined=2)
    shop.clock.move(SECOND)
    shop.fire("a", attempt=1, depth=3, by_person=True)
    shop.run("a", 1)
    rule = shop.rule()
    shown = [(one["id"], one["running"], one["attempt"], one["joined"], one["depth"]) for one in rule["queue"]]
    assert shown == [("b", False, 0, 2, 0), ("a", True, 1, 0, 3)]
    assert rule["waiting"] == shop.ask("unit", unit="price")["waiting"] == 1
    assert shop.ask("queue", rule="price")["queue"] == rule["queue"]
    assert "private" not in str(rule)
    assert shop.ask("why", unit="price")["rule"] == rule


def test_damaged_firing(shop: Shop) -> None:
    """One that cannot be read keeps nobody from looking at the others."""
    shop.fire("a")
    for place, data in enumerate((b"{", b'{"id": 1}', b'{"id":"\xff"}')):
        shop.put(Key(firings.FIRING, "unit", f"price/x{place}"), data)
    assert [one["id"] for one in shop.rule()["queue"]] == ["a"]


def test_next_times(shop: Shop) -> None:
    """Of an interval what its record says, of a calendar what comes by the clock; and the first of them."""
    assert shop.rule()["next"] is None, "nobody has looked at the interval yet"
    last = shop.clock.now()
    shop.put(Key("timer", "unit", "price/0"), msgspec.json.encode({"trigger": "x", "last": last}))
    assert shop.rule()["next"] == pytest.approx((last + 5 * MINUTE) / 1e6)
    shop.put(Key("timer", "unit", "price/0"), b"damaged")
    assert shop.rule()["next"] is None
    yearly = Rule(name="yearly", triggers=(Cron(expression="0 7 * * *", timezone="Europe/Berlin"),), actions=())
    settings = Named(rules=(yearly,))
    (rule,) = answer(shop.scene.context(settings=settings), "rules", {"rules": ["yearly"]})["rules"]
    assert 0 < rule["next"] - shop.clock.now() / 1e6 <= 25 * HOUR / 1e6


def test_what_only_a_daemon_knows(shop: Shop) -> None:
    """Its counts are shown; without one there are none."""
    (rule,) = shop.ask_daemon("rules", rules=["price"])["rules"]
    assert rule["counts"] == {"queued": 5}
    assert shop.rule()["counts"] == {}


# Orders.


def test_forget_without_a_daemon(shop: Shop) -> None:
    """What waits is gone, with an entry for each; what runs stays."""
    for id_ in ("a", "b"):
        shop.fire(id_)
    shop.fire("c", attempt=1)
    shop.run("c", 1)
    assert shop.ask("forget_firings", rule="price") == {"rule": "price", "forgotten": 2}
    assert [one["id"] for one in shop.rule()["queue"]] == ["c"]
    events = [decode_body(entry.body).event for entry in shop.governor.store.last_entries(limit=3)]
    assert [(event.id, event.dropped) for event in events if isinstance(event, Fired)] == [
        ("a", "forgotten"),
        ("b", "forgotten"),
    ]
    assert shop.ask("forget_firings", rule="price")["forgotten"] == 0


@pytest.mark.parametrize(
    ("verb", "args", "code", "text"),
    [
        ("trigger", {"rule": "price"}, "no_daemon", "no daemon runs here, so there is nobody to run price"),
        ("trigger", {"rule": "prise"}, "unknown_unit", "no rule 'prise'; did you mean price?"),
        ("trigger", {"rule": "web"}, "unknown_unit", "web is a unit, and no rule"),
        ("trigger", {}, "unknown_unit", "no rule ''; there are price"),
        ("queue", {"rule": "x"}, "unknown_unit", "no rule 'x'"),
        ("forget_firings", {"rule": "web"}, "unknown_unit", "web is a unit, and no rule"),
        ("rules", {"rules": ["price", "x"]}, "unknown_unit", "no rule 'x'"),
        ("restart", {"units": ["price"]}, "bad_argument", "price is a rule: there is nothing to restart"),
    ],
)
def test_what_cannot_be_done(shop: Shop, verb: str, args: dict[str, Any], code: str, text: str) -> None:
    """A clear error with what to do, and nothing is written."""
    before = shop.governor.store.read(()).seq
    with pytest.raises(CommandError) as raised:
        shop.ask(verb, **args)
    assert raised.value.code == code
    assert text in str(raised.value)
    assert raised.value.remedy
    assert shop.governor.store.read(()).seq == before


def test_start_takes_a_stop_back(shop: Shop) -> None:
    """A stopped rule may be fired again; it is not fired by that. The daemon is told."""
    shop.ask("stop", units=["price"])
    assert shop.rule()["state"] == "stopped"
    said = shop.ask_daemon("start", units=["price"])
    assert [unit["state"] for unit in said["units"]] == ["healthy"]
    assert (shop.pokes, shop.rule()["queue"]) == ([("price", "start")], [])


def test_restart_of_all_leaves_rules_alone(shop: Shop) -> None:
    """Only units are restarted."""
    shop.ask_daemon("restart", all=True)
    assert shop.pokes == [("web", "restart")]


def test_pause_of_a_user(shop: Shop) -> None:
    """A rule belongs to the user whom its labels name, also before its first run."""
    assert [unit["name"] for unit in shop.ask("pause", user="ann", dry_run=True)["units"]] == ["price"]


# Questions.


def _asked(shop: Shop, unit: str, id_: str, choices: tuple[str, ...] = ("yes", "no")) -> None:
    shop.governor.submit(Asked(unit=unit, run="r1", id=id_, text=f"{id_}?", choices=choices, default="no"))
    shop.clock.move(SECOND)


def test_questions_of_all_units(shop: Shop) -> None:
    """Unit by unit; the one that asks for longest comes first, and of its questions the oldest."""
    for unit, id_ in (("price", "a1"), ("web", "b1"), ("price", "a2")):
        _asked(shop, unit, id_)
    asked = shop.ask("questions")["questions"]
    assert [(one["unit"], one["id"]) for one in asked] == [("price", "a1"), ("price", "a2"), ("web", "b1")]
    assert [one["id"] for one in shop.ask("questions", units=["web"])["questions"]] == ["b1"]
    assert (asked[0]["choices"], asked[0]["default"]) == (["yes", "no"], "no")


def test_answer_all(shop: Shop) -> None:
    """Every open question of the unit gets the answer; others' stay open."""
    for unit, id_ in (("price", "a1"), ("price", "a2"), ("web", "b1")):
        _asked(shop, unit, id_)
    said = shop.ask("answer", unit="price", answer="YES", all=True)
    assert [(one["question"]["id"], one["answer"]) for one in said["answered"]] == [("a1", "yes"), ("a2", "yes")]
    assert (said["unit"]["questions"], said["too_late"]) == ([], [])
    assert [one["id"] for one in shop.ask("questions")["questions"]] == ["b1"]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"answer": "perhaps"}, "'perhaps' is no answer to 'a1?'; there are yes, no"),
        ({"answer": "no"}, "'no' is no answer to 'a2?'; there are yes, later"),
        ({"answer": "yes", "id": "a1"}, "not both"),
        ({"answer": "yes", "unit": "web"}, "web asks nothing"),
    ],
)
def test_what_is_no_answer_to_all(shop: Shop, args: dict[str, Any], text: str) -> None:
    """One question to which it is no answer leaves all of them open."""
    _asked(shop, "price", "a1")
    _asked(shop, "price", "a2", ("yes", "later"))
    with pytest.raises(CommandError) as raised:
        shop.ask("answer", **{"unit": "price", "all": True, **args})
    assert text in str(raised.value)
    assert len(shop.ask("questions")["questions"]) == 2


# What counts as another rule.


@pytest.mark.parametrize(
    ("change", "is_new"),
    [
        ({"triggers": (Every(every=6 * MINUTE),)}, True),
        ({"triggers": (RULE.triggers[0], Webhook(hook="price", secret="x" * 16))}, True),
        ({"when": ""}, True),
        ({"actions": RULE.actions[:1]}, True),
        ({"actions": (replace(RULE.actions[0], deed=Http(url="http://other.test/")), RULE.actions[1])}, True),
        ({"labels": {}, "priority": 9, "pace": None, "queue_max": 5, "runs_max": 2, "timeout": SECOND}, False),
    ],
)
def test_revision(change: dict[str, Any], is_new: bool) -> None:
    """A hash of triggers, condition and actions: a change of these may be a fix, one of its limits is none."""
    assert (replace(RULE, **change).revision != RULE.revision) is is_new
