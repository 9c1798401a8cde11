"""Finding the processes of a run, also those that left its process group, its session or its parent.

Three ways, by what the kernel offers. As a sub-reaper we get every orphan: what is our child and nobody's run is one,
and the mark in its environment says whose. Without, the whole of /proc is searched for the mark. Without /proc, `ps`
shows who descends from whom, as long as the parents live; what has left group and parent by then is not found.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, Protocol

from flyball.runtimes import holder
from flyball.runtimes.process import kernel
from flyball.runtimes.process.kernel import Kernel, Stat
from flyball.runtimes.process.spawn import RUN_VARIABLE, UNIT_VARIABLE

KIN_MAX: Final = 10_000
"""Processes of one run that are remembered: more than any machine gives to one user. The rest is found when these are
gone."""


_UNIT_MARK: Final = os.fsencode(f"{UNIT_VARIABLE}=")
_RUN_MARK: Final = os.fsencode(f"{RUN_VARIABLE}=")


class Kin(NamedTuple):
    """One process, known by its number and when it started, so that it is never mistaken for a later one."""

    pid: int
    started: int


class Orphan(NamedTuple):
    """A child of ours that no run of ours knows."""

    pid: int
    stat: Stat

    @property
    def kin(self) -> Kin:
        """What it is known by."""
        return Kin(self.pid, self.stat.started)

    @property
    def leads(self) -> bool:
        """It leads a session. So may a probe that the supervisor started; what does not lead one is an orphan."""
        return self.pid == self.stat.session


class Member(Protocol):
    """A run, as far as its tree is concerned."""

    @property
    def pid(self) -> int: ...
    @property
    def mark(self) -> tuple[str, str]:
        """Its unit and its run: runs of different units may have the same id."""

    @property
    def started(self) -> int: ...


def walk(pid: int, means: Kernel) -> list[Kin]:
    """All that descends from a process and lives, without itself."""
    if not means.proc:
        return _walk_by_ps(pid)
    found: list[Kin] = []
    look = [pid]
    while look and len(found) < KIN_MAX:
        for child in map(int, kernel.children(look.pop())):
            stat = kernel.stat(child)
            if stat is not None and not stat.dead:
                found.append(Kin(child, stat.started))
                look.append(child)
    return found


def orphans(known: AbstractSet[bytes]) -> list[Orphan]:
    """Our children that are not known, and whose session is not ours: no unit can get into that."""
    found = []
    own = os.getsid(0)
    for pid in map(int, set(kernel.own_children()) - known):
        stat = kernel.stat(pid)
        if stat is not None and stat.session != own:
            found.append(Orphan(pid, stat))
    return found


def claims(orphan: Orphan, member: Member, others: Collection[Member]) -> bool:
    """Whether an orphan belongs to this run, which is over. One that hides where it came from belongs to it when no
    other run is old enough to have started it; until then it stays, and the guardian knows of it."""
    origin = (orphan.stat.session, orphan.stat.group)
    if member.pid in origin:
        return True
    unit, run = mark = marks_of(orphan.pid)
    if run and mark == member.mark:
        return True
    if unit and not run:  # a probe: the supervisor started it for itself
        return False
    if any(other.pid in origin or (run and other.mark == mark) for other in others):
        return False
    return not any(other.started <= orphan.stat.started for other in others)


def marks_of(pid: int) -> tuple[str, str]:
    """The unit and the run that a process says it is of."""
    unit = run = b""
    for variable in kernel.environment(pid):
        if variable.startswith(_UNIT_MARK):
            unit = variable.removeprefix(_UNIT_MARK)
        elif variable.startswith(_RUN_MARK):
            run = variable.removeprefix(_RUN_MARK)
    return os.fsdecode(unit), os.fsdecode(run)


def search(member: Member) -> list[Kin]:
    """Every living process with the mark of that run, wherever it is, or of its session or group."""
    found = []
    for pid in kernel.everybody():
        if pid != member.pid and (stat := kernel.stat(pid)) is not None and not stat.dead:
            inside = member.pid in (stat.session, stat.group)
            if inside or (stat.started >= member.started and marks_of(pid) == member.mark):
                found.append(Kin(pid, stat.started))
    return found


def is_alive(kin: Kin, means: Kernel) -> bool:
    """Whether that very process is still running."""
    if not means.proc:
        started = holder.start_of(kin.pid)
        return started is not None and abs(started - kin.started) <= holder.ROUNDING_MAX
    stat = kernel.stat(kin.pid)
    return stat is not None and stat.started == kin.started and not stat.dead


def send(kin: Kin, number: int, means: Kernel) -> None:
    """Send a signal to that very process, if it is there and we may."""
    with contextlib.suppress(OSError):
        if not means.pidfd:
            if is_alive(kin, means):
                os.kill(kin.pid, number)
            return
        pidfd = os.pidfd_open(kin.pid)
        try:
            # Looked at after its descriptor was opened: what is signalled is what was looked at.
            if is_alive(kin, means):
                signal.pidfd_send_signal(pidfd, number)
        finally:
            os.close(pidfd)


def send_to_all(kin: Kin, number: int, means: Kernel) -> None:
    """Send a signal to that very process and, if it leads a group of its own, to all in it: to what it started since
    it was found, too."""
    try:
        leads = os.getpgid(kin.pid) == kin.pid
    except OSError:
        return
    if leads and is_alive(kin, means):
        send_to_group(kin.pid, number)
    else:
        send(kin, number, means)


def send_to_group(group: int, number: int) -> bool:
    """Send a signal to a process group; whether there is anybody in it."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def group_lives(group: int, means: Kernel) -> bool:
    """Whether there is anybody in a process group who has not ended. Who has, and is not reaped yet, does not count."""
    if not send_to_group(group, 0):
        return False
    if means.proc:
        stats = map(kernel.stat, kernel.everybody())
        return any(stat is not None and stat.group == group and not stat.dead for stat in stats)
    return any(int(inside) == group and state[0] not in holder.DEAD for inside, state in _ps("pgid", "stat"))


def reap(kin: Kin, means: Kernel) -> None:
    """Take note of the end of an orphan that came to us, so that the kernel can forget it."""
    stat = kernel.stat(kin.pid) if means.proc else None
    if stat is not None and stat.started == kin.started and stat.dead:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(kin.pid, os.WNOHANG)


def _walk_by_ps(pid: int) -> list[Kin]:
    children: dict[int, list[int]] = {}
    for number, parent in _ps("pid", "ppid"):
        children.setdefault(int(parent), []).append(int(number))
    found: list[Kin] = []
    look = [pid]
    while look and len(found) < KIN_MAX:
        for child in children.get(look.pop(), ()):
            started = holder.start_of(child)
            if started is not None:
                found.append(Kin(child, started))
            look.append(child)
    return found


def _ps(*columns: str) -> list[list[str]]:
    """What `ps` says of everybody."""
    options = [option for column in columns for option in ("-o", f"{column}=")]
    try:
        asked = subprocess.run(  # noqa: S603 - nothing of it comes from outside
            ["ps", "-A", *options],  # noqa: S607 - wherever the system has it
            capture_output=True,
            text=True,
            timeout=holder.ANSWER_MAX,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.split() for line in asked.stdout.splitlines()]
