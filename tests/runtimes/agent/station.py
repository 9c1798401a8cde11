"""A guard on a store on disk, whose clock can be moved: for agents that have real processes and real hangs."""

import asyncio
import functools
import os
import time
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from flyball.config import Settings
from flyball.core.codec import decode_body
from flyball.core.event import AnyEvent, Exited, Start
from flyball.core.time import Span
from flyball.governor import Governor, SystemClock
from flyball.guard import Guard
from flyball.runtimes.agent.memory import Memory
from flyball.runtimes.process import kernel
from flyball.store.sqlite import SqliteStore

WITHIN = 30.0
"""Seconds for anything that a test waits for. An interpreter starts in a part of one; the machine may be busy."""

T = TypeVar("T")
E = TypeVar("E", bound=AnyEvent)


class Station:
    """One program on one store."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.clock = SystemClock()
        self.settings = Settings.model_validate(settings)
        reopen = functools.partial(SqliteStore, folder / "state.db")
        self.store = reopen()
        self.governor = Governor(self.settings.policies(), self.store, self.clock)
        file = folder / "state.db-wal"
        self.guard = Guard(self.settings, self.governor, name="program", file=file, reopen=reopen)
        self.mark = uuid.uuid4().hex[:8]

    def name(self, what: str) -> str:
        """A name for an agent that no other test has."""
        return f"{what}-{self.mark}"

    def agent(self, function: Callable[..., Any], **options: Any) -> str:
        """Make it an agent with a process of its own; its name."""
        name = self.name(function.__name__)
        self.guard.agent(name, **{"isolation": "process", "restart": "never", "grace": 0.4, **options})(function)
        return name

    def run(self) -> None:
        """Supervise until all is over."""
        run(self.guard.supervise())

    def pass_time(self, span: Span) -> None:
        """So much time goes by."""
        self.clock.catch_up(self.clock.now() + span)

    async def passes(self, span: Span) -> None:
        """So much time goes by, and everybody looks at the clock."""
        self.pass_time(span)
        assert self.guard._supervisor is not None
        self.guard._supervisor.ring()

    async def begun(self, name: str) -> int:
        """Wait until an agent has said so; the number of its process."""
        path = self.folder / name
        await until(path.exists)
        return int(path.read_text())

    def events(self, unit: str) -> list[AnyEvent]:
        bodies = [decode_body(entry.body) for entry in self.store.entries(limit=100_000) if entry.unit == unit]
        return [body.event for body in bodies if not body.event.asks or body.decision.proceeds]

    def exits(self, unit: str) -> list[Exited]:
        return [event for event in self.events(unit) if isinstance(event, Exited)]

    def starts(self, unit: str) -> int:
        return sum(isinstance(event, Start) for event in self.events(unit))

    def memory(self, unit: str) -> dict[str, Any]:
        key = Memory.key(unit)
        return dict(Memory(unit, self.store.read([key]).records.get(key)))

    def log(self, unit: str) -> str:
        return (self.folder / "logs" / f"{unit}.log").read_text()


def processes(mark: str) -> list[int]:
    """All that live and say that they are of a unit with that in its name."""
    return [pid for pid in kernel.everybody() if pid != os.getpid() and _is_of(pid, mark.encode())]


def _is_of(pid: int, mark: bytes) -> bool:
    marked = any(variable.startswith(b"FLYBALL_UNIT=") and mark in variable for variable in kernel.environment(pid))
    stat = kernel.stat(pid)
    return marked and stat is not None and not stat.dead


async def until(condition: Callable[[], object]) -> None:
    """Wait until it is so."""
    end = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < end, "waited too long"
        await asyncio.sleep(0.005)


def run(play: Coroutine[Any, Any, T]) -> T:
    """A bounded play in a loop of its own."""

    async def bounded() -> T:
        async with asyncio.timeout(WITHIN):
            return await play

    return asyncio.run(bounded())
