"""Pauses: work that pauses goes on when its time has come, is counted each time, and cannot do so for ever."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

import flyball
from flyball.config.definitions import Definitions
from flyball.core.decision import Verb
from flyball.core.event import Exited, Released
from flyball.core.time import MINUTE, SECOND
from flyball.errors import FlyballError
from flyball.policies.session import State
from flyball.runtimes.agent.memory import MemoryRefused
from flyball.runtimes.refusal import Refused
from flyball.runtimes.session.context import SessionContext
from flyball.runtimes.session.opening import known
from flyball.store import checkpoints
from tests.runtimes.session.scene import NAME, Scene, either

KINDS = ("thread", "coroutine")
WAIT_MAX = 30.0
"""Seconds for what takes milliseconds."""


class Pausing:
    """Makes one stage a run, and pauses after each but the last."""

    def __init__(self, stages: int = 3, reason: str = "rate_limit", after: float | None = 60.0) -> None:
        self.stages, self.reason, self.after = stages, reason, after
        self.runs = 0

    def __call__(self, session: SessionContext) -> int:
        self.runs += 1
        made: int = session.checkpoint.get("made", 0)
        with session.stage(f"stage {made + 1}"):
            session.checkpoint["made"] = made + 1
        if made + 1 < self.stages:
            session.pause(self.reason, resume_after=self.after)
        return made + 1


def work(scene: Scene, function: Any, **options: Any) -> flyball.Session:
    return scene.guard.session(NAME, function, **options)


def paused(scene: Scene, function: Any = None, **options: Any) -> flyball.Session:
    """A session that has paused once."""
    session = work(scene, function or Pausing(), **options)
    with pytest.raises(flyball.SessionPaused):
        session.run()
    return session


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reason", ["rate_limit", "usage_limit", "session_limit", "full moon"])
def test_a_pause_is_no_failure(kind: str, reason: str) -> None:
    """It leaves the function, says why and until when, and what was kept is kept; nothing has to be put right."""
    scene = Scene()
    session = work(scene, either(kind, Pausing(reason=reason)))
    with pytest.raises(flyball.SessionPaused) as raised:
        session.run()
    assert (raised.value.reason, raised.value.retry_after) == (reason, 60.0)
    assert raised.value.resume_at == scene.clock.now() + 60 * SECOND
    assert scene.exits() == [reason]
    assert session.status == "paused"
    state = known(scene.governor, NAME)
    assert (state.pause, state.resume_at) == (reason, raised.value.resume_at)


@pytest.mark.parametrize("kind", KINDS)
def test_waits_through_its_pauses(kind: str) -> None:
    """`run(wait=True)` resumes by itself when each pause is over, and not before."""
    scene = Scene()
    assert work(scene, either(kind, Pausing())).run(wait=True) == 3
    assert scene.starts() == ["start", "resume", "resume"]
    assert scene.slept == [60.0, 60.0]
    assert scene.exits() == ["rate_limit", "rate_limit", "done"]


def test_a_short_pause_is_waited_for_and_a_long_one_is_not() -> None:
    """As any wait: up to the session's own, half a minute."""
    scene = Scene()
    session = paused(scene, Pausing(after=20))
    with pytest.raises(flyball.SessionPaused):
        session.run()
    assert scene.slept == [20.0]
    other = Scene()
    session = paused(other, Pausing(after=31))
    with pytest.raises(Refused) as raised:
        session.run()
    assert (raised.value.code, raised.value.verb, raised.value.retry_after) == ("waits_to_resume", Verb.WAIT, 31.0)
    assert other.slept == []


def test_as_long_as_the_settings_say() -> None:
    """A pause of which nothing else was said."""
    scene = Scene(daemon={"sessionRecovery": {"pauseSeconds": 7}})
    with pytest.raises(flyball.SessionPaused) as raised:
        work(scene, Pausing(after=None)).run()
    assert raised.value.retry_after == 7


@pytest.mark.parametrize("kind", KINDS)
def test_for_a_person(kind: str) -> None:
    """It waits for one, however long; no schedule and no waiting resumes it, `resume` does."""
    scene = Scene()
    session = work(scene, either(kind, Pausing(stages=2, reason="person", after=None)))
    with pytest.raises(flyball.SessionPaused, match="until a person") as pause:
        session.run(wait=True)
    assert pause.value.retry_after is None
    scene.clock.move(24 * 60 * MINUTE)
    with pytest.raises(Refused) as raised:
        session.run(wait=True)
    assert (raised.value.code, raised.value.verb) == ("waits_for_person", Verb.HOLD)
    assert not session.resume_paused()
    assert session.resume()
    assert session.result == 2
    assert scene.starts() == ["start", "resume"]


def test_resumed_earlier() -> None:
    """`resume` does not wait for the time; a person's word on the command line does the same for `run`."""
    scene = Scene()
    session = paused(scene, Pausing(after=3600))
    assert session.resume()
    assert known(scene.governor, NAME).pause == "rate_limit"  # once more
    scene.governor.submit(Released(unit=NAME, policies=("session",), by="ann"))
    assert session.run() == 3
    assert scene.slept == []


def test_a_schedule_keeps_the_time() -> None:
    """`resume_paused` resumes what is due, and nothing else."""
    scene = Scene()
    guard, session = scene.guard, paused(scene, Pausing(stages=2))
    assert not guard.resume_paused(NAME)
    scene.clock.move(60 * SECOND)
    assert guard.resume_paused(NAME)
    assert session.result == 2
    assert not guard.resume_paused(NAME)  # done
    assert not guard.resume_paused("nobody")


def test_granted_clears_the_pause() -> None:
    """While it runs again, nothing is left of the pause."""
    scene = Scene()
    seen: list[State] = []

    def function(session: SessionContext) -> None:
        seen.append(known(scene.governor, NAME))
        if not session.again:
            session.pause("rate_limit", resume_after=1)

    work(scene, function).run(wait=True)
    assert seen == [State(begun=True), State(begun=True)]


# Not for ever.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [0, 1, 3, 5])
def test_fails_at_its_limit(kind: str, most: int, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever always pauses is resumed so often, and then not any more; that is said with all numbers."""
    scene, pausing = Scene(), Pausing(stages=1_000)
    session = work(scene, either(kind, pausing), resumes=most)
    with caplog.at_level(logging.INFO), pytest.raises(flyball.SessionFailed) as raised:
        session.run(wait=True)
    failed = raised.value
    assert f"Maximum resume attempts exceeded ({most + 1}/{most})" in str(failed)
    assert all(word in failed.remedy for word in ("smaller subtasks", "maxResumeAttempts", "investigate"))
    assert failed.metadata == {
        "resumeAttempts": most + 1,
        "maxResumeAttempts": most,
        "failureReason": "max_resume_attempts_exceeded",
    }
    assert pausing.runs == most + 1
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert all(f"{name}={value}" in errors[0] for name, value in failed.metadata.items())
    assert [f"resume {n} of {most}" in caplog.text for n in range(1, most + 2)] == [True] * most + [False]
    assert session.status == "failed"


def test_over_the_limit_nothing_changes() -> None:
    """The pause, the counter and the checkpoints are as they were, whoever asks again and how; it is one event."""
    scene = Scene()
    session = work(scene, Pausing(stages=1_000))
    with pytest.raises(flyball.SessionFailed):
        session.run(wait=True)
    before, entries = scene.known(), len(scene.store.entries())
    for call in (session.run, session.resume, session.resume_paused):
        with pytest.raises(flyball.SessionFailed):
            call()
    assert scene.known() == before
    assert len(scene.store.entries()) == entries
    assert known(scene.governor, NAME).pause == "rate_limit"
    assert [kept.number for kept in session.checkpoints] == [1, 2, 3, 4]


def test_refused_by_resume_is_an_event_too() -> None:
    """Also where `resume` is the first to hear of it, before the pause is over."""
    scene = Scene()
    session = paused(scene, resumes=0)
    with pytest.raises(flyball.SessionFailed):
        session.resume()
    assert [entry.event for entry in scene.store.entries() if entry.verb == "hold"] == ["resume"]
    assert session.status == "failed"


def test_a_person_gives_it_another_set() -> None:
    """Released by a person, it goes on from its last checkpoint."""
    scene = Scene()
    session = work(scene, Pausing(stages=6))
    with pytest.raises(flyball.SessionFailed):
        session.run(wait=True)
    scene.governor.submit(Released(unit=NAME, policies=("resumes",), by="ann"))
    assert session.run(wait=True) == 6


def test_progress_may_be_forgiven() -> None:
    """If so set, a resume that kept a new checkpoint does not count; one that did not, does."""
    scene = Scene(daemon={"sessionRecovery": {"forgiveProgress": True}})
    assert work(scene, Pausing(stages=12)).run(wait=True) == 12

    def idle(session: SessionContext) -> None:
        with session.stage("idle"):
            pass
        session.pause("rate_limit", resume_after=1)

    with pytest.raises(flyball.SessionFailed):
        scene.guard.session("idle", idle).run(wait=True)


# Where it pauses.


def test_what_is_outside_of_stages_is_kept_by_the_pause() -> None:
    """A pause keeps what the checkpoint has; a stage that it leaves was not made, and is taken back."""
    scene = Scene()

    def function(session: SessionContext) -> Any:
        if session.again:
            return dict(session.checkpoint)
        session.checkpoint["outside"] = 1
        with session.stage("one"):
            session.checkpoint["inside"] = 1
            session.checkpoint["outside"] = 2
        session.checkpoint["outside"] = 3
        with session.stage("two"):
            session.checkpoint["inside"] = 2
            session.pause("rate_limit", resume_after=0)
        raise AssertionError

    session = paused(scene, function)
    assert session.run() == {"inside": 1, "outside": 2}

    def outside(session: SessionContext) -> Any:
        if not session.again:
            session.checkpoint["n"] = 1
            session.pause("rate_limit", resume_after=0)
        return dict(session.checkpoint)

    session = scene.guard.session("outside", outside)
    with pytest.raises(flyball.SessionPaused):
        session.run()
    assert session.run() == {"n": 1}


def test_a_pause_that_could_not_be_kept_is_none() -> None:
    """The error is where the pause was asked for."""
    scene = Scene()

    def function(session: SessionContext) -> None:
        session.checkpoint["n"] = object()
        session.pause("rate_limit")

    with pytest.raises(MemoryRefused, match="the checkpoint of work cannot be kept"):
        work(scene, function).run()
    assert scene.exits() == ["error"]


def test_out_of_several_tasks() -> None:
    """A pause in a group of tasks is a pause; with another error beside it, it is an error."""
    scene = Scene()

    async def function(session: SessionContext) -> str:
        async def part(broken: bool) -> None:
            if broken:
                raise ValueError("no")
            session.pause("usage_limit", resume_after=1)

        if session.resumed == 2:
            return "done"
        async with asyncio.TaskGroup() as group:
            group.create_task(part(False))
            group.create_task(part(session.resumed == 1))
        raise AssertionError

    session = work(scene, function)
    with pytest.raises(flyball.SessionPaused):
        session.run()
    with pytest.raises(BaseExceptionGroup):
        session.run()
    assert scene.exits() == ["usage_limit", "error"]
    assert session.run() == "done"


@pytest.mark.parametrize(
    ("reason", "after"),
    [
        ("", 1),
        ("x" * 201, 1),
        ("a\nb", 1),
        ("\x1b[2J", 1),
        (None, 1),
        ("r", -1),
        ("r", float("nan")),
        ("r", float("inf")),
        ("r", "1"),
        ("r", 1e10),
    ],
)
def test_bad_pauses(reason: Any, after: Any) -> None:
    """What is no reason or no time is said where it was given."""

    def function(session: SessionContext) -> None:
        session.pause(reason, resume_after=after)

    with pytest.raises(FlyballError, match=r"no reason for a pause|resume_after is"):
        work(Scene(), function).run()


# From outside.


def test_paused_from_outside() -> None:
    """The stage in work is made; before the next one it pauses."""
    scene = Scene()
    sessions: list[flyball.Session] = []

    def function(session: SessionContext) -> str:
        if session.again:
            return str(session.checkpoint["stage"])
        with session.stage("one"):
            assert sessions[0].pause("session_limit", resume_after=5)
            session.checkpoint["stage"] = "one"
        with session.stage("two"):
            raise AssertionError
        raise AssertionError

    sessions.append(work(scene, function))
    assert not sessions[0].pause()  # it does not run
    with pytest.raises(flyball.SessionPaused) as raised:
        sessions[0].run()
    assert raised.value.reason == "session_limit"
    assert not sessions[0].pause()
    assert sessions[0].run() == "one"


def test_stopped_while_it_waits() -> None:
    """Whoever waits for the end of a pause is told; it stays paused as it was."""
    with flyball.open("program", scratch=True) as guard:
        session = guard.session(NAME, Pausing(after=3600))
        ended = threading.Event()
        errors: list[BaseException] = []

        def run() -> None:
            try:
                session.run(wait=True)
            except flyball.SessionPaused as error:
                errors.append(error)
            ended.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while session.status != "paused":
            assert not ended.wait(0.001)
        while not session.stop():
            assert not ended.wait(0.001)
        thread.join(WAIT_MAX)
        assert [type(error) for error in errors] == [flyball.SessionPaused]
        assert session.status == "paused"
        assert not session.stop()
        assert session.resume()  # the next one is not stopped


@pytest.mark.parametrize("kind", KINDS)
def test_an_order_is_heard_while_it_waits(kind: str, tmp_path: Any) -> None:
    """A person's word, from another process, ends the waiting at once."""
    with flyball.open("program", state_dir=tmp_path) as guard:
        session = guard.session(NAME, either(kind, Pausing(stages=2, after=3600)))
        came: list[int] = []
        thread = threading.Thread(target=lambda: came.append(session.run(wait=True)), daemon=True)
        thread.start()
        while session.status != "paused":
            assert thread.is_alive()
        with flyball.open("other", state_dir=tmp_path) as other:
            Definitions().learn(other.governor, ())
            other.governor.submit(Released(unit=NAME, policies=("session",), by="ann"))
            thread.join(WAIT_MAX)
        assert came == [2]


# What there is to resume.


def test_unknown() -> None:
    """It is an error where one asks by hand, and no where a schedule does."""
    scene = Scene()
    calls: tuple[Callable[[], bool], ...] = (lambda: scene.guard.resume("nobody"), work(scene, Pausing()).resume)
    for call in calls:
        with pytest.raises(flyball.SessionNotFound, match=r"^Session not found: (nobody|work)$"):
            call()
    assert not scene.guard.resume_paused("nobody")


def test_known_but_not_its_function() -> None:
    """A program that does not define the session cannot run it, and is told so."""
    scene = Scene()
    paused(scene)
    other = scene.again()
    for call in (other.guard.resume, other.guard.resume_paused):
        with pytest.raises(FlyballError, match="does not know its function") as raised:
            call(NAME)
        assert "guard.session" in raised.value.remedy
    other.guard.session(NAME, Pausing())
    assert other.guard.resume(NAME)
    assert other.count("resumes") == 1


def test_done_is_not_resumed() -> None:
    """Nor what was never begun: there is nothing to go on from."""
    scene = Scene()
    session = work(scene, Pausing(stages=1))
    session.run()
    assert not session.resume()
    assert not session.resume_paused()
    assert scene.exits() == ["done"]


def test_by_its_name_and_checkpoint() -> None:
    """`guard.resume` is the same by name."""
    scene = Scene()
    session = work(scene, Pausing(stages=3, after=3600))
    for _ in range(2):
        with pytest.raises((flyball.SessionPaused, Refused)):
            session.run()
        scene.clock.move(60 * MINUTE)
    assert scene.guard.resume(NAME, "1")
    assert known(scene.governor, NAME).pause == "rate_limit"
    found = checkpoints.load(scene.store, NAME)
    assert found is not None
    assert (found.id, found.values) == ("3", {"made": 2})
    exits = [event for event in scene.events(Exited) if isinstance(event, Exited)]
    assert len(exits) == 3
