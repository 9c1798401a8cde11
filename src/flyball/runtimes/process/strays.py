"""Strays: processes of runs whose supervisor and guardian were both killed. Nobody guards them, and a new run would be
their double: so they are ended before anything is started.

They are known by the mark of a run that the store still has as live. Without /proc they cannot be found.
"""

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Final

from flyball.runtimes.process import kernel, tree
from flyball.runtimes.process.kernel import Kernel
from flyball.runtimes.process.tree import Kin

ROUNDS_MAX: Final = 100
"""Looks at the process table. Each ends all that is found; what forks faster than that is not ended by looking more."""

GONE_MAX: Final = 5_000
"""Milliseconds to wait for a killed process to be gone. It takes less than one, unless the kernel cannot let it go."""


def end(runs: AbstractSet[tuple[str, str]], means: Kernel) -> int:
    """Kill every process with the marks (unit and run) of one of these, until none is left; how many there were."""
    if not runs or not means.proc:
        return 0
    return end_all(lambda: _find(runs), means)


def end_all(find: Callable[[], Iterable[Kin]], means: Kernel) -> int:
    """Kill what is found, until nothing of it is alive; how many there were."""
    ended: set[Kin] = set()
    for _ in range(ROUNDS_MAX):
        found = [kin for kin in find() if tree.is_alive(kin, means)]
        if not found:
            break
        ended.update(found)
        for kin in found:
            tree.send_to_all(kin, signal.SIGKILL, means)
        for kin in found if means.pidfd else ():
            _wait_for(kin, means)
    return len(ended)


def _find(runs: AbstractSet[tuple[str, str]]) -> list[Kin]:
    found = []
    for pid in kernel.everybody():
        if pid != os.getpid() and tree.marks_of(pid) in runs and (stat := kernel.stat(pid)) is not None:
            found.append(Kin(pid, stat.started))
    return found


def _wait_for(kin: Kin, means: Kernel) -> None:
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(kin.pid)
        try:
            if tree.is_alive(kin, means):
                poll = select.poll()
                poll.register(pidfd, select.POLLIN)
                poll.poll(GONE_MAX)
        finally:
            os.close(pidfd)
