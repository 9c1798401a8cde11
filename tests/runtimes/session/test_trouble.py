"""Sessions in trouble: stores that are full or damaged, processes that slept for too long, programs with too many
sessions. What is wrong is said, nothing is counted for it, and nothing is given away."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import flyball
from flyball import guard as guards
from flyball.core.event import Exited
from flyball.core.policy import Key
from flyball.core.time import MINUTE
from flyball.errors import FlyballError, StoreFull
from flyball.runtimes.refusal import Refused
from flyball.runtimes.session import block, draft, record
from flyball.runtimes.session.context import SessionContext
from flyball.store import Draft, Drafter, Entry, checkpoints
from flyball.store.memory import MemoryStore
from tests.runtimes.session.scene import NAME, Scene

WAIT_MAX = 30.0
"""Seconds for what takes milliseconds."""


def pausing(session: SessionContext) -> str:
    """Makes one stage a run, and pauses after it for a very short time, in all runs but the third."""
    with session.stage("one"):
        session.checkpoint["made"] = session.checkpoint.get("made", 0) + 1
    if session.checkpoint["made"] < 3:
        session.pause("rate_limit", resume_after=0)
    return "done"


def paused(scene: Scene, **options: Any) -> flyball.Session:
    session = scene.guard.session(NAME, pausing, **options)
    with pytest.raises(flyball.SessionPaused):
        session.run()
    return session


def put(scene: Scene, rows: checkpoints.Rows) -> None:
    scene.store.transact([], lambda snapshot: Draft(snapshot.at, rows, None))


# What is stored is damaged.


@pytest.mark.parametrize("policy", ["session", "resumes", "exclusive"])
@pytest.mark.parametrize("damaged", [b"{{", b"[1,2]"], ids=["no JSON", "another kind"])
def test_a_state_that_cannot_be_read(policy: str, damaged: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """It is refused, with the policy that is meant; what is kept stays, and so do other sessions."""
    scene = Scene()
    session = paused(scene)
    put(scene, {Key(policy, "unit", NAME): damaged})
    with pytest.raises(Refused, match=f"the {policy} policy itself failed"):
        session.run()
    assert [kept.id for kept in session.checkpoints] == ["1"]
    assert scene.starts() == ["start"]
    assert scene.guard.session("other", lambda _: "fine").run() == "fine"


@pytest.mark.parametrize(
    ("key", "damaged", "says"),
    [
        (record.key(NAME), b"{{", "the input of work cannot be read"),
        (checkpoints.data_key(NAME, 1), b"{{", "all checkpoints of work"),
    ],
    ids=["input", "checkpoint"],
)
def test_what_it_goes_on_from_is_looked_at_before_it_is_counted(
    key: Key, damaged: bytes, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """S2-18: an attempt that could only fail is none."""
    scene = Scene()
    session = paused(scene)
    put(scene, {key: damaged})
    with pytest.raises(FlyballError, match=says):
        session.run()
    assert scene.count("resumes") == 0
    assert session.status == "paused"


@pytest.mark.parametrize("data", [b"plain text", b"[1,2]"])
def test_a_commands_checkpoint_is_not_a_programs(data: bytes) -> None:
    """A session that was a command, and is now a function, has nothing that the function could go on from."""
    scene = Scene()
    session = paused(scene)
    put(scene, checkpoints.rows(scene.store, NAME, "sh", data, scene.clock.now()))
    with pytest.raises(checkpoints.CheckpointDamaged, match="checkpoint 2 is not a JSON object"):
        session.run()
    assert scene.count("resumes") == 0
    assert session.resume("1")


def test_a_checkpoint_by_its_number() -> None:
    """People give the number as they read it."""
    scene = Scene()
    session = paused(scene)
    assert session.resume(1)  # type: ignore[arg-type]  # as people do
    assert scene.starts() == ["start", "resume"]
    with pytest.raises(checkpoints.CheckpointNotFound):
        session.resume(9)  # type: ignore[arg-type]  # as above


# Somebody else is quicker.


def test_the_last_attempt_at_work_is_not_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    """S2-37: while the last resume that is allowed still runs, nothing has failed: another one is told that it runs."""
    scene = Scene()
    told: list[BaseException] = []

    def function(session: SessionContext) -> str:
        if not session.again:
            session.pause("rate_limit", resume_after=0)
        for ask in (other.run, other.resume):
            with pytest.raises(Refused) as refused:
                ask()
            told.append(refused.value)
        told.extend([AssertionError()] * other.resume_paused())
        return "done"

    session = scene.guard.session(NAME, function, resumes=1)
    other = scene.again().guard.session(NAME, function, resumes=1)
    with pytest.raises(flyball.SessionPaused):
        session.run()
    assert session.run() == "done"
    assert [type(error) for error in told] == [Refused, Refused]
    assert "Maximum resume attempts" not in "".join(
        entry.message for entry in caplog.records if entry.levelname == "ERROR"
    )


def test_a_schedule_that_is_late_resumes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """S2-17, S2-37: two schedules at once: one of them did it, and the other says that it did not."""
    scene = Scene()
    session = paused(scene)
    began, goes_on = threading.Event(), threading.Event()

    def slow(context: SessionContext) -> None:
        began.set()
        assert goes_on.wait(WAIT_MAX)

    running = scene.again().guard.session(NAME, slow)
    thread = threading.Thread(target=running.run, daemon=True)
    looked = session._look

    def look() -> Any:
        answer = looked()
        thread.start()
        assert began.wait(WAIT_MAX)
        return answer

    monkeypatch.setattr(session, "_look", look)
    assert not session.resume_paused()
    goes_on.set()
    thread.join(WAIT_MAX)
    assert scene.starts() == ["start", "resume"]


# It slept for longer than its lease, and another run took its place.


def taken_over(scene: Scene) -> None:
    """Its lease runs out, and another program resumes it, makes a stage, and pauses."""
    scene.clock.move(11 * MINUTE)
    with pytest.raises(flyball.SessionPaused):
        scene.again().guard.session(NAME, pausing).run()


def test_it_does_not_end_what_another_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """S2-20: also if it slept just before it could say that it is done: nothing is reset, and it has no result."""
    scene = Scene()
    ending: Callable[[Any, Any], Any] = block.SessionBlock._ending

    def late(self: Any, error: Any) -> Any:
        monkeypatch.undo()
        taken_over(scene)
        return ending(self, error)

    monkeypatch.setattr(block.SessionBlock, "_ending", late)
    session = scene.guard.session(NAME, lambda _: "done")
    with pytest.raises(Refused, match="given up as lost"):
        session.run()
    assert session.status == "paused"
    assert scene.count("resumes") == 1
    assert scene.exits() == ["lost", "rate_limit"]


def test_it_does_not_overwrite_what_another_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it slept just before its checkpoint was written."""
    scene = Scene()
    add = checkpoints.add

    def late(*given: Any, **more: Any) -> Any:
        made = add(*given, **more)
        monkeypatch.undo()
        taken_over(scene)
        return made

    def function(session: SessionContext) -> None:
        with session.stage("late"):
            session.checkpoint["late"] = True

    monkeypatch.setattr(f"{draft.__name__}.add", late)
    session = scene.guard.session(NAME, function)
    with pytest.raises(Refused, match="given up as lost"):
        session.run()
    assert [kept.stage for kept in session.checkpoints] == ["one"]
    assert session.status == "paused"


def test_a_pause_of_what_was_given_up_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs it is told, and sees nothing of how a pause leaves the function."""
    scene = Scene()

    def function(session: SessionContext) -> None:
        taken_over(scene)
        session.pause("late")

    with pytest.raises(Refused, match="given up as lost"):
        scene.guard.session(NAME, function).run()
    assert scene.exits() == ["lost", "rate_limit"]


# The disk is full.


class FullStore(MemoryStore):
    """Takes nothing while it is full."""

    full = False

    def transact(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> Entry | None:
        if self.full:
            raise StoreFull("no room")
        return super().transact(keys, draft, sync=sync)


@pytest.mark.parametrize("ends", ["done", "paused", "failed", "in a stage"])
def test_an_end_that_could_not_be_written_is_written_later(ends: str) -> None:
    """When there is room again, the same program goes on at once, from what was kept: it does not wait for its own
    lease. What nobody was told of is not done."""
    store = FullStore()
    scene = Scene(store)

    def function(session: SessionContext) -> str:
        if session.again:
            return f"went on from {session.checkpoint['made']}"
        with session.stage("one"):
            session.checkpoint["made"] = 1
        if ends == "in a stage":
            with session.stage("two"):
                session.checkpoint["made"] = 2
                store.full = True
        store.full = True
        if ends == "paused":
            session.pause("rate_limit", resume_after=0)
        if ends == "failed":
            raise ValueError
        return "unheard"

    session = scene.guard.session(NAME, function)
    with pytest.raises(StoreFull):
        session.run()
    with pytest.raises(StoreFull):
        session.run()
    store.full = False
    assert session.run() == "went on from 1"
    assert scene.starts() == ["start", "resume"]
    assert "lost" not in scene.exits()
    assert session.status == "completed"


# More sessions than a program remembers.


def test_what_was_forgotten_still_has_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """S2-24: a session that is run long after it was defined stands under what it was given, not under nothing."""
    monkeypatch.setattr(guards, "SESSIONS_MAX", 2)
    scene = Scene()

    def endless(session: SessionContext) -> None:
        for number in range(100):
            with session.stage("one"):
                session.checkpoint["n"] = number

    sessions = [scene.guard.session(f"work{number}", endless, steps=3) for number in range(5)]
    for session in sessions:
        with pytest.raises(Refused, match=r"Step limit reached \(4/3\)"):
            session.run()
        steps = session.show().steps
        assert (steps.used, steps.max) == (3, 3)
    assert len([event for unit in range(5) for event in scene.events(Exited, f"work{unit}")]) == 5


def test_session_is_not_made_something_else(tmp_path: Path) -> None:
    """Nobody takes the limits from a session by defining an agent, a block or a command of its name."""
    with flyball.open("program", state_dir=tmp_path) as guard:
        guard.session("work", lambda _: None).run()
    with flyball.open("other", state_dir=tmp_path) as guard:
        with pytest.raises(FlyballError, match="work is a session"), guard.watch("work"):
            raise AssertionError("begun")
        guard.agent("work")(lambda _: None)
        with pytest.raises(FlyballError, match="work is a session"):
            guard.run()
    env = {**os.environ, "FLYBALL_STATE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "flyball", "run", "--name", "work", "--", "true"]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, "Traceback" in ran.stderr) == (2, False)
    assert "work is a session" in ran.stderr
