"""What the kernel offers to who looks after processes, and what to do without.

Linux has process file descriptors, sub-reapers and /proc; macOS has none of them. Each can be taken away by itself, so
that the ways without it are tested where it is there.
"""

import contextlib
import fcntl
import functools
import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from flyball.runtimes import guardian, holder

if TYPE_CHECKING:
    import ctypes

PR_SET_CHILD_SUBREAPER: Final = 36

PIDFD_GET_INFO: Final = 0xC040FF0B
"""_IOWR(0xFF, 11, 64 bytes): the first published size of the structure, which every later kernel takes."""
PIDFD_INFO_EXIT: Final = 1 << 3
INFO: Final = struct.Struct("=QQ11Ii")
"""mask, cgroup, eleven ids, exit status."""


class Status(NamedTuple):
    """How a process ended: by itself with a code, or by a signal. Neither is known of some that are not our own."""

    code: int | None
    signal: int | None


UNKNOWN: Final = Status(None, None)


@dataclass(frozen=True, slots=True)
class Kernel:
    """What can be relied on here."""

    pidfd: bool
    """A process is a file descriptor: its exit is an event, and its number is never mistaken for another's."""
    subreaper: bool
    """Orphans of our children come to us, and can be found and reaped."""
    proc: bool
    """The processes can be seen in /proc."""


class Stat(NamedTuple):
    """One process, as /proc shows it."""

    state: str
    parent: int
    group: int
    session: int
    started: int
    """Ticks since the boot."""

    @property
    def dead(self) -> bool:
        """It has ended and is only not reaped yet."""
        return self.state in holder.DEAD


@functools.cache
def detect(*, reaps: bool = True) -> Kernel:
    """What this machine has. Makes this process a sub-reaper, once and for good: orphans are looked after from now.
    Not in somebody else's program: what comes to it is not ours to reap."""
    linux = sys.platform.startswith("linux")
    proc = linux and stat(os.getpid()) is not None
    return Kernel(pidfd=_has_pidfd(), subreaper=proc and linux and reaps and become_subreaper(), proc=proc)


def _has_pidfd() -> bool:
    if not hasattr(os, "pidfd_open"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:  # an older kernel, or a sandbox that forbids it
        return False
    return True


def become_subreaper() -> bool:
    """Have every orphan of our children come to us; whether it can be."""
    if not sys.platform.startswith("linux"):
        return False
    if os.environ.get(guardian.WITHOUT):
        return False
    return bool(libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


@functools.cache
def libc() -> "ctypes.CDLL":
    """The C library. To open it takes milliseconds, which whoever forks does not want to spend in each child."""
    import ctypes  # noqa: PLC0415 - only where it serves

    return ctypes.CDLL(None, use_errno=True)


def stat(pid: int) -> Stat | None:
    """What /proc says of a process; None if it is gone."""
    data = _read(f"/proc/{pid}/stat")
    # The second field is the name in parentheses, which may hold anything.
    fields = data.rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    return Stat(fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def own_children() -> list[bytes]:
    """The children of our first thread, as /proc writes them. Orphans come to it for as long as it lives."""
    own = os.getpid()
    return _read(f"/proc/{own}/task/{own}/children").split()


def children(pid: int) -> list[bytes]:
    """The children of a process, of all its threads, as /proc writes them: most are known, and need not be numbers."""
    found: list[bytes] = []
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/task") as threads:
        for thread in threads:
            found += _read(f"{thread.path}/children").split()
    return found


def environment(pid: int) -> list[bytes]:
    """The environment that a process was started with; empty if it may not be seen."""
    return _read(f"/proc/{pid}/environ").split(b"\0")


def everybody() -> Iterator[int]:
    """The pids of all processes."""
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                yield int(entry.name)


def _read(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(descriptor, 65_536):
            parts.append(part)
        return b"".join(parts)
    except OSError:  # it ended in between
        return b""
    finally:
        os.close(descriptor)


def exit_of_stranger(pidfd: int) -> Status | None:
    """How a process ended that is no child of ours; None if it has not been reaped yet. A kernel before Linux 6.15 does
    not know."""
    info = bytearray(INFO.size)
    INFO.pack_into(info, 0, PIDFD_INFO_EXIT, *([0] * 13))
    try:
        fcntl.ioctl(pidfd, PIDFD_GET_INFO, info)
    except OSError:
        return UNKNOWN
    mask, *_, status = INFO.unpack(info)
    return status_of(status) if mask & PIDFD_INFO_EXIT else None


def status_of(wait_status: int) -> Status:
    """A wait status, taken apart."""
    code = os.waitstatus_to_exitcode(wait_status)
    return Status(code, None) if code >= 0 else Status(None, -code)
