"""A firing: one time that a rule was fired, from the trigger until a run of it is done. It is a record in the store, so
a crash loses none, and how often it was begun is written before it is begun.

Sources of triggers make sparks; the engine makes firings of those that are to be run.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

from flyball.config.rules import Rule
from flyball.governor import NO_ROWS, Rows
from flyball.store.firings import FIRING, Firing

__all__ = ["DATA_MAX", "DEPTH_MAX", "FIRING", "Bell", "Fate", "Firing", "Looks", "Source", "Spark"]

DATA_MAX: Final = 256 * 1024
"""Bytes of what a trigger says, as JSON. It is kept until it was run, and templates need little of it."""
DEPTH_MAX: Final = 16
"""Rules that fire each other, in one chain. Real ones have two or three links."""


class Fate(enum.StrEnum):
    """What became of a spark."""

    QUEUED = "queued"
    JOINED = "joined"
    """One that says the same waits already: one run is for both."""
    SKIPPED = "skipped"
    """The condition does not hold."""
    FULL = "queue_full"
    TOO_DEEP = "chain_too_long"
    TOO_LONG = "too_long"
    """It says more than is kept."""
    UNKNOWN = "unknown_rule"
    """The rule is not there any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """A trigger fired."""

    rule: str
    trigger: str
    data: Mapping[str, Any] = field(default_factory=dict)
    rows: Rows = field(default_factory=lambda: NO_ROWS)
    """What the source wants to remember: written with the firing, or, if there is none, by itself."""
    joins: bool = False
    """If one of this trigger waits already, this one adds nothing: times that come again, a file that changed twice."""
    by_person: bool = False
    """A person asked for it."""
    comes_again: bool = False
    """Whoever sent it is told what became of it, and sends it again: if there is no room for it, nothing is written."""
    tree: str = ""
    depth: int = 0


class Bell(Protocol):
    """What sources of triggers ring: the engine."""

    async def ring(self, spark: Spark) -> Fate:
        """Take a spark. When this returns, what became of it is on disk."""
        ...


class Source(Protocol):
    """One kind of trigger, for all rules."""

    def use(self, rules: Sequence[Rule]) -> None:
        """Watch for what fires these from now on, and for nothing else. Cheap for what did not change."""
        ...

    async def run(self) -> None:
        """Until it is cancelled."""
        ...


@runtime_checkable
class Looks(Protocol):
    """A source that has to look first what is there already, because that fires nothing."""

    async def settled(self) -> None:
        """Returns when that is known, for what it was told to watch last: what comes from then on fires."""
        ...
