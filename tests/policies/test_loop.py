"""Loop: the same pattern of step again and again within a short time."""

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Step, Stepped, Work
from flyball.core.policy import weigh
from flyball.core.time import MINUTE, SECOND
from flyball.policies.loop import PATTERNS_MAX, Loop
from tests.policies.walk import Walk


def stepped(times: int, gap: int = 1, pattern: str = "click:rule", policy: Loop | None = None) -> Walk:
    """A unit that made a step so often."""
    walk = Walk(policy or Loop())
    for _ in range(times):
        walk.pass_span(gap)
        assert walk.step(pattern).proceeds
    return walk


def test_the_hundredth_is_stopped() -> None:
    """99 pass, the 100th within 60 s is stopped with "Loop detected". (S0-28 to S0-30)"""
    walk = stepped(99)
    decision = walk.step("click:rule")
    assert (decision.verb, decision.codes) == (Verb.STOP, ("loop_detected",))
    assert "Loop detected: click:rule 100 times within 1 min" in decision.reasons[0].text


@pytest.mark.parametrize(("age", "stopped"), [(60 * SECOND, True), (60 * SECOND + 1, False)])
def test_window_boundary(age: int, stopped: bool) -> None:
    """The first of a hundred still counts when it is 60 s old, and not a microsecond later."""
    walk = stepped(1)
    first = walk.now
    for _ in range(98):
        walk.pass_span(1)
        walk.step("click:rule")
    walk.now = first + age
    assert walk.step("click:rule").proceeds is not stopped


def test_spread_over_61_seconds() -> None:
    """A hundred that are spread wider are no loop, nor are thousands."""
    stepped(2_000, gap=60 * SECOND // 99 + 10_000)


def test_another_pattern_is_counted_by_itself() -> None:
    """Another rule with the same action is no loop."""
    walk = stepped(99)
    assert walk.step("click:other").proceeds
    assert walk.step("click:rule").verb is Verb.STOP


def test_a_refused_step_is_not_counted() -> None:
    """Insisting does not prolong it: 60 s after the first ones it may go on."""
    walk = stepped(99)
    for _ in range(50):
        walk.pass_(1)
        assert walk.step("click:rule").verb is Verb.STOP
    assert walk.pass_(11).step("click:rule").proceeds


def test_over_runs() -> None:
    """A rule that fires itself makes a new run each time: the exit of one does not start the count anew."""
    walk = Walk(Loop())
    for _ in range(99):
        walk.start()
        assert walk.step("click:rule").proceeds
        walk.end()
    walk.start()
    assert walk.step("click:rule").verb is Verb.STOP


def test_an_idle_unit_is_forgotten() -> None:
    """What has left the window goes at the next exit: an idle unit costs nothing."""
    walk = stepped(50)
    walk.pass_span(MINUTE + 1).end()
    assert walk.forgot()


def test_a_person_releases_it() -> None:
    """Released by a person, it starts counting anew."""
    walk = stepped(99)
    walk.release()
    assert walk.forgot()
    assert walk.step("click:rule").proceeds


def test_patterns_are_bounded() -> None:
    """The latest used are kept."""
    walk = Walk(Loop())
    for number in range(3 * PATTERNS_MAX):
        walk.pass_span(1)
        walk.step(f"p{number}")
    assert len(walk.state.patterns) == PATTERNS_MAX
    assert f"p{3 * PATTERNS_MAX - 1}" in walk.state.patterns


def granted(walk: Walk, steps: int, run: str = "r0") -> int:
    """How many steps are granted together when so many are asked for; 0: it was refused."""
    outcome = weigh([walk.policy], [walk.state], Step(unit="shop", run=run, steps=steps), walk.now)
    if not outcome.decision.proceeds:
        return 0
    walk.state = outcome.changed[0]
    assert isinstance(outcome.event, Step)
    return outcome.event.steps


def test_steps_granted_together_count_before_they_are_made() -> None:
    """Together with what was made before they are fewer than a hundred; reported, they count for what they were."""
    walk = stepped(60)
    assert granted(walk, 64) == 39
    walk.stepped(*[Work(pattern="click:rule")] * 39, allowed=39)
    assert walk.step("click:rule").verb is Verb.STOP
    assert walk.step("other").proceeds


def test_what_was_granted_and_not_made_is_given_back() -> None:
    """Steps that were not made, or were refused, are no repeats."""
    walk = stepped(60)
    assert granted(walk, 30) == 30
    walk.stepped(Work(pattern="other"), Work(pattern="click:rule", refused=True), allowed=30)
    for _ in range(39):
        assert walk.step("click:rule").proceeds
    assert walk.step("click:rule").verb is Verb.STOP


def test_what_was_granted_to_a_dead_run_passes_with_the_window() -> None:
    """Never reported, it counts against every pattern, for 60 s."""
    walk = Walk(Loop())
    assert granted(walk, 99) == 99
    assert walk.step("any").verb is Verb.STOP
    assert walk.pass_span(MINUTE + 1).step("any").proceeds


def test_an_exit_forgets_nothing_within_the_window() -> None:
    """Steps that are exactly 60 s old still count after an exit."""
    walk = stepped(99, gap=0)
    walk.pass_span(MINUTE).end()
    assert walk.step("click:rule").verb is Verb.STOP


def test_to_forget_a_failure_forgets_no_steps() -> None:
    """A release that names one failure is not about loops."""
    walk = stepped(99)
    walk.release(fingerprint="broken")
    assert walk.step("click:rule").verb is Verb.STOP


def test_what_one_run_reports_is_not_what_another_holds() -> None:
    """Two runs hold steps granted together. The report of one gives back its own, and part of an allowance can be
    reported while the rest is being made."""
    walk = Walk(Loop())
    assert granted(walk, 50, "a") == 50
    assert granted(walk, 64, "b") == 49
    walk.tell(Stepped(unit="shop", run="a", allowed=50))
    assert granted(walk, 64, "c") == 50
    walk.tell(Stepped(unit="shop", run="b", allowed=9, done=(Work(pattern="p"),)))
    walk.tell(Stepped(unit="shop", run="c", allowed=50))
    assert granted(walk, 64, "c") == 99 - 40 - 1
