"""A stage for real processes: a unit in a scratch folder, waits that are bounded, and proof that nothing is left."""

import asyncio
import contextlib
import ctypes
import os
import time
import uuid
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from flyball.config.units import Unit
from flyball.core.time import SECOND
from flyball.runtimes.driver import Ending
from flyball.runtimes.process import ProcessHands, ProcessLife, kernel
from flyball.runtimes.process.kernel import Kernel

WAIT_MAX = 20.0
"""Seconds for anything that a test waits for. It takes milliseconds; the machine may be busy."""

T = TypeVar("T")

IGNORES_TERM = "trap '' TERM; "
HANGS = "while :; do sleep 0.05; done"
"""A shell that does not end, and whose sleeping child does not outlive a killed group for long."""


class Stage:
    """One unit and the processes that carry its mark."""

    def __init__(self, folder: Path, means: Kernel | None = None) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.name = f"t-{uuid.uuid4().hex[:12]}"
        self.means = means
        self.runs = 0
        self._before = _zombies()

    def hands(self, *command: str, **settings: Any) -> ProcessHands:
        unit = Unit(name=self.name, command=command, **{"cwd": str(self.folder), **settings})
        return ProcessHands(unit, logs=self.logs, means=self.means)

    def shell(self, script: str, **settings: Any) -> ProcessHands:
        return self.hands("/bin/sh", "-c", script, **settings)

    async def begin(self, hands: ProcessHands, *, again: bool = False) -> ProcessLife:
        self.runs += 1
        return await hands.begin(f"{self.name}.{self.runs}", again=again)

    async def ending(self, hands: ProcessHands, *, again: bool = False) -> Ending:
        """A whole run."""
        return await (await self.begin(hands, again=again)).ended()

    @property
    def log(self) -> bytes:
        return (self.logs / f"{self.name}.log").read_bytes()

    async def appears(self, name: str) -> str:
        """Wait until a child has written this file, and a whole line to it."""
        path = self.folder / name
        await until(lambda: path.exists() and path.read_text().endswith("\n"))
        return path.read_text().strip()

    def zombies(self) -> set[int]:
        """Children of ours that ended since, and were not reaped. What other tests left to us, who are a sub-reaper, is
        none of this stage's."""
        return _zombies() - self._before

    def processes(self) -> list[int]:
        """All that live and carry the unit's mark, wherever they are."""
        mark = f"FLYBALL_UNIT={self.name}".encode()
        return [pid for pid in kernel.everybody() if mark in kernel.environment(pid) and is_alive(pid)]


async def until(condition: Any) -> None:
    """Wait until it is so."""
    end = time.monotonic() + WAIT_MAX
    while not condition():
        assert time.monotonic() < end, "waited too long"
        await asyncio.sleep(0.002)


def run(play: Coroutine[Any, Any, T]) -> T:
    """Run it, and not for ever."""
    return asyncio.run(asyncio.wait_for(play, WAIT_MAX))


def is_alive(pid: int) -> bool:
    stat = kernel.stat(pid)
    return stat is not None and not stat.dead


def _zombies() -> set[int]:
    return {
        pid for pid in map(int, kernel.children(os.getpid())) if (stat := kernel.stat(pid)) is not None and stat.dead
    }


@contextlib.contextmanager
def no_subreaper() -> Iterator[None]:
    """As on a machine where orphans do not come to us."""
    prctl = ctypes.CDLL(None).prctl
    prctl(kernel.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    try:
        yield
    finally:
        prctl(kernel.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


SECONDS_10 = 10 * SECOND


def needs_root() -> pytest.MarkDecorator:
    return pytest.mark.skipif(os.geteuid() != 0, reason="only root may change users")
