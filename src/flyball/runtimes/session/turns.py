"""Turns: who of many sessions that may all be resumed now is resumed first, and who a little later.

By priority, one at a time, with a short while in between: what they share, and perhaps had to pause for, is not hit by
all of them at once. The first one waits that while as well; by then all that are due at the same time are here. No
dice: how long each while is, and who of equals comes first, is by a hash of the names.
"""

import asyncio
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from flyball.core.failure import digest

TURN_EVERY: Final = 0.2
"""Seconds between two resumes, half of it more or less. Nobody notices one such while, and a hundred sessions that are
due together are spread over twenty seconds."""


class _Waiting(NamedTuple):
    after: int
    mark: str
    number: int
    turn: "asyncio.Future[None]"


class Turns:
    """One queue, for all sessions of a supervisor."""

    def __init__(self, every: float = TURN_EVERY) -> None:
        self._every = every
        self._waiting: list[_Waiting] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(not waiting.turn.done() for waiting in self._waiting)

    def take(self, unit: str, priority: int) -> "asyncio.Future[None]":
        """Done when it is that unit's turn. Whoever does not want to wait any more sets it done, or cancels it."""
        mark = digest([unit])
        waiting = _Waiting(-priority, mark, next(self._numbers), asyncio.get_running_loop().create_future())
        heappush(self._waiting, waiting)
        if self._timer is None:
            self._later(mark)
        return waiting.turn

    def _next(self) -> None:
        self._timer = None
        while self._waiting:
            waiting = heappop(self._waiting)
            if not waiting.turn.done():
                waiting.turn.set_result(None)
                if self._waiting:
                    self._later(waiting.mark)
                return

    def _later(self, mark: str) -> None:
        share = int(mark[:8], 16) / 0xFFFF_FFFF
        self._timer = asyncio.get_running_loop().call_later(self._every * (0.5 + share), self._next)
