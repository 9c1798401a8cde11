"""Auto-restart: what crashed is started again, what is done or was told to stop is not, and nothing for ever."""

from collections.abc import Mapping

import pytest

from flyball.config import Settings
from flyball.core.decision import Verb
from flyball.core.event import Answered, Asked, Cause, Exited, Start, Step, Stepped, Work
from flyball.core.time import HOUR, MINUTE, SECOND
from flyball.policies import Budget, Cooldown, Deadline, Restart
from tests.acceptance.conftest import Supervise
from tests.acceptance.harness import UNIT, Nested, Supervisor, default_settings, setting, settings_of


def another_error(made: int) -> str:
    """Another kind of failure each time, so that no fingerprint repeats."""
    return f"Error{made}"


# Which exits are followed by another run.


@pytest.mark.parametrize(
    ("cause", "policy", "follows", "code"),
    [
        (Cause.ERROR, {}, True, ""),
        (Cause.TIMEOUT, {}, True, ""),
        (Cause.LOST, {}, True, ""),
        (Cause.STARVED, {}, True, "starved"),
        (Cause.DONE, {}, False, "ended_done"),
        (Cause.STOPPED, {}, False, "ended_stopped"),
        (Cause.ERROR, {"restart_on_error": False}, False, "ended_error"),
        (Cause.LOST, {"restart_on_error": False}, False, "ended_lost"),
        (Cause.TIMEOUT, {"restart_on_timeout": False}, False, "ended_timeout"),
        (Cause.TIMEOUT, {"restart_on_error": False}, True, ""),
        (Cause.ERROR, {"restart_on_timeout": False}, True, ""),
        (Cause.STARVED, {"restart_on_resource_exhaustion": True}, True, ""),
        (Cause.ERROR, {"enabled": False}, False, "ended_error"),
        (Cause.TIMEOUT, {"enabled": False}, False, "ended_timeout"),
    ],
)
def test_cause_decides(
    supervise: Supervise, cause: Cause, policy: Mapping[str, bool], follows: bool, code: str
) -> None:
    """S3-02, S3-04, S3-07, S3-13, S3-18, S3-19, S3-20, S3-24, S3-27, S3-40, S3-41: error, timeout and a lost run are
    followed by another run; done and shutdown are not; what ran out of a resource waits for it; the switches are
    obeyed. A person can always start it."""
    supervisor = supervise("agent", {"restart_policy": policy})
    supervisor.start()
    supervisor.sleep(61)
    supervisor.exit(cause=cause, error="Broken")
    said = supervisor.start()
    assert said.verb is (Verb.WAIT if follows else Verb.FINISH)
    assert [reason.code for reason in said.reasons if reason.policy == "restart"] == ([code] if code else [])
    decision, _ = supervisor.start_when_allowed()
    assert decision.proceeds is follows
    if not follows:
        decision, _ = supervisor.obey(lambda: supervisor.start(again=False))
        assert decision.proceeds


def test_supervisor_switched_off(supervise: Supervise) -> None:
    """S3-13: with the supervisor switched off nothing is started again by itself."""
    supervisor = supervise("agent", {"supervisor": {"enabled": False}})
    supervisor.start()
    supervisor.fail()
    decision, _ = supervisor.start_when_allowed()
    assert decision.verb is Verb.FINISH


def test_resource_is_waited_for(supervise: Supervise) -> None:
    """S3-20, S3-27: a run that starved is asked for again after 300 s, not sooner."""
    supervisor = supervise("agent")
    supervisor.start()
    supervisor.exit(cause=Cause.STARVED, error="quota")
    assert supervisor.left(supervisor.start()) == 300
    supervisor.sleep(300)
    assert supervisor.start().proceeds


def spend(supervisor: Supervisor, scrip: int) -> Verb:
    """Ask for a step that costs so much scrip, and make it if it is granted."""
    run = supervisor.runs[UNIT]
    cost = {"scrip": scrip}
    decision = supervisor.governor.submit(Step(unit=UNIT, run=run, call=f"call {scrip} {run}", cost=cost))
    if decision.proceeds:
        work = Work(call=f"call {scrip} {run}", result=run, reserved=cost, used=cost)
        supervisor.governor.submit(Stepped(unit=UNIT, run=run, done=(work,)))
    return decision.verb


def test_out_of_scrip_is_not_restarted(supervise: Supervise) -> None:
    """S3-03, S3-07, S3-25, S3-41: an agent whose balance is 0 is not started again, by itself or by a person, until a
    person gives it more."""
    supervisor = supervise("agent", more=[Budget(limit=100, meter="scrip", by="unit")])
    supervisor.start()
    assert spend(supervisor, 100) is Verb.PROCEED
    supervisor.fail()
    supervisor.sleep(600)
    decision, _ = supervisor.start_when_allowed()
    assert decision.verb is Verb.FINISH
    assert decision.codes == ("cost_budget_exceeded",)
    assert supervisor.start(again=False).verb is Verb.FINISH
    supervisor.release(UNIT)
    assert supervisor.start().proceeds


def test_restart_keeps_money(supervise: Supervise) -> None:
    """S3-09, S3-44: a restarted agent has what it had left, no more and no less, also when the supervisor died too."""
    supervisor = supervise("agent", more=[Budget(limit=100, meter="scrip", by="unit")])
    supervisor.start()
    assert spend(supervisor, 60) is Verb.PROCEED
    supervisor.fail()
    supervisor.reboot()
    supervisor.start_when_allowed()
    assert spend(supervisor, 41) is Verb.FINISH
    assert spend(supervisor, 40) is Verb.PROCEED


def test_restart_is_a_new_run(supervise: Supervise) -> None:
    """S3-10, S3-11, S3-45: what was counted against the run, such as repeated errors, starts anew with the next one;
    what is counted against the agent goes on."""
    supervisor = supervise("agent")
    supervisor.start()
    first = supervisor.runs[UNIT]
    for number in range(5):
        supervisor.stepped(UNIT, Work(call=f"call {number}", result="the same error", error=True))
    assert supervisor.states("stall")[0].errors == 5
    supervisor.fail()
    supervisor.start_when_allowed()
    assert supervisor.runs[UNIT] != first
    assert supervisor.states("stall")[0].errors == 0
    assert len(supervisor.states("quarantine")[0].failures) == 1


# Nothing stays dead or paused without a reason.


def test_crashed_agent_is_running_again(supervise: Supervise) -> None:
    """S3-01, S3-08, S3-40, S3-46, S3-47: an agent that crashed does not stay down: it is started again by itself after
    its backoff, and a good run ends the story."""
    supervisor = supervise("agent")
    supervisor.start()
    supervisor.sleep(61)
    supervisor.fail()
    decision, waited = supervisor.start_when_allowed()
    assert decision.proceeds
    assert 4.5 * SECOND <= waited <= 5.5 * SECOND
    supervisor.exit(cause=Cause.DONE)
    assert supervisor.opinion("cooldown").proceeds
    assert supervisor.states("restart")[0].row == 0


@pytest.mark.parametrize("reboots", [False, True], ids=["lease ran out", "supervisor died"])
def test_crash_that_nobody_reported_is_found(supervise: Supervise, reboots: bool) -> None:
    """S3-06, S3-39: a run that ended without a word is found as lost, when its lease ran out or when the supervisor is
    started again, and counts as a failure."""
    supervisor = supervise("agent")
    supervisor.start()
    if reboots:
        supervisor.reboot()
    else:
        assert supervisor.start().codes == ("already_running",)
        supervisor.sleep(600)
    assert supervisor.start().verb is Verb.WAIT
    [lost] = supervisor.journal(UNIT, Exited)
    assert isinstance(lost.event, Exited)
    assert lost.event.cause is Cause.LOST
    decision, _ = supervisor.start_when_allowed()
    assert decision.proceeds


def test_silent_agent_is_stopped(supervise: Supervise) -> None:
    """S3-48: with an idle deadline a run that gives no sign of life for so long is stopped; each step renews it."""
    supervisor = supervise("agent", more=[Deadline(lasts_max=5 * MINUTE, idle=True, name="idle")])
    supervisor.start()
    for number in range(5):
        supervisor.sleep(299)
        assert supervisor.step(call=f"call {number}").proceeds
    supervisor.sleep(300)
    assert supervisor.step(call="after a long silence").codes == ("idle_timeout",)


def test_open_question_waits_for_a_person(supervise: Supervise) -> None:
    """S3-06: an agent that asks a person something is known to wait, until it is answered or its run ends."""
    supervisor = supervise("agent")
    supervisor.start()
    run = supervisor.runs[UNIT]
    for number, text in enumerate(("Deploy?", "Really?")):
        supervisor.governor.submit(Asked(unit=UNIT, run=run, id=f"q{number}", text=text))
    [known] = supervisor.states("question")
    assert [question.text for question in known.open.values()] == ["Deploy?", "Really?"]
    supervisor.governor.submit(Answered(unit=UNIT, run=run, id="q0", answer="yes", heard=True))
    [known] = supervisor.states("question")
    assert [*known.open] == ["q1"]
    supervisor.exit()
    [known] = supervisor.states("question")
    assert not known.open


# Backoff.


def test_backoff_doubles(supervise: Supervise) -> None:
    """S3-08, S3-15, S3-17, S3-29, S3-42: 5, 10, 20, 40, 80 s, each within 10 %."""
    supervisor = supervise("agent")
    waits = supervisor.keep_running(uptime=61, starts=6).waits
    for waited, expected in zip(waits, (5, 10, 20, 40, 80), strict=True):
        assert 0.9 * expected * SECOND <= waited <= 1.1 * expected * SECOND


def test_backoff_has_a_cap(supervise: Supervise) -> None:
    """S3-16, S3-29, S3-42: it is never longer than 300 s, with its jitter too. (By default quarantine comes first: to
    see the cap, that is set later.)"""
    supervisor = supervise("agent", {"quarantine": {"max_failures_before_quarantine": 11}})
    waits = supervisor.keep_running(uptime=61, starts=11).waits
    assert all(wait <= 300 * SECOND for wait in waits)
    assert all(wait >= 270 * SECOND for wait in waits[6:])
    assert len(waits) == 10


def test_units_do_not_start_all_at_once(supervise: Supervise) -> None:
    """S3-29: two units with the same failures wait for different times, and each for the same time when asked again."""
    supervisor = supervise("agent")
    waits = {}
    for unit in ("one", "two", "three"):
        supervisor.fail(unit)
        waits[unit] = supervisor.left(supervisor.opinion("cooldown", unit))
    assert len(set(waits.values())) == 3
    supervisor.reboot()
    assert {unit: supervisor.left(supervisor.opinion("cooldown", unit)) for unit in waits} == waits


def test_backoff_starts_anew_after_a_good_step(supervise: Supervise) -> None:
    """S3-30: one successful step, and the next failure is followed by 5 s again; a failing step changes nothing."""
    supervisor = supervise("agent")
    supervisor.keep_running(uptime=61, starts=3)
    for error, seconds in ((True, 40), (False, 5)):
        supervisor.start_when_allowed()
        supervisor.stepped(UNIT, Work(call="a", result="b", error=error))
        supervisor.sleep(61)
        supervisor.fail()
        assert 0.9 * seconds <= supervisor.left(supervisor.opinion("cooldown")) <= 1.1 * seconds


def test_failed_restart_counts_like_any_other(supervise: Supervise) -> None:
    """S3-24, S3-46: a run that dies in its first instant is a failure with its backoff, and not started in a hot
    loop."""
    supervisor = supervise("agent")
    lived = supervisor.keep_running(uptime=0, starts=1000)
    assert lived.starts == 6
    assert min(lived.waits) >= 4.5 * SECOND


# Limits.


def test_eleventh_restart_within_an_hour_waits(supervise: Supervise) -> None:
    """S3-14, S3-31, S3-43, S3-46: ten restarts within an hour, whatever the errors; the eleventh waits until the first
    of them is an hour old."""
    supervisor = supervise("agent")
    lived = supervisor.keep_running(uptime=40, starts=11, error=another_error)
    assert lived.starts == 11
    first_restart = supervisor.journal(UNIT, Start)
    granted = [line.at for line in first_restart if line.decision.proceeds]
    decision = supervisor.start()
    assert "too_many_restarts" in decision.codes
    assert decision.until == granted[1] + HOUR + 1
    supervisor.clock.set(decision.until)
    assert supervisor.start().proceeds


def test_old_restarts_do_not_count(supervise: Supervise) -> None:
    """S3-14, S3-43: restarts that are hours old are not in the way."""
    supervisor = supervise("agent")
    supervisor.keep_running(uptime=40, starts=3, error=another_error)
    supervisor.clock.move(3 * HOUR)
    lived = supervisor.keep_running(uptime=40, starts=10, error=another_error)
    assert max(lived.waits) < MINUTE


@pytest.mark.parametrize("uptime", [0, 45, 600, 6 * 3600], ids=["0 s", "45 s", "10 min", "6 h"])
@pytest.mark.parametrize("kind", ["process", "agent"])
def test_always_failing_is_held_whatever_the_errors(supervise: Supervise, kind: str, uptime: float) -> None:
    """S3-31, S3-46, S3-49: with another error each time no fingerprint repeats: after at most 50 restarts in a row
    without a success the unit is held all the same."""
    supervisor = supervise(kind)
    lived = supervisor.keep_running(uptime=uptime, starts=1000, error=another_error)
    assert lived.last.verb is Verb.HOLD
    assert lived.starts == (7 if uptime == 0 else 51)
    assert {"halted", "restarts_in_a_row"} & set(lived.last.codes)


def test_same_failure_disables_an_agent(supervise: Supervise) -> None:
    """S3-49: an agent that fails the same way six times in a row is held, however long each run lasted."""
    supervisor = supervise("agent")
    lived = supervisor.keep_running(uptime=25 * 3600, starts=1000)
    assert lived.starts == 6
    assert "quarantined" in lived.last.codes


def test_restart_limit_of_the_fleet(supervise: Supervise) -> None:
    """S3-22, S3-32: restarts of all units together are counted; over the limit, everything is held until a person
    looks; first starts are not counted."""
    supervisor = supervise("agent", {"restart_policy": {"max_total_restarts_per_hour": 4}})
    units = [f"agent-{n}" for n in range(5)]
    for unit in units:
        assert supervisor.start(unit).proceeds
    for unit in units[:4]:
        supervisor.sleep(40)
        supervisor.fail(unit)
        assert supervisor.start_when_allowed(unit)[0].proceeds
    supervisor.sleep(40)
    supervisor.fail(units[4])
    decision, _ = supervisor.start_when_allowed(units[4])
    assert decision.verb is Verb.HOLD
    assert "too_many_restarts" in decision.codes
    supervisor.clock.move(2 * HOUR)
    assert supervisor.start("another").verb is Verb.HOLD
    supervisor.release(scope="fleet")
    assert supervisor.start("another").proceeds


def test_fleet_limit_by_default() -> None:
    """S3-32: a thousand an hour."""
    fleet = Restart(restarts_max=1000, row_max=0, over=Verb.HOLD, by="fleet")
    assert fleet in default_settings().policies("agent")


# What is on record.


def test_every_restart_is_on_record(supervise: Supervise) -> None:
    """S3-12, S3-21, S3-22, S3-26, S3-37: each start and each crash is written down with its unit, its reason and its
    stack trace, and the counts per agent can be read."""
    supervisor = supervise("agent")
    for number in range(3):
        supervisor.start_when_allowed()
        supervisor.sleep(61)
        supervisor.exit(cause=Cause.ERROR, error="ValueError", detail=f"Traceback: crash {number}")
    crashes = [line.event for line in supervisor.journal(UNIT, Exited)]
    assert [crash.detail for crash in crashes if isinstance(crash, Exited)] == [
        f"Traceback: crash {number}" for number in range(3)
    ]
    assert {crash.unit for crash in crashes} == {UNIT}
    starts = [line for line in supervisor.journal(UNIT, Start) if line.decision.proceeds]
    assert [line.event.again for line in starts if isinstance(line.event, Start)] == [False, True, True]
    own, fleet = supervisor.states("restart")
    assert own.row == 3
    assert sum(n for _, n in own.restarts) == sum(n for _, n in fleet.restarts) == 2
    [failure] = supervisor.states("cooldown")[0].failures.values()
    assert (failure.error, failure.count) == ("ValueError", 3)


# Settings.


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("supervisor.enabled", True),
        ("restart_policy.enabled", True),
        ("restart_policy.max_restarts_per_hour", 10),
        ("restart_policy.initial_backoff_seconds", 5.0),
        ("restart_policy.max_backoff_seconds", 300.0),
        ("restart_policy.backoff_multiplier", 2.0),
        ("restart_policy.restart_on_error", True),
        ("restart_policy.restart_on_timeout", True),
        ("restart_policy.restart_on_resource_exhaustion", False),
    ],
)
def test_default(key: str, default: object) -> None:
    """S3-13, S3-14, S3-15, S3-16, S3-17, S3-18, S3-19, S3-20: the defaults are the documented ones."""
    assert setting(default_settings(), key) == default


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({"max_restarts_per_hour": 3}, Restart(restarts_max=3, healthy_after=0)),
        ({"max_restarts": 3}, Restart(restarts_max=3, healthy_after=0)),
        ({"initial_backoff_seconds": 1}, {"first": 1 * SECOND}),
        ({"max_backoff_seconds": 60}, {"longest": 60 * SECOND}),
        ({"backoff_multiplier": 3.0}, {"factor": 3.0}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_setting(given: Nested, changed: Restart | dict[str, int]) -> None:
    """S3-14, S3-15, S3-16, S3-17: a file that names one of these keys changes just that of the safeguard."""
    if isinstance(changed, dict):
        expected: object = Cooldown(ladder=(), healthy_after=0, step_forgives=True, **changed)  # type: ignore[arg-type]  # one field of each type
    else:
        expected = changed
    assert expected not in default_settings().policies("agent")
    assert expected in settings_of({"restart_policy": given}).policies("agent")


def test_schema_has_the_restart_policy() -> None:
    """S3-38: the schema for editors knows each key of the restart policy, with its default and what it is for."""
    keys = Settings.model_json_schema()["$defs"]["RestartPolicy"]["properties"]
    assert keys["max_restarts_per_hour"]["default"] == 10
    assert all("description" in key and "default" in key for key in keys.values())
