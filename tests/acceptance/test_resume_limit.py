"""Resume limit: work that pauses and is resumed again and again comes to an end, and says why."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

import pytest

import flyball
from flyball.core.codec import decode_state
from flyball.core.decision import Decision, Verb
from flyball.core.event import Cause, Resume
from flyball.core.policy import Key
from flyball.core.time import DAY, HOUR, Instant
from flyball.governor import Governor
from flyball.guard import Guard
from flyball.policies import resume_limit
from flyball.policies.limit import State as Count
from flyball.policies.session import State
from flyball.runtimes.session.opening import known
from flyball.store import Store
from flyball.testing.clock import FakeClock
from tests.acceptance.conftest import Supervise
from tests.acceptance.harness import UNIT, Nested, Supervisor, default_settings, settings_of

EXCEEDED = "max_resume_attempts_exceeded"


def limit_of(most: int) -> Nested:
    """Settings with that many resumes."""
    return {"daemon": {"sessionRecovery": {"maxResumeAttempts": most}}}


def resumes(supervisor: Supervisor, unit: str = UNIT) -> int:
    """How many resumes of a session are on record."""
    counts = [state.count for state in supervisor.states("resumes", unit)]
    return int(sum(counts))


def pause_and_resume(supervisor: Supervisor, unit: str = UNIT, *, times: int = 1) -> Decision:
    """Let a running session pause and be resumed by a person, so many times; the last answer."""
    for _ in range(times):
        supervisor.exit(unit, Cause.STOPPED)
        decision = supervisor.resume(unit)
    return decision


# The counter.


def test_fourth_resume_is_refused(supervise: Supervise) -> None:
    """S2-01, S2-05, S2-11, S2-25, S2-26, S2-29, S2-30, S2-36: resumes 1, 2 and 3 pass, and the fourth fails the
    session; 3 is what is not given."""
    supervisor = supervise("session")
    supervisor.start()
    for number in (1, 2, 3):
        assert pause_and_resume(supervisor).proceeds
        assert resumes(supervisor) == number
    decision = pause_and_resume(supervisor)
    assert decision.verb is Verb.HOLD
    assert decision.codes == (EXCEEDED,)


def test_counted_before_the_work_goes_on(supervise: Supervise) -> None:
    """S2-02, S2-11, S2-22, S2-25: the counter is on record when leave is given: a supervisor that is killed right then
    has not lost it, so that a kill gives no free resume."""
    supervisor = supervise("session")
    supervisor.start()
    for number in (1, 2, 3):
        supervisor.exit(cause=Cause.STOPPED)
        supervisor.obey(supervisor.resume)
        supervisor.sleep(301)
        supervisor.reboot()
        assert resumes(supervisor) == number
    decision, _ = supervisor.obey(supervisor.resume)
    assert EXCEEDED in decision.codes


def test_start_is_no_resume(supervise: Supervise) -> None:
    """S2-02: the first start of a session counts nothing."""
    supervisor = supervise("session")
    supervisor.start()
    assert resumes(supervisor) == 0


def test_nobody_gets_round_the_counter(supervise: Supervise) -> None:
    """S2-17: a session that is not done cannot be begun anew, so nobody gets round the counter; and one that is done
    has nothing to resume."""
    supervisor = supervise("session")
    assert supervisor.resume().codes == ("not_paused",)
    supervisor.start()
    supervisor.exit(cause=Cause.STOPPED)
    assert supervisor.start(again=False).codes == ("not_done_yet",)
    assert supervisor.resume().proceeds
    supervisor.exit(cause=Cause.DONE)
    assert supervisor.resume().codes == ("not_paused",)
    assert supervisor.start(again=False).proceeds


def test_one_small_row_is_written(supervise: Supervise) -> None:
    """S2-02, S2-39, S2-42: a resume costs one journal entry, and its counter is one field."""
    supervisor = supervise("session")
    supervisor.start()
    supervisor.exit(cause=Cause.STOPPED)
    before = len(supervisor.journal())
    supervisor.resume()
    assert len(supervisor.journal()) == before + 1
    assert [bytes(data) for data in supervisor.store.states("resumes").values()] == [b'{"count":1}']


@pytest.mark.parametrize("most", [0, 1, 3, 5, 10])
def test_custom_limit(supervise: Supervise, most: int) -> None:
    """S2-03, S2-24, S2-29, S2-34, S2-35, S2-38: a custom limit is obeyed, at its boundary too; 0 means no resume at
    all, and work that needs more resumes is given a higher limit."""
    supervisor = supervise("session", limit_of(most))
    supervisor.start()
    for _ in range(most):
        assert pause_and_resume(supervisor).proceeds
    decision = pause_and_resume(supervisor)
    assert decision.verb is Verb.HOLD
    assert f"({most + 1}/{most})" in decision.reasons[0].text


def test_defaults() -> None:
    """S2-03, S2-04, S2-36: recovery is on, with 3 resumes; switched off, no resume is granted."""
    recovery = default_settings().daemon.session_recovery
    assert (recovery.enabled, recovery.max_resume_attempts) == (True, 3)
    assert resume_limit(3) in default_settings().policies("session")
    assert resume_limit(0) in settings_of({"daemon": {"sessionRecovery": {"enabled": False}}}).policies("session")


# What is said when it is over.


def test_message(supervise: Supervise) -> None:
    """S2-13, S2-14, S2-15, S2-23, S2-26, S2-40: the refusal says how many of how many, and three things to do; a
    machine reads its code."""
    supervisor = supervise("session")
    supervisor.start()
    [reason] = pause_and_resume(supervisor, times=4).reasons
    assert reason.text == "Maximum resume attempts exceeded (4/3)"
    assert reason.code == EXCEEDED
    assert reason.policy == "resumes"
    assert all(word in reason.remedy for word in ("smaller subtasks", "maxResumeAttempts", "investigate"))


def test_one_event(supervise: Supervise) -> None:
    """S2-13, S2-16, S2-40: a session that is over its limit is written down once, with its reason, however often it is
    asked for again; and each resume that passed is written down too."""
    supervisor = supervise("session")
    supervisor.start()
    pause_and_resume(supervisor, times=4)
    for _ in range(10):
        supervisor.sleep(60)
        assert supervisor.resume().codes == (EXCEEDED,)
    written = [line.decision for line in supervisor.journal(UNIT, Resume)]
    assert [decision.verb for decision in written] == [Verb.PROCEED] * 3 + [Verb.HOLD]
    assert written[-1].codes == (EXCEEDED,)


def test_refusal_changes_nothing(supervise: Supervise) -> None:
    """S2-18, S2-28: the check comes before any change: what was known of the paused session is untouched by a resume
    that is over the limit."""
    supervisor = supervise("session")
    supervisor.start()
    pause_and_resume(supervisor, times=3)
    supervisor.exit(cause=Cause.STOPPED)
    before = supervisor.known()
    for _ in range(5):
        assert supervisor.resume().verb is Verb.HOLD
    assert supervisor.known() == before


def test_refusal_does_not_expire(supervise: Supervise) -> None:
    """S2-34: time and a restart of the supervisor do not bring another resume; a person does."""
    supervisor = supervise("session")
    supervisor.start()
    pause_and_resume(supervisor, times=4)
    supervisor.clock.move(7 * DAY)
    supervisor.reboot()
    assert supervisor.resume().codes == (EXCEEDED,)
    supervisor.release(UNIT, "resumes")
    assert supervisor.resume().proceeds
    assert resumes(supervisor) == 1


# When the counter starts anew.


def test_completed_starts_anew(supervise: Supervise) -> None:
    """S2-20, S2-27, S2-31: a session that is done after two resumes has its counter at 0, and three more to come."""
    supervisor = supervise("session")
    supervisor.start()
    pause_and_resume(supervisor, times=2)
    supervisor.exit(cause=Cause.DONE)
    assert resumes(supervisor) == 0
    supervisor.start(again=False)
    assert pause_and_resume(supervisor, times=3).proceeds
    assert pause_and_resume(supervisor).codes == (EXCEEDED,)


@pytest.mark.parametrize("cause", [cause for cause in Cause if not cause.done])
def test_failure_keeps_the_counter(supervise: Supervise, cause: Cause) -> None:
    """S2-21, S2-27: whatever else a run ends with, the counter stays."""
    supervisor = supervise("session")
    supervisor.start()
    pause_and_resume(supervisor, times=2)
    supervisor.exit(cause=cause, error="Broken")
    assert resumes(supervisor) == 2


# Why work pauses for ever.


@pytest.mark.parametrize(
    ("cause", "error"),
    [
        (Cause.ERROR, "ApiUnavailable"),
        (Cause.ERROR, "ContextWindowExceeded"),
        (Cause.STOPPED, ""),
        (Cause.STARVED, "MemoryError"),
    ],
    ids=["API is down", "context window is full", "agent always pauses", "memory runs out at the same point"],
)
@pytest.mark.parametrize("uptime", [1, 600], ids=["at once", "after ten minutes"])
def test_endless_resumes(supervise: Supervise, cause: Cause, error: str, uptime: float) -> None:
    """S2-05, S2-06, S2-07, S2-08, S2-09: each way of pausing for ever ends at the fourth resume."""
    supervisor = supervise("session")
    supervisor.start()
    made = 0
    while True:
        supervisor.sleep(uptime)
        supervisor.exit(cause=cause, error=error)
        decision, _ = supervisor.obey(supervisor.resume)
        if not decision.proceeds or made > 100:
            break
        made += 1
    assert made == 3
    assert EXCEEDED in decision.codes


def test_automatic_resumes_are_counted_alike(supervise: Supervise) -> None:
    """S2-01, S2-32: a session that ran out of its quota and is resumed by the supervisor itself has the same counter as
    one that a person resumes."""
    supervisor = supervise("session")
    supervisor.start()
    by_itself = partial(supervisor.resume, again=True)
    ways: tuple[Callable[[], Decision], ...] = (by_itself, supervisor.resume, by_itself)
    for number, resume in enumerate(ways, 1):
        supervisor.sleep(600)
        supervisor.exit(cause=Cause.STARVED, error="usage limit")
        decision, waited = supervisor.obey(resume)
        assert decision.proceeds
        assert waited > 0
        assert resumes(supervisor) == number
    supervisor.exit(cause=Cause.STARVED, error="usage limit")
    decision, _ = supervisor.obey(by_itself)
    assert EXCEEDED in decision.codes


def test_any_checkpoint_counts(supervise: Supervise) -> None:
    """S2-10: a resume from a named checkpoint counts like one from the latest."""
    supervisor = supervise("session")
    supervisor.start()
    for checkpoint in ("latest", "before-tools", "latest"):
        supervisor.exit(cause=Cause.STOPPED)
        assert supervisor.resume(checkpoint=checkpoint).proceeds
    supervisor.exit(cause=Cause.STOPPED)
    assert supervisor.resume(checkpoint="before-tools").codes == (EXCEEDED,)


# Several at once.


@pytest.mark.parametrize("supervisors", [1, 2], ids=["one supervisor", "two on one store"])
def test_two_resumes_at_once(supervise: Supervise, supervisors: int) -> None:
    """S2-37: of two resumes at the same time one is admitted, and one is counted; the other is told that it runs."""
    made = [supervise("session") for _ in range(supervisors)]
    made[0].start()
    made[0].exit(cause=Cause.STOPPED)
    together = Barrier(2)

    def resume(supervisor: Supervisor) -> Decision:
        together.wait()
        return supervisor.resume()

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(resume, (made[0], made[-1])))
    assert sorted(answer.verb for answer in answers) == [Verb.PROCEED, Verb.WAIT]
    assert max(answers, key=lambda answer: answer.verb).codes == ("already_running",)
    assert resumes(made[0]) == 1


def test_children_stay_as_they_are(supervise: Supervise) -> None:
    """S2-33, S2-41: a parent that is out of resumes does not touch its children: what is known of them stays, they run
    on, and they may be resumed."""
    supervisor = supervise("session")
    family = {"tree": "parent"}
    for unit in ("parent", "child-1", "child-2"):
        supervisor.start(unit, labels=family)
    supervisor.exit("child-2", Cause.STOPPED)
    pause_and_resume(supervisor, "parent", times=3)
    supervisor.exit("parent", Cause.STOPPED)
    before = supervisor.known()
    assert supervisor.resume("parent", labels=family).codes == (EXCEEDED,)
    assert supervisor.known() == before
    assert supervisor.step("child-1", call="x", labels=family).proceeds
    assert supervisor.resume("child-2", labels=family).proceeds


# Sessions in a program.


class Program:
    """A program with sessions, on a clock that moves when something waits."""

    def __init__(self, store: Store, given: Nested) -> None:
        self.clock = FakeClock()
        settings = settings_of(given)
        self.governor = Governor(settings.policies(), store, self.clock)
        self.guard = Guard(settings, self.governor, name="program", sleep=self._sleep)
        self.runs = 0

    async def _sleep(self, poked: asyncio.Event, until: Instant) -> None:
        self.clock.set(max(self.clock.now(), until))

    def session(
        self, name: str = "task", stages: int = 100, reason: str = "rate_limit", **options: Any
    ) -> flyball.Session:
        """Work that makes one stage, and pauses for an hour, until all its stages are made."""

        def function(session: flyball.SessionContext) -> list[int]:
            self.runs += 1
            made: list[int] = session.checkpoint.get("made", [])
            with session.stage(f"stage {len(made) + 1}"):
                made.append(len(made) + 1)
                session.checkpoint["made"] = made
            if len(made) < stages:
                session.pause(reason, resume_after=3600)
            return made

        return self.guard.session(name, function, **options)

    def begun(self, name: str = "task", **options: Any) -> flyball.Session:
        """The same, paused after its first stage."""
        session = self.session(name, **options)
        with pytest.raises(flyball.SessionPaused):
            session.run()
        return session

    def resumed(self, name: str = "task") -> int:
        """The counter on record."""
        key = Key("resumes", "unit", name)
        data = self.governor.store.read([key]).records.get(key)
        return decode_state(Count, data).count if data is not None else 0


Run = Callable[..., Program]


@pytest.fixture
def program(store: Callable[[], Store]) -> Iterator[Run]:
    """Programs on that store."""
    made: list[Program] = []

    def make(given: Nested | None = None) -> Program:
        made.append(Program(store(), given or {}))
        return made[-1]

    yield make
    for one in made:
        one.guard.close()


@pytest.mark.parametrize("reason", ["rate_limit", "usage_limit", "session_limit", "low battery"])
def test_session_goes_on_from_its_checkpoint(program: Run, reason: str) -> None:
    """S2-01, S2-25, S2-31: after each pause the work goes on from its checkpoint, whatever it paused for; each resume
    is counted, and when it is done the counter is 0."""
    here = program()
    session = here.begun(stages=3, reason=reason)
    for number in (1, 2):
        here.clock.move(HOUR)
        assert here.guard.resume_paused("task")
        assert here.resumed() == (number if number == 1 else 0)
    assert session.result == [1, 2, 3]
    assert session.status == "completed"


def test_resume_of_a_session(program: Run) -> None:
    """S2-10, S2-19: from the latest checkpoint or a named one, true if it was resumed; while it runs nothing is left of
    the pause, and its status is running."""
    here = program()
    session = here.begun(stages=4)
    seen: list[tuple[State, str]] = []
    say = session.show

    def function(context: flyball.SessionContext) -> list[int]:
        seen.append((known(here.governor, "task"), say().status))
        return list(context.checkpoint["made"])

    assert here.guard.resume("task")
    assert known(here.governor, "task").pause == "rate_limit"
    other = here.guard.session("task", function)
    assert here.guard.resume("task", "1")
    assert other.result == [1]
    assert seen == [(State(begun=True), "running")]


def test_unknown_session(program: Run) -> None:
    """S2-12, S2-17: what nobody knows is an error for who asks by hand, and false for a schedule."""
    here = program()
    with pytest.raises(flyball.SessionNotFound, match="Session not found: task"):
        here.guard.resume("task")
    assert not here.guard.resume_paused("task")


def test_session_that_is_not_paused(program: Run) -> None:
    """S2-17: neither what was never begun, nor what is done, nor what is not due yet is resumed by a schedule."""
    here = program()
    session = here.session(stages=2)
    assert not here.guard.resume_paused("task")
    with pytest.raises(flyball.SessionPaused):
        session.run()
    assert not here.guard.resume_paused("task")
    here.clock.move(HOUR)
    assert here.guard.resume_paused("task")
    assert not here.guard.resume_paused("task")
    assert not here.guard.resume("task")


@pytest.mark.parametrize("most", [3, 0, 5])
def test_session_fails(program: Run, caplog: pytest.LogCaptureFixture, most: int) -> None:
    """S2-13, S2-14, S2-15, S2-16, S2-23, S2-26, S2-30, S2-35, S2-39, S2-40: a session that always pauses fails: its
    status, its message with three remedies, its metadata, one event; each resume is logged with its number, and the
    failure with all of them."""
    here = program(limit_of(most))
    session = here.session()
    with caplog.at_level(logging.INFO), pytest.raises(flyball.SessionFailed) as raised:
        session.run(wait=True)
    assert f"Maximum resume attempts exceeded ({most + 1}/{most})" in str(raised.value)
    assert all(word in raised.value.remedy for word in ("smaller subtasks", "maxResumeAttempts", "investigate"))
    metadata = {"resumeAttempts": most + 1, "maxResumeAttempts": most, "failureReason": EXCEEDED}
    assert raised.value.metadata == metadata
    assert here.runs == most + 1
    shown = session.show()
    assert (shown.status, shown.failure_reason) == ("failed", EXCEEDED)
    assert (shown.resumes.used, shown.resumes.max) == (most, most)
    held = [entry for entry in here.governor.store.entries() if entry.verb == "hold" and entry.event == "resume"]
    assert len(held) == 1
    for number in range(1, most + 1):
        assert f"resume {number} of {most}" in caplog.text
    [error] = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert all(f"{name}={value}" in error for name, value in metadata.items())


def test_failed_session_is_untouched(program: Run) -> None:
    """S2-18, S2-21, S2-28: over the limit, the pause, the counter and the checkpoints are as they were."""
    here = program()
    session = here.session()
    with pytest.raises(flyball.SessionFailed):
        session.run(wait=True)
    before = {key: data for key, data in here.governor.store.states().items() if key.policy != "refused"}
    for call in (session.run, session.resume, session.resume_paused):
        with pytest.raises(flyball.SessionFailed):
            call()
    after = {key: data for key, data in here.governor.store.states().items() if key.policy != "refused"}
    assert after == before
    assert (known(here.governor, "task").pause, here.resumed()) == ("rate_limit", 3)


def test_two_resumes_of_a_session_at_once(program: Run) -> None:
    """S2-37: one goes on, the other is told that it runs; one is counted."""
    here = program()
    session = here.begun()
    together = Barrier(2)
    entered = Barrier(2)

    def waiting(context: flyball.SessionContext) -> None:
        entered.wait(30)

    here.guard.session("task", waiting)

    def resume() -> bool | str:
        together.wait(30)
        try:
            return here.guard.resume("task")
        except flyball.Refused as refused:
            entered.wait(30)  # only now the one that goes on may end
            return refused.code

    with ThreadPoolExecutor(2) as pool:
        answers = [asked.result(30) for asked in [pool.submit(resume), pool.submit(resume)]]
    assert sorted(answers, key=str) == [True, "already_running"]
    assert session.status == "completed"
    assert len(here.governor.store.entries(events=("resume",))) <= 2


def test_children_of_a_failed_session(program: Run) -> None:
    """S2-33, S2-41: sessions of the same tree are left as they are, and go on."""
    here = program()
    child = here.begun("child", stages=2, tree="parent")
    with pytest.raises(flyball.SessionFailed):
        here.session("parent", tree="parent").run(wait=True)
    assert child.status == "paused"
    assert here.guard.resume("child")
    assert child.result == [1, 2]
