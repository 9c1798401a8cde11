"""Turns: who may write to a file next, among processes that do not know each other. Nothing here knows SQLite.

A writer that only waits for SQLite's own lock sleeps and tries again, and a busy neighbour takes the lock in between:
four busy writers got 1, 1, 1 and 7490 commits. Waiting in the kernel for a file lock is fairer, but whoever lets go can
still take it again before the woken one runs. So there are two locks: one has to hold the place at the head of the line
(`-next`) before waiting for the turn itself (`-turn`), and gives that place up only when it has the turn. Whoever lets
go of the turn has to join the line, and the one at its head is ahead of him.

A process that dies lets go of both: the kernel sees to it. Without the files, or if someone deletes them, nothing is
harmed: SQLite still locks, only less fairly.
"""

import fcntl
import os
from pathlib import Path
from types import TracebackType

MODE = 0o600


class Turn:
    """`with turn:` is this process's turn to write. For one thread at a time."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._next = os.open(f"{path}-next", flags, MODE)
        try:
            self._turn = os.open(f"{path}-turn", flags, MODE)
        except OSError:
            os.close(self._next)
            raise

    def __enter__(self) -> None:
        fcntl.flock(self._next, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._turn, fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        fcntl.flock(self._turn, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the files. In a forked child this takes nothing from the parent, which still has them open."""
        os.close(self._next)
        os.close(self._turn)
