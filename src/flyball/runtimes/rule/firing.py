"""A firing: one time that a rule was fired, from the trigger until a run of it is done. It is a record in the store, so
a crash loses none, and how often it was begun is written before it is begun.

Sources of triggers make sparks; the engine makes firings of those that are to be run.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from flyball.config.rules import Rule
from flyball.core.policy import Key
from flyball.core.time import Instant
from flyball.governor import NO_ROWS, Rows

FIRING: Final = "firing"
"""The name of such a record, where policies have theirs."""
DATA_MAX: Final = 256 * 1024
"""Bytes of what a trigger says, as JSON. It is kept until it was run, and templates need little of it."""
DEPTH_MAX: Final = 16
"""Rules that fire each other, in one chain. Real ones have two or three links."""


class Firing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What waits in the queue."""

    id: str
    rule: str
    trigger: str
    """Which one, for people: `cron`, `webhook price`."""
    at: Instant
    data: dict[str, Any] = {}
    """What the trigger says: `trigger` in conditions and templates."""
    tree: str = ""
    """The firing that began the chain of rules that fired each other; its own id: nobody's."""
    depth: int = 0
    attempt: int = 0
    """How often a run of it was begun."""
    by_person: bool = False
    """A person asked for it: it comes first, and may begin what a safeguard ended."""
    joined: int = 0
    """How many others came while this one waited, and said the same."""

    @property
    def key(self) -> Key:
        """Where it is kept."""
        return Key(FIRING, "unit", f"{self.rule}/{self.id}")

    @property
    def run(self) -> str:
        """The name of the run that was begun last."""
        return f"{self.id}.{self.attempt}"


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
