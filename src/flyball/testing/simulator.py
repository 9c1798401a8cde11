"""The closed-loop simulator, for tests of one's own policies and settings, with what such tests say again and again.

The simulator itself is a runtime (`flyball.runtimes.simulation`), because `flyball simulate` needs it and nothing in
production imports the test kit.
"""

from collections.abc import Sequence

from flyball.config import Settings
from flyball.core.policy import AnyPolicy
from flyball.core.time import Span
from flyball.runtimes.scenarios import Bound, bound_on_starts, failing, faulty, with_long_leases
from flyball.runtimes.simulation import (
    BEGIN,
    Crash,
    Fate,
    Happening,
    Life,
    Lives,
    Plan,
    Report,
    Run,
    SimulatedClock,
    Unit,
    simulate,
)
from flyball.store.memory import MemoryStore

__all__ = [
    "BEGIN",
    "Bound",
    "Crash",
    "Fate",
    "Happening",
    "Life",
    "Lives",
    "Plan",
    "Report",
    "Run",
    "SimulatedClock",
    "Unit",
    "bound_on_starts",
    "default_policies",
    "failing",
    "failing_with",
    "fate_of",
    "faulty",
    "simulate",
    "with_long_leases",
]


def default_policies(kind: str = "process") -> tuple[AnyPolicy, ...]:
    """What a unit of that kind stands under if nobody set anything."""
    return Settings().policies(kind)


def failing_with(errors: Sequence[str], uptime: Span) -> Lives:
    """Lives that all end in an error: these, in turn."""
    return lambda n, _: Life(uptime=uptime, error=errors[n % len(errors)])


def fate_of(lives: Lives, policies: Sequence[AnyPolicy], *, starts_max: int = 200) -> Fate:
    """What becomes of one unit that leads these lives. A unit that is started so often has no bound."""
    plan = Plan(units=[Unit(name="unit", lives=lives)], starts_max=starts_max)
    return simulate(policies, MemoryStore(), plan).fates["unit"]
