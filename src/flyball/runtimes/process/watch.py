"""Seeing a process end, at once and without asking again and again; how it ended, code and signal apart.

A pidfd in the event loop where there are any; else a thread that waits for a child, or a look every so often at a
process that is nobody's child of ours.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Final, Protocol

from flyball.runtimes.process import kernel, tree
from flyball.runtimes.process.kernel import UNKNOWN, Kernel, Status
from flyball.runtimes.process.tree import Kin

LOOK_EVERY: Final = 1.0
"""Seconds between looks at an adopted process where there are no pidfds."""
REAPED_EVERY: Final = 0.01
REAPED_MAX: Final = 5.0
"""Seconds that the parent of an adopted process may take to reap it. Its exit code can be had only after that; the
first process of some containers takes its time."""

Ended = Callable[[], None]


class Watch(Protocol):
    """One process that is watched. It calls back once, when the process has ended."""

    def reap(self) -> Status:
        """How it ended. Its number is free after this."""
        ...

    def close(self) -> None:
        """Watch no longer."""
        ...


def watch_child(pid: int, ended: Ended, means: Kernel) -> Watch:
    """Watch a child of ours."""
    if means.pidfd:
        with contextlib.suppress(OSError):  # too many open files: a thread needs none
            return ByPidfd(pid, ended)
    return ByThread(pid, ended)


def watch_stranger(kin: Kin, ended: Ended, means: Kernel) -> Watch | None:
    """Watch a process that is not our child; None if it is not there."""
    if not means.pidfd:
        return ByLooking(kin, ended, means) if tree.is_alive(kin, means) else None
    try:
        watch = ByPidfdOfStranger(kin.pid, ended)
    except OSError:
        return None
    # Looked at after its descriptor was opened: what is watched is what was looked at.
    if tree.is_alive(kin, means):
        return watch
    watch.close()
    return None


class ByPidfd:
    """Of a child."""

    __slots__ = ("_ended", "_loop", "_pidfd")

    def __init__(self, pid: int, ended: Ended) -> None:
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(pid)
        self._ended = ended
        try:
            self._loop.add_reader(self._pidfd, self._readable)
        except OSError:
            os.close(self._pidfd)
            raise

    def reap(self) -> Status:
        status = self._wait(os.WEXITED)
        self.close()
        return status or UNKNOWN

    def close(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _readable(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._ended()

    def _wait(self, options: int) -> Status | None:
        try:
            result = os.waitid(os.P_PIDFD, self._pidfd, options)
        except ChildProcessError:
            return None
        if result is None:
            return None
        by_itself = result.si_code == os.CLD_EXITED
        return Status(result.si_status, None) if by_itself else Status(None, result.si_status)


class ByPidfdOfStranger(ByPidfd):
    """Of a process that is not our child. Who is its parent reaps it; the kernel tells us how it ended."""

    __slots__ = ("_status", "_until")

    def __init__(self, pid: int, ended: Ended) -> None:
        super().__init__(pid, ended)
        self._status: Status | None = None
        self._until = 0.0

    def reap(self) -> Status:
        self.close()
        return self._status or UNKNOWN

    def _readable(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._until = self._loop.time() + REAPED_MAX
        self._ask()

    def _ask(self) -> None:
        if self._pidfd < 0:
            return
        # It may have come to us, as an orphan.
        self._status = self._wait(os.WEXITED | os.WNOHANG) or kernel.exit_of_stranger(self._pidfd)
        if self._status is None and self._loop.time() < self._until:
            self._loop.call_later(REAPED_EVERY, self._ask)
        else:
            self._ended()


class ByThread:
    """Of a child, where there are no pidfds: a thread waits for it."""

    __slots__ = ("_ended", "_loop", "_pid", "_status")

    def __init__(self, pid: int, ended: Ended) -> None:
        self._loop = asyncio.get_running_loop()
        self._pid, self._ended = pid, ended
        self._status = UNKNOWN
        threading.Thread(target=self._wait, name=f"wait-{pid}", daemon=True).start()

    def reap(self) -> Status:
        return self._status

    def close(self) -> None:
        """The thread ends with the process."""

    def _wait(self) -> None:
        with contextlib.suppress(ChildProcessError):
            self._status = kernel.status_of(os.waitpid(self._pid, 0)[1])
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know
            self._loop.call_soon_threadsafe(self._ended)


class ByLooking:
    """Of a process that is not our child, where there are no pidfds."""

    __slots__ = ("_ended", "_kin", "_loop", "_means", "_timer")

    def __init__(self, kin: Kin, ended: Ended, means: Kernel) -> None:
        self._loop = asyncio.get_running_loop()
        self._kin, self._ended, self._means = kin, ended, means
        self._timer = self._loop.call_later(LOOK_EVERY, self._look)

    def reap(self) -> Status:
        return UNKNOWN

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if tree.is_alive(self._kin, self._means):
            self._timer = self._loop.call_later(LOOK_EVERY, self._look)
        else:
            self._ended()
