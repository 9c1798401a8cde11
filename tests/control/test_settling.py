"""`settle`: what the dead hold counts as spent until a person says what it was."""

from collections.abc import Mapping
from typing import Any

import pytest

from flyball.config import Settings
from flyball.control import settling
from flyball.control.commands import COMMANDS
from flyball.control.context import CommandError
from flyball.core.codec import decode_body, decode_state
from flyball.core.event import Cause, Exited, Settled, Start, Step, Stepped, Work
from flyball.core.policy import Key
from flyball.governor import Governor
from flyball.policies import Budget
from flyball.policies.budget import State as BudgetState
from flyball.runtimes.money import Purse
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene

CENT = 10_000
GONE = "host/1/1"
"""A holder that is dead."""
ALIVE = "host/2/2"


@pytest.fixture
def scene() -> Scene:
    """The budgets of a unit, a user and the fleet; tokens, too."""
    made = Scene(MemoryStore(), ago=0)
    given = {"per_unit": 5, "per_user": 10, "per_fleet": 100, "meters": {"tokens": {"per_user": 1_000}}}
    made.settings = Settings.model_validate({"budget": given})
    made.governor = Governor(made.settings.policies(), made.governor.store, made.clock)
    return made


def reserve(scene: Scene, run: str = GONE, unit: str = "shop", **given: Any) -> None:
    """A process reserved so many cents; nobody will say what it used."""
    cost = {"usd": given.get("usd", 30) / 100, "tokens": given.get("tokens", 0)}
    labels = {"user": given.get("user", "ann")}
    Purse(scene.governor, unit, run, labels).reserve({meter: amount for meter, amount in cost.items() if amount})


def settle(scene: Scene, unit: str = "shop", **given: Any) -> Any:
    context = scene.context(gone=lambda holder: holder == GONE)
    return COMMANDS["settle"](context, {"unit": unit, **given})


def money(scene: Scene, by: str = "unit", subject: str = "shop", name: str = "budget") -> tuple[int, int]:
    """Spent and reserved, in cents."""
    key = Key(name, by, subject)
    data = scene.governor.store.read([key]).records.get(key)
    state = decode_state(BudgetState, data) if data is not None else BudgetState()
    assert state.meter == ("usd" if name == "budget" else "tokens")
    return (state.spent // CENT, state.reserved // CENT) if name == "budget" else (state.spent, state.reserved)


ALL_OF_THEM = (("unit", "shop"), ("user", "ann"), ("fleet", ""))


@pytest.mark.parametrize(
    ("said", "spent"),
    [({}, 30), ({"nothing": True}, 0), ({"usd": "0.12"}, 12), ({"usd": "0.50"}, 50), ({"used": ["usd=0.07"]}, 7)],
    ids=["nothing said", "nothing spent", "less", "more", "by meter"],
)
def test_what_was_spent(scene: Scene, said: Mapping[str, Any], spent: int) -> None:
    """In every budget that it concerned it is reserved no more, and as much is spent as the person says: all of it, if
    nothing is said. Who said it is in the journal."""
    reserve(scene)
    answer = settle(scene, **said)
    assert [money(scene, *scope) for scope in ALL_OF_THEM] == [(spent, 0)] * 3
    assert [(one["run"], one["reserved"]) for one in answer["settled"]] == [(GONE, {"usd": 30 * CENT})]
    event = decode_body(scene.governor.store.last_entries(limit=1)[0].body).event
    assert isinstance(event, Settled)
    assert (event.by, event.note, event.run) == ("ann", "via test", GONE)
    assert settle(scene, "")["settled"] == [], "once"


def test_dry_run(scene: Scene) -> None:
    """It says what it would do, and does nothing."""
    reserve(scene)
    answer = settle(scene, usd="0.10", dry_run=True)
    assert (answer["dry_run"], answer["settled"][0]["used"]) == (True, {"usd": 10 * CENT})
    assert money(scene) == (0, 30)


def test_the_living_are_left_alone(scene: Scene) -> None:
    """What a process that lives has reserved is its own business."""
    reserve(scene)
    reserve(scene, ALIVE, usd=40)
    answer = settle(scene)
    assert [one["run"] for one in answer["alive"]] == [ALIVE]
    assert money(scene) == (30, 40)


def test_a_person_may_name_a_run(scene: Scene) -> None:
    """Of another machine nobody here knows whether it is dead; a person may."""
    reserve(scene)
    reserve(scene, ALIVE, usd=40)
    settle(scene, run=ALIVE, nothing=True)
    assert money(scene) == (0, 30)


@pytest.mark.parametrize("how", ["exited", "lease", "holder", "alive"])
def test_runs_that_are_supervised(scene: Scene, how: str) -> None:
    """They are dead when they exited, when their lease ran out, or when their holder is gone."""
    holder = GONE if how == "holder" else ALIVE
    scene.governor.submit(Start(unit="shop", run="r1", holder=holder, labels={"user": "ann"}))
    reserve(scene, "r1")
    if how == "exited":
        scene.governor.submit(Exited(unit="shop", run="r1", cause=Cause.ERROR, labels={"user": "ann"}))
    if how == "lease":
        scene.clock.move(3_600_000_000)
    settle(scene)
    assert money(scene) == ((0, 30) if how == "alive" else (30, 0))


def test_several_dead(scene: Scene) -> None:
    """What all used together is divided among them, up to what each had; the user of each is told of his own."""
    reserve(scene, usd=30, user="ann")
    reserve(scene, usd=50, user="bob")
    settle(scene, usd="0.60")
    assert money(scene) == (60, 0)
    assert (money(scene, "user", "ann"), money(scene, "user", "bob")) == ((30, 0), (30, 0))


def test_other_meters(scene: Scene) -> None:
    """Each may be told; of what is not told, all was used."""
    reserve(scene, tokens=700)
    settle(scene, used=["tokens=100"])
    assert money(scene) == (30, 0)
    assert money(scene, "user", "ann", "budget_tokens") == (100, 0)
    reserve(scene, tokens=700)
    settle(scene, usd="0")
    assert money(scene) == (30, 0)
    assert money(scene, "user", "ann", "budget_tokens") == (800, 0)


@pytest.mark.parametrize(
    ("name", "by", "subject"),
    [("budget_tokens", "unit", "shop"), ("call_budget_tokens", "call", "fetch"), ("budget_tokens", "tree", "root")],
)
def test_budgets_that_only_the_program_knows(scene: Scene, name: str, by: str, subject: str) -> None:
    """A program gave its agent, or its call, a budget of tokens in its own code: what is stored of it is settled, too,
    and that of others is left alone."""
    own = Budget(by=by, meter="tokens", limit=1_000, name=name)
    program = Governor([*scene.governor.panel.policies_of("shop"), own], scene.governor.store, scene.clock)
    labels = {"call": "fetch", "tree": "root"}
    Purse(program, "shop", GONE, labels).reserve({"usd": "0.30", "tokens": 600})
    Purse(program, "other", ALIVE, {"call": "send", "tree": "oak"}).reserve({"usd": "0.30", "tokens": 7})
    settle(scene, used=["tokens=50"])
    assert money(scene, by, subject, name) == (50, 0)
    other = {"unit": "other", "call": "send", "tree": "oak"}[by]
    assert money(scene, by, other, name) == (0, 7)


def test_somebody_was_quicker(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two people settle at once: one of them does. Otherwise the second would free what others have reserved."""
    reserve(scene)
    reserve(scene, ALIVE, usd=40)
    real = settling._unknown

    def quick(*given: Any) -> Any:
        monkeypatch.setattr(settling, "_unknown", real)
        settle(scene, nothing=True)
        return real(*given)

    monkeypatch.setattr(settling, "_unknown", quick)
    assert settle(scene, nothing=True)["settled"] == []
    assert money(scene) == (0, 40)


def test_all_units(scene: Scene) -> None:
    """Without a unit: who holds what, everywhere; nothing is changed."""
    reserve(scene)
    reserve(scene, ALIVE, "other")
    answer = settle(scene, "")
    assert [one["unit"] for one in answer["settled"]] == ["shop"]
    assert [one["unit"] for one in answer["alive"]] == ["other"]
    assert (answer["dry_run"], money(scene)) == (True, (0, 30))


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"unit": "shpo"}, "unknown_unit"),
        ({"usd": "lots"}, "bad_argument"),
        ({"usd": "-1"}, "bad_argument"),
        ({"used": ["tokens"]}, "bad_argument"),
        ({"used": ["tokens=1.5"]}, "bad_argument"),
        ({"used": ["=5"]}, "bad_argument"),
        ({"nothing": True, "usd": "1"}, "bad_argument"),
        ({"run": "r9"}, "not_found"),
        ({"unit": "", "nothing": True}, "bad_argument"),
    ],
)
def test_bad_input(scene: Scene, given: Mapping[str, Any], code: str) -> None:
    """Said clearly, and nothing is changed."""
    reserve(scene)
    with pytest.raises(CommandError) as caught:
        settle(scene, **given)
    assert (caught.value.code, money(scene)) == (code, (0, 30))


def test_what_people_see(scene: Scene) -> None:
    """A unit's view has what was spent, is reserved and may be spent, of the period that is now."""
    reserve(scene, usd=30)
    scene.governor.submit(Step(unit="shop", run=GONE, labels={"user": "ann"}, cost={"usd": CENT}))
    work = Work(reserved={"usd": CENT}, used={"usd": CENT})
    scene.governor.submit(Stepped(unit="shop", run=GONE, labels={"user": "ann"}, done=(work,)))
    seen = {view.by: (view.spent, view.reserved, view.limit) for view in scene.context().look().unit("shop").budgets}
    assert seen["unit"] == (CENT, 30 * CENT, 500 * CENT)
    assert seen["fleet"] == (CENT, 30 * CENT, 10_000 * CENT)
