"""Slots: how many rules run at the same time, and who is next when all are taken: the highest priority, then who came
first. The governor has the same limit and the last word; this only keeps those in line who would be refused."""

import asyncio
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple


class _Waiting(NamedTuple):
    after: int
    number: int
    turn: "asyncio.Future[None]"


class Slots:
    """One line, for all rules."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._waiting: list[_Waiting] = []
        self._numbers = count()

    @property
    def taken(self) -> int:
        """How many are taken."""
        return self._taken

    def resize(self, most: int) -> None:
        """Another limit. What is taken stays taken."""
        self._most = most
        self._serve()

    async def take(self, priority: int) -> None:
        """Returns when there is a slot, which is taken then."""
        if self._taken < self._most and not self._waiting:
            self._taken += 1
            return
        waiting = _Waiting(-priority, next(self._numbers), asyncio.get_running_loop().create_future())
        heappush(self._waiting, waiting)
        try:
            await waiting.turn
        except asyncio.CancelledError:
            if waiting.turn.done() and not waiting.turn.cancelled():
                self.give_back()
            raise

    def give_back(self) -> None:
        """A slot is free again."""
        self._taken -= 1
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._taken < self._most:
            waiting = heappop(self._waiting)
            if not waiting.turn.done():
                self._taken += 1
                waiting.turn.set_result(None)
