"""`failures`: what fails the same way, and in which units."""

from typing import Any

import pytest

from flyball.control.commands import answer
from flyball.control.context import CommandError
from flyball.core.policy import Key
from flyball.core.time import HOUR, SECOND
from flyball.store import Draft
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene

SAME, OTHER = "5a3e" * 4, "0e1f" * 4


@pytest.fixture
def scene() -> Scene:
    return Scene(MemoryStore())


def failures(scene: Scene, **args: Any) -> Any:
    return answer(scene.context(), "failures", args)


def test_by_fingerprint(scene: Scene) -> None:
    """Each kind of failure once, over all units that have it: what is quarantined first, then what came most often."""
    scene.quarantine("coder", OTHER)
    scene.at(HOUR)
    for unit in ("b", "a", "a"):
        scene.clock.move(40 * SECOND)
        scene.fail(unit, SAME)
    first, second = failures(scene)["failures"]
    assert (first["fingerprint"], first["count"], first["quarantined"], first["units"]) == (OTHER, 6, True, ["coder"])
    assert (second["fingerprint"], second["count"], second["quarantined"]) == (SAME, 3, False)
    assert (second["units"], second["of"], second["error"]) == (["a", "b"], 2, "exit 3")
    assert second["first"] < second["last"]
    assert second["until"] == pytest.approx(scene.clock.now() / SECOND + 5)


def test_what_waits_no_more(scene: Scene) -> None:
    """It is remembered, and has no time to wait for; and what a person reset is not there."""
    scene.fail("a", SAME)
    scene.clock.move(HOUR)
    assert [one["until"] for one in failures(scene)["failures"]] == [None]
    answer(scene.context(), "reset", {"fingerprint": SAME[:4]})
    assert failures(scene)["failures"] == []


def test_as_the_units_tell_it(scene: Scene) -> None:
    """It says of each unit what its own view says."""
    scene.everything()
    shown = {
        (unit, one["fingerprint"], one["quarantined"]) for one in failures(scene)["failures"] for unit in one["units"]
    }
    look = scene.context().look()
    seen = {(unit, one.fingerprint) for unit in look.units() for one in look.unit(unit).failures}
    assert {(unit, fingerprint) for unit, fingerprint, _ in shown} == seen
    assert {unit for unit, _, quarantined in shown if quarantined} == {"quarantined-one"}


def test_bounds(scene: Scene) -> None:
    """So many as are asked for, and how many are left out; names of units have a bound, too."""
    for number in range(5):
        scene.fail("a", f"{number:016x}")
    for number in range(120):
        scene.fail(f"u{number:03}", SAME)
    said = failures(scene, limit=2)
    assert (len(said["failures"]), said["left_out"]) == (2, 4)
    assert (len(said["failures"][0]["units"]), said["failures"][0]["of"]) == (100, 120)
    with pytest.raises(CommandError, match="allowed: 0 to 1000"):
        failures(scene, limit=1_001)


def test_a_state_that_cannot_be_read(scene: Scene) -> None:
    """One unit's damaged state hides nobody else's failures."""
    scene.fail("a", SAME)
    key = Key("quarantine", "unit", "b")
    scene.governor.store.transact([key], lambda snapshot: Draft(snapshot.at, {key: b'{"failures":7}'}, None))
    assert [one["units"] for one in failures(scene)["failures"]] == [["a"]]
