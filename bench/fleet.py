"""A fleet of real daemons on a real PostgreSQL, seen from its units: `python -m bench.fleet`.

How long after an order on one host the process on another has ended; how long after a host lost its power what it ran
runs elsewhere. The end is what the kernel says; the first instants of units are what they write down themselves. All is
on one machine, its network in namespaces of its own where rights allow.
"""

import os
import select
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.fleet.cluster import Cluster, cluster, unit
from tests.fleet.witness import now

from bench.measure import Row

HOLDS: Final = 30
TAKEOVERS: Final = 5
UNITS: Final = 12
LEASE: Final = 3.0
HOLD_GOAL: Final = 100.0
"""Milliseconds, in the median."""
TAKEOVER_GOAL: Final = 2.0
"""Seconds beyond the lease, for the last unit of the worst takeover."""
WAIT_MAX: Final = 60.0


def run() -> Iterator[Row]:
    """Both figures."""
    with tempfile.TemporaryDirectory(prefix="flyball-bench-") as folder, cluster(Path(folder), lease=LEASE) as fleet:
        fleet.write({f"unit{number}": unit() for number in range(UNITS)})
        fleet.up()
        fleet.run_all(WAIT_MAX)
        yield hold_row(fleet, HOLDS)
        yield takeover_row(fleet, TAKEOVERS)


def hold_row(fleet: Cluster, times: int, unit: str = "unit0") -> Row:
    """From an order on one host to the end of the process on another."""
    found = sorted(_hold(fleet, unit) for _ in range(times))
    median = statistics.median(found)
    name = f"hold on one host, stopped on another (max {found[-1]:.0f} ms)"
    return Row(name, median, "goal", HOLD_GOAL, "ms", f"< {HOLD_GOAL:g} ms", median < HOLD_GOAL)


def _hold(fleet: Cluster, unit: str) -> float:
    where, pid = fleet.alive()[unit]
    other = next(host for name, host in fleet.hosts.items() if name != where)
    with ThreadPoolExecutor(1) as aside:
        ended = aside.submit(_end_of, os.pidfd_open(pid))
        begun = now()
        other.order("pause", unit)
        took = ended.result() - begun
    other.order("resume", unit)
    fleet.run_all(WAIT_MAX)
    return took / 1e6


def _end_of(process: int) -> int:
    """When that process had ended."""
    try:
        assert select.select([process], [], [], WAIT_MAX)[0]
        return now()
    finally:
        os.close(process)


def takeover_row(fleet: Cluster, times: int) -> Row:
    """From a host's loss of power to the first instant of the last of its units elsewhere."""
    found = [_takeover(fleet) for _ in range(times)]
    worst, limit = max(found), fleet.lease + TAKEOVER_GOAL
    name = f"takeover, lease {fleet.lease:g} s (median {statistics.median(found):.2f} s)"
    return Row(name, worst, "lease + 2 s", limit, "s", f"<= {limit:g} s", worst <= limit)


def _takeover(fleet: Cluster) -> float:
    there = fleet.alive()
    names = [where for where, _ in there.values()]
    victim = max(fleet.hosts, key=names.count)
    units = {unit for unit, (where, _) in there.items() if where == victim}
    begun = now()
    fleet.hosts[victim].kill("all")
    _wait(lambda: _firsts(fleet, units, begun).keys() == units)
    fleet.mend()
    return (max(_firsts(fleet, units, begun).values()) - begun) / 1e9


def _firsts(fleet: Cluster, units: set[str], after: int) -> dict[str, int]:
    """The first instant of each of these units after that one."""
    found: dict[str, int] = {}
    for life in fleet.lives():
        if life.unit in units and life.first > after:
            found.setdefault(life.unit, life.first)
    return found


def _wait(there: Callable[[], bool]) -> None:
    give_up = time.monotonic() + WAIT_MAX
    while not there():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def main() -> int:
    """Print the rows."""
    for row in run():
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
