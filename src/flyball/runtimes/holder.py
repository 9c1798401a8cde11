"""Who holds a run: `host/pid/starttime`, so that a process is never mistaken for a later one with the same number.

Only what is certain is said to be gone. Of another host, or of a process that cannot be seen, nothing is known here:
its lease decides. So machines and containers that share a store need names of their own.
"""

import os
import socket
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

PROC: Path = Path("/proc")
"""Where the kernel shows its processes. Where it does not (macOS), `ps` is asked."""

ROUNDING_MAX: Final = 2
"""Seconds by which two answers of `ps` about one process may differ. Numbers are not given out again so soon."""

ANSWER_MAX: Final = 10.0
"""Seconds for `ps` to answer. It takes milliseconds: what takes longer than this does not come."""

DAEMON: Final = "daemon"
DAEMON_PARTS: Final = 4
"""Host, pid, start, and that word."""

DEAD: Final = "ZX"
"""The states of what has ended and is only not reaped yet."""


def me(host: str = "") -> str:
    """This process, as the holder of runs; on a host that may be called otherwise than the machine."""
    return f"{host or socket.gethostname()}/{os.getpid()}/{start_of(os.getpid())}"


def daemon(host: str = "") -> str:
    """This process, as a daemon of a fleet of many hosts: `host/pid/starttime/daemon`. Such a holder has a record, and
    is gone when that is; of all others, which have none, nothing follows from that."""
    return f"{me(host)}/{DAEMON}"


def daemon_of(holder: str) -> str:
    """The daemon of a fleet that this holder is, or a kept unit of which it is; nothing: it is neither."""
    parts = holder.split("/", DAEMON_PARTS)
    return "/".join(parts[:DAEMON_PARTS]) if parts[DAEMON_PARTS - 1 : DAEMON_PARTS] == [DAEMON] else ""


def is_gone(holder: str, host: str = "") -> bool:
    """Whether that holder is certainly dead: its process is not there any more, or another has its number. `host` is
    what this machine is called, if not by its own name."""
    named, _, process = holder.partition("/")
    number, _, started = process.partition("/")
    if named != (host or socket.gethostname()) or not number.isdecimal() or not started.isdecimal():
        return False
    found = start_of(int(number))
    if found is None:
        return not _is_there(int(number))
    return abs(found - int(started)) > (0 if _has_proc() else ROUNDING_MAX)


def start_of(pid: int) -> int | None:
    """When a living process started: ticks since the boot, or seconds since the epoch where there is no /proc. None if
    it has ended or cannot be seen."""
    return _start_by_proc(pid) if _has_proc() else _start_by_ps(pid)


def _has_proc() -> bool:
    return (PROC / "self" / "stat").exists()


def _start_by_proc(pid: int) -> int | None:
    try:
        stat = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The name, in parentheses, may itself contain spaces and parentheses: what follows begins after the last one.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0].decode() in DEAD else int(fields[19])


def _start_by_ps(pid: int) -> int | None:
    try:
        asked = subprocess.run(  # noqa: S603 - nothing of it comes from outside
            ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)],  # noqa: S607 - wherever the system has it
            capture_output=True,
            text=True,
            timeout=ANSWER_MAX,
            check=False,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    state, _, started = asked.stdout.strip().partition(" ")
    if not started or state[0] in DEAD:
        return None
    return int(datetime.strptime(started.strip(), "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp())


def _is_there(pid: int) -> bool:
    """Whether there is such a process, even one of somebody else that may not be looked at. One that has ended and is
    not reaped yet is not there."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return False
