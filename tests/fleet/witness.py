"""A unit that bears witness, and the judge who reads what all of them said. The program knows nothing of flyball but
the two names in its environment, and needs nothing but the standard library: started by its path, it writes down that
it lives, again and again, until it does not. Its last line is the last instant at which it is known to have lived.

Times are CLOCK_BOOTTIME in nanoseconds: one clock for all processes of this machine, whatever their hosts believe.
"""

import argparse
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

NOTES = "WITNESS_NOTES"
"""The variable with the folder in which each unit has a file."""
SPENT = "spent"
"""The file of money that was really spent."""
EVERY = 0.004
"""Seconds between two lines: an instant with two of them that is longer than this is seen."""
TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


# The program.


def now() -> int:
    """The present, for everybody on this machine."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def began() -> int:
    """When this process was made, by the kernel; not before that."""
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - it starts sooner without pathlib's methods
        # The kernel says it in ticks and leaves off the rest: it was at most one tick later.
        return min(now(), (int(file.read().rpartition(b")")[2].split()[19]) + 1) * TICK)


def live(arguments: Sequence[str]) -> int:
    """Live, and say so."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--stubborn", action="store_true", help="ignore being told to end")
    parser.add_argument("--fails-after", type=float, default=0.0, help="seconds until it fails; 0: it does not")
    parser.add_argument("--ends-after", type=float, default=0.0, help="seconds until it is done; 0: it goes on")
    parser.add_argument("--spends", type=int, default=0, help="credits of one step; 0: it makes none")
    parser.add_argument("--child", action="store_true", help="have a child in a session of its own, which lives too")
    asked = parser.parse_args(arguments)
    unit, run, folder = os.environ["FLYBALL_UNIT"], os.environ["FLYBALL_RUN"], Path(os.environ[NOTES])
    if asked.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    notes = os.open(folder / unit, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    if asked.child and os.fork() == 0:
        os.setsid()
    pid, until = os.getpid(), time.monotonic() + (asked.fails_after or asked.ends_after or float("inf"))
    os.write(notes, f"b {began()} {pid} {run}\n".encode())
    while True:
        os.write(notes, f". {now()} {pid}\n".encode())
        if time.monotonic() > until:
            return 1 if asked.fails_after else 0
        if asked.spends and not spend(asked.spends, folder, notes, pid):
            return 0
        time.sleep(10 * EVERY if asked.spends else EVERY)


def spend(amount: int, folder: Path, notes: int, pid: int) -> bool:
    """Ask for leave, and spend only what was granted; whether to go on. No answer is no leave."""
    step = {"pattern": "buy", "call": str(now()), "cost": {"credits": amount}}
    answer = _ask("X_FLYBALL_STEP", step)
    if answer is None:
        return True
    if answer.get("verb") != "proceed":
        return answer.get("verb") == "wait"
    with open(folder / SPENT, "ab", buffering=0) as file:  # noqa: PTH123 - as above
        file.write(f"{now()} {os.environ['FLYBALL_UNIT']} {amount}\n".encode())
    os.write(notes, f". {now()} {pid}\n".encode())
    _ask("X_FLYBALL_STEPPED", {"pattern": "buy", "call": step["call"], "used": step["cost"]})
    return True


def _ask(key: str, what: Mapping[str, Any]) -> dict[str, Any] | None:
    path = os.environ["NOTIFY_SOCKET"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connected:
        connected.settimeout(1.0)
        connected.bind("")
        try:
            connected.connect("\0" + path[1:] if path.startswith("@") else path)
            connected.send(f"{key}={json.dumps(what)}\nX_FLYBALL_RUN={os.environ['FLYBALL_RUN']}".encode())
            answer: dict[str, Any] = json.loads(connected.recv(65_536))
        except OSError:
            return None
        return answer if "error" not in answer else None


# The judge.


class Life(NamedTuple):
    """One process, as it told of itself: it lived at both instants, and between them."""

    unit: str
    run: str
    pid: int
    first: int
    last: int


class Overlap(NamedTuple):
    """Two runs of one unit that lived at the same instant."""

    unit: str
    older: Life
    newer: Life

    @property
    def lasted(self) -> float:
        """Seconds."""
        return (self.older.last - self.newer.first) / 1e9

    def __str__(self) -> str:
        return (
            f"{self.unit}: run {self.older.run} (pid {self.older.pid}) still lived {self.lasted * 1000:.1f} ms after "
            f"run {self.newer.run} (pid {self.newer.pid}) began at {self.newer.first / 1e9:.3f}"
        )


def lives(notes: Path) -> list[Life]:
    """All processes that ever told, by their first instant. A line that was cut off by a kill is none."""
    found: list[Life] = []
    for path in sorted(notes.iterdir()):
        if path.name != SPENT:
            found += _lives_of(path)
    return sorted(found, key=lambda life: life.first)


def _lives_of(path: Path) -> Iterable[Life]:
    firsts: dict[str, tuple[int, str]] = {}
    lasts: dict[str, int] = {}
    for line in path.read_bytes().decode().splitlines(keepends=True):
        if not line.endswith("\n"):
            continue
        kind, at, pid, *run = line.split()
        if kind == "b":
            # A number that is given out again belongs to another process.
            if pid in firsts:
                yield _life(path.name, pid, firsts, lasts)
            firsts[pid] = int(at), run[0]
            lasts[pid] = int(at)
        else:
            lasts[pid] = max(lasts[pid], int(at))
    for pid in firsts:
        yield _life(path.name, pid, firsts, lasts)


def _life(unit: str, pid: str, firsts: Mapping[str, tuple[int, str]], lasts: Mapping[str, int]) -> Life:
    first, run = firsts[pid]
    return Life(unit, run, int(pid), first, lasts[pid])


def overlaps(all_lives: Sequence[Life]) -> list[Overlap]:
    """Every pair of different runs of one unit that lived at the same instant. A process that is frozen says nothing
    and so does not live; but one that says something after another began does."""
    found = []
    by_unit: dict[str, list[Life]] = {}
    for life in sorted(all_lives, key=lambda life: life.first):
        for older in by_unit.setdefault(life.unit, []):
            if older.run != life.run and older.last > life.first:
                found.append(Overlap(life.unit, older, life))
        by_unit[life.unit].append(life)
    return found


def spent(notes: Path) -> int:
    """All credits that were really spent."""
    path = notes / SPENT
    return sum(int(line.split()[2]) for line in path.read_text().splitlines()) if path.exists() else 0


if __name__ == "__main__":
    sys.exit(live(sys.argv[1:]))
