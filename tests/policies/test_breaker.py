"""Breaker: when several units fail at once, nothing more is started for a while."""

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Cause, Step, Stepped, Work
from flyball.core.policy import Gate, weigh
from flyball.core.time import SECOND
from flyball.policies.breaker import Breaker
from tests.policies.walk import Walk

UNITS = ("a", "b", "c", "d", "e")


def opened(policy: Breaker | None = None) -> Walk:
    """A breaker that five failures have opened, just now."""
    walk = Walk(policy or Breaker())
    for unit in UNITS:
        walk.fail(unit)
    assert walk.says().codes == ("circuit_open",)
    return walk


def half_open(policy: Breaker | None = None) -> Walk:
    """The same, 60 s later."""
    return opened(policy).pass_(60)


@pytest.mark.parametrize(
    ("units", "open_"),
    [
        ("abcd", False),
        ("abcde", True),
        ("aaaaa", False),
        ("aaaab", False),
        ("aaabc", True),
        ("aaaaaaaaaaaaaa", False),
        ("aaaaaaaaaabc", True),
    ],
)
def test_five_failures_of_three_units(units: str, open_: bool) -> None:
    """Five failures open it, if at least three units had them: one flapping unit must not stop the others. (S0-22)"""
    walk = Walk(Breaker())
    for unit in units:
        walk.fail(unit)
    assert walk.says().proceeds is not open_


@pytest.mark.parametrize(("failures", "open_"), [(4, False), (5, True)])
def test_the_plain_rule(failures: int, open_: bool) -> None:
    """With one unit as the least, five failures of anyone open it. (S0-26)"""
    walk = Walk(Breaker(units_min=1))
    for _ in range(failures):
        walk.fail("a")
    assert walk.says().proceeds is not open_


@pytest.mark.parametrize(("last_at", "open_"), [(60_000_000, True), (60_000_001, False)])
def test_window_boundary(last_at: int, open_: bool) -> None:
    """Five failures within 60 s, the boundary included; spread over a microsecond more they do not open it."""
    walk = Walk(Breaker())
    for unit in "abcd":
        walk.fail(unit)
    walk.pass_span(last_at)
    walk.fail("e")
    assert walk.says().proceeds is not open_


def test_units_of_long_ago_do_not_count() -> None:
    """Three units, of which two failed too long ago, are one."""
    walk = Walk(Breaker())
    walk.fail("a")
    walk.fail("b")
    walk.pass_(61)
    for _ in range(6):
        walk.fail("c")
    assert walk.says().proceeds


@pytest.mark.parametrize("cause", [Cause.DONE, Cause.STOPPED])
def test_only_failures_count(cause: Cause) -> None:
    """Clean exits neither open nor reset it."""
    walk = Walk(Breaker())
    for unit in UNITS:
        walk.end(unit, cause=cause)
    assert walk.forgot()


@pytest.mark.parametrize(("after", "verb"), [(0, Verb.WAIT), (60 * SECOND - 1, Verb.WAIT), (60 * SECOND, Verb.PROCEED)])
def test_open_for_a_minute(after: int, verb: Verb) -> None:
    """Open, everything is refused; at 60 s it is half-open. (S0-23, S0-25)"""
    walk = opened()
    until = walk.says().until
    walk.pass_span(after)
    decision = walk.start("anyone")
    assert decision.verb is verb
    if verb is Verb.WAIT:
        assert decision.until == until


def test_three_trials_at_a_time() -> None:
    """Half-open, three runs may be in flight; the fourth waits, and asking leaves no trace. (S0-24)"""
    walk = half_open()
    assert [walk.start(run=f"t{n}").verb for n in range(4)] == [Verb.PROCEED] * 3 + [Verb.WAIT]
    assert set(walk.state.trials) == {"shop/t0", "shop/t1", "shop/t2"}
    assert walk.start(run="t9").codes == ("circuit_half_open",)
    walk.end(run="t0")
    assert walk.start(run="t4").proceeds


@pytest.mark.parametrize(("recovery", "asks_after"), [(4, 4), (60, 60), (600, 60)])
def test_who_waits_for_trials_asks_again(recovery: int, asks_after: int) -> None:
    """Trials may end at any time, and nobody is told: who waits for them asks again after as long as the circuit stays
    open, and at the latest when the first of them passes."""
    walk = opened(Breaker(recovery=recovery * SECOND)).pass_(recovery)
    for number in range(3):
        walk.start(run=f"t{number}")
    decision = walk.start(run="t3")
    assert decision.codes == ("circuit_half_open",)
    assert decision.until - walk.now == asks_after * SECOND


def test_three_successes_close_it() -> None:
    """Two do not."""
    walk = half_open()
    for number in range(3):
        walk.start(run=f"t{number}")
    walk.end(run="t0")
    walk.end(run="t1")
    assert not walk.forgot()
    walk.end(run="t2")
    assert walk.forgot()


@pytest.mark.parametrize("successes", [0, 1, 2])
def test_one_failure_opens_it_again(successes: int) -> None:
    """However many succeeded before; and again for 60 s from then on."""
    walk = half_open()
    for number in range(3):
        walk.start(run=f"t{number}")
    for number in range(successes):
        walk.end(run=f"t{number}")
    decision = walk.pass_(5).fail(run="t2")
    assert decision.codes == ("circuit_open",)
    assert decision.until == walk.now + 60 * SECOND


def test_others_do_not_count_while_it_is_not_closed() -> None:
    """Runs from before are no trials: neither their failures nor their successes count."""
    walk = half_open()
    walk.start(run="t0")
    for _ in range(9):
        walk.fail(run="old")
        walk.end(run="older")
    assert walk.state.successes == 0
    assert walk.start(run="t1").proceeds


def test_a_stopped_trial_says_nothing() -> None:
    """It gives its place back."""
    walk = half_open()
    walk.start(run="t0")
    walk.end(run="t0", cause=Cause.STOPPED)
    assert not walk.state.trials
    assert walk.state.successes == 0


@pytest.mark.parametrize(("lived", "closed"), [(60 * SECOND - 1, False), (60 * SECOND, True)])
def test_a_trial_that_lives_long_enough_is_a_success(lived: int, closed: bool) -> None:
    """A service never exits: three that live for a minute close it."""
    walk = half_open()
    for number in range(3):
        walk.start(run=f"t{number}")
    walk.pass_span(lived)
    decision = walk.start(run="next")
    assert decision.proceeds is closed
    assert walk.forgot() is closed


@pytest.mark.parametrize("cause", [Cause.DONE, Cause.STOPPED])
def test_a_long_trial_counts_once(cause: Cause) -> None:
    """A trial that lived long enough and then ended is one success, not two, and being stopped does not undo it."""
    walk = half_open()
    walk.start(run="t0")
    walk.start(run="t1")
    walk.pass_(60)
    walk.end(run="t0", cause=cause)
    assert not walk.forgot()
    assert walk.state.successes == 1
    walk.end(run="t1", cause=cause)
    assert walk.state.successes == 2


def test_released_by_a_person() -> None:
    """A person can close it; to forget one failure is not that."""
    walk = opened()
    walk.release(fingerprint="broken")
    assert not walk.says().proceeds
    walk.release()
    assert walk.forgot()


def test_runs_of_two_units_may_have_one_id() -> None:
    """A run's id is its unit's own: four units with a run "1" each are four trials, and one of them is too many."""
    walk = half_open()
    assert [walk.start(unit, run="1").proceeds for unit in "pqrs"] == [True, True, True, False]
    walk.end("p", run="1", cause=Cause.DONE)
    assert walk.start("s", run="1").proceeds


def test_runs_lost_with_their_supervisor_do_not_open_it() -> None:
    """That a supervisor was killed says nothing about what its units share; a trial that is lost has failed."""
    walk = Walk(Breaker())
    for unit in UNITS:
        walk.fail(unit, cause=Cause.LOST)
    assert walk.says().proceeds
    walk = half_open()
    assert walk.start("p", run="1").proceeds
    walk.end("p", run="1", cause=Cause.LOST)
    assert walk.says().codes == ("circuit_open",)


# At steps.

CALLS = Breaker(name="call_breaker", by="provider", units_min=1, at=Gate.STEP)


def made(
    walk: Walk, *, error: bool = False, cut: bool = False, ago: int = 0, run: str = "r0", allowed: int = 0
) -> None:
    """A step was made."""
    work = Work(pattern="fetch", error=error, cut=cut, ago=ago)
    walk.tell(Stepped(unit="shop", run=run, done=(work,), allowed=allowed))


def opened_by_steps() -> Walk:
    """A breaker at steps that five failing ones have opened, just now."""
    walk = Walk(CALLS)
    for _ in range(5):
        walk.step("fetch")
        made(walk, error=True)
    assert walk.says().codes == ("circuit_open",)
    return walk


@pytest.mark.parametrize(("failures", "open_"), [(4, False), (5, True)])
@pytest.mark.parametrize("together", [False, True])
def test_failing_steps_open_it(failures: int, open_: bool, together: bool) -> None:
    """Reported one by one, or together; those that went well in between neither count nor reset."""
    walk = Walk(CALLS)
    works = [Work(error=True), Work()] * failures
    if together:
        walk.stepped(*works, allowed=64)
    else:
        for work in works:
            walk.stepped(work)
    assert walk.step("fetch").proceeds is not open_


@pytest.mark.parametrize("work", [Work(), Work(cut=True), Work(error=True, refused=True)])
def test_only_failing_steps_count(work: Work) -> None:
    """Neither what went well, nor what was cut short, nor what was not made."""
    walk = Walk(CALLS)
    for _ in range(20):
        walk.stepped(work)
    assert walk.forgot()


def test_many_alike_count_as_many() -> None:
    """Five failures in one work are five."""
    walk = Walk(CALLS)
    walk.stepped(Work(error=True, times=5), allowed=5)
    assert not walk.says().proceeds


def test_runs_are_not_its_business() -> None:
    """At steps, failing runs do not count: they may fail for other reasons. While it is open, none is started."""
    walk = Walk(CALLS)
    for _ in range(9):
        walk.start()
        walk.fail()
    assert walk.forgot()
    assert opened_by_steps().start().codes == ("circuit_open",)


def test_three_trial_steps_at_a_time() -> None:
    """Of one run or of several; the fourth is worth asking for again in a second, and one that ends makes room."""
    walk = opened_by_steps().pass_(60)
    assert [walk.tell(Step(unit="shop", run=run)).verb for run in ("a", "a", "b", "a")] == [Verb.PROCEED] * 3 + [
        Verb.WAIT
    ]
    decision = walk.step("fetch")
    assert decision.codes == ("circuit_half_open",)
    assert decision.until == walk.now + SECOND
    made(walk, run="a")
    assert walk.step("fetch").proceeds


def test_three_successful_steps_close_it() -> None:
    """Two do not; and one that was cut short gives its place back, and nothing else."""
    walk = opened_by_steps().pass_(60)
    for cut in (False, True, False):
        walk.step("fetch")
        made(walk, cut=cut)
    assert walk.state.successes == 2
    assert not walk.state.trials
    walk.step("fetch")
    made(walk)
    assert walk.forgot()


def test_one_failing_step_opens_it_again() -> None:
    """For a minute from then on."""
    walk = opened_by_steps().pass_(60)
    walk.step("fetch")
    made(walk)
    walk.step("fetch")
    walk.pass_(5)
    made(walk, error=True, ago=5 * SECOND)
    assert walk.says().until == walk.now + 60 * SECOND


@pytest.mark.parametrize("error", [False, True])
@pytest.mark.parametrize(("ago", "allowed"), [(61 * SECOND, 0), (0, 64)])
def test_steps_from_before_are_no_trials(error: bool, ago: int, allowed: int) -> None:
    """A step that was asked for before it opened, or granted with others, says nothing now."""
    walk = opened_by_steps().pass_(60)
    walk.step("fetch")
    before = walk.state
    made(walk, error=error, ago=ago, allowed=allowed)
    assert walk.state == before


def test_a_trial_step_that_nobody_reports_is_no_success() -> None:
    """After a minute its place is another's; three such do not close it."""
    walk = opened_by_steps().pass_(60)
    for _ in range(3):
        assert walk.step("fetch").proceeds
    walk.pass_span(60 * SECOND - 1)
    assert not walk.step("fetch").proceeds
    walk.pass_span(1)
    assert walk.step("fetch").proceeds
    assert walk.state.successes == 0
    assert len(walk.state.trials) == 1


@pytest.mark.parametrize(("after", "steps"), [(None, 64), (60, 1)])
def test_while_it_is_not_closed_steps_are_granted_one_by_one(after: int | None, steps: int) -> None:
    """Of steps that were granted together nobody knows when they are made."""
    walk = Walk(CALLS) if after is None else opened_by_steps().pass_(after)
    outcome = weigh([walk.policy], [walk.state], Step(unit="shop", run="r", steps=64), walk.now)
    assert isinstance(outcome.event, Step)
    assert outcome.event.steps == steps


def test_trials_of_runs_whose_names_look_alike() -> None:
    """Run `a/0` is not the first trial of run `a`."""
    walk = opened_by_steps().pass_(60)
    assert walk.tell(Step(unit="shop", run="a/0")).proceeds
    made(walk, run="a")
    assert walk.state.successes == 0
    made(walk, run="a/0")
    assert walk.state.successes == 1
