"""Problems: what waits for a person, and the one safe thing to do about it."""

from typing import Any

import pytest

from flyball.control.commands import answer
from flyball.control.problems import Problem, Seen, listed, of_fleet, of_unit
from flyball.core.event import Asked, Cause
from flyball.core.time import FOREVER, HOUR, MINUTE
from flyball.policies.budget import OVER_BUDGET
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene


@pytest.fixture
def scene() -> Scene:
    return Scene(MemoryStore())


def _problems(scene: Scene, unit: str) -> tuple[Problem, ...]:
    return of_unit(scene.context().look().unit(unit))


def _fleets(scene: Scene, trouble: str = "") -> tuple[Problem, ...]:
    return of_fleet(scene.context().look().fleet(()), trouble)


def _actions(problem: Problem) -> list[tuple[str, Any]]:
    return [(action.verb, action.args) for action in problem.actions]


def test_nothing_waits(scene: Scene) -> None:
    """A unit that runs, one that waits for a time, and one that was done are no problem."""
    scene.start("runs")
    scene.fail("cools")
    scene.start("done")
    scene.exit("done", Cause.DONE)
    assert [_problems(scene, unit) for unit in ("runs", "cools", "done")] == [(), (), ()]


@pytest.mark.parametrize("verb", ["pause", "stop"])
def test_what_a_person_ordered_is_none(scene: Scene, verb: str) -> None:
    """Whoever ordered it knows."""
    scene.start("a")
    answer(scene.context(), verb, {"units": ["a"]})
    answer(scene.context(), verb, {"all": True})
    assert _problems(scene, "a") == ()
    assert _fleets(scene) == ()


def test_quarantine(scene: Scene) -> None:
    """It is told with its fingerprint, by which it is reset; the reset ends it."""
    scene.quarantine("coder", "abcdef0123456789")
    (found,) = _problems(scene, "coder")
    assert found.id == "coder:quarantined:abcdef01"
    assert (found.severity, found.count) == ("critical", 6)
    assert _actions(found) == [("reset", {"fingerprint": "abcdef0123456789"})]
    answer(scene.context(), found.actions[0].verb, found.actions[0].args)
    assert _problems(scene, "coder") == ()


def test_halt(scene: Scene) -> None:
    """It is resumed."""
    scene.flap("coder", 7)
    (found,) = _problems(scene, "coder")
    assert found.code == "halted"
    assert _actions(found) == [("resume", {"units": ["coder"]})]
    answer(scene.context(), found.actions[0].verb, found.actions[0].args)
    assert _problems(scene, "coder") == ()


def test_money(scene: Scene) -> None:
    """What ended because its money was gone is told so, by that code, and not as an end by some policy."""
    scene.start("coder")
    scene.exit("coder", Cause.STARVED, "f" * 16, error=OVER_BUDGET, policy="budget")
    (found,) = _problems(scene, "coder")
    assert (found.code, found.severity) == (OVER_BUDGET, "warning")


def test_question(scene: Scene) -> None:
    """Each answer is an action, and answers it."""
    scene.start("shop")
    asked = Asked(unit="shop", run="r1", id="3fa9", text="Deploy?", choices=("yes", "no"))
    live = scene.context().look().unit("shop").live[0].run
    scene.governor.submit(Asked(unit="shop", run=live, id=asked.id, text=asked.text, choices=asked.choices))
    (found,) = _problems(scene, "shop")
    assert (found.code, found.text) == ("question", "Deploy?")
    assert [action.label for action in found.actions] == ["yes", "no"]
    answer(scene.context(), found.actions[0].verb, found.actions[0].args)
    assert _problems(scene, "shop") == ()


def test_circuit_and_trouble(scene: Scene) -> None:
    """An open circuit can be closed; what troubles the daemon is told, worst first."""
    for number in range(5):
        scene.fail(f"u{number}", f"{number}" * 16)
    circuit, trouble = _fleets(scene, "the disk is full")
    assert (circuit.id, circuit.severity) == ("fleet:circuit_open", "warning")
    assert (trouble.id, trouble.text) == ("fleet:trouble", "the disk is full")
    assert [one.id for one in listed((circuit, trouble), {}, 0)] == ["fleet:trouble", "fleet:circuit_open"]
    answer(scene.context(), circuit.actions[0].verb, circuit.actions[0].args)
    assert _fleets(scene) == ()


@pytest.mark.parametrize(
    ("until", "count", "acknowledged", "snoozed"),
    [
        (FOREVER, 6, True, False),
        (FOREVER, 5, False, False),
        (HOUR, 6, False, True),
        (HOUR, 5, False, False),
        (MINUTE, 6, False, False),
    ],
    ids=["acknowledged", "worse since", "snoozed", "snoozed, and worse since", "snoozed, and over"],
)
def test_seen(scene: Scene, until: int, count: int, acknowledged: bool, snoozed: bool) -> None:
    """What somebody has seen comes last; unless it got worse, or the time is over."""
    scene.quarantine("coder")
    scene.flap("other", 7)
    found = [*_problems(scene, "coder"), *_problems(scene, "other")]
    at = scene.clock.now()
    until = until if until == FOREVER else at + until
    ordered = listed(found, {found[0].id: Seen(by="ann", at=at, until=until, count=count)}, at + 30 * MINUTE)
    one = next(problem for problem in ordered if problem.unit == "coder")
    assert (one.acknowledged, one.snoozed_until is not None) == (acknowledged, snoozed)
    assert (ordered[-1] is one) or not (acknowledged or snoozed)
    assert (one.by == "ann") is (acknowledged or snoozed)


def test_id_has_a_bound(scene: Scene) -> None:
    """Also of a unit with a very long name."""
    scene.quarantine("x" * 2_000)
    (found,) = _problems(scene, "x" * 2_000)
    assert len(found.id) == 500
