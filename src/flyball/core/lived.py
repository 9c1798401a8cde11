"""Lived time: how long a unit has really run. The waits that flyball itself imposed do not count.

If they did, a 30 s delay would push exits out of a 60 s window, and a child that always crashes would be restarted for
ever. A policy that asks "how long without a failure?" asks this clock, and keeps it only while it remembers a failure.
"""

from typing import Final

import msgspec

from flyball.core.time import FOREVER, Instant, Span


class Lived(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long it had lived at the last start or exit, and since when it lives again."""

    total: Span = 0
    since: Instant = FOREVER

    def at(self, now: Instant) -> Span:
        """Lived time up to now."""
        return self.total + max(0, now - self.since)

    def started(self, now: Instant) -> "Lived":
        """A run begins: whatever passed since the last exit was waiting, not living."""
        return Lived(self.total, now)

    def exited(self, now: Instant, again_at: Instant) -> "Lived":
        """A run ended. Until a start says otherwise, it is taken to live again from `again_at` on."""
        return Lived(self.at(now), again_at)


UNBORN: Final = Lived()
