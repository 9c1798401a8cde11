"""What is kept of sessions that are over: the newest, and all that can be resumed."""

from pathlib import Path

import pytest

import flyball
from flyball.config import definitions, load
from flyball.config.build import policies_of
from flyball.core.event import Cause, Exited, Start
from flyball.core.panel import Panel
from flyball.policies import Session
from flyball.policies.session import CALL
from flyball.replay.journal import replay
from flyball.runtimes.session import retention
from flyball.runtimes.session.context import SessionContext
from flyball.runtimes.session.retention import forget_old
from flyball.runtimes.session.work import SessionPaused
from flyball.store.checkpoints import CHECKPOINT


def work(session: SessionContext) -> None:
    """Keeps a checkpoint; pauses, or fails, if it is told to."""
    with session.stage("one", cost="0.01"):
        session.checkpoint["n"] = 1
    if session.input.get("ends") == "paused":
        session.pause("person")
    if session.input.get("ends") == "failed":
        raise OSError("broken")


def known(guard: flyball.Guard) -> set[str]:
    """The sessions that the store has a record of."""
    return {key.subject for key in guard.governor.store.states() if key.by == "unit"} - {guard.name}


def test_oldest_that_are_done_are_forgotten(tmp_path: Path) -> None:
    """Of more than are kept, the oldest that are done go, with all that is kept of them, and may begin anew. What is
    paused or failed stays, however old it is. The journal says so, and replays alike."""
    with flyball.open("program", state_dir=tmp_path) as guard:
        for name, leaves in (("paused", SessionPaused), ("failed", OSError)):
            with pytest.raises(leaves):
                guard.session(name, work, input={"ends": name}).run()
        for number in range(5):
            guard.session(f"done-{number}", work).run()
        assert forget_old(guard.governor, 7) == 0
        assert forget_old(guard.governor, 4) == 3
        assert known(guard) == {"paused", "failed", "done-3", "done-4"}
        kept = {key.subject.partition("/")[0] for key in guard.governor.store.states(CHECKPOINT)}
        assert kept == {"paused", "failed", "done-3", "done-4"}
        assert forget_old(guard.governor, 0) == 2
        assert known(guard) == {"paused", "failed"}
        guard.session("done-0", work).run()
        store, units = guard.governor.store, [f"done-{number}" for number in range(5)]
        panel = Panel(guard.settings.policies(), {name: guard.governor.panel.policies_of(name) for name in units})
        for name in ("paused", "failed"):
            panel.put(name, guard.governor.panel.policies_of(name))
        assert all(entry.agrees for entry in replay(panel, store.base(), store.entries()))


def test_calls_without_a_thread_are_over_when_they_end(tmp_path: Path) -> None:
    """Nobody can resume a call of a graph that has no thread: it is forgotten however it ended, but not while it
    runs."""
    with flyball.open("program", state_dir=tmp_path) as guard:
        own = [p for p in policies_of(guard.settings, "graph") if not isinstance(p, Session)]
        for unit in ("error", "stopped", "running"):
            guard.governor.panel.put(unit, (*own, Session(of=CALL)))
            definitions.keep(guard.governor, unit)
            guard.governor.submit(Start(unit=unit, run="r", holder="somebody else"))
        guard.governor.submit(Exited(unit="error", run="r", cause=Cause.ERROR, fingerprint="x"))
        guard.governor.submit(Exited(unit="stopped", run="r", cause=Cause.STOPPED, error="max_steps", policy="steps"))
        assert forget_old(guard.governor, 0) == 2
        assert known(guard) == {"running"}


def test_guard_forgets_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that serves one session after the other keeps so many of them, and no more."""
    monkeypatch.setattr(retention, "LOOKS_EVERY", 2)
    settings = load(env={}).model_validate({"journal": {"max_sessions": 3}})
    with flyball.open("program", settings=settings, state_dir=tmp_path) as guard:
        for number in range(9):
            guard.session(f"done-{number}", work).run()
        assert 3 <= len(known(guard)) <= 5
