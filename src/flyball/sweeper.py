"""Who sweeps scratch folders when whoever made them is killed: a process beside it, which waits for its end at a pipe.

    python -m flyball.sweeper

Its standard input brings folders, one a line. The other end is held by who made them, and nobody else: however that
one ends, kill -9 included, the pipe is closed. Then whatever was started in those folders is ended, and they go. After
an end in order there is nothing left to do.

What was started in a folder is known by a mark in its environment, and found by that even if nobody looks after it.
"""

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from flyball.runtimes import holder
from flyball.runtimes.process import kernel

MARK: Final = "FLYBALL_SCRATCH"
"""The variable that every process of a scratch folder has, with that folder."""
LOOK_EVERY: Final = 0.05
GONE_WITHIN: Final = 30.0
"""Seconds for processes that were killed to be gone."""

_starting = threading.Lock()
_sweeper: "subprocess.Popen[bytes] | None" = None


def goes_with_us(folder: Path) -> None:
    """From here on that folder goes when this process does, at the latest."""
    global _sweeper  # noqa: PLW0603 - one for all folders of this process
    with _starting:
        if _sweeper is None:
            _sweeper = subprocess.Popen(
                [sys.executable, "-m", "flyball.sweeper"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # what ends the terminal does not end it
            )
            atexit.register(_let_go, _sweeper)
        assert _sweeper.stdin is not None  # noqa: S101 - it is a pipe
        _sweeper.stdin.write(os.fsencode(folder) + b"\n")
        _sweeper.stdin.flush()


def _let_go(sweeper: "subprocess.Popen[bytes]") -> None:
    """At an end in order the sweeper ends before us, and finds nothing to do."""
    with sweeper:
        pass


def sweep(folder: Path) -> None:
    """End whatever runs in that folder, and remove it."""
    ends = time.monotonic() + GONE_WITHIN
    while (left := processes_of(folder)) and time.monotonic() < ends:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(LOOK_EVERY)
    shutil.rmtree(folder, ignore_errors=True)


def processes_of(folder: Path) -> list[int]:
    """Whatever runs there, where the system lists processes. Elsewhere a daemon's own end has to leave nothing."""
    mark = f"{MARK}={folder}".encode()
    found: list[int] = []
    with contextlib.suppress(OSError):
        everybody = kernel.everybody()
        found += [pid for pid in everybody if pid != os.getpid() and mark in kernel.environment(pid) and is_alive(pid)]
    return found


def is_alive(pid: int) -> bool:
    """It is there, and not dead and waiting to be reaped."""
    return holder.start_of(pid) is not None


if __name__ == "__main__":
    for line in sys.stdin.buffer.readlines():
        sweep(Path(os.fsdecode(line.removesuffix(b"\n"))))
