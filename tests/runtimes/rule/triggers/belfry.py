"""What sources of triggers need in a test: a bell that writes down what rings, as the engine does, and a clock that the
test moves."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from flyball.config.rules import Action, Rule, Trigger, Wait
from flyball.core.codec import decode_body
from flyball.core.event import Fired
from flyball.core.policy import AnyPolicy
from flyball.core.time import Instant, Span
from flyball.governor import Governor
from flyball.runtimes.bridge import submit
from flyball.runtimes.rule.firing import Fate, Source, Spark
from flyball.store import Store
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock

WAIT_MAX = 20.0
"""Seconds that a test waits for something to happen."""


def rule(name: str, *triggers: Trigger) -> Rule:
    """A rule with these triggers."""
    return Rule(name=name, triggers=triggers, actions=(Action(id="wait", deed=Wait(length=0)),))


class Killed(BaseException):
    """The process was killed at this point."""


class Belfry:
    """A bell. What rings is in the journal, with the source's rows, in one transaction."""

    def __init__(
        self, store: Store | None = None, clock: FakeClock | None = None, policies: Sequence[AnyPolicy] = ()
    ) -> None:
        self.clock = clock or FakeClock()
        self.store = store if store is not None else MemoryStore()
        self.governor = Governor(policies, self.store, self.clock)
        self.rang: list[Spark] = []
        self.before: Callable[[Spark], None] = lambda _: None
        self.after: Callable[[Spark], None] = lambda _: None
        self.room = 1_000_000
        """How many fit into the queue. What is sent again leaves nothing if there is no room."""
        self._more = asyncio.Event()

    async def ring(self, spark: Spark) -> Fate:
        self.before(spark)
        if self.room <= 0 and spark.comes_again:
            return Fate.FULL
        self.room -= 1
        await submit(self.governor, Fired(unit=spark.rule, trigger=spark.trigger), spark.rows)
        self.rang.append(spark)
        self._more.set()
        self.after(spark)
        return Fate.QUEUED

    async def until(self, count: int) -> list[Spark]:
        """Wait until it rang so often."""
        async with asyncio.timeout(WAIT_MAX):
            while len(self.rang) < count:
                self._more.clear()
                await self._more.wait()
        return self.rang

    @property
    def journal(self) -> list[tuple[Instant, str]]:
        """When which rule was fired, of all that is on record."""
        entries = self.store.entries(limit=100_000, events=("fired",))
        return [(entry.at, decode_body(entry.body).event.unit) for entry in entries]


class Time:
    """Sleeps until the test moves the clock. For one source at a time."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.until: Instant = 0
        self._rests = asyncio.Event()
        self._woken = asyncio.Event()

    async def sleep(self, poked: asyncio.Event, until: Instant) -> None:
        self.until = until
        self._woken.clear()
        self._rests.set()
        waits = [asyncio.ensure_future(poked.wait()), asyncio.ensure_future(self._woken.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._rests.clear()
            for wait in waits:
                wait.cancel()

    async def rest(self) -> None:
        """Until the source has nothing to do."""
        for _ in range(3):  # what poked it may not have woken it yet
            await asyncio.sleep(0)
        await asyncio.wait_for(self._rests.wait(), WAIT_MAX)

    async def wake(self) -> None:
        """Have the source look at the clock."""
        self._rests.clear()
        self._woken.set()
        await self.rest()

    async def jump(self, length: Span) -> None:
        """The clock is set, ahead or back."""
        self.clock.move(length)
        await self.wake()

    async def go(self, length: Span) -> None:
        """So much time goes by, and the source wakes whenever it wants to."""
        end = self.clock.now() + length
        while self.until <= end:
            self.clock.set(max(self.until, self.clock.now()))
            await self.wake()
        self.clock.set(end)
        await self.wake()


@contextlib.asynccontextmanager
async def running(source: Source, rules: Sequence[Rule], time: Time | None = None) -> AsyncIterator[None]:
    """The source runs, and rests."""
    source.use(rules)
    task = asyncio.ensure_future(source.run())
    try:
        if time is not None:
            resting = asyncio.ensure_future(time.rest())
            await asyncio.wait((task, resting), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                resting.cancel()
                task.result()
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
