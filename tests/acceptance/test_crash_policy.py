"""Crash policy: a child that keeps crashing is slowed down, then halted, and only a person starts it again.

The exits here are fed at given seconds, as the cases have them. Decisions of several safeguards join, so what is looked
at is the flapping policy's own answer; that the whole is never laxer is shown beside it.
"""

import copy

import pytest

from flyball.core.decision import Decision, Verb
from flyball.core.event import Cause, Exited
from flyball.core.time import DAY, SECOND
from flyball.policies import Flapping
from flyball.testing.clock import START_OF_TIME
from tests.acceptance.conftest import Supervise
from tests.acceptance.harness import UNIT, Supervisor, default_settings, setting, settings_of

HEALTHY, DEGRADED, HALTED = "healthy", "degraded", "halted"


def exits(supervisor: Supervisor, *given: tuple[int, float]) -> Decision:
    """Exits with a code, at a second; what the flapping policy says after the last one."""
    for code, second in given:
        supervisor.at(second)
        joint = supervisor.exit(cause=Cause.DONE if code == 0 else Cause.ERROR, error=f"exit {code}" if code else "")
        own = supervisor.opinion("flapping")
        assert (joint.verb, joint.until) >= (own.verb, own.until), "the whole is never laxer"
    return own


def flaps(supervisor: Supervisor) -> int:
    """Flaps in a row."""
    return sum(state.flaps for state in supervisor.states("flapping"))


def condition(supervisor: Supervisor) -> str:
    """The state of the child in the words that people know."""
    if supervisor.opinion("flapping").verb is Verb.HOLD:
        return HALTED
    return DEGRADED if flaps(supervisor) else HEALTHY


# The cases: exit code at second, and what is expected after the last one.


@pytest.mark.parametrize(
    ("given", "delay", "expected", "flaps_in_a_row"),
    [
        ([(0, 0)], 0, HEALTHY, 0),
        ([(1, 0)], 2, HEALTHY, 0),
        ([(1, 0), (1, 10)], 2, HEALTHY, 0),
        ([(1, 0), (1, 10), (1, 20)], 30, DEGRADED, 1),
        ([(1, 0), (1, 1), (1, 2)], 30, DEGRADED, 1),
        ([(1, 0), (1, 1), (1, 2), (1, 3)], 30, DEGRADED, 2),
        ([(1, 0), (1, 1), (1, 2), (0, 3)], 0, HEALTHY, 0),
        ([(1, 0), (1, 1), (1, 2), (1, 120)], 2, HEALTHY, 0),
        ([(137, 0), (1, 1), (-9, 2)], 30, DEGRADED, 1),
    ],
    ids=[
        "clean",
        "one crash",
        "two crashes",
        "three in 20 s",
        "three in 2 s",
        "four in 3 s",
        "clean after flap",
        "calm after flap",
        "any code but 0",
    ],
)
def test_exit_is_classified(
    supervise: Supervise, given: list[tuple[int, float]], delay: float, expected: str, flaps_in_a_row: int
) -> None:
    """S4-01, S4-02, S4-03, S4-04, S4-05, S4-06, S4-07, S4-08, S4-10, S4-19, S4-20, S4-24: code 0 is clean; fewer than
    three failing exits in 60 s wait for 2 s; three or more are a flap and wait for 30 s; a clean or a calm exit ends
    the row of flaps."""
    supervisor = supervise()
    said = exits(supervisor, *given)
    assert (supervisor.left(said) if said.verb is Verb.WAIT else 0) == delay
    assert condition(supervisor) == expected
    assert flaps(supervisor) == flaps_in_a_row


def test_halted_at_the_seventh(supervise: Supervise) -> None:
    """S4-05, S4-08, S4-11, S4-24: crashes at 0 to 6 s: the third is the first flap, the seventh the fifth in a row, and
    it halts."""
    supervisor = supervise()
    conditions = []
    for second in range(7):
        exits(supervisor, (1, second))
        conditions.append(condition(supervisor))
    assert conditions == [HEALTHY, HEALTHY, *[DEGRADED] * 4, HALTED]
    assert supervisor.start().verb is Verb.HOLD
    assert "halted" in supervisor.start().codes


@pytest.mark.parametrize("code", [0, 1])
def test_halted_stays_halted(supervise: Supervise, code: int) -> None:
    """S4-11, S4-16, S4-24: neither another crash nor a clean exit, a year or a restart of the supervisor ends it."""
    supervisor = supervise()
    exits(supervisor, *[(1, second) for second in range(7)], (code, 8))
    assert condition(supervisor) == HALTED
    supervisor.clock.move(29 * DAY)
    supervisor.reboot()
    assert condition(supervisor) == HALTED
    assert supervisor.start(again=False).verb is Verb.HOLD


def test_resumed_by_a_person(supervise: Supervise) -> None:
    """S4-16, S4-17, S4-24: a person resumes it: healthy, no flaps, empty history; it may start at once."""
    supervisor = supervise()
    exits(supervisor, *[(1, second) for second in range(7)])
    supervisor.release(UNIT)
    assert condition(supervisor) == HEALTHY
    assert supervisor.states("flapping") == [Flapping().initial()]
    assert supervisor.start().proceeds
    supervisor.fail()
    assert supervisor.left(supervisor.opinion("flapping")) == 2


def test_ten_exits_are_kept(supervise: Supervise) -> None:
    """S4-12, S4-13, S4-24: of 15 exits the last ten are kept, each with its time and whether it failed."""
    supervisor = supervise()
    exits(supervisor, *[(1, 100 * number) for number in range(15)])
    [state] = supervisor.states("flapping")
    assert len(state.exits) == 10
    assert all(failing for _, failing in state.exits)
    lived = [at for at, _ in state.exits]
    assert lived == sorted(set(lived))
    assert lived[-1] - lived[0] == 9 * 98 * SECOND, "the 2 s waits are not lived time"


@pytest.mark.parametrize(
    ("at", "window", "within"),
    [(120, 60, 1), (120, 10, 1), (120, 115, 1), (120, 200, 2)],
)
def test_exits_in_window(supervise: Supervise, at: float, window: float, within: int) -> None:
    """S4-14, S4-24: failures at 0 and 110 s, looked at from 120 s with a window of 60 s: one counts."""
    supervisor = supervise()
    exits(supervisor, (1, 0), (1, 110))
    supervisor.at(at)
    [state] = supervisor.states("flapping")
    counted = Flapping(window=round(window * SECOND)).failing_within_window(state, state.lived.at(supervisor.now))
    assert counted == within


@pytest.mark.parametrize(("apart", "flap"), [(30, True), (30.000001, False)], ids=["60 s", "a bit more"])
def test_window_boundary_counts(supervise: Supervise, apart: float, flap: bool) -> None:
    """S4-04, S4-14: three crashes, the first exactly 60 s of running before the last, are a flap; a microsecond more,
    and they are not."""
    supervisor = supervise()
    supervisor.start()
    supervisor.fail()
    for number in range(2):
        supervisor.start_when_allowed()
        supervisor.sleep(apart)
        supervisor.fail(error=f"Error{number}")
    assert (condition(supervisor) == DEGRADED) is flap


# The closed loop: the delays are really waited.


@pytest.mark.parametrize("uptime", [0, 0.001, 3, 20, 29, 30], ids=str)
def test_crash_loop_is_halted_though_it_is_slowed_down(supervise: Supervise, uptime: float) -> None:
    """S4-08, S4-10, S4-16: the window counts lived time: the 30 s that flyball itself waits do not push the crashes out
    of it, so a child that crashes after up to 30 s is halted at its seventh exit, with another error each time."""
    supervisor = supervise()
    lived = supervisor.keep_running(uptime=uptime, starts=1000, error=lambda made: f"Error{made}")
    assert lived.starts == 7
    assert [wait // SECOND for wait in lived.waits] == [2, 2, 30, 30, 30, 30]
    assert "halted" in lived.last.codes


def test_calm_child_is_never_halted(supervise: Supervise) -> None:
    """S4-03, S4-07: a child that runs for half an hour between crashes waits 2 s each time, and does not flap."""
    supervisor = supervise()
    for number in range(20):
        supervisor.start_when_allowed()
        supervisor.sleep(1800)
        supervisor.fail(error=f"Error{number}")
        assert supervisor.left(supervisor.opinion("flapping")) == 2
        assert condition(supervisor) == HEALTHY


def test_clean_exit_asks_the_person(supervise: Supervise) -> None:
    """S4-02, S4-06, S4-09: after a clean exit nothing is started by itself; a person may start it afresh at once."""
    supervisor = supervise()
    supervisor.start()
    supervisor.exit(cause=Cause.DONE)
    assert supervisor.start().codes == ("ended_done",)
    assert supervisor.start().verb is Verb.FINISH
    assert supervisor.start(again=False).proceeds


def test_restart_goes_on_where_it_was(supervise: Supervise) -> None:
    """S4-10, S4-22: after a crash the child may be started so that it continues: a resume waits just as long, and is
    granted like a start."""
    supervisor = supervise()
    supervisor.start()
    supervisor.fail()
    assert supervisor.left(supervisor.resume(again=True)) == 2
    supervisor.sleep(2)
    assert supervisor.resume(again=True).proceeds


def test_short_clean_exits_of_a_service(supervise: Supervise) -> None:
    """S4-04, S4-08: where clean exits are followed by another run too, short-lived ones count like crashes."""
    always = Flapping(clean_counts=True, name="flapping_always")
    supervisor = supervise(more=[always])
    for number in range(7):
        supervisor.start(again=False)
        supervisor.exit(cause=Cause.DONE)
        supervisor.sleep(60)
        assert (supervisor.opinion("flapping_always").verb is Verb.HOLD) is (number == 6)


# What kind of thing it is.


def test_policy_is_pure() -> None:
    """S4-19, S4-21: the policy waits for nothing and starts nothing: from a state, an exit and an instant it makes the
    same new state and the same answer each time, and leaves the old state as it was."""
    policy = Flapping()
    crash = Exited(unit=UNIT, run="run", cause=Cause.ERROR)
    states = [policy.initial()]
    for second in range(7):
        now = START_OF_TIME + second * SECOND
        before = copy.deepcopy(states[-1])
        after = policy.evolve(states[-1], crash, now)
        assert after == policy.evolve(states[-1], crash, now)
        assert states[-1] == before
        assert policy.decide(after, now) == policy.decide(after, now)
        states.append(after)
    assert policy.decide(states[-1], now).verb is Verb.HOLD


@pytest.mark.parametrize(
    ("key", "default", "value", "changed"),
    [
        ("ring_buffer_cap", 10, 20, Flapping(kept_max=20)),
        ("flap_window_seconds", 60, 30, Flapping(window=30 * SECOND)),
        ("flap_threshold", 3, 4, Flapping(exits_max=4)),
        ("halt_threshold", 5, 6, Flapping(flaps_max=6)),
        ("transient_delay_seconds", 2, 1, Flapping(delay=1 * SECOND)),
        ("flapping_delay_seconds", 30, 60, Flapping(flap_delay=60 * SECOND)),
    ],
)
def test_setting(key: str, default: float, value: float, changed: Flapping) -> None:
    """S4-15: each number has this default, and a file that names it changes just that of the safeguard."""
    assert setting(default_settings(), f"crash_policy.{key}") == default
    assert changed in settings_of({"crash_policy": {key: value}}).policies("process")
