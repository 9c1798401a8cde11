"""Rules, the whole way: `python -m bench.rules`.

- From the trigger to the first instruction of the action: a command's own first instant, beside the same command
  started by asyncio alone, which counts nothing and writes nothing down.
- Runs a second, durable: each firing is queued, started, stepped and ended, every one of them a commit; beside huey's
  SQLite queue, whose worker runs a function that does nothing, with the same `synchronous` level; and beside bare
  SQLite that commits as often, one after the other.
- Ten thousand rules, read and checked.
"""

import asyncio
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.measure import Row, seconds
from bench.peers import compiled
from bench.rules_load import SECONDS_MAX, load
from bench.store import Bare
from flyball.config import load as load_settings
from flyball.config.build import rule_policies
from flyball.config.rules import Action, Attempts, Command, Rule, Run, Wait
from flyball.governor import Governor
from flyball.runtimes.holder import me
from flyball.runtimes.rule.engine import Engine
from flyball.runtimes.rule.firing import Firing, Spark
from flyball.store.sqlite import SqliteStore

RULES: Final = 50
FIRINGS: Final = 2_000
LATENCIES: Final = 100
COMMITS: Final = 5
"""Of one run: fired, start, step, stepped, exited."""
LOADED: Final = 10_000


class _Units:
    """There are none."""

    async def start(self, unit: str, *, by: Firing) -> None: ...

    async def stop(self, unit: str, *, by: Firing) -> None: ...


class _Bench:
    """An engine on a real store."""

    def __init__(self, folder: Path, rules: list[Rule]) -> None:
        settings = load_settings(env={}, cwd=folder)
        settings = settings.model_copy(
            update={
                "rule": settings.rule.model_copy(update={"max_runs_per_minute": 1_000_000, "max_running": RULES}),
                "safety": settings.safety.model_copy(update={"max_loop_iterations": 1_000_000}),
            }
        )
        self.store = SqliteStore(folder / "state.db")
        self.governor = Governor(settings.policies(), self.store)
        for name, own in rule_policies(settings, rules).items():
            self.governor.panel.put(name, own)
        self.rules = rules
        self.engine = Engine(
            self.governor,
            holder=me(),
            folder=folder,
            units=_Units(),
            states=dict,
            notify=lambda *_: None,
            say=lambda *_: None,
            troubled=lambda *_: None,
        )

    async def begin(self) -> None:
        await self.engine.begin(self.rules, running_max=RULES, queued_max=FIRINGS * 2, making={})

    async def fire(self, rule: Rule) -> None:
        await self.engine.ring(Spark(rule=rule.name, trigger="bench", data={"kind": "command"}))

    async def done(self) -> None:
        while len(self.engine.queue):
            await asyncio.sleep(0.001)

    async def end(self) -> None:
        await self.engine.end()
        self.store.close()


def _rule(name: str, deed: Run | Wait, **more: Any) -> Rule:
    action = Action(id="act", deed=deed, attempts=Attempts(most=1))
    return Rule(name=name, triggers=(Command(),), actions=(action,), queue_max=FIRINGS, **more)


def latency(folder: Path) -> Row:
    """From the trigger to the first instruction of a command, one at a time."""
    child, notes = compiled(folder), folder / "notes"
    words = (str(child), "child", str(notes), "bench", "0", "0")

    def firsts() -> list[int]:
        return [int(line.split()[1]) for line in notes.read_text().splitlines() if line.startswith("B")]

    async def ours() -> list[float]:
        rule = _rule("rule", Run(command=words))
        bench = _Bench(folder, [rule])
        await bench.begin()
        fired = []
        for _ in range(LATENCIES):
            fired.append(time.monotonic_ns())
            await bench.fire(rule)
            await bench.done()
        await bench.end()
        return [(first - at) / 1e6 for first, at in zip(firsts(), fired, strict=True)]

    async def bare() -> list[float]:
        notes.unlink()
        fired = []
        quiet = asyncio.subprocess.DEVNULL
        for _ in range(LATENCIES):
            fired.append(time.monotonic_ns())
            process = await asyncio.create_subprocess_exec(*words, stdout=quiet, start_new_session=True)
            await process.wait()
        return [(first - at) / 1e6 for first, at in zip(firsts(), fired, strict=True)]

    took, floor = statistics.median(asyncio.run(ours())), statistics.median(asyncio.run(bare()))
    return Row(
        "trigger to the first instruction of a command", took, "asyncio alone", floor, "ms", "<= 10 ms", took <= 10
    )


def through_the_queue(folder: Path) -> Iterator[Row]:
    """Runs a second, durable."""
    rules = [_rule(f"rule-{number}", Wait(length=0)) for number in range(RULES)]

    async def ours() -> float:
        bench = _Bench(folder, rules)
        await bench.begin()
        await bench.fire(rules[0])  # what is imported once
        await bench.done()
        begun = time.perf_counter()
        await asyncio.gather(*(bench.fire(rules[number % RULES]) for number in range(FIRINGS)))
        await bench.done()
        took = time.perf_counter() - begun
        await bench.end()
        return FIRINGS / took

    rate = asyncio.run(ours())
    bare = Bare(folder / "bare.db")
    times = FIRINGS // 4
    floor = times / seconds(lambda: bare.commits(times * COMMITS, 1))
    bare.close()
    yield Row(
        "runs a second, durable, 5 commits each", rate, "as many commits alone", floor, "/s", ">= 1 x", rate >= floor
    )
    peer = _huey(folder)
    if peer:
        yield Row("runs a second, durable", rate, "huey on SQLite", peer, "/s", ">= 1 x", rate >= peer)


def _huey(folder: Path) -> float:
    """What huey does with tasks that do nothing, on a file that is synced as ours is; 0 if it is not installed."""
    try:
        from huey import SqliteHuey  # noqa: PLC0415 - a peer that may be missing
    except ImportError:
        return 0.0
    queue = SqliteHuey(filename=str(folder / "huey.db"), fsync=True, results=False)
    done = threading.Semaphore(0)

    @queue.task()  # type: ignore[untyped-decorator]  # huey has no types
    def act() -> None:
        done.release()

    consumer = queue.create_consumer(workers=4, initial_delay=0.001, backoff=1.0, max_delay=0.001, periodic=False)
    begun = time.perf_counter()
    consumer.start()
    for _ in range(FIRINGS):
        act()
    for _ in range(FIRINGS):
        done.acquire()
    took = time.perf_counter() - begun
    consumer.stop(graceful=False)
    return FIRINGS / took


def run() -> Iterator[Row]:
    """All of it."""
    for measure in (latency, through_the_queue):
        with tempfile.TemporaryDirectory() as place:
            made = measure(Path(place))
            yield from (made,) if isinstance(made, Row) else made
    took = load(LOADED)
    yield Row(f"{LOADED:,} rules read and checked", took, "the goal", SECONDS_MAX, "s", "<= 2 s", took <= SECONDS_MAX)


def main() -> int:
    """Print all rows."""
    for row in run():
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
