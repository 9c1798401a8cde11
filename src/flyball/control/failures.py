"""The command that shows failures by fingerprint: what fails the same way, and in which units. Read from what
quarantine and cooldown remember, and from nothing else, so that ten thousand units take no longer than their failures.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from flyball.control.context import Args, Context, bounded
from flyball.core.codec import readable_state
from flyball.core.failures import Failure, Failures
from flyball.core.time import Instant, seconds
from flyball.governor import Governor
from flyball.policies import Cooldown, Quarantine

KINDS_MAX: Final = 1_000
"""Kinds of failures in one answer: more than anybody reads, and a megabyte at most."""
NAMES_MAX: Final = 100
"""Units named for one kind. How many there are in all is told too."""


@dataclass(slots=True)
class _Kind:
    """One kind of failure, over all units that have it."""

    error: str = ""
    count: int = 0
    first: Instant = 0
    last: Instant = 0
    until: Instant = 0
    quarantined: bool = False
    units: list[str] = field(default_factory=list)

    def add(self, unit: str, failure: Failure, *, until: Instant, quarantined: bool) -> None:
        if failure.last >= self.last:
            self.error, self.last = failure.error, failure.last
        self.first = min(self.first or failure.first, failure.first)
        self.count += failure.count
        self.until = max(self.until, until)
        self.quarantined |= quarantined
        self.units.append(unit)


def failures(context: Context, args: Args) -> Any:
    """Every kind of failure that is remembered, the worst first: what is quarantined, then what happened most often."""
    limit = bounded(args, "limit", KINDS_MAX)
    now = context.look().now
    kinds: dict[str, _Kind] = {}
    for unit, fingerprint, failure, until, quarantined in _remembered(context.governor):
        kinds.setdefault(fingerprint, _Kind()).add(unit, failure, until=until, quarantined=quarantined)
    worst = sorted(kinds.items(), key=lambda one: (not one[1].quarantined, -one[1].count, -one[1].last, one[0]))
    return {
        "failures": [
            {
                "fingerprint": fingerprint,
                "error": kind.error,
                "count": kind.count,
                "first": seconds(kind.first),
                "last": seconds(kind.last),
                "until": seconds(kind.until) if kind.until > now else None,
                "quarantined": kind.quarantined,
                "units": sorted(kind.units)[:NAMES_MAX],
                "of": len(kind.units),
            }
            for fingerprint, kind in worst[:limit]
        ],
        "left_out": max(0, len(worst) - limit),
        "at": seconds(now),
    }


def _remembered(governor: Governor) -> Iterator[tuple[str, str, Failure, Instant, bool]]:
    """Each unit's failures: its name, the fingerprint, what is known of it, until when it waits for it, and whether it
    is held for it."""
    waits = _by_unit(governor, Cooldown().name)
    counts = _by_unit(governor, Quarantine().name)
    for unit in waits.keys() | counts.keys():
        waiting, counted = waits.get(unit, {}), counts.get(unit, {})
        limit = next((p.failures_max for p in governor.panel.policies_of(unit) if isinstance(p, Quarantine)), 0)
        for fingerprint in waiting.keys() | counted.keys():
            failure = counted.get(fingerprint) or waiting[fingerprint]
            until = waiting[fingerprint].until if fingerprint in waiting else 0
            yield unit, fingerprint, failure, until, bool(limit) and failure.count >= limit


def _by_unit(governor: Governor, policy: str) -> dict[str, dict[str, Failure]]:
    found = {}
    for key, data in governor.store.states(policy).items():
        state = readable_state(Failures, data) if key.by == "unit" else None
        if state is not None and state.failures:
            found[key.subject] = state.failures
    return found
