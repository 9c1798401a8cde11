"""How often a unit failed in which way, and how long it has lived since: what cooldown and quarantine both remember.

Kinds are told apart by fingerprint, and each is counted by itself.
"""

from typing import Final

import msgspec

from flyball.core.event import Exited
from flyball.core.lived import UNBORN, Lived
from flyball.core.policy import State
from flyball.core.time import Instant, Span

FAILURES_MAX: Final = 32
"""Kinds of failures remembered for one unit. A unit that fails in more ways than this is caught by the restart policy,
which counts failures of any kind."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One kind of failure of this unit."""

    error: str = ""
    version: int = 0
    count: int = 0
    first: Instant = 0
    last: Instant = 0
    until: Instant = 0
    """How long the unit waits because of it."""


class Failures(State, frozen=True):
    """Kinds of failures by fingerprint, and how long the unit had lived when it last failed."""

    failures: dict[str, Failure] = {}
    lived: Lived = UNBORN
    failed_at: Span = 0

    def started(self, now: Instant) -> "Failures":
        """A run begins."""
        return Failures(self.failures, self.lived.started(now), self.failed_at) if self.failures else self

    def stopped(self, now: Instant) -> "Failures":
        """A run ended that neither failed nor was done."""
        return Failures(self.failures, self.lived.exited(now, now), self.failed_at) if self.failures else self

    def well_for(self, now: Instant) -> Span:
        """How long it has lived since its last failure."""
        return self.lived.at(now) - self.failed_at

    def count_of(self, fingerprint: str) -> int:
        """How often it failed that way."""
        failure = self.failures.get(fingerprint)
        return failure.count if failure is not None else 0

    def counted(self, event: Exited, now: Instant, *, until: Instant = 0, spared_from: int | None = None) -> "Failures":
        """One more failure, for which it waits `until`. Where there are too many kinds the one that came last longest
        ago is forgotten, but none that was counted `spared_from` times."""
        before = self.failures.get(event.fingerprint, Failure(first=now))
        failure = Failure(event.error, event.version, before.count + 1, before.first, now, until)
        failures = {**self.failures, event.fingerprint: failure}
        if len(failures) > FAILURES_MAX:
            free = [name for name in failures if spared_from is None or failures[name].count < spared_from]
            del failures[min(free, key=lambda name: (failures[name].last, name), default=event.fingerprint)]
        lived = self.lived.exited(now, until or now)
        return Failures(failures, lived, lived.total)

    def only(self, count_min: int) -> "Failures":
        """What was counted at least so often; the rest is forgotten."""
        kept = {name: failure for name, failure in self.failures.items() if failure.count >= count_min}
        if len(kept) == len(self.failures):
            return self
        return Failures(kept, self.lived, self.failed_at) if kept else NONE

    def without(self, fingerprint: str) -> "Failures":
        """That one is forgotten; all, if none is named."""
        if not fingerprint:
            return NONE
        if fingerprint not in self.failures:
            return self
        rest = {name: failure for name, failure in self.failures.items() if name != fingerprint}
        return Failures(rest, self.lived, self.failed_at) if rest else NONE


NONE: Final = Failures()
