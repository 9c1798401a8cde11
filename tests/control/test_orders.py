"""What people order, and what the governor answers to a start then."""

from pathlib import Path
from typing import Any

import pytest

from flyball.config import Settings
from flyball.control.commands import COMMANDS, answer
from flyball.control.context import CommandError, Right
from flyball.core.codec import decode_body
from flyball.core.decision import Decision, Verb
from flyball.core.event import Booted, Cause, Held, Ordered, Released, Resume, Start
from flyball.core.time import HOUR
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene


@pytest.fixture
def scene() -> Scene:
    return Scene(MemoryStore())


def _would(scene: Scene, unit: str = "u") -> Decision:
    return scene.governor.look(Start(unit=unit))


def _order(scene: Scene, verb: str, **args: Any) -> Any:
    return answer(scene.context(), verb, args)


def _state(scene: Scene, unit: str = "u") -> str:
    return str(answer(scene.context(), "unit", {"unit": unit})["state"])


def _events(scene: Scene) -> int:
    """How many there are, without the lines of the audit trail."""
    return len([entry for entry in scene.governor.store.entries(limit=10_000) if entry.event != "ordered"])


@pytest.mark.parametrize(("verb", "says"), [("pause", Verb.HOLD), ("stop", Verb.STOP), ("kill", Verb.STOP)])
def test_hold_and_resume(scene: Scene, verb: str, says: Verb) -> None:
    """Pause, stop and kill refuse every start until a person resumes it."""
    scene.start("u")
    scene.exit("u", Cause.DONE)
    said = _order(scene, verb, units=["u"], note="deploying")
    assert said["units"][0]["state"] == ("paused" if verb == "pause" else "stopped")
    assert _would(scene).verb is says
    scene.clock.move(1000 * HOUR)
    assert _would(scene).verb is says
    released = _order(scene, "resume", units=["u"])["released"]
    assert released == [{"unit": "u", "policies": ["manual"]}]
    assert _would(scene).proceeds


def test_the_journal_is_the_audit_trail(scene: Scene) -> None:
    """Every order says who gave it and by which channel; behind it is a line with what was asked, and what came of it,
    also of what somebody may not do, once. What was only a mistake is no line."""
    scene.quarantine("u")
    before = scene.governor.store.read(()).seq
    _order(scene, "pause", units=["u"], note="deploying")
    _order(scene, "resume", units=["u"])
    _order(scene, "reset", fingerprint="abcdef")
    _order(scene, "pause", all=True)
    _order(scene, "resume")
    with pytest.raises(CommandError):
        _order(scene, "pause", units=["nobody"])
    looks = scene.context(right=Right.LOOK)
    for _ in range(3):
        with pytest.raises(CommandError):
            answer(looks, "kill", {"units": ["u"]})
    events = [decode_body(entry.body).event for entry in scene.governor.store.entries(after=before)]
    orders, trail = events[:-1:2], [event for event in events if isinstance(event, Ordered)]
    assert all(isinstance(order, Held | Released) for order in orders)
    said = [(order.by, order.note) for order in orders if isinstance(order, Held | Released)]
    assert said == [("ann", "via test: deploying")] + [("ann", "via test")] * 4
    assert [(line.verb, line.unit, line.asked, line.effect) for line in trail[:-1]] == [
        ("pause", "u", "units=u, note=deploying", "u quarantined"),
        ("resume", "u", "units=u", "u quarantined"),
        ("reset", "", "fingerprint=abcdef", "forgot 1 kind of failure of 1 unit; u cooling"),
        ("pause", "", "all", "u paused"),
        ("resume", "", "", ""),
    ]
    assert [(line.verb, line.unit, line.refused) for line in trail[-1:]] == [("kill", "u", "forbidden")]
    assert {(line.by, line.channel) for line in trail} == {("ann", "test")}


def test_resume_a_halted_unit(scene: Scene) -> None:
    """S4-17: halted, then resumed by a person: healthy, no flaps, empty history; it may start at once."""
    scene.flap("u", 7)
    scene.clock.move(HOUR)
    assert _state(scene) == "halted"
    _order(scene, "resume", units=["u"])
    assert answer(scene.context(), "state", {"unit": "u"}) == {
        "state": "healthy",
        "consecutive_flaps": 0,
        "exits_in_window": 0,
    }
    assert _would(scene).proceeds


def test_resume_what_a_policy_ended(scene: Scene) -> None:
    """What a policy stopped goes on when a person resumes it by its name; resuming the fleet is not about it."""
    scene.start("u")
    scene.exit("u", Cause.STOPPED, error="cost_budget_exceeded", policy="budget")
    assert _state(scene) == "stopped"
    assert _order(scene, "resume")["released"] == []
    again = Start(unit="u", again=True)
    assert scene.governor.look(again).codes == ("ended_by_policy",)
    assert _order(scene, "resume", units=["u"])["released"] == [{"unit": "u", "policies": ["restart"]}]
    assert scene.governor.look(again).proceeds


def test_resume_leaves_a_quarantine(scene: Scene) -> None:
    """A quarantine is about one failure: only a reset of it lifts it."""
    scene.quarantine("u")
    scene.clock.move(HOUR)
    _order(scene, "pause", units=["u"])
    said = _order(scene, "resume", units=["u"])
    assert said["units"][0]["state"] == "quarantined"
    assert _would(scene).codes == ("quarantined",)


def test_resume_leaves_what_does_not_hold(scene: Scene) -> None:
    """A resume lifts holds; a count below its limit, or a wait, is not forgotten by it."""
    scene.flap("u", 4)
    before = answer(scene.context(), "state", {"unit": "u"})
    assert _order(scene, "resume", units=["u"])["released"] == []
    assert answer(scene.context(), "state", {"unit": "u"}) == before
    assert _would(scene).verb is Verb.WAIT


def test_resume_the_fleet(scene: Scene) -> None:
    """Without a unit, a resume lifts what holds the fleet: a storm, a jump of the clock, a pause of all."""
    scene.flap("v", 11)
    scene.governor.submit(Booted(holder="h", skew=100 * 24 * HOUR))
    _order(scene, "pause", all=True)
    assert set(_would(scene).codes) >= {"restart_storm_detected", "clock_jumped", "paused"}
    said = _order(scene, "resume")
    assert said["released"] == [{"unit": "", "policies": ["clock", "manual", "storm"]}]
    assert said["fleet"]["state"] == "running"
    assert [unit["name"] for unit in said["units"]] == ["v"], "what is held all the same is told"
    assert _would(scene).proceeds


def test_resume_everything(scene: Scene) -> None:
    """With --all, the fleet and every unit, but for quarantines."""
    scene.everything()
    _order(scene, "pause", all=True)
    said = _order(scene, "resume", all=True)
    assert said["fleet"]["state"] == "running"
    assert [unit["name"] for unit in said["units"] if unit["held"]] == ["quarantined-one"]


def test_resume_after_too_many_resumes() -> None:
    """A session that used up its resumes gets them anew from a person."""
    scene = Scene(MemoryStore(), policies=Settings().policies("session"))
    scene.start("u")
    for number in range(5):
        scene.governor.submit(Resume(unit="u", run=f"r{number}"))
        scene.clock.move(HOUR)
        scene.governor.reap()
        scene.clock.move(HOUR)
    assert scene.governor.look(Resume(unit="u")).verb is Verb.HOLD
    _order(scene, "resume", units=["u"])
    assert scene.governor.look(Resume(unit="u")).proceeds


# Reset.


def test_reset_one_fingerprint(scene: Scene) -> None:
    """The first digits are enough; only that failure is forgotten."""
    scene.quarantine("u", "abcdef0123456789")
    scene.quarantine("v", "abffff0123456789")
    scene.clock.move(HOUR)
    said = _order(scene, "reset", fingerprint="abc")
    assert [(one["unit"], one["state"], one["failures"][0]["count"]) for one in said["cleared"]] == [
        ("u", "quarantined", 6)
    ]
    assert _would(scene, "u").proceeds
    assert _would(scene, "v").verb is Verb.HOLD


def test_reset_ends_a_wait(scene: Scene) -> None:
    """Reset forgets the cooldown of that failure too."""
    for _ in range(4):
        scene.clock.move(HOUR)
        scene.fail("u", lives=2 * 60_000_000)
    assert "cooling" in _would(scene).codes
    _order(scene, "reset", fingerprint="f1f1")
    assert "cooling" not in _would(scene).codes


@pytest.mark.parametrize(
    ("prefix", "code", "says"),
    [
        ("ab", "ambiguous", "'ab' is the beginning of 2 fingerprints: abcdef0123456789 (u: exit 3, 6 times); abffff"),
        ("xy", "not_found", "no failure has a fingerprint that begins with 'xy'; there are abcdef0123456789 (u: "),
        ("u", "not_found", "no failure has a fingerprint that begins with 'u'"),
        ("", "bad_argument", "reset needs a fingerprint, or --breaker, or --all"),
    ],
)
def test_reset_of_what_is_not_clear(scene: Scene, prefix: str, code: str, says: str) -> None:
    """An ambiguous beginning lists what it may mean; an unknown one what there is. Nothing changes."""
    scene.quarantine("u", "abcdef0123456789")
    scene.quarantine("v", "abffff0123456789")
    before = _events(scene)
    with pytest.raises(CommandError) as raised:
        _order(scene, "reset", fingerprint=prefix)
    assert raised.value.code == code
    assert says in str(raised.value)
    assert _events(scene) == before


def test_a_whole_fingerprint_is_never_ambiguous(scene: Scene) -> None:
    """A fingerprint that is the beginning of another one means itself."""
    scene.fail("u", "abc")
    scene.fail("v", "abcd")
    assert [one["unit"] for one in _order(scene, "reset", fingerprint="abc")["cleared"]] == ["u"]


def test_reset_all(scene: Scene) -> None:
    """All failures of all units are forgotten, however they were counted; a pause stays."""
    scene.everything()
    would = _order(scene, "reset", all=True, dry_run=True)["cleared"]
    before = _events(scene)
    assert [one["unit"] for one in would] == ["cooling-one", "degraded-one", "halted-one", "quarantined-one"]
    said = _order(scene, "reset", all=True)
    assert said["cleared"] == would
    assert {unit["state"] for unit in said["units"]} == {"healthy"}
    assert _events(scene) == before + len(would)
    assert _state(scene, "paused-one") == "paused"
    assert _order(scene, "reset", all=True)["cleared"] == []


# With and without a daemon.


@pytest.mark.parametrize("verb", ["start", "restart"])
def test_start_without_a_daemon(scene: Scene, verb: str) -> None:
    """Without a daemon nobody can start it: that is said, with what to do, and nothing changes."""
    scene.governor.submit(Held(unit="u", verb=Verb.STOP))
    before = _events(scene)
    with pytest.raises(CommandError) as raised:
        _order(scene, verb, units=["u"])
    assert raised.value.code == "no_daemon"
    assert "flyball up -d" in raised.value.remedy
    assert _events(scene) == before


def test_the_daemon_is_told(scene: Scene) -> None:
    """Every order is followed by a poke with the unit and the verb; a pause of all by one for all."""
    poked: list[tuple[str, str]] = []
    context = scene.context(poke=lambda unit, verb: poked.append((unit, verb)))
    scene.governor.submit(Held(unit="u", verb=Verb.STOP))
    scene.quarantine("v")
    for verb in ("start", "restart", "pause", "resume", "stop", "kill"):
        answer(context, verb, {"units": ["u"]})
    answer(context, "pause", {"all": True})
    answer(context, "resume", {})
    answer(context, "reset", {"fingerprint": "abc"})
    expected = [("u", verb) for verb in ("start", "restart", "pause", "resume", "stop", "kill")]
    assert poked == [*expected, ("", "pause"), ("", "resume"), ("v", "reset")]


@pytest.mark.parametrize("verb", ["stop", "pause"])
def test_start_of_all_takes_back_what_was_ordered_for_all(scene: Scene, verb: str) -> None:
    """`start --all` undoes `stop --all` and `pause --all`; the start of one unit does not. A storm stays."""
    scene.start("u")
    scene.exit("u", Cause.DONE)
    _order(scene, verb, all=True)
    context = scene.context(poke=lambda _, __: None)
    answer(context, "start", {"units": ["u"]})
    assert not _would(scene).proceeds
    answer(context, "start", {"all": True})
    assert _would(scene).proceeds


def test_start_takes_back_what_a_person_ordered(scene: Scene) -> None:
    """A person who starts a unit takes back a stop; a quarantine stays."""
    context = scene.context(poke=lambda *_: None)
    scene.quarantine("u")
    scene.clock.move(HOUR)
    scene.governor.submit(Held(unit="u", verb=Verb.STOP))
    said = answer(context, "start", {"units": ["u"]})
    assert said["units"][0]["state"] == "quarantined"
    assert _would(scene).codes == ("quarantined",)


@pytest.mark.parametrize("verb", ["start", "restart", "kill"])
def test_who_started_it(scene: Scene, verb: str) -> None:
    """Whoever starts, restarts or kills a unit is in the journal, though nothing had to be taken back."""
    scene.start("u")
    answer(scene.context(poke=lambda *_: None), verb, {"units": ["u"]})
    [order] = answer(scene.context(), "unit", {"unit": "u"})["orders"]
    assert (order["order"], order["by"], order["note"]) == (
        "stop" if verb == "kill" else verb,
        "ann",
        f"via test: {verb}",
    )


# Bad input.


@pytest.mark.parametrize(
    ("verb", "args", "code", "says"),
    [
        ("pause", {"units": ["wbe"]}, "unknown_unit", "no unit 'wbe'; did you mean web?"),
        ("pause", {"units": ["web", "xyz"]}, "unknown_unit", "no unit 'xyz'; there are web"),
        ("pause", {}, "bad_argument", "pause needs the name of a unit, --user, or --all"),
        ("pause", {"units": ["web"], "all": True}, "bad_argument", "not both"),
        ("resume", {"units": ["web"], "all": True}, "bad_argument", "not both"),
        ("pause", {"units": "web"}, "bad_argument", "units has to be a list of texts"),
        ("pause", {"units": [1]}, "bad_argument", "units has to be a list of texts"),
        ("pause", {"all": 1}, "bad_argument", "all has to be true or false"),
        ("pause", {"units": ["web"], "note": "x" * 501}, "bad_argument", "a note of 501 characters"),
        ("pause", {"unit": "web"}, "bad_argument", "`pause` has no argument 'unit'; it takes units, all, user, note"),
        ("why", {"unit": "web", "limit": True}, "bad_argument", "limit has to be a whole number"),
        ("events", {"limit": -1}, "bad_argument", "allowed: 0 to 10000"),
        ("events", {"since": "1h"}, "bad_argument", "since has to be a number"),
        ("unit", {}, "unknown_unit", "no unit ''"),
        ("puase", {}, "unknown_verb", "no verb 'puase'; did you mean pause or raise?"),
        ("xyz", {}, "unknown_verb", "no verb 'xyz'; there are status, "),
    ],
)
def test_bad_input(scene: Scene, verb: str, args: dict[str, Any], code: str, says: str) -> None:
    """What is wrong is said, with what was meant, and nothing changes."""
    scene.start("web")
    before = _events(scene)
    with pytest.raises(CommandError) as raised:
        answer(scene.context(), verb, args)
    assert raised.value.code == code
    assert says in str(raised.value)
    assert _events(scene) == before


@pytest.mark.parametrize("verb", COMMANDS)
def test_rights(scene: Scene, verb: str) -> None:
    """Whoever may only look cannot order anything."""
    scene.quarantine("web", "abc")
    scene.governor.panel.put("web", Settings().policies("session"))
    scene.start("price", labels={"runtime": "rule"})
    before = _events(scene)
    given = {"unit": "web", "units": ["web"], "fingerprint": "abc", "rule": "price", "rules": ["price"]}
    args = {argument.name: given[argument.name] for argument in COMMANDS[verb].arguments if argument.name in given}
    context = scene.context(right=Right.LOOK, log_of=lambda _: Path("no") / "such.log")
    if verb in ("ping", "watch"):
        with pytest.raises(CommandError, match="no daemon"):
            answer(context, verb, args)
    elif COMMANDS[verb].right is Right.LOOK:
        answer(context, verb, args)
    else:
        with pytest.raises(CommandError, match=f"may look, but not `{verb}`"):
            answer(context, verb, args)
    assert _events(scene) == before
