"""A scrape of metrics: `python -m bench.metrics`.

- How long one takes with 1,000 and 10,000 units, of which a few changed since the last, beside what the units' states
  alone cost to read. The first one, which looks at every unit, is told by itself.
- How long an event loop of the same process waits at most while one is made in a thread: the daemon's units wait as
  long. Beside it: the same loop while nothing is made.
- Entries of the journal that are counted a second.
"""

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.measure import Row, best_of, seconds
from flyball.config import load as load_settings
from flyball.control.board import Board
from flyball.control.metrics.metrics import Metrics
from flyball.control.metrics.picture import BoardPicture
from flyball.control.metrics.tally import Tally
from flyball.control.past import Past
from flyball.control.views import Look
from flyball.core.event import Cause, Exited, Start, Step
from flyball.daemon_main import GARBAGE_MAX
from flyball.governor import Governor
from flyball.store.sqlite import SqliteStore

UNITS: Final = (1_000, 10_000)
CHANGED: Final = 100
SCRAPES: Final = 5
STEPS: Final = 20_000
SCRAPE_MAX: Final = {1_000: 0.2, 10_000: 1.0}
"""Seconds that one may take: Prometheus waits ten."""
STALL_MAX: Final = 0.1
"""Seconds that a unit may wait for it: what a person takes for at once."""
TICK: Final = 0.001


class _Fleet:
    """Units on a real store, each with a run that was done."""

    def __init__(self, folder: Path, units: int) -> None:
        settings = load_settings(env={}, cwd=folder)
        self.governor = Governor(settings.policies(), SqliteStore(folder / "state.db"))
        past = Past()
        self.board = Board(lambda: Look(self.governor, past))
        self.metrics = Metrics(self.governor, BoardPicture(self.board, within=600), version="bench")
        self.names = [f"unit-{number}" for number in range(units)]
        self.run(self.names)

    def run(self, names: list[str]) -> None:
        """A run of each. None fails: then no circuit opens, which would have every unit looked at again."""
        done = []
        for name in names:
            done.append(self.governor.submit_soon(Start(unit=name, run="r")))
            done.append(self.governor.submit_soon(Exited(unit=name, run="r", cause=Cause.DONE)))
        for future in done:
            future.result()

    def scrape(self) -> bytes:
        self.metrics._made = float("-inf")  # nobody waits a second here
        return self.metrics.render()


async def _longest(work: asyncio.Task[object] | None, lasts: float) -> float:
    """The longest that a tick of the loop took, until the work is done or the time is over."""
    longest, last, until = 0.0, time.perf_counter(), time.perf_counter() + lasts
    while not work.done() if work is not None else last < until:
        await asyncio.sleep(TICK)
        now = time.perf_counter()
        longest, last = max(longest, now - last - TICK), now
    return longest


async def _stall(fleet: _Fleet) -> tuple[float, float]:
    idle = await _longest(None, 0.5)
    busy = 0.0
    for _ in range(SCRAPES):
        fleet.run(fleet.names[:CHANGED])
        task: asyncio.Task[object] = asyncio.create_task(asyncio.to_thread(fleet.scrape))
        busy = max(busy, await _longest(task, 0.0))
    return busy, idle


def run() -> Iterator[Row | str]:
    """All rows."""
    for units in UNITS:
        with tempfile.TemporaryDirectory() as folder:
            fleet = _Fleet(Path(folder), units)
            first = seconds(fleet.scrape)
            gc.freeze()  # as a daemon does with what stays
            size = len(fleet.scrape())
            yield f"{units} units: the first scrape {first:.2f} s, then {size / 1024:.0f} KB of text"

            def again(fleet: _Fleet = fleet) -> None:
                fleet.run(fleet.names[:CHANGED])
                fleet.scrape()

            def changing(fleet: _Fleet = fleet) -> None:
                fleet.run(fleet.names[:CHANGED])

            ours = max(0.0, best_of(again, SCRAPES) - best_of(changing, SCRAPES))
            reading = best_of(fleet.governor.store.states, SCRAPES)
            limit = SCRAPE_MAX[units]
            name = f"a scrape, {units} units, {CHANGED} changed"
            yield Row(name, ours * 1e3, "all states read", reading * 1e3, "ms", f"<= {limit * 1e3:g} ms", ours <= limit)
            busy, idle = asyncio.run(_stall(fleet))
            name = f"the loop waits at most, {units} units"
            yield Row(
                name, busy * 1e3, "nothing made", idle * 1e3, "ms", f"<= {STALL_MAX * 1e3:g} ms", busy <= STALL_MAX
            )
            fleet.governor.store.close()
    yield _counting()


def _counting() -> Row:
    with tempfile.TemporaryDirectory() as folder:
        governor = Governor([], SqliteStore(Path(folder) / "state.db"))
        tally = Tally(governor)
        begun = tally.seq
        for future in [governor.submit_soon(Step(unit="u", run="r", pattern="look")) for _ in range(STEPS)]:
            future.result()

        def count() -> None:
            tally.seq = begun
            tally.catch_up()

        def read() -> None:
            after = begun
            while entries := governor.store.entries(after=after, limit=2_000):
                after = entries[-1].seq

        ours, theirs = STEPS / best_of(count), STEPS / best_of(read)
        governor.store.close()
    return Row("entries counted", ours, "entries only read", theirs, "/s", ">= 0.3 x", ours >= 0.3 * theirs)


def main() -> int:
    """Print them."""
    gc.set_threshold(GARBAGE_MAX)
    for row in run():
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
