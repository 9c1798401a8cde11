"""What the system allows a user: open files, processes, numbers of processes, beside what the settings ask for."""

import contextlib
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flyball.control.text import counted
from flyball.doctor.finding import Finding, bad, ok, warning
from flyball.doctor.scene import Scene

FILES_EACH: Final = 4
"""Open files that the daemon has for one unit: its process and its output; now and then its log and a probe, too."""
FILES_OWN: Final = 128
"""For itself: the store, sockets, people who look."""
PROCESSES_EACH: Final = 2
"""A unit is at least one process, and most have a child."""
NO_LIMIT: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is allowed; NO_LIMIT: anything."""

    files: int
    files_most: int
    """To which whoever wants more may go without asking."""
    processes: int
    pids: int
    """Numbers of processes that the machine has, or the container."""


def check(scene: Scene) -> Iterator[Finding]:
    """For as many units as the settings name."""
    yield from judge(seen(), len(scene.fallback.units))


def judge(limits: Limits, units: int) -> Iterator[Finding]:
    """Whether so many units fit."""
    files, processes = FILES_OWN + FILES_EACH * units, PROCESSES_EACH * units
    text = f"{_shown(limits.files)} open files are allowed, {counted(units, 'unit')} would need about {files}"
    if limits.files < files:
        remedy = (
            f"Allow more: `ulimit -n {max(2 * files, 1024)}` before `flyball up`, or LimitNOFILE= in its unit file."
        )
        if limits.files_most < files:
            remedy += f" Beyond {limits.files_most} that takes root (/etc/security/limits.conf)."
        yield bad(text, remedy)
    else:
        yield ok(text)
    if limits.processes < processes:
        text = f"{limits.processes} processes of one user are allowed, {units} units are at least {processes}"
        yield bad(text, "Allow more: `ulimit -u`, or LimitNPROC= in its unit file.")
    if limits.pids < 4 * processes or limits.pids < 1024:
        text = f"there are {limits.pids} numbers for processes here"
        yield warning(text, "Raise kernel.pid_max, or the container's limit (pids.max, `--pids-limit`).")


def seen() -> Limits:
    """What the system says."""
    files = [_most(limit) for limit in resource.getrlimit(resource.RLIMIT_NOFILE)]
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[0] if hasattr(resource, "RLIMIT_NPROC") else -1
    pids = [_number(Path("/proc/sys/kernel/pid_max")), _number(Path("/sys/fs/cgroup/pids.max"))]
    return Limits(files=files[0], files_most=files[1], processes=_most(processes), pids=min(pids))


def _number(file: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(file.read_text())
    return NO_LIMIT


def _most(limit: int) -> int:
    return NO_LIMIT if limit in (-1, resource.RLIM_INFINITY) else limit


def _shown(limit: int) -> str:
    return "any number of" if limit >= NO_LIMIT else str(limit)
