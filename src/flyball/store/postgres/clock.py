"""The database's time, without asking for it each time: so that all hosts of a fleet have one. A host's own wall clock,
which may be an hour off, is never looked at.

Every answer of the database says what time it was there. Between answers the machine's steady clock goes on from that.
"""

import threading
import time
from typing import Final

from flyball.core.time import Instant

DRIFT_MAX: Final = 5_000
"""One part in so many: what the two clocks may go apart by themselves. Quartz and the corrections of NTP stay well
within it."""

AHEAD_MAX: Final = 1_000_000
"""Microseconds by which the journal may be ahead of this clock because hosts measure a little differently: then it goes
at half its pace until that is made good. By more than this the database's clock was set back: then it goes on as it is.
"""

_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while the machine sleeps, where there is such a clock."""


def steady() -> int:
    """Microseconds of the machine's steady clock."""
    return time.clock_gettime_ns(_STEADY) // 1000


class DatabaseClock:
    """A clock for a governor. It never runs back, and is never ahead of the database's by more than was measured."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._measured = False
        self._low = self._high = 0
        """Between these is what the database's clock is ahead of the steady one."""
        self._when = 0
        self._last = (0, 0)
        """The latest reading, and what the steady clock said then."""

    def measured(self, there: Instant, before: int, after: int) -> None:
        """The database said what time it was, at some moment between these two of the steady clock."""
        low, high = there - after, there - before
        with self._lock:
            drift = (after - self._when) // DRIFT_MAX + 1
            self._when = after
            if self._measured:
                # The narrower of what was known and what is new; if they contradict, that clock was set.
                known = (self._low - drift, self._high + drift)
                if low <= known[1] and known[0] <= high:
                    low, high = max(low, known[0]), min(high, known[1])
            else:
                self._last = (there, after)
            self._low, self._high = low, high
            self._measured = True

    def now(self) -> Instant:
        """The present."""
        last, then = self._last
        here = steady()
        there, passed = here + self._low, max(0, here - then)
        now = max(there, last + (passed if last - there > AHEAD_MAX else passed // 2))
        self._last = (now, here)
        return now

    def catch_up(self, instant: Instant) -> Instant:
        """The journal is ahead of this clock: go on from there."""
        now = max(self.now(), instant)
        self._last = (now, self._last[1])
        return now
