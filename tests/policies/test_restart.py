"""Restart: which exits are followed by another run, and how many runs may follow."""

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Cause
from flyball.core.time import DAY, FOREVER, HOUR, MINUTE, SECOND
from flyball.policies.restart import Restart
from tests.policies.walk import Walk

FLEET = Restart(by="fleet", over=Verb.HOLD, restarts_max=10, row_max=0)


def exited(cause: Cause, policy: Restart | None = None) -> Walk:
    """A unit whose first run has just ended."""
    walk = Walk(policy or Restart())
    assert walk.start().proceeds
    walk.pass_(1).end(cause=cause)
    return walk


@pytest.mark.parametrize(
    ("cause", "settings", "follows"),
    [
        (Cause.ERROR, {}, True),
        (Cause.TIMEOUT, {}, True),
        (Cause.LOST, {}, True),
        (Cause.DONE, {}, False),
        (Cause.STOPPED, {}, False),
        (Cause.DONE, {"always": True}, True),
        (Cause.STOPPED, {"always": True}, False),
        (Cause.ERROR, {"on_error": False}, False),
        (Cause.LOST, {"on_error": False}, False),
        (Cause.TIMEOUT, {"on_error": False}, True),
        (Cause.TIMEOUT, {"on_timeout": False}, False),
        (Cause.STARVED, {"on_starved": True}, True),
    ],
    ids=repr,
)
def test_what_is_restarted(cause: Cause, settings: dict[str, bool], follows: bool) -> None:
    """Errors and timeouts are, done and stopped are not, and the switches are obeyed. (S3-02, S3-04, S3-18, S3-19)"""
    walk = exited(cause, Restart(**settings))  # type: ignore[arg-type]  # switches by name
    assert walk.says().proceeds is follows
    again = walk.start(again=True)
    assert again.proceeds is follows
    if not follows:
        assert (again.verb, again.codes) == (Verb.FINISH, (f"ended_{cause}",))
        assert walk.start().proceeds, "a person may run it again at any time"


@pytest.mark.parametrize(
    ("policy", "code", "kept"),
    [("budget", "cost_budget_exceeded", True), ("stall", "going_in_circles", True), ("manual", "paused", False)],
)
def test_stopped_by_a_policy(policy: str, code: str, kept: bool) -> None:
    """What a policy stopped is remembered as that; what a person or the end of a supervisor stopped is not. A person
    may run either again."""
    walk = exited(Cause.ERROR)
    walk.start(again=True)
    walk.end(cause=Cause.STOPPED, error=code, policy=policy)
    assert walk.state.ended_for == (code if kept else "")
    assert walk.start(again=True).codes == (("ended_by_policy" if kept else "ended_stopped"),)
    assert (code in walk.says().reasons[0].text) is kept
    assert walk.start().proceeds
    assert walk.state.ended_for == ""


@pytest.mark.parametrize("cause", [Cause.DONE, Cause.ERROR, Cause.STOPPED, Cause.LOST])
def test_a_run_beside_the_one_that_was_stopped(cause: Cause) -> None:
    """Where several run at a time, the end of one that lived on takes nothing back: a person has to."""
    walk = Walk(Restart())
    walk.start()
    walk.start()
    walk.end(cause=Cause.STOPPED, error="loop_detected", policy="loop")
    walk.pass_(HOUR).end(cause=cause)
    assert walk.start(again=True).codes == ("ended_by_policy",)
    assert walk.state.row == (1 if cause.failed else 0)
    assert walk.start().proceeds


@pytest.mark.parametrize(("after", "again"), [(0, False), (5 * MINUTE - 1, False), (5 * MINUTE, True)])
def test_starved_waits_for_its_resource(after: int, again: bool) -> None:
    """A restart before the wait is over is refused, and not only advised against; a person may start it. (S3-20)"""
    walk = exited(Cause.STARVED)
    assert walk.says().codes == ("starved",)
    assert walk.says().until == walk.now + 5 * MINUTE
    walk.pass_span(after)
    before = walk.state
    assert walk.start(again=True).proceeds is again
    if not again:
        assert walk.state == before
        assert walk.start().proceeds


def crash(walk: Walk, times: int, gap: int = SECOND) -> None:
    """Restart and fail so often."""
    for _ in range(times):
        walk.pass_span(gap)
        assert walk.start(again=True).proceeds
        walk.fail()


def test_ten_restarts_an_hour() -> None:
    """The 11th waits until the first of them is an hour old, and then goes. (S3-14, S3-31)"""
    walk = exited(Cause.ERROR)
    first = walk.now + SECOND
    crash(walk, 10)
    assert walk.says().codes == ("too_many_restarts",)
    refused = walk.start(again=True)
    assert (refused.verb, refused.until) == (Verb.WAIT, first + HOUR + 1)
    walk.now = refused.until - 1
    assert not walk.start(again=True).proceeds
    walk.now = refused.until
    assert walk.start(again=True).proceeds


def test_old_restarts_do_not_count() -> None:
    """Two that are hours old leave room for ten."""
    walk = exited(Cause.ERROR)
    crash(walk, 2)
    walk.pass_span(2 * HOUR)
    crash(walk, 10)
    assert not walk.start(again=True).proceeds


def test_a_first_start_is_no_restart() -> None:
    """Starts that somebody asks for after a clean end are not counted."""
    walk = Walk(Restart(restarts_max=1))
    for _ in range(20):
        assert walk.start().proceeds
        walk.end()


def test_fifty_in_a_row() -> None:
    """After 51 failing runs in a row it is held, whatever the errors: the first one and 50 restarts."""
    walk = exited(Cause.ERROR)
    for number in range(50):
        assert walk.says().verb is not Verb.HOLD
        walk.pass_span(HOUR)
        assert walk.start(again=True).proceeds
        walk.fail(kind=f"k{number}", cause=(Cause.ERROR, Cause.TIMEOUT, Cause.STARVED, Cause.LOST)[number % 4])
    assert walk.says().verb is Verb.HOLD
    assert "restarts_in_a_row" in walk.says().codes
    assert walk.start().verb is Verb.HOLD


@pytest.mark.parametrize("cause", [Cause.DONE, Cause.STOPPED, Cause.ERROR])
def test_held_stays_held(cause: Cause) -> None:
    """No exit and no time leaves it; a person does, or a change."""
    walk = exited(Cause.ERROR, Restart(row_max=2))
    crash(walk, 2, gap=HOUR)
    walk.end(cause=cause)
    walk.pass_span(2 * DAY)
    walk.end(cause=Cause.DONE)
    assert walk.says().verb is Verb.HOLD
    walk.revise("b")
    assert walk.forgot()


@pytest.mark.parametrize(("cause", "row"), [(Cause.DONE, 0), (Cause.STOPPED, 3)])
def test_a_success_ends_the_row(cause: Cause, row: int) -> None:
    """Being stopped is no success."""
    walk = exited(Cause.ERROR)
    crash(walk, 2)
    walk.start()
    walk.end(cause=cause)
    assert walk.state.row == row


@pytest.mark.parametrize(("uptime", "row"), [(DAY - 1, 2), (DAY, 1)])
def test_a_day_of_lived_time_ends_the_row(uptime: int, row: int) -> None:
    """Lived, not waited."""
    walk = exited(Cause.ERROR)
    walk.pass_span(3 * DAY)
    walk.start(again=True)
    walk.pass_span(uptime)
    walk.fail()
    assert walk.state.row == row


def test_over_hold_by_unit_stands() -> None:
    """Where too many are answered with a hold, the hold does not pass with the window: a person leaves it."""
    walk = exited(Cause.ERROR, Restart(over=Verb.HOLD, restarts_max=2))
    crash(walk, 2)
    assert walk.says().verb is Verb.HOLD
    walk.pass_span(9 * HOUR)
    assert walk.end(cause=Cause.DONE).verb is Verb.HOLD
    for again in (True, False):
        assert walk.start(again=again).verb is Verb.HOLD
    assert "all 2 restarts of this unit within 1 h were used up" in walk.says().reasons[-1].text
    walk.release()
    assert walk.forgot()


def test_the_fleet_is_held() -> None:
    """So many restarts an hour over all units; the next failing exit holds the fleet until a person looks. (S3-32)"""
    walk = Walk(FLEET)
    for number in range(10):
        assert walk.start(f"u{number}", again=True).proceeds
    assert walk.says().proceeds
    walk.end("u0", cause=Cause.DONE)
    assert walk.says().proceeds
    decision = walk.fail("u1")
    assert (decision.verb, decision.until, decision.codes) == (Verb.HOLD, FOREVER, ("too_many_restarts",))
    walk.pass_span(DAY)
    walk.end("u2", cause=Cause.DONE)
    assert walk.start("anyone").verb is Verb.HOLD
    walk.release(scope="unit")
    walk.revise("b")
    assert walk.says().verb is Verb.HOLD
    walk.release()
    assert walk.forgot()


def test_the_fleet_over_the_limit_at_a_start() -> None:
    """The start that would be one too many is refused, even if nothing failed in between."""
    walk = Walk(FLEET)
    for number in range(10):
        walk.start(f"u{number}", again=True)
    assert walk.start("next", again=True).verb is Verb.HOLD


def test_large_limits_are_bounded() -> None:
    """A thousand restarts an hour are counted in a bounded window."""
    walk = Walk(Restart(by="fleet", over=Verb.HOLD, restarts_max=1_000, row_max=0))
    granted = 0
    while walk.start(f"u{granted}", again=True).proceeds:
        granted += 1
        walk.pass_span(SECOND)
    assert granted == 1_000
    assert len(walk.state.restarts) <= 129


def test_no_restarts_at_all() -> None:
    """With a limit of 0 the wait has no end: one that is over already would be asked for ever."""
    walk = exited(Cause.ERROR, Restart(restarts_max=0))
    assert walk.says().until == FOREVER


def test_a_start_by_a_person_after_a_failure_counts_too() -> None:
    """Who starts a failing unit by hand again and again is slowed down likewise; after a clean end it is no restart."""
    walk = exited(Cause.ERROR, Restart(restarts_max=2))
    for _ in range(2):
        assert walk.start().proceeds
        walk.fail()
    assert walk.start().verb is Verb.WAIT


def test_a_success_at_the_limit_of_the_row() -> None:
    """As long as it is not held, a success ends the row, even at the last chance."""
    walk = exited(Cause.ERROR, Restart(row_max=2))
    crash(walk, 1)
    walk.start(again=True)
    walk.end()
    assert walk.state.row == 0


@pytest.mark.parametrize(("cause", "held"), [(Cause.DONE, True), (Cause.STOPPED, False)])
def test_held_only_where_another_run_would_follow(cause: Cause, held: bool) -> None:
    """A service that is restarted after clean exits too is held at one too many; one that was stopped is not."""
    walk = exited(Cause.DONE, Restart(over=Verb.HOLD, restarts_max=1, always=True))
    assert walk.start(again=True).proceeds
    walk.end(cause=cause)
    assert (walk.says().verb is Verb.HOLD) is held


def test_what_follows_lost_runs_is_not_the_fleets() -> None:
    """A machine goes down with thirty units on it: that all of them are started again elsewhere does not hold a fleet
    that may restart ten an hour. Each is counted for its unit; and what fails by itself is counted as ever."""
    walk = Walk(FLEET)
    for number in range(30):
        assert walk.fail(f"u{number}", cause=Cause.LOST).proceeds
    for number in range(30):
        assert walk.start(f"u{number}", again=True).proceeds
    assert walk.forgot()
    for _ in range(10):
        assert walk.fail().proceeds
        assert walk.start(again=True).proceeds
    assert walk.fail().verb is Verb.HOLD


def test_lost_runs_that_nothing_followed_excuse_nothing_later() -> None:
    """Units that were removed after their machine went down leave no free restarts behind."""
    walk = Walk(FLEET)
    for number in range(30):
        walk.fail(f"u{number}", cause=Cause.LOST)
    walk.pass_(3600)
    for _ in range(10):
        assert walk.fail().proceeds
        assert walk.start(again=True).proceeds
    assert walk.fail().verb is Verb.HOLD
