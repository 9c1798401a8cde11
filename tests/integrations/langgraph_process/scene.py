"""What the tests of graphs in processes share: which processes there are, and how an event is waited for."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

WITHIN: Final = 30.0
"""Seconds that anything here is waited for: far more than it takes."""


def children() -> set[int]:
    """The forks of this process that are not gone. What other tests have started beside it, such as a database, is none
    of them: a fork has the same command line."""
    found: set[int] = set()
    for thread in Path(f"/proc/{os.getpid()}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.update(int(pid) for pid in (thread / "children").read_text(encoding="utf-8").split())
    return {pid for pid in found if _command(pid) in (b"", _command(os.getpid()))}


def _command(pid: int) -> bytes:
    """Nothing: it is dead, and not reaped."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b"gone"


def is_alive(pid: int) -> bool:
    """Whether that process is there, and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_for(true: Callable[[], object]) -> None:
    """Wait for an event that nobody tells of."""
    by = time.monotonic() + WITHIN
    while not true():
        assert time.monotonic() < by, "it does not come"
        time.sleep(0.01)
