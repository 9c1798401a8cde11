"""Rate: so many starts within so long, and the next one waits until the window has slid."""

from flyball.core.decision import Verb
from flyball.core.event import Cause, Exited, Released, Start
from flyball.core.time import MINUTE, SECOND
from flyball.policies.rate import RATE_LIMITED, Rate, State

RATE = Rate(starts_max=2, window=MINUTE)
NOW = 1_000 * SECOND


def after(*starts: int) -> State:
    """Starts that were granted, so many seconds after the beginning."""
    state = RATE.initial()
    for second in starts:
        state = RATE.evolve(state, Start(), NOW + second * SECOND)
    return state


def test_up_to_the_limit() -> None:
    """Both are granted."""
    assert RATE.decide(after(0, 1), NOW + SECOND).proceeds


def test_one_too_many_waits_for_the_oldest_to_leave() -> None:
    """The third waits until the first is out of the window, whose boundary still counts."""
    decision = RATE.decide(after(0, 10, 20), NOW + 20 * SECOND)
    assert (decision.verb, decision.codes) == (Verb.WAIT, (RATE_LIMITED,))
    assert decision.until == NOW + MINUTE + 1
    assert RATE.decide(after(0, 10), decision.until).proceeds


def test_exits_do_not_matter() -> None:
    """A start is counted, whatever became of its run."""
    state = after(0, 1)
    assert RATE.evolve(state, Exited(cause=Cause.ERROR), NOW + SECOND) == state


def test_person_lets_it_go_on() -> None:
    """It forgets."""
    assert RATE.evolve(after(0, 1), Released(policies=("rate",)), NOW) == RATE.initial()
    assert RATE.evolve(after(0, 1), Released(policies=("storm",)), NOW) == after(0, 1)
