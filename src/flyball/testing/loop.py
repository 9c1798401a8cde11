"""Simulated time for programs that await: a loop in which every wait is over at once, and the clock moves by it.

Days of an agent's life pass in milliseconds, in the order in which they would pass. Work in other threads takes no
simulated time; so a store that commits in a thread of its own does not belong here, a memory store does.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from flyball.core.time import FOREVER, SECOND, Instant
from flyball.testing.clock import START_OF_TIME

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Instead of waiting, it moves the time."""

    elapsed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:  # nobody waits for time: something from outside, such as a thread, has to come
            return super().select(None)
        self.elapsed += timeout
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop in simulated time. It is a clock for a governor, too."""

    def __init__(self) -> None:
        self._simulated = _Selector()
        super().__init__(self._simulated)

    def time(self) -> float:
        return self._simulated.elapsed

    def now(self) -> Instant:
        return START_OF_TIME + round(self._simulated.elapsed * SECOND)

    def catch_up(self, instant: Instant) -> Instant:
        behind = instant - self.now()
        if behind > 0:
            self._simulated.elapsed += behind / SECOND
        return self.now()

    async def sleep(self, poked: asyncio.Event, until: Instant) -> None:
        """Wait for that instant, or to be poked: what drivers and agents wait with."""
        seconds = None if until >= FOREVER - SECOND else max(0.0, (until - self.now()) / SECOND)
        try:
            # Not wait_for: before Python 3.12 it loses a cancellation that comes together with a poke.
            async with asyncio.timeout(seconds):
                await poked.wait()
        except TimeoutError:
            await self._reach(until)

    async def _reach(self, until: Instant) -> None:
        """A float of seconds may be short of an instant by a hair: then there is a little more to wait."""
        while self.now() < until:
            await asyncio.sleep(2 / SECOND)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it to its end, then close."""
        try:
            return self.run_until_complete(work)
        finally:
            self.run_until_complete(self.shutdown_default_executor())
            self.close()
