"""What a guarded call costs on the healthy path, beside the decorators that people put on their functions today.

The peers guard one function in one process and forget when it ends. Ours has a breaker, a loop limit and a budget on
it, each shared by all processes and kept over restarts; so most calls are made inside an allowance, and a row each says
what they cost with their share of asking and reporting, in memory and on a file.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pybreaker
import tenacity
from circuitbreaker import circuit

from bench.measure import Row, best_of_each, seconds
from flyball.config import load
from flyball.governor import Governor
from flyball.policies import Manual
from flyball.runtimes.calls import Calls
from flyball.runtimes.calls.account import ATTEMPTS_MAX
from flyball.store import Store
from flyball.store.memory import MemoryStore
from flyball.store.sqlite import SqliteStore

CALLS = 4 * ATTEMPTS_MAX
"""Calls in one measurement: four allowances."""
REPEAT = 100
INSIDE = 50
"""Calls timed inside one allowance."""


@circuit(failure_threshold=5)  # type: ignore[untyped-decorator]  # the peer has no types
def behind_circuitbreaker() -> None:
    pass


@pybreaker.CircuitBreaker(fail_max=5)
def behind_pybreaker() -> None:
    pass


@tenacity.retry(stop=tenacity.stop_after_attempt(3))
def behind_tenacity() -> None:
    pass


@tenacity.retry(stop=tenacity.stop_after_attempt(3))
@pybreaker.CircuitBreaker(fail_max=5)
def behind_both() -> None:
    pass


def guarded_by(store: Store) -> tuple[Calls, Callable[[], None]]:
    """A function that does nothing, behind a breaker, a loop limit and a budget that are wide enough for a bench."""
    governor = Governor([Manual(by="unit"), Manual(by="fleet")], store)

    def put(policy: object) -> None:
        governor.panel.put("bench", (*governor.panel.policies_of("bench"), policy))  # type: ignore[arg-type]

    calls = Calls(governor, "bench", load(env={}), put, run="1")

    @calls("nothing", breaker="provider:none", loop=(100_000_000, 60), cost="0.000001", budget=1_000_000, retry=3)
    def nothing() -> None:
        pass

    return calls, nothing


def repeat(work: Callable[[], object]) -> Callable[[], None]:
    def many() -> None:
        for _ in range(CALLS):
            work()

    return many


def inside() -> float:
    """Microseconds that a call costs inside an allowance: of many short rows of calls, most need not ask."""
    calls, nothing = guarded_by(MemoryStore())

    def many() -> None:
        for _ in range(INSIDE):
            nothing()

    best = float("inf")
    for _ in range(40 * REPEAT):
        best = min(best, seconds(many))
    calls.close()
    return best / INSIDE * 1e6


def rows() -> list[Row]:
    """All rows of this file: microseconds a call."""
    with tempfile.TemporaryDirectory() as folder, SqliteStore(Path(folder, "state.db")) as store:
        memory_calls, in_memory = guarded_by(MemoryStore())
        file_calls, on_file = guarded_by(store)
        works = [behind_circuitbreaker, behind_pybreaker, behind_tenacity, behind_both, in_memory, on_file]
        times = best_of_each([repeat(work) for work in works], REPEAT)
        memory_calls.close()
        file_calls.close()
    circuitbreaker, pybreaker_, tenacity_, both, memory, file = (time / CALLS * 1e6 for time in times)
    within = inside()
    five = 5 * circuitbreaker
    inside_ = "a guarded call inside an allowance"
    shared = "with its share of asking and reporting"
    return [
        Row(inside_, within, "circuitbreaker", circuitbreaker, "us", "below 5 x", within < five),
        Row(f"{shared}, in memory", memory, "circuitbreaker", circuitbreaker, "us", "below 5 x", memory < five),
        Row(f"{shared}, durable", file, "circuitbreaker", circuitbreaker, "us", "below 5 x", file < five),
        Row(f"{shared}, durable", file, "pybreaker", pybreaker_, "us", "below 2 x", file < 2 * pybreaker_),
        Row(f"{shared}, durable", file, "tenacity", tenacity_, "us", "below", file < tenacity_),
        Row(f"{shared}, durable", file, "tenacity + pybreaker", both, "us", "below", file < both),
    ]


if __name__ == "__main__":
    print(*rows(), sep="\n")
