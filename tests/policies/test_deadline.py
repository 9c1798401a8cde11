"""Deadline: a run may last so long; with idle, it may be silent so long."""

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Cause
from flyball.core.time import HOUR, MINUTE, SECOND
from flyball.policies.deadline import Deadline
from tests.policies.walk import Walk


def test_proceed_is_a_lease() -> None:
    """Whoever runs it is told until when it may; after a step it is the same instant."""
    walk = Walk(Deadline())
    started = walk.now
    assert walk.start().until == started + HOUR
    assert walk.pass_(1_800).step().until == started + HOUR
    assert walk.beat().until == started + HOUR


@pytest.mark.parametrize(("lasted", "over"), [(HOUR - 1, False), (HOUR, True), (HOUR + 1, True), (9 * HOUR, True)])
def test_boundary(lasted: int, over: bool) -> None:
    """A microsecond before the hour it goes on; at the hour it is stopped, to be gone 10 s later. (S1-21, S1-22)"""
    walk = Walk(Deadline())
    started = walk.now
    walk.start()
    decision = walk.pass_span(lasted).step()
    assert (decision.verb is Verb.STOP) is over
    if over:
        assert decision.codes == ("timeout",)
        assert decision.until == started + HOUR + 10 * SECOND


@pytest.mark.parametrize("sign", ["step", "stepped", "beat"])
def test_a_sign_of_life_does_not_prolong_a_run(sign: str) -> None:
    """However lively it is."""
    walk = Walk(Deadline())
    walk.start()
    for _ in range(61):
        walk.pass_span(MINUTE)
        getattr(walk, sign)()
    assert walk.says().verb is Verb.STOP


@pytest.mark.parametrize("sign", ["step", "stepped", "beat"])
def test_idle_counts_from_the_last_sign_of_life(sign: str) -> None:
    """Each step, report or beat gives it that long again; silence does not."""
    walk = Walk(Deadline(lasts_max=MINUTE, idle=True))
    walk.start()
    for _ in range(100):
        walk.pass_span(MINUTE - 1)
        assert getattr(walk, sign)().until == walk.now + MINUTE
    decision = walk.pass_span(MINUTE).says()
    assert (decision.verb, decision.codes) == (Verb.STOP, ("idle_timeout",))


def test_idle_over_is_over() -> None:
    """A beat that comes too late does not wake the dead."""
    walk = Walk(Deadline(lasts_max=MINUTE, idle=True))
    walk.start()
    assert walk.pass_span(MINUTE).beat().verb is Verb.STOP
    assert walk.pass_(1).step().verb is Verb.STOP


@pytest.mark.parametrize("cause", list(Cause))
def test_goes_with_the_run(cause: Cause) -> None:
    """Nothing is left of a run that ended, and a step of no run is nobody's business here."""
    walk = Walk(Deadline())
    walk.start()
    walk.end(cause=cause)
    assert walk.forgot()
    assert walk.pass_span(9 * HOUR).step().proceeds


def test_a_deadline_for_ever() -> None:
    """A very long one never ends."""
    walk = Walk(Deadline(lasts_max=2**60))
    walk.start()
    assert walk.pass_span(1_000_000 * HOUR).step().proceeds


def test_text_has_the_numbers() -> None:
    """How long it ran, and how long it may."""
    walk = Walk(Deadline())
    walk.start()
    assert walk.pass_span(90 * MINUTE).step().reasons[0].text == "runs for 1 h 30 min; 1 h are allowed"
