"""What the kernel offers to who looks after processes. Without it flyball works, with less certainty."""

import os
import sys
from collections.abc import Iterator
from typing import Final

from flyball.doctor.finding import Finding, ok, warning
from flyball.doctor.scene import Scene
from flyball.runtimes import guardian
from flyball.runtimes.process import kernel

PR_GET_CHILD_SUBREAPER: Final = 37


def check(_: Scene) -> Iterator[Finding]:
    """Only asked, and nothing of it used."""
    found = kernel.detect(reaps=False)
    yield judge(kernel.Kernel(pidfd=found.pidfd, subreaper=found.proc and has_subreaper(), proc=found.proc), os.uname())


def judge(found: kernel.Kernel, machine: os.uname_result) -> Finding:
    """What is there, and what is lost without it."""
    name = f"{machine.sysname} {machine.release}"
    lost = []
    if not found.pidfd:
        lost.append("no pidfd: ends of processes are looked for ten times a second")
    if not found.subreaper:
        lost.append("no sub-reaper: a grandchild that detaches itself may get away")
    if not found.proc:
        lost.append("no /proc: descendants cannot be found")
    if not lost:
        return ok(f"{name} has pidfd, sub-reapers and /proc: no process of a unit gets away")
    remedy = "Use Linux 5.3 or newer, and a container that does not forbid them; on macOS there are none."
    return warning(f"{name}: {'; '.join(lost)}", remedy)


def has_subreaper() -> bool:
    """Whether the kernel knows the question."""
    if not sys.platform.startswith("linux") or os.environ.get(guardian.WITHOUT):
        return False
    import ctypes  # noqa: PLC0415 - only where it serves

    answer = ctypes.c_int()
    return bool(kernel.libc().prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0) == 0)
