"""Attempts to come in that failed: so many of one address, and of all, within a while. The next ones have to wait."""

import time
from collections import deque
from collections.abc import Callable
from typing import Final

WINDOW: Final = 60.0
"""Seconds in which they are counted."""
OF_ONE_MAX: Final = 10
"""Of one address: somebody who pastes the wrong token tries twice."""
OF_ALL_MAX: Final = 100
"""Of all addresses together. It is what bounds how many are remembered, too."""


class Attempts:
    """Counts them."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._failed: deque[tuple[float, str]] = deque(maxlen=OF_ALL_MAX)
        self.total = 0
        """Since the daemon started."""

    def failed(self, address: str) -> None:
        """One more."""
        self.total += 1
        self._failed.append((self._now(), address))

    def wait(self, address: str) -> float:
        """Seconds until that address may try again; 0: it may now."""
        now = self._now()
        while self._failed and self._failed[0][0] <= now - WINDOW:
            self._failed.popleft()
        own = [at for at, known in self._failed if known == address]
        waits = [0.0]
        if len(own) >= OF_ONE_MAX:
            waits.append(own[-OF_ONE_MAX] + WINDOW - now)
        if len(self._failed) >= OF_ALL_MAX:
            waits.append(self._failed[0][0] + WINDOW - now)
        return max(waits)
