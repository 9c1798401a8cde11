"""How speed is told here: one row a comparison, ours beside a peer's, measured in the same run on the same machine."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of ours, the same of a peer (or of an empty store, or a limit), and what we want of the two."""

    name: str
    ours: float
    peer: str
    theirs: float
    unit: str
    goal: str
    met: bool

    @property
    def ratio(self) -> float:
        """Ours over theirs."""
        return self.ours / self.theirs if self.theirs else float("inf")

    def __str__(self) -> str:
        verdict = "ok" if self.met else "MISSED"
        theirs = f"{self.peer} {self.theirs:,.4g} {self.unit}"
        ours = f"{self.ours:>10,.4g} {self.unit:<7}"
        return f"{self.name:<52} {ours} {theirs:<44} x {self.ratio:<6.3g} {self.goal:<18} {verdict}"


def seconds(work: Callable[[], object]) -> float:
    """How long it takes once."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best_of(work: Callable[[], object], repeat: int = 5) -> float:
    """The shortest of several times, in seconds: what the machine does when nobody disturbs it."""
    return min(seconds(work) for _ in range(repeat))


def best_of_each(works: "list[Callable[[], object]]", repeat: int = 5) -> list[float]:
    """The same for several that are to be compared: they take turns, so that a slow moment of the machine hits all.
    Between measurements garbage is collected, and not within them, as the standard library's timeit does."""
    best = [float("inf")] * len(works)
    gc.disable()
    try:
        for _ in range(repeat):
            for place, work in enumerate(works):
                best[place] = min(best[place], seconds(work))
            gc.collect(0)
    finally:
        gc.enable()
    return best
