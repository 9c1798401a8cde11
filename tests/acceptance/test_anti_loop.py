"""Anti-loop: endless retries, restart storms and cascades end by themselves, and a person is told why."""

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from flyball.app import open_store
from flyball.config import load
from flyball.core.decision import Verb
from flyball.core.event import Booted, Cause, Exited, Start
from flyball.core.failure import fingerprint
from flyball.core.policy import AnyPolicy
from flyball.core.time import DAY, HOUR, MINUTE, SECOND
from flyball.policies import Breaker, Cooldown, Loop, Quarantine, Storm
from tests.acceptance.conftest import Supervise
from tests.acceptance.harness import UNIT, Supervisor, default_settings, policies_of, setting, settings_of

LADDER = (1, 5, 15, 300, 1800)
SELECTOR = fingerprint(UNIT, "SelectorNotFound", target="#buy")


def quarantine(supervisor: Supervisor, unit: str = UNIT) -> None:
    """Let a unit fail the same way until it is held."""
    lived = supervisor.keep_running(unit, uptime=1, starts=7)
    assert lived.last.verb is Verb.HOLD


# Fingerprints.


def test_same_failure_same_fingerprint() -> None:
    """S0-04: unit, error type, target and context make the fingerprint; the same ones give the same."""
    one = fingerprint("rule-1", "SelectorNotFound", target="#buy", message="no #buy on page 3")
    two = fingerprint("rule-1", "SelectorNotFound", target="#buy", message="no #buy on page 3")
    assert one == two


@pytest.mark.parametrize(
    ("unit", "error", "target", "message", "code"),
    [
        ("rule-2", "SelectorNotFound", "#buy", "no #buy on page 3", None),
        ("rule-1", "Timeout", "#buy", "no #buy on page 3", None),
        ("rule-1", "SelectorNotFound", "#sell", "no #buy on page 3", None),
        ("rule-1", "SelectorNotFound", "#buy", "no #buy on page 2", None),
        ("rule-1", "SelectorNotFound", "#buy", "no #buy on page 3", 137),
    ],
    ids=["unit", "error", "selector", "context", "exit code"],
)
def test_another_failure_another_fingerprint(
    unit: str, error: str, target: str, message: str, code: int | None
) -> None:
    """S0-04, S0-05: each part of a fingerprint tells two failures apart."""
    one = fingerprint("rule-1", "SelectorNotFound", target="#buy", message="no #buy on page 3")
    assert fingerprint(unit, error, target=target, message=message, code=code) != one


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("run 2026-01-02T03:04:05Z failed", "run 2026-05-06T07:08:09Z failed"),
        ("object at 0x7f3a gone", "object at 0x81bc gone"),
        ("waited 31 s", "waited 58 s"),
    ],
    ids=["time", "address", "duration"],
)
def test_volatile_parts_do_not_count(one: str, two: str) -> None:
    """S0-04: a time, an address or a duration in a message makes no new failure of it."""
    assert fingerprint(UNIT, "Error", message=one) == fingerprint(UNIT, "Error", message=two)


# Ladder and quarantine.


def test_ladder(supervise: Supervise) -> None:
    """S0-10, S0-12, S0-13: failures 1 to 5 of one fingerprint are followed by 1, 5, 15, 300, 1800 s of the cooldown's
    own; what is really waited is never less, and the sixth failure is followed by no run at all."""
    supervisor = supervise()
    for rung in LADDER:
        supervisor.start_when_allowed()
        supervisor.sleep(1)
        supervisor.fail()
        assert supervisor.left(supervisor.opinion("cooldown")) == rung
        assert supervisor.left(supervisor.start()) == max(rung, supervisor.left(supervisor.opinion("flapping")))
    supervisor.start_when_allowed()
    supervisor.sleep(1)
    assert supervisor.fail().verb is Verb.HOLD


def test_quarantine_at_the_sixth_failure(supervise: Supervise) -> None:
    """S0-01, S0-11, S0-13: a unit that always fails the same way is started six times; the seventh start is refused,
    and stays refused however long one waits."""
    supervisor = supervise()
    lived = supervisor.keep_running(uptime=61, starts=1000)
    assert lived.starts == 6
    assert lived.last.verb is Verb.HOLD
    assert "quarantined" in lived.last.codes
    for days in (1, 30, 365):
        supervisor.clock.move(days * DAY)
        assert supervisor.start().codes == ("quarantined",)


def test_another_fingerprint_starts_at_the_first_rung(supervise: Supervise) -> None:
    """S0-05, S0-10: another failure of the same unit is counted by itself and starts at 1 s."""
    supervisor = supervise()
    supervisor.keep_running(uptime=61, starts=3)
    assert supervisor.left(supervisor.opinion("cooldown")) == 15
    supervisor.start_when_allowed()
    supervisor.fail(target="#sell")
    assert supervisor.left(supervisor.opinion("cooldown")) == 1


def test_quarantine_counts_one_kind_of_failure(supervise: Supervise) -> None:
    """S0-05, S0-11: five failures of one kind and five of another quarantine nothing; the sixth of one does."""
    supervisor = supervise()
    supervisor.keep_running(uptime=61, starts=10, error=lambda made: ("Timeout", "SelectorNotFound")[made % 2])
    assert supervisor.opinion("quarantine").proceeds
    supervisor.fail()
    assert supervisor.opinion("quarantine").verb is Verb.HOLD


def test_one_unit_held_never_holds_another(supervise: Supervise) -> None:
    """S0-05, S0-11: a quarantine is about what failed; a sibling that fails the same way is still started."""
    supervisor = supervise()
    quarantine(supervisor)
    assert supervisor.start("sibling").proceeds


def test_success_starts_the_ladder_anew(supervise: Supervise) -> None:
    """S0-10: after a run that was done, the next failure is the first again."""
    supervisor = supervise()
    supervisor.keep_running(uptime=61, starts=3)
    supervisor.start_when_allowed()
    supervisor.exit(cause=Cause.DONE)
    supervisor.start(again=False)
    supervisor.fail()
    assert supervisor.left(supervisor.opinion("cooldown")) == 1


@pytest.mark.parametrize(("lived_hours", "count"), [(24, 1), (23.9, 4)], ids=["a day", "less than a day"])
def test_a_day_without_failure_counts_as_success(supervise: Supervise, lived_hours: float, count: int) -> None:
    """S0-14: 24 h of lived time without a failure start the counts anew; less does not."""
    supervisor = supervise()
    supervisor.keep_running(uptime=61, starts=3)
    supervisor.start_when_allowed()
    supervisor.sleep(lived_hours * 3600)
    supervisor.fail()
    assert supervisor.left(supervisor.opinion("cooldown")) == LADDER[count - 1]


def test_waiting_is_not_living(supervise: Supervise) -> None:
    """S0-14: a day that the unit spent waiting, and not running, forgets nothing."""
    supervisor = supervise()
    supervisor.keep_running(uptime=61, starts=3)
    supervisor.clock.move(2 * DAY)
    supervisor.start_when_allowed()
    supervisor.fail()
    assert supervisor.left(supervisor.opinion("cooldown")) == 300


def test_fails_once_a_day_is_never_held(supervise: Supervise) -> None:
    """S0-14: a unit that fails once a day, with 24 h of life between, is started for ever."""
    supervisor = supervise()
    lived = supervisor.keep_running(uptime=24 * 3600, starts=60)
    assert lived.starts == 60
    assert lived.last.proceeds


def test_quarantine_is_written_down_once(supervise: Supervise) -> None:
    """S0-36, S0-45: the failure that quarantines stands in the journal with its reason and what to do about it; starts
    that are refused again and again for the same reason are written down once, so a person is told once."""
    supervisor = supervise()
    quarantine(supervisor)
    for _ in range(20):
        supervisor.clock.move(HOUR)
        supervisor.start()
    failed = [line for line in supervisor.journal(UNIT, Exited) if line.decision.verb is Verb.HOLD]
    assert len(failed) == 1
    reasons = {reason.code: reason for reason in failed[0].decision.reasons}
    assert "6 failures of SelectorNotFound" in reasons["quarantined"].text
    assert SELECTOR[:8] in reasons["quarantined"].remedy
    refused = [line.decision.codes for line in supervisor.journal(UNIT, Start) if not line.decision.proceeds]
    assert refused.count(("quarantined",)) == 1


def test_ladder_in_the_journal(supervise: Supervise) -> None:
    """S0-45: each failure's entry says which failure it was and how long it is waited."""
    supervisor = supervise()
    supervisor.keep_running(uptime=61, starts=5)
    lines = supervisor.journal(UNIT, Exited)
    texts = [reason.text for line in lines for reason in line.decision.reasons if reason.code == "cooling"]
    waits = ("1 s", "5 s", "15 s", "5 min", "30 min")
    assert [text.startswith(f"failure {n} of SelectorNotFound") for n, text in enumerate(texts, 1)] == [True] * 5
    assert [text.endswith(f"waits {length}") for length, text in zip(waits, texts, strict=True)] == [True] * 5


# Across restarts of the supervisor.


def test_cooldown_outlives_the_supervisor(supervise: Supervise) -> None:
    """S0-06, S0-08: a cooldown goes on where it was when the supervisor is killed and started again."""
    supervisor = supervise()
    supervisor.keep_running(uptime=61, starts=4)
    supervisor.sleep(100)
    supervisor.reboot()
    assert supervisor.left(supervisor.start()) == 200
    supervisor.sleep(200)
    assert supervisor.start().proceeds


def test_quarantine_outlives_the_supervisor(supervise: Supervise) -> None:
    """S0-06, S0-09: what is quarantined is not started again by a supervisor that was started again."""
    supervisor = supervise()
    quarantine(supervisor)
    supervisor.clock.move(HOUR)
    supervisor.reboot()
    assert supervisor.start().verb is Verb.HOLD
    assert supervisor.start("sibling").proceeds


def test_killing_the_supervisor_gives_no_free_attempt(supervise: Supervise) -> None:
    """S0-01, S0-06: a unit that takes the supervisor down with it each time is held all the same: a run that nobody
    reported is lost, and lost is a failure."""
    supervisor = supervise()
    starts = 0
    for _ in range(20):
        decision, _ = supervisor.start_when_allowed()
        if not decision.proceeds:
            break
        starts += 1
        supervisor.sleep(301)
        supervisor.reboot()
    assert starts == 6
    assert "quarantined" in decision.codes


@pytest.mark.parametrize("skew", [-HOUR, 60 * DAY], ids=["an hour back", "60 days ahead"])
def test_clock_jump_is_confirmed_by_a_person(supervise: Supervise, skew: int) -> None:
    """S0-08: a clock that jumped lets no cooldown or quarantine slip: at boot the fleet pauses until a person says that
    the clock is right."""
    supervisor = supervise()
    supervisor.start()
    supervisor.fail()
    supervisor.clock.move(skew)
    assert "clock_jumped" in supervisor.reboot().codes
    assert supervisor.start("sibling").verb is Verb.HOLD
    supervisor.release(scope="fleet")
    assert supervisor.start("sibling").proceeds


def test_table_of_failures(tmp_path: Path) -> None:
    """S0-06, S0-07: in the file of the state folder a person finds the table `failures`, with these columns, by any
    SQLite tool; after six failures of one kind its row says quarantined."""
    settings, env = default_settings(), {"FLYBALL_STATE_DIR": str(tmp_path)}
    supervisor = Supervisor(lambda: open_store(settings, env), policies_of("process"))
    began = supervisor.now
    quarantine(supervisor)
    supervisor.fail("other", error="Timeout")
    supervisor.close()
    with closing(apsw.Connection(str(tmp_path / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        cursor = connection.execute("SELECT * FROM failures ORDER BY count DESC")
        names = [name for name, _ in cursor.get_description()]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
    columns = "fingerprint task_id error_type count first_seen last_seen cooldown_until quarantined"
    assert names == columns.split()
    held, cooling = rows
    assert (held["fingerprint"], held["task_id"], held["error_type"]) == (SELECTOR, UNIT, "SelectorNotFound")
    assert (held["count"], held["quarantined"]) == (6, 1)
    assert began / SECOND < held["first_seen"] < held["last_seen"] < held["cooldown_until"]
    assert (cooling["task_id"], cooling["count"], cooling["quarantined"]) == ("other", 1, 0)
    assert cooling["cooldown_until"] == cooling["last_seen"] + 1


# Restart storm.


def many_failures(supervisor: Supervisor, failures: int, *, units: int) -> None:
    """So many failures in quick succession, of runs that were all under way before."""
    for n in range(failures):
        supervisor.fail(f"unit-{n % units}", error=f"Error{n % 3}")
        supervisor.sleep(1)


@pytest.mark.parametrize(("failures", "paused"), [(9, False), (10, False), (11, True), (15, True)])
def test_storm_at_boot(supervise: Supervise, failures: int, paused: bool) -> None:
    """S0-02, S0-16, S0-17, S0-18, S0-34: more than 10 failures in the last 300 s at the supervisor's start pause the
    fleet; 10 do not."""
    supervisor = supervise()
    many_failures(supervisor, failures, units=failures)
    supervisor.clock.move(2 * MINUTE)
    booted = supervisor.reboot()
    assert ("restart_storm_detected" in booted.codes) is paused
    assert (supervisor.start("another").verb is Verb.HOLD) is paused
    written = supervisor.journal(kind=Booted)[-1].decision
    assert ("restart_storm_detected" in written.codes) is paused


def test_old_failures_are_no_storm(supervise: Supervise) -> None:
    """S0-16, S0-35: failures older than 300 s do not count."""
    supervisor = supervise()
    many_failures(supervisor, 15, units=15)
    supervisor.sleep(301)
    assert "restart_storm_detected" not in supervisor.reboot().codes


def test_one_fingerprint_fifteen_times_counts_fifteen(supervise: Supervise) -> None:
    """S0-16, S0-34: failures are counted, not kinds of failures."""
    supervisor = supervise()
    many_failures(supervisor, 15, units=1)
    assert "restart_storm_detected" in supervisor.reboot().codes


def test_supervisor_in_a_restart_loop_is_a_storm(supervise: Supervise) -> None:
    """S0-02, S0-16: a supervisor that is itself started more than five times in 300 s pauses the fleet."""
    supervisor = supervise()
    codes = []
    for _ in range(6):
        supervisor.sleep(10)
        codes.append(supervisor.reboot().codes)
    assert codes == [(), (), (), (), (), ("restart_storm_detected",)]


def test_failures_while_running_are_no_storm(supervise: Supervise) -> None:
    """S0-16: while it runs, a storm is not declared: the breaker is there for that."""
    supervisor = supervise()
    many_failures(supervisor, 15, units=15)
    assert supervisor.opinion("storm").proceeds


def test_restart_storm_in_seven_steps(supervise: Supervise) -> None:
    """S0-02, S0-09, S0-17, S0-40, S0-43: crash, state loaded, 15 failures in 5 minutes found, paused, nothing
    quarantined is queued again, cooldowns still run, and only a person ends the pause."""
    supervisor = supervise()
    quarantine(supervisor, "bad")
    supervisor.clock.move(HOUR)
    supervisor.keep_running("cooling", uptime=1, starts=4)
    cools_until = supervisor.opinion("cooldown", "cooling").until
    many_failures(supervisor, 15, units=15)
    assert "restart_storm_detected" in supervisor.reboot().codes
    assert {unit: supervisor.start(unit).verb for unit in ("bad", "cooling", "fine")} == {
        "bad": Verb.HOLD,
        "cooling": Verb.HOLD,
        "fine": Verb.HOLD,
    }
    supervisor.sleep(60)
    supervisor.reboot()
    assert "restart_storm_detected" in supervisor.start("fine").codes, "another restart does not end the pause"
    supervisor.release("", "storm", "breaker", scope="fleet")
    assert supervisor.start("fine").proceeds
    assert supervisor.start("cooling").until == cools_until
    assert supervisor.start("bad").verb is Verb.HOLD


# Cascade.


def cascade(supervisor: Supervisor, *, failures: int = 5, apart: float = 1) -> None:
    """So many failures of as many units, so many seconds apart."""
    for n in range(failures):
        supervisor.sleep(apart if n else 0)
        supervisor.fail(f"api-{n}", error="ConnectionRefused")


@pytest.mark.parametrize(("failures", "is_open"), [(4, False), (5, True)])
def test_breaker_opens_at_five(supervise: Supervise, failures: int, is_open: bool) -> None:
    """S0-03, S0-21, S0-22, S0-25, S0-26: five failures within 60 s open it, and then nothing at all is started."""
    supervisor = supervise()
    cascade(supervisor, failures=failures)
    assert (supervisor.start("fine").codes == ("circuit_open",)) is is_open


@pytest.mark.parametrize(("apart", "is_open"), [(15, True), (15.5, False)], ids=["in 60 s", "in 62 s"])
def test_breaker_counts_within_its_window(supervise: Supervise, apart: float, is_open: bool) -> None:
    """S0-22: five failures spread over more than the window leave it closed; the window's boundary counts."""
    supervisor = supervise()
    cascade(supervisor, apart=apart)
    assert supervisor.start("fine").proceeds is not is_open


@pytest.mark.parametrize(("min_units", "is_open"), [(3, False), (1, True)], ids=["default", "plain rule"])
def test_one_flapping_unit_does_not_stop_all(supervise: Supervise, min_units: int, is_open: bool) -> None:
    """S0-03, S0-22: failures of fewer than three units open nothing, unless the plain rule was asked for."""
    supervisor = supervise(settings={"circuit_breaker": {"min_units": min_units}})
    for _ in range(6):
        supervisor.fail()
        supervisor.sleep(1)
    assert supervisor.start("fine").proceeds is not is_open


def test_cascade_in_eight_steps(supervise: Supervise) -> None:
    """S0-21, S0-23, S0-24, S0-25, S0-27, S0-44: open after five failures; everything refused; half-open after 60 s with
    three trials; one fails: open for 60 s again; three succeed: closed."""
    supervisor = supervise()
    cascade(supervisor)
    assert supervisor.left(supervisor.start("fine")) == 60
    supervisor.sleep(59)
    assert supervisor.start("fine").verb is Verb.WAIT
    supervisor.sleep(1)
    trials = [f"trial-{n}" for n in range(3)]
    assert all(supervisor.start(unit).proceeds for unit in trials)
    assert supervisor.start("fourth").codes == ("circuit_half_open",)
    supervisor.fail(trials[0], error="ConnectionRefused")
    assert supervisor.left(supervisor.start("fine")) == 60
    supervisor.sleep(60)
    again = [f"again-{n}" for n in range(3)]
    for unit in again:
        assert supervisor.start(unit).proceeds
    for unit in again[:2]:
        supervisor.exit(unit)
    assert supervisor.states("breaker")[0].opened_at is not None, "two successes do not close it"
    supervisor.exit(again[2])
    assert all(supervisor.start(f"more-{n}").proceeds for n in range(10))


def test_open_breaker_outlives_the_supervisor(supervise: Supervise) -> None:
    """S0-06, S0-21: a restart of the supervisor while it is open leaves it open, for the rest of its time."""
    supervisor = supervise()
    cascade(supervisor)
    supervisor.sleep(20)
    supervisor.reboot()
    assert supervisor.left(supervisor.start("fine")) == 40


# Loop.


@pytest.mark.parametrize("over_runs", [False, True], ids=["one run", "a run each"])
def test_loop_at_the_hundredth(supervise: Supervise, over_runs: bool) -> None:
    """S0-28, S0-29, S0-30: 99 executions of the same action and rule within 60 s pass, the hundredth is stopped with
    "Loop detected"; also where each execution is a run of its own."""
    supervisor = supervise("rule")
    supervisor.start()
    for n in range(99):
        if n and over_runs:
            supervisor.exit()
            supervisor.start(again=False)
        assert supervisor.step(pattern="click:rule-1").proceeds
        supervisor.clock.move(SECOND // 2)
    decision = supervisor.step(pattern="click:rule-1")
    assert decision.verb is Verb.STOP
    assert decision.codes == ("loop_detected",)
    assert decision.reasons[0].text.startswith("Loop detected: click:rule-1 100 times")


def test_hundred_spread_over_the_window_are_no_loop(supervise: Supervise) -> None:
    """S0-28, S0-29: a hundred executions spread over 61 s are not a loop."""
    supervisor = supervise("rule")
    supervisor.start()
    for _ in range(100):
        assert supervisor.step(pattern="click:rule-1").proceeds
        supervisor.clock.move(61 * SECOND // 99)


def test_another_rule_is_counted_by_itself(supervise: Supervise) -> None:
    """S0-28: the same action of another rule has a count of its own, in another unit or in the same."""
    supervisor = supervise("rule")
    supervisor.start("rule-1")
    supervisor.start("rule-2")
    for _ in range(99):
        supervisor.step("rule-1", pattern="click:rule-1")
    assert supervisor.step("rule-1", pattern="click:rule-1").verb is Verb.STOP
    assert supervisor.step("rule-1", pattern="click:rule-3").proceeds
    assert supervisor.step("rule-2", pattern="click:rule-1").proceeds


# A changed definition.


def test_changed_revision_clears_failures(supervise: Supervise) -> None:
    """S0-19, S0-20: a changed definition of a unit is a potential fix: its failures are forgotten, and it starts fresh;
    another unit's failures stay."""
    supervisor = supervise()
    supervisor.revise("one")
    quarantine(supervisor)
    quarantine(supervisor, "other")
    assert supervisor.revise("two").proceeds
    assert supervisor.start().proceeds
    assert supervisor.start("other").verb is Verb.HOLD
    supervisor.fail()
    assert supervisor.left(supervisor.opinion("cooldown")) == 1


def test_changes_that_nobody_made_clear_only_so_often(supervise: Supervise) -> None:
    """S0-20: a unit that can edit its own definition clears its failures three times a day and no more; a person's
    change always clears them."""
    supervisor = supervise()
    supervisor.revise("first")
    for n in range(3):
        quarantine(supervisor)
        assert supervisor.revise(f"by itself {n}").proceeds
    quarantine(supervisor)
    assert supervisor.revise("by itself 4").codes == ("revised_too_often",)
    assert supervisor.start().verb is Verb.HOLD
    assert supervisor.revise("by a person", by="operator").proceeds
    assert supervisor.start().proceeds


def test_bad_selector_in_ten_steps(supervise: Supervise) -> None:
    """S0-42: count and cooldown climb, quarantine at the sixth, the selector is changed, history is cleared, and the
    unit may start fresh."""
    supervisor = supervise()
    supervisor.revise("selector #buy")
    for failures in range(1, 7):
        decision, _ = supervisor.start_when_allowed()
        assert decision.proceeds
        supervisor.sleep(1)
        after = supervisor.fail()
        known = supervisor.states("quarantine")[0].failures[SELECTOR]
        assert known.count == failures
    assert "quarantined" in after.codes
    assert supervisor.revise("selector #buy-now", by="operator").proceeds
    assert not supervisor.states("quarantine")[0].failures
    assert not supervisor.states("cooldown")[0].failures
    assert supervisor.start().proceeds


def test_walk_through_in_eight_steps(supervise: Supervise) -> None:
    """S0-46: a rule with a bad selector, triggered again and again: the ladder in the journal, quarantine after six, a
    restart of the supervisor, still quarantined, the selector fixed, the failures cleared by the change."""
    supervisor = supervise("rule")
    supervisor.revise("selector #buy")
    lived = supervisor.keep_running(uptime=1, starts=100)
    assert lived.starts == 6
    assert [wait / SECOND for wait in lived.waits] == list(LADDER)
    cooling = [line for line in supervisor.journal(UNIT, Exited) if "cooling" in line.decision.codes]
    assert len(cooling) == 6
    supervisor.clock.move(HOUR)
    supervisor.reboot()
    assert "quarantined" in supervisor.start().codes
    supervisor.revise("selector #buy-now", by="operator")
    assert supervisor.start().proceeds


# What people do.


def test_reset_of_one_failure(supervise: Supervise) -> None:
    """S0-37: a person makes one failure forgotten; the unit's other failures stay."""
    supervisor = supervise()
    other = fingerprint(UNIT, "Timeout", target="#buy")
    supervisor.keep_running(uptime=61, starts=11, error=lambda made: ("Timeout", "SelectorNotFound")[made % 2])
    supervisor.fail()
    assert len(supervisor.opinion("quarantine").reasons) == 2
    supervisor.release(UNIT, failure=SELECTOR)
    assert set(supervisor.states("quarantine")[0].failures) == {other}
    assert set(supervisor.states("cooldown")[0].failures) == {other}
    assert supervisor.start().verb is Verb.HOLD
    supervisor.release(UNIT, failure=other)
    assert "quarantined" not in supervisor.start().codes


def test_reset_of_everything(supervise: Supervise) -> None:
    """S0-38: a person makes all failures of a unit forgotten: it may start at once, as if it had never failed."""
    supervisor = supervise()
    quarantine(supervisor)
    supervisor.release(UNIT)
    assert supervisor.start().proceeds
    supervisor.fail()
    assert supervisor.left(supervisor.opinion("cooldown")) == 1


def test_fleet_paused_by_a_person(supervise: Supervise) -> None:
    """S0-40: the fleet that a person paused stays so over a restart of the supervisor, until a person resumes it."""
    supervisor = supervise()
    supervisor.order(Verb.HOLD, scope="fleet")
    supervisor.reboot()
    assert supervisor.start().codes == ("paused",)
    supervisor.release(scope="fleet")
    assert supervisor.start().proceeds


# Settings.


@pytest.mark.parametrize(
    ("key", "value", "changed"),
    [
        ("quarantine.cooldown_ladder_seconds", [2, 4], Cooldown(ladder=(2 * SECOND, 4 * SECOND))),
        ("quarantine.max_failures_before_quarantine", 9, Quarantine(failures_max=9)),
        ("quarantine.auto_reset_after_hours", 12, Quarantine(healthy_after=12 * HOUR)),
        ("circuit_breaker.failure_threshold", 7, Breaker(failures_max=7)),
        ("circuit_breaker.recovery_timeout_seconds", 30, Breaker(recovery=30 * SECOND)),
        ("safety.max_loop_iterations", 50, Loop(repeats_max=50)),
        ("safety.global_failure_threshold", 20, Storm(failures_max=20)),
        ("safety.global_failure_window_seconds", 60, Storm(window=60 * SECOND)),
    ],
)
def test_setting(key: str, value: object, changed: AnyPolicy) -> None:
    """S0-12, S0-13, S0-14, S0-26, S0-27, S0-29, S0-34, S0-35: a file that names one of these keys changes just that of
    the safeguard."""
    section, name = key.split(".")
    assert changed not in default_settings().policies("rule")
    assert changed in settings_of({section: {name: value}}).policies("rule")


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("quarantine.cooldown_ladder_seconds", LADDER),
        ("quarantine.max_failures_before_quarantine", 6),
        ("quarantine.auto_reset_after_hours", 24),
        ("circuit_breaker.failure_threshold", 5),
        ("circuit_breaker.recovery_timeout_seconds", 60),
        ("safety.max_loop_iterations", 100),
        ("safety.global_failure_threshold", 10),
        ("safety.global_failure_window_seconds", 300),
    ],
)
def test_default(key: str, default: object) -> None:
    """S0-12, S0-13, S0-14, S0-26, S0-27, S0-29, S0-34, S0-35: the defaults are the documented ones."""
    assert setting(default_settings(), key) == default


def test_retry_settings() -> None:
    """S0-31, S0-32, S0-33: three attempts inside one run of an action, 1.0 s after the first, twice as long after each
    further one; a file can say otherwise."""
    retry = default_settings().retry
    assert (retry.max_attempts, retry.base_delay_seconds, retry.exponential_base) == (3, 1.0, 2.0)
    changed = settings_of({"retry": {"max_attempts": 5, "base_delay_seconds": 0.5, "exponential_base": 3.0}}).retry
    assert (changed.max_attempts, changed.base_delay_seconds, changed.exponential_base) == (5, 0.5, 3.0)


def test_framework_yaml_is_found(tmp_path: Path) -> None:
    """S0-15: settings are read from a file called framework.yaml."""
    (tmp_path / "framework.yaml").write_text("quarantine:\n  max_failures_before_quarantine: 9\n", encoding="utf-8")
    assert load(env={}, cwd=tmp_path).quarantine.max_failures_before_quarantine == 9
