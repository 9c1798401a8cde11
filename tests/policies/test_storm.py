"""Storm: a supervisor that starts into a heap of fresh failures pauses the fleet."""

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Booted
from flyball.core.time import DAY, SECOND
from flyball.policies.storm import Storm
from tests.policies.walk import Walk


def after(failures: int, policy: Storm | None = None, *, kind: str = "") -> Walk:
    """So many failures have just happened."""
    walk = Walk(policy or Storm())
    for number in range(failures):
        walk.fail(f"u{number}", kind=kind or f"k{number}")
    return walk


@pytest.mark.parametrize(("failures", "paused"), [(0, False), (10, False), (11, True), (15, True), (1_000, True)])
@pytest.mark.parametrize("kind", ["", "same"])
def test_more_than_ten_at_boot(failures: int, paused: bool, kind: str) -> None:
    """More than ten, not at least ten; failures are counted, not kinds of them. (S0-16, S0-34)"""
    walk = after(failures, kind=kind)
    assert walk.says().proceeds
    decision = walk.tell(Booted(holder="h"))
    assert (decision.verb is Verb.HOLD) is paused
    assert walk.start().proceeds is not paused


@pytest.mark.parametrize(("age", "paused"), [(300 * SECOND, True), (300 * SECOND + 1, False)])
def test_old_failures_do_not_count(age: int, paused: bool) -> None:
    """Failures older than 300 s are no storm. (S0-35)"""
    walk = after(15).pass_span(age)
    assert (walk.tell(Booted()).verb is Verb.HOLD) is paused


def test_waits_for_a_person() -> None:
    """Not for time, not for another boot; a release leaves it and forgets what led to it. (S0-17, S0-40)"""
    walk = after(15)
    walk.tell(Booted())
    walk.pass_span(30 * DAY)
    assert walk.tell(Booted()).codes == ("restart_storm_detected",)
    walk.end()
    walk.release(scope="unit")
    walk.release(fingerprint="k1")
    assert walk.says().verb is Verb.HOLD
    walk.release()
    assert walk.forgot()


@pytest.mark.parametrize(("boots", "paused"), [(5, False), (6, True)])
@pytest.mark.parametrize(("gap", "counts"), [(60, True), (61, False)])
def test_too_many_boots(boots: int, paused: bool, gap: int, counts: bool) -> None:
    """More than five starts of the supervisor within 300 s: something restarts the supervisor itself."""
    walk = Walk(Storm())
    for _ in range(boots):
        decision = walk.tell(Booted())
        walk.pass_(gap)
    assert (decision.verb is Verb.HOLD) is (paused and counts)


@pytest.mark.parametrize(("running", "paused"), [(False, False), (True, True)])
def test_while_running_only_if_configured(running: bool, paused: bool) -> None:
    """Without it, failures while running are the breaker's business."""
    walk = after(11, Storm(while_running=running))
    assert (walk.says().verb is Verb.HOLD) is paused


@pytest.mark.parametrize(
    ("share", "units", "failures", "paused"),
    [(0.1, 1_000, 100, False), (0.1, 1_000, 101, True), (0.1, 3, 1, False), (0.1, 3, 2, True), (0.1, 0, 11, True)],
)
def test_a_share_of_the_units(share: float, units: int, failures: int, paused: bool) -> None:
    """A large fleet may count by its size instead; without a size, the plain number holds."""
    walk = after(failures, Storm(share=share))
    assert (walk.tell(Booted(units=units)).verb is Verb.HOLD) is paused


def test_text_has_the_numbers() -> None:
    """How many, in which time, and the documents' words."""
    walk = after(11)
    text = walk.tell(Booted()).reasons[0].text
    assert text == "more than 10 failures in the last 5 min: restart storm"


def test_a_host_that_joins_others_is_no_boot_of_the_fleet() -> None:
    """A hundred hosts start, and one again and again, while others run: the fleet goes on, whatever failed lately. When
    all are down, the first one to come is a boot, and judged as ever."""
    walk = after(3, Storm(boots_max=2, failures_max=1))
    for number in range(100):
        assert walk.tell(Booted(holder=f"host{number % 50}/{number}/1/daemon", others=1)).proceeds
    assert "more than 1 failures" in walk.tell(Booted(holder="host1/7/1/daemon")).reasons[0].text
