"""A clock that stands still until it is moved. Tests do not sleep: they move the clock."""

from flyball.core.time import SECOND, Instant, Span

START_OF_TIME: Instant = 1_700_000_000 * SECOND
"""Where fake time begins: a present that looks like one, so that nothing hides behind zero."""


class FakeClock:
    """Time as the test tells it."""

    def __init__(self, now: Instant = START_OF_TIME) -> None:
        self._now = now

    def now(self) -> Instant:
        return self._now

    def catch_up(self, instant: Instant) -> Instant:
        self._now = max(self._now, instant)
        return self._now

    def move(self, length: Span) -> Instant:
        """Let so much time pass (or, below zero, set the clock back)."""
        self._now += length
        return self._now

    def set(self, now: Instant) -> Instant:
        """Make it that time."""
        self._now = now
        return now
