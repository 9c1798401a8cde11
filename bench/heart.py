"""What a decision costs in memory, beside the calls that people guard their code with today.

The peers do less (one breaker, or one retry, for one function, forgotten when the process ends); they are the yardstick
because nobody minds their price.
"""

import gc
import resource
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
from flyball.core.event import Cause, Exited, Start, Step, Stepped, Work
from flyball.core.time import DAY
from flyball.governor import Governor
from flyball.runtimes.allowance import RunSteps
from flyball.store.memory import MemoryStore
from flyball.store.sqlite import SqliteStore

CALLS = 200
"""Calls in one measurement: a few milliseconds, so that some measurements fall between the machine's interruptions."""
REPEAT = 400


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
        self.steps = RunSteps(self.governor, "agent", "1", steps_max=10_000, lasts_max=DAY)

    def look(self) -> None:
        """A start is weighed by the full set."""
        self.governor.look(Start(unit="u", run="r"))

    def start(self) -> None:
        """A start is asked for and journalled; the run before it ended unseen, so that the next one is a start again."""
        number = next(self._numbers)
        self.governor.submit(Start(unit=f"u{number % 64}", run="r"))

    def life(self) -> None:
        """A start and a clean exit: two decisions."""
        self.governor.submit(Start(unit="u", run="r"))
        self.governor.submit(Exited(unit="u", run="r", cause=Cause.DONE))

    def step(self) -> None:
        """A step and its report, each put to the governor."""
        call = str(next(self._numbers))
        self.governor.submit(Step(unit="agent", run="1", pattern=call, call=call))
        self.governor.submit(Stepped(unit="agent", run="1", done=(Work(pattern=call, call=call, result=call),)))

    def step_inside_allowance(self) -> None:
        """A step and its report inside an allowance."""
        call = str(next(self._numbers))
        self.steps.ask(call, call)
        self.steps.made(Work(pattern=call, call=call, result=call))


def decisions() -> list[Row]:
    """Microseconds a call."""
    process, agent = Unit("process"), Unit("agent")
    works = [
        behind_a_breaker,
        behind_a_retry,
        process.look,
        process.start,
        process.life,
        agent.step_inside_allowance,
    ]
    breaker, retry, look, start, life, inside = (
        time / CALLS * 1e6 for time in best_of_each([repeat(work) for work in works], REPEAT)
    )
    return [
        Row("decision, full default set (start, not stored)", look, "circuitbreaker", breaker, "us", "<= 10 x", look <= 10 * breaker),
        Row("decision, full default set (start, journalled)", start, "circuitbreaker", breaker, "us", "<= 10 x", start <= 10 * breaker),
        Row("the same", start, "tenacity", retry, "us", "below", start < retry),
        Row("a life: start and clean exit, two decisions", life, "2 x tenacity", 2 * retry, "us", "below", life < 2 * retry),
        Row("step and report inside an allowance", inside, "limit", 3.0, "us", "below", inside < 3.0),
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

