"""Limit: so many of something, and no more."""

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Cause, Start, Step, Work
from flyball.core.policy import weigh
from flyball.core.time import FOREVER
from flyball.policies.limit import Limit, resume_limit
from tests.policies.walk import Walk


def steps(walk: Walk, most: int) -> int:
    """How many steps are granted before one is refused."""
    for made in range(most):
        if not walk.step().proceeds:
            return made
    return most


@pytest.mark.parametrize("most", [0, 1, 55])
def test_so_many_steps(most: int) -> None:
    """55 pass, the 56th is stopped, and says so. (S1-03)"""
    walk = Walk(Limit(most=most))
    assert steps(walk, 100) == most
    refused = walk.step()
    assert (refused.verb, refused.codes, refused.until) == (Verb.STOP, ("max_steps",), FOREVER)
    assert f"({most + 1}/{most})" in refused.reasons[0].text


def test_refused_ones_are_not_counted() -> None:
    """It says 56 of 55 however often it is asked: the 56th, of 55."""
    walk = Walk(Limit())
    steps(walk, 55)
    assert {walk.step().reasons[0].text for _ in range(5)} == {"Step limit reached (56/55)"}
    assert walk.state.count == 55


@pytest.mark.parametrize(
    ("by", "cause", "anew"),
    [
        ("run", Cause.DONE, True),
        ("run", Cause.ERROR, True),
        ("unit", Cause.DONE, True),
        ("unit", Cause.STOPPED, False),
        ("unit", Cause.ERROR, False),
        ("unit", Cause.LOST, False),
        ("tree", Cause.DONE, False),
        ("tree", Cause.ERROR, False),
        ("fleet", Cause.DONE, False),
    ],
)
def test_when_it_starts_anew(by: str, cause: Cause, anew: bool) -> None:
    """A run's count goes with the run. By unit the count belongs to the work: only when that is done it starts anew. By
    tree not even then: a sub-agent that is done has not done the tree's work."""
    walk = Walk(Limit(by=by))
    steps(walk, 50)
    walk.end(cause=cause)
    assert walk.forgot() is anew
    assert steps(walk, 100) == (55 if anew else 5)


@pytest.mark.parametrize("by", ["run", "unit", "tree"])
def test_released_by_a_person(by: str) -> None:
    """A person may let it start anew."""
    walk = Walk(Limit(by=by))
    steps(walk, 55)
    walk.release(fingerprint="broken")
    assert not walk.step().proceeds
    walk.release()
    assert walk.forgot()


def ask(walk: Walk, many: int) -> int:
    """Ask for many steps at once; how many are granted."""
    outcome = weigh([walk.policy], [walk.state], Step(unit="shop", run="r", steps=many), walk.now)
    if not outcome.decision.proceeds:
        return 0
    walk.state = outcome.changed[0]
    return outcome.decision.allowance.steps if outcome.decision.allowance else 1


def test_many_at_once() -> None:
    """An allowance is counted before it is used, and never goes beyond the limit."""
    walk = Walk(Limit())
    assert [ask(walk, 40), ask(walk, 40), ask(walk, 40)] == [40, 15, 0]


@pytest.mark.parametrize(("made", "refused", "count"), [(40, 0, 40), (10, 0, 10), (10, 5, 10), (0, 0, 0)])
def test_what_was_not_made_is_given_back(made: int, refused: int, count: int) -> None:
    """Of an allowance that is reported back, what was made counts; what was refused was not made."""
    walk = Walk(Limit())
    ask(walk, 40)
    walk.stepped(*[Work()] * made, *[Work(refused=True)] * refused, allowed=40)
    assert walk.state.count == count


def test_never_reported_counts_as_used() -> None:
    """A run that died within its allowance has used it."""
    walk = Walk(Limit(by="unit"))
    ask(walk, 40)
    walk.fail(cause=Cause.LOST)
    assert ask(walk, 40) == 15


@pytest.mark.parametrize(("most", "granted"), [(0, 0), (3, 3), (5, 5)])
def test_resumes(most: int, granted: int) -> None:
    """1, 2, 3 pass, the 4th is held; 0: none; 5: the 6th. (S2-11, S2-14, S2-34 to S2-36)"""
    walk = Walk(resume_limit(most))
    for number in range(granted):
        assert walk.resume().proceeds
        assert walk.state.count == number + 1
        walk.end(cause=Cause.STOPPED)
    refused = walk.resume()
    assert (refused.verb, refused.codes) == (Verb.HOLD, ("max_resume_attempts_exceeded",))
    assert f"Maximum resume attempts exceeded ({most + 1}/{most})" in refused.reasons[0].text
    assert refused.reasons[0].remedy.count(";") == 2


def test_three_is_the_default() -> None:
    """Not given: 3. (S2-03)"""
    assert resume_limit().most == 3


@pytest.mark.parametrize(
    ("cause", "count"), [(Cause.DONE, 0), (Cause.ERROR, 2), (Cause.TIMEOUT, 2), (Cause.STOPPED, 2), (Cause.LOST, 2)]
)
def test_completed_resets_and_failed_keeps(cause: Cause, count: int) -> None:
    """Completed: counter 0. Failed: counter kept. (S2-20, S2-21)"""
    walk = Walk(resume_limit())
    walk.resume()
    walk.resume()
    walk.end(cause=cause)
    assert walk.state.count == count


def test_a_start_is_no_resume_but_a_resume_is_a_start() -> None:
    """Fresh starts do not use up resumes; a limit of starts counts both."""
    walk = Walk(resume_limit())
    for _ in range(9):
        assert walk.start().proceeds
    assert walk.forgot()
    starts = Walk(Limit(of=Start, most=2, by="tree", verb=Verb.FINISH))
    assert [starts.start().verb, starts.resume().verb, starts.resume().verb] == [
        Verb.PROCEED,
        Verb.PROCEED,
        Verb.FINISH,
    ]


def test_a_report_of_single_steps_counts_nothing() -> None:
    """They were counted when they were asked for."""
    walk = Walk(Limit())
    walk.step()
    walk.stepped(Work())
    assert walk.state.count == 1


def test_parts_are_not_counted() -> None:
    """What is made inside a step that was granted costs, but is not one more."""
    walk = Walk(Limit(most=2, by="unit"))
    walk.step()
    assert all(walk.step(part=True).proceeds for _ in range(10))
    walk.stepped(allowed=8, part=True)
    assert walk.state.count == 1
    assert walk.step().proceeds
    assert not walk.step().proceeds


def test_count_goes_on_when_it_is_done() -> None:
    """If so set, whoever calls the same work again does not begin at zero."""
    walk = Walk(Limit(most=3, by="unit", over_done=True))
    assert steps(walk, 2) == 2
    walk.end()
    assert steps(walk, 10) == 1


def test_progress_is_forgiven() -> None:
    """If so set, a resume that kept a new checkpoint before it ended again does not count; others do."""
    strict, forgiving = Walk(resume_limit(1)), Walk(resume_limit(1, forgives=True))
    for walk in (strict, forgiving):
        assert walk.resume().proceeds
        walk.end(cause=Cause.STOPPED, pause="rate_limit", progress=True)
    assert not strict.resume().proceeds
    assert forgiving.resume().proceeds
    forgiving.end(cause=Cause.STOPPED, pause="rate_limit")
    assert not forgiving.resume().proceeds
