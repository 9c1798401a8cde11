"""Cooldown: after a failure a unit waits, longer each time the same failure comes back."""

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Cause, Work
from flyball.core.failures import FAILURES_MAX
from flyball.core.policy import Gate
from flyball.core.time import DAY, HOUR, SECOND, seconds
from flyball.policies.cooldown import Cooldown
from tests.policies.walk import Walk


def cycle(walk: Walk, uptime: float = 0, **how: object) -> float:
    """Start when allowed, live so long, fail; the seconds that it then has to wait."""
    walk.now = max(walk.now, walk.says().until if walk.says().verb is Verb.WAIT else 0)
    assert walk.start(again=True).proceeds
    walk.pass_(uptime)
    decision = walk.fail(**how)  # type: ignore[arg-type]  # keywords of fail, handed on
    return seconds(decision.until - walk.now) if decision.verb is Verb.WAIT else 0.0


def test_the_ladder() -> None:
    """Failures 1 to 5 of one kind are followed by 1, 5, 15, 300 and 1800 s; further ones by the last. (S0-10)"""
    walk = Walk(Cooldown())
    assert [cycle(walk) for _ in range(7)] == [1, 5, 15, 300, 1800, 1800, 1800]


def test_another_kind_starts_at_the_first_rung() -> None:
    """Each fingerprint climbs by itself. (S0-05)"""
    walk = Walk(Cooldown())
    assert [cycle(walk, kind=kind) for kind in ("a", "a", "b", "a", "b")] == [1, 5, 1, 15, 5]


def test_boundary() -> None:
    """One microsecond before the wait is over it is refused, and at that instant it is not."""
    walk = Walk(Cooldown())
    walk.start()
    until = walk.fail().until
    walk.now = until - 1
    refused = walk.start(again=True)
    assert (refused.verb, refused.until, refused.codes) == (Verb.WAIT, until, ("cooling",))
    walk.now = until
    assert walk.start(again=True).proceeds


def test_a_refused_start_does_not_climb() -> None:
    """Asking too early changes nothing. (S0-08)"""
    walk = Walk(Cooldown())
    walk.start()
    walk.fail()
    before = walk.state
    for _ in range(5):
        assert not walk.start(again=True).proceeds
    assert walk.state == before


@pytest.mark.parametrize(("uptime", "delay"), [(DAY - 1, 5), (DAY, 1), (DAY + 1, 1), (6 * HOUR, 5)])
def test_a_day_of_lived_time_is_a_success(uptime: int, delay: float) -> None:
    """24 h of lived time without a failure start the counts anew; a microsecond less does not. (S0-14)"""
    walk = Walk(Cooldown())
    cycle(walk)
    assert cycle(walk, seconds(uptime)) == delay


def test_waiting_is_not_living() -> None:
    """A day in which it was not running is no day without a failure."""
    walk = Walk(Cooldown())
    cycle(walk)
    walk.pass_span(3 * DAY)
    assert cycle(walk) == 5


def test_several_short_lives_add_up() -> None:
    """Lived time is counted over runs that a person stopped, too."""
    walk = Walk(Cooldown())
    cycle(walk)
    walk.pass_(5)
    for _ in range(2):
        walk.start()
        walk.pass_span(12 * HOUR)
        walk.end(cause=Cause.STOPPED)
        walk.pass_span(5 * DAY)
    walk.start()
    assert walk.fail().until - walk.now == SECOND


def test_healthy_after_off() -> None:
    """With 0 no length of life counts as a success."""
    walk = Walk(Cooldown(healthy_after=0))
    assert [cycle(walk, 200_000) for _ in range(3)] == [1, 5, 15]


@pytest.mark.parametrize(
    ("cause", "forgotten"), [(Cause.DONE, True), (Cause.STOPPED, False), (Cause.TIMEOUT, False), (Cause.LOST, False)]
)
def test_what_forgets(cause: Cause, forgotten: bool) -> None:
    """A success forgets everything; being stopped says nothing."""
    walk = Walk(Cooldown())
    cycle(walk)
    walk.pass_(5)
    walk.start()
    walk.end(cause=cause)
    assert walk.forgot() is forgotten


def test_exponential() -> None:
    """5, 10, 20 … 300 s, each within 10 % and never above the cap. (S3-15 to S3-17, S3-29)"""
    walk = Walk(Cooldown(ladder=()))
    waits = [cycle(walk) for _ in range(100)]
    for wait, plain in zip(waits, [5, 10, 20, 40, 80, 160, *[300] * 94], strict=True):
        assert plain * 0.9 <= wait <= min(plain * 1.1, 300)
    assert len(set(waits[:6])) == 6


def test_jitter_is_no_dice() -> None:
    """The same unit and count give the same wait, another unit another one: replay agrees, herds spread."""
    waits: dict[str, set[int]] = {}
    for unit in ("a", "a", "b", "c"):
        walk = Walk(Cooldown(ladder=()))
        walk.start(unit)
        waits.setdefault(unit, set()).add(walk.fail(unit).until)
    assert [len(each) for each in waits.values()] == [1, 1, 1]
    assert len(set.union(*waits.values())) == 3


@pytest.mark.parametrize(("error", "forgotten"), [(False, True), (True, False)])
def test_a_successful_step_forgives(error: bool, forgotten: bool) -> None:
    """Where that is set, a step that worked ends the backoff, and one that failed does not. (S3-30)"""
    walk = Walk(Cooldown(step_forgives=True))
    cycle(walk)
    walk.pass_(5)
    walk.start(again=True)
    walk.stepped(Work(error=error))
    assert walk.forgot() is forgotten


@pytest.mark.parametrize(("forgives", "gate"), [(False, Gate.START), (True, Gate.STEP)])
def test_hears_of_steps_only_where_they_forgive(forgives: bool, gate: Gate) -> None:
    """Steps are many: it does not hear of them for nothing."""
    assert Cooldown(step_forgives=forgives).at is gate


def test_reset_of_one_and_of_all() -> None:
    """A person can forget one failure, or all; an unknown one is no harm. (S0-37, S0-38)"""
    walk = Walk(Cooldown())
    for kind in ("a", "b"):
        cycle(walk, kind=kind)
    walk.release(fingerprint="never")
    assert set(walk.state.failures) == {"a", "b"}
    walk.release(fingerprint="b")
    assert set(walk.state.failures) == {"a"}
    walk.release(fingerprint="a")
    assert walk.forgot()
    cycle(walk)
    walk.release(scope="fleet")
    assert not walk.forgot()
    walk.release(policies=["quarantine"])
    assert not walk.forgot()
    walk.release()
    assert walk.forgot()


def test_a_change_forgets() -> None:
    """A changed definition may be a fix. (S0-20)"""
    walk = Walk(Cooldown())
    cycle(walk)
    walk.revise("b")
    assert walk.forgot()


def test_kinds_are_bounded() -> None:
    """Of more kinds than are kept the oldest is forgotten."""
    walk = Walk(Cooldown())
    for number in range(FAILURES_MAX + 5):
        cycle(walk, kind=f"k{number}")
    assert len(walk.state.failures) == FAILURES_MAX
    assert "k4" not in walk.state.failures
    assert "k5" in walk.state.failures


def test_text_has_the_numbers() -> None:
    """A person reads which failure it is, how often it came, and how long it waits."""
    walk = Walk(Cooldown())
    cycle(walk)
    walk.pass_(1)
    walk.start(again=True)
    reason = walk.fail().reasons[0]
    assert reason.text == "failure 2 of broken (broken): waits 5 s"
    assert "flyball reset" in reason.remedy
