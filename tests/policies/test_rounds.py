"""Rounds: so many rounds, and never more than fifteen."""

import math

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Cause, Work
from flyball.policies.rounds import ROUNDS_CAP, Rounds, check_rounds
from tests.policies.walk import Walk


def rounds(walk: Walk, *numbers: float) -> None:
    """Rounds as a graph reports them."""
    for number in numbers:
        walk.stepped(Work(gauges={"round": number}))


@pytest.mark.parametrize(
    ("most", "reached", "codes"),
    [
        (7, 6, ()),
        (7, 7, ("max_rounds",)),
        (5, 5, ("max_rounds",)),
        (15, 14, ()),
        (15, 15, ("hard_cap_15_rounds",)),
    ],
)
def test_stops_at_the_last_round(most: int, reached: int, codes: tuple[str, ...]) -> None:
    """At `max_rounds` with that reason; at 15 whatever was asked, with its own. (S1-12 to S1-14, S1-18)"""
    walk = Walk(Rounds(most=most))
    rounds(walk, *range(1, reached + 1))
    assert walk.says().codes == codes
    assert walk.says().verb is (Verb.FINISH if codes else Verb.PROCEED)


@pytest.mark.parametrize("most", [-1, 0, 4, 16, 1_000])
def test_settings_beyond_the_cap(most: int) -> None:
    """It goes from 5 to 15, and cannot be switched off. (S1-13, S1-14)"""
    with pytest.raises(ValueError, match="max_rounds is"):
        Rounds(most=most)


@pytest.mark.parametrize(
    ("before", "after", "most", "text"),
    [(5, 4, 7, "went back"), (5, 8, 7, "above max_rounds"), (1, 2, ROUNDS_CAP + 1, "never above 15")],
)
def test_invariants(before: int, after: int, most: int, text: str) -> None:
    """A round that falls, a round above the limit, a limit above 15: ValueError names it. (S1-19)"""
    with pytest.raises(ValueError, match=text):
        check_rounds(before, after, most)
    check_rounds(5, 5, 7)
    check_rounds(5, 7, 7)


@pytest.mark.parametrize("reading", [4.0, 8.0])
def test_a_broken_counter_raises(reading: float) -> None:
    """A graph that breaks an invariant is broken itself; what was reached stays."""
    walk = Walk(Rounds())
    rounds(walk, 5)
    with pytest.raises(ValueError, match="round"):
        rounds(walk, reading)
    assert walk.state.round == 5


@pytest.mark.parametrize(
    ("by", "cause", "anew"),
    [
        ("run", Cause.ERROR, True),
        ("unit", Cause.ERROR, False),
        ("unit", Cause.DONE, True),
    ],
)
def test_when_it_starts_anew(by: str, cause: Cause, anew: bool) -> None:
    """By unit the count belongs to the work and survives a resume, which may begin at an earlier round; it goes when
    the work is done."""
    walk = Walk(Rounds(by=by))
    rounds(walk, 7)
    walk.end(cause=cause)
    assert walk.forgot() is anew
    rounds(walk, 3)
    assert walk.step().proceeds is anew


@pytest.mark.parametrize("reading", [math.nan, math.inf])
def test_what_is_no_number_says_nothing(reading: float) -> None:
    """It neither raises nor counts."""
    walk = Walk(Rounds())
    rounds(walk, 5, reading)
    assert walk.state.round == 5


def test_the_step_that_wraps_up_is_granted() -> None:
    """After the last round there is one more step: to put together what there is."""
    walk = Walk(Rounds())
    rounds(walk, 7)
    assert walk.step().verb is Verb.FINISH
    assert walk.step(last=True).proceeds
    assert walk.stepped(Work()).verb is Verb.FINISH
    assert walk.step().verb is Verb.FINISH


def test_a_step_without_a_round_changes_nothing() -> None:
    """Most steps are within a round."""
    walk = Walk(Rounds())
    rounds(walk, 3)
    before = walk.state
    assert walk.stepped(Work(), Work(gauges={"convergence": 0.1})).proceeds
    assert walk.state == before
