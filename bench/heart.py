"""What a decision costs in memory, beside the calls that people guard their code with today.

The peers do less (one breaker, or one retry, for one function, forgotten when the process ends); they are the yardstick
because nobody minds their price.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

import tenacity
from circuitbreaker import circuit

from bench.measure import Row, best_of_each, seconds
from flyball.config import load
from flyball.core.event import Cause, Exited, Start, Work
from flyball.core.time import DAY
from flyball.governor import Governor
from flyball.runtimes.allowance import RunSteps
from flyball.store.memory import MemoryStore

CALLS = 200
"""Calls in one measurement: a few milliseconds, so that some measurements fall between the machine's interruptions."""
REPEAT = 400
STEPS = 60
"""Steps timed inside one allowance of 64."""
PATTERNS = [f"tool {number}" for number in range(12)]


@circuit(failure_threshold=5)  # type: ignore[untyped-decorator]  # the peer has no types
def behind_a_breaker() -> None:
    pass


@tenacity.retry(stop=tenacity.stop_after_attempt(3))
def behind_a_retry() -> None:
    pass


def repeat(work: Callable[[], object]) -> Callable[[], None]:
    def many() -> None:
        for _ in range(CALLS):
            work()

    return many


class Unit:
    """A healthy unit of the default settings, in memory."""

    def __init__(self, kind: str) -> None:
        self.governor = Governor(load(env={}).policies(kind), MemoryStore())
        self._numbers = count()
        self.governor.submit(Start(unit="agent", run="1"))
        self.steps = RunSteps(self.governor, "agent", "1", lasts_max=DAY)

    def look(self) -> None:
        """A start is weighed by the full set."""
        self.governor.look(Start(unit="u", run="r"))

    def life(self) -> None:
        """A start and a clean exit: two decisions."""
        run = str(next(self._numbers))
        self.governor.submit(Start(unit="u", run=run))
        self.governor.submit(Exited(unit="u", run=run, cause=Cause.DONE))

    def open_allowance(self) -> None:
        """Report what was done, and ask for the next allowance: what 63 further steps are spared."""
        self.steps.report()
        self.step()

    def steps_in_a_row(self) -> None:
        """As many as fit into the allowance that was opened."""
        for _ in range(STEPS):
            self.step()

    def step(self) -> None:
        """A step and its report."""
        number = next(self._numbers)
        pattern, call = PATTERNS[number % len(PATTERNS)], str(number)
        self.steps.ask(pattern, call)
        self.steps.made(Work(pattern=pattern, call=call, result=call))


def step_inside_allowance() -> tuple[float, float]:
    """Microseconds that a step costs inside an allowance; and with its share of asking and reporting."""
    agent = Unit("agent")
    inside, shared = [], []
    for _ in range(REPEAT):
        opening = seconds(agent.open_allowance)
        steps = seconds(agent.steps_in_a_row)
        inside.append(steps / STEPS * 1e6)
        shared.append((opening + steps) / (STEPS + 1) * 1e6)
    return min(inside), min(shared)


def decisions() -> list[Row]:
    """Microseconds a call."""
    process = Unit("process")
    works = [behind_a_breaker, behind_a_retry, process.look, process.life]
    times = best_of_each([repeat(work) for work in works], REPEAT)
    breaker, retry, look, life = (time / CALLS * 1e6 for time in times)
    decision = life / 2
    inside, shared = step_inside_allowance()
    return [
        Row(
            "a start weighed by the full default set",
            look,
            "circuitbreaker",
            breaker,
            "us",
            "<= 10 x",
            look <= 10 * breaker,
        ),
        Row(
            "a decision journalled (start, clean exit)",
            decision,
            "circuitbreaker",
            breaker,
            "us",
            "<= 10 x",
            decision <= 10 * breaker,
        ),
        Row("the same", decision, "tenacity", retry, "us", "below", decision < retry),
        Row("step and report inside an allowance", inside, "limit", 3.0, "us", "below", inside < 3.0),
        Row(
            "the same with its share of asking and reporting", shared, "tenacity", retry, "us", "below", shared < retry
        ),
    ]


def memory_per_idle_unit(units: int = 10_000) -> Row:
    """Resident memory that a unit costs which ran once and is finished, in a process that keeps it all at hand."""
    code = (
        "import resource, sys, gc\n"
        "from flyball.config import load\n"
        "from flyball.core.event import Cause, Exited, Start\n"
        "from flyball.governor import Governor\n"
        "from flyball.store.sqlite import SqliteStore\n"
        "store = SqliteStore(sys.argv[1])\n"
        "governor = Governor(load(env={}).policies('process'), store)\n"
        "def live(name):\n"
        "    governor.submit(Start(unit=name, run='r'))\n"
        "    governor.submit(Exited(unit=name, run='r', cause=Cause.DONE))\n"
        "def resident():\n"
        "    gc.collect()\n"
        "    return int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize()\n"
        "for n in range(500): live(f'warm-{n}')\n"
        "before = resident()\n"
        f"for n in range({units}): live(f'unit-{{n}}')\n"
        f"print((resident() - before) / {units})\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", code, str(Path(folder, "state.db"))]
        size = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return Row("memory per idle unit", size, "limit", 2048.0, "bytes", "below", size < 2048)


def help_text() -> Row:
    """The command's start-up, beside the interpreter's own."""

    def run(*arguments: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)

    bare, ours = (time * 1e3 for time in best_of_each([run("-c", "pass"), run("-m", "flyball", "--help")], 15))
    return Row("flyball --help", ours, "python -c pass", bare, "ms", "below 4 x", ours < 4 * bare)


def rows() -> list[Row]:
    """All rows of this file."""
    return [*decisions(), memory_per_idle_unit(), help_text()]


if __name__ == "__main__":
    print(*rows(), sep="\n")
