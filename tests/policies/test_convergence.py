"""Convergence: a deliberation that agrees is done."""

import math

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Cause, Work
from flyball.policies.convergence import Convergence
from tests.policies.walk import Walk


@pytest.mark.parametrize(
    ("gauges", "done"),
    [
        ({}, False),
        ({"convergence": 0.85}, False),
        ({"convergence": math.nextafter(0.85, 1)}, True),
        ({"convergence": 0.90}, True),
        ({"agreement": math.nextafter(0.80, 0)}, False),
        ({"agreement": 0.80}, True),
        ({"agreement": 1.0}, True),
        ({"convergence": 0.5, "agreement": 0.9}, True),
        ({"other": 1.0}, False),
    ],
    ids=repr,
)
def test_thresholds(gauges: dict[str, float], done: bool) -> None:
    """Above 0.85, and 0.85 exactly is not yet; 80 % agreed is enough. (S1-15, S1-16, S1-20)"""
    walk = Walk(Convergence())
    decision = walk.stepped(Work(gauges=gauges))
    assert (decision.verb is Verb.FINISH) is done
    assert (decision.codes == ("consensus",)) is done
    assert walk.step().proceeds is not done


def test_the_latest_reading_counts() -> None:
    """Agreement that was lost again is none; a step without a reading changes nothing."""
    walk = Walk(Convergence())
    walk.stepped(Work(gauges={"convergence": 0.9}), Work(gauges={"convergence": 0.4}))
    assert walk.says().proceeds
    walk.stepped(Work(gauges={"convergence": 0.9}))
    walk.stepped(Work(), Work(gauges={"round": 3.0}))
    assert walk.says().verb is Verb.FINISH


@pytest.mark.parametrize("reading", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_says_nothing(reading: float) -> None:
    """A score of nothing neither ends a deliberation nor spoils what is stored."""
    walk = Walk(Convergence())
    walk.stepped(Work(gauges={"convergence": 0.7}))
    before = walk.state
    assert walk.stepped(Work(gauges={"convergence": reading, "agreement": reading})).proceeds
    assert walk.state == before


@pytest.mark.parametrize("cause", list(Cause))
def test_goes_with_the_run(cause: Cause) -> None:
    """The next run agrees on something else."""
    walk = Walk(Convergence())
    walk.stepped(Work(gauges={"convergence": 0.9}))
    walk.end(cause=cause)
    assert walk.forgot()


def test_the_step_that_wraps_up_is_granted() -> None:
    """Agreed, it goes on to its end: that one step may be made, and no other."""
    walk = Walk(Convergence())
    walk.stepped(Work(gauges={"convergence": 0.9}))
    assert walk.step().verb is Verb.FINISH
    assert walk.step(last=True).proceeds
    assert walk.stepped(Work()).verb is Verb.FINISH
    assert walk.step().verb is Verb.FINISH
