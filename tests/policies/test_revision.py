"""Revision: a changed definition clears a unit's failures; by itself only a few times a day."""

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Revise
from flyball.core.policy import weigh
from flyball.core.time import DAY, FOREVER
from flyball.policies.quarantine import Quarantine
from flyball.policies.revision import Revision
from tests.policies.walk import Walk


def changed(times: int) -> Walk:
    """A unit whose definition changed by itself so often after it was first seen."""
    walk = Walk(Revision())
    walk.revise("first")
    for number in range(times):
        walk.pass_(1)
        assert walk.revise(f"v{number}").proceeds
    return walk


@pytest.mark.parametrize(("times", "granted"), [(0, True), (2, True), (3, False)])
def test_three_a_day_by_itself(times: int, granted: bool) -> None:
    """The fourth change that nobody made within a day clears nothing."""
    walk = changed(times)
    before = walk.state
    decision = walk.revise("next")
    assert decision.proceeds is granted
    if not granted:
        assert (decision.verb, decision.codes) == (Verb.WAIT, ("revised_too_often",))
        assert walk.state == before


@pytest.mark.parametrize(("early", "granted"), [(1, False), (0, True)])
def test_window_boundary(early: int, granted: bool) -> None:
    """When the first of them is more than a day old there is room for another."""
    walk = changed(3)
    walk.now = walk.revise("next").until - early
    assert walk.revise("next").proceeds is granted
    first = walk.state.changes[0][0]
    assert granted or walk.now == first + DAY


def test_what_a_person_changed_is_always_granted() -> None:
    """And does not count."""
    walk = changed(3)
    for number in range(9):
        assert walk.revise(f"fix{number}", by="ann").proceeds
    assert not walk.revise("again by itself").proceeds


def test_the_first_sight_is_no_change() -> None:
    """A unit that is new here has three changes left."""
    walk = Walk(Revision())
    walk.revise("first")
    assert walk.state.changes == ()


@pytest.mark.parametrize("by", ["", "ann"])
def test_the_same_definition_clears_nothing(by: str) -> None:
    """Loading it again, as each start of a supervisor does, is no change; otherwise it would lift every quarantine."""
    walk = changed(1)
    decision = walk.revise("v0", by=by)
    assert (decision.verb, decision.until, decision.codes) == (Verb.WAIT, FOREVER, ("not_revised",))
    quarantine = Quarantine()
    held = Walk(quarantine)
    for _ in range(6):
        held.fail()
    policies, states = [quarantine, walk.policy], [held.state, walk.state]
    again = weigh(policies, states, Revise(unit="shop", revision="v0", by=by), walk.now)
    assert not again.changed
    fixed = weigh(policies, states, Revise(unit="shop", revision="v1", by=by), walk.now)
    assert fixed.decision.proceeds
    assert fixed.changed[0] == quarantine.initial()


def test_back_and_forth_is_counted() -> None:
    """An agent that turns its settings to and fro has no more than three."""
    walk = changed(0)
    assert [walk.revise(name).proceeds for name in ("b", "first", "b", "first")] == [True, True, True, False]


@pytest.mark.parametrize("by", ["", "ann"])
def test_first_definition_clears_nothing(by: str) -> None:
    """Only a change says that it cleared failures: with the first definition there was nothing before it."""
    walk = Walk(Revision())
    assert walk.revise("first", by=by).codes == ()
    assert walk.revise("second", by=by).codes == ("cleared_by_change",)
    assert walk.revise("first", by=by).codes == ("cleared_by_change",)
