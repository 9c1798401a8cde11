"""What all sources of triggers do alike: they ring the bell, write down what they remember, and wait.

While the store cannot be written, because its disk is full, nothing is fired: a source waits, and rings again.
"""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Final, TypeVar

import msgspec

from flyball.config.rules import Trigger
from flyball.core.policy import Key
from flyball.core.time import FOREVER, SECOND, Instant, Span
from flyball.errors import FlyballError, StoreError
from flyball.governor import Governor, Rows
from flyball.runtimes.bridge import write
from flyball.runtimes.driver import Sleep
from flyball.runtimes.flag import Flag
from flyball.runtimes.rule.firing import Bell, Fate, Spark
from flyball.store import Clock

log = logging.getLogger(__name__)

RINGS_MAX: Final = 256
"""Sparks on their way at the same time. They are written together, so the disk is waited for once for all of them."""
TROUBLE_WAIT: Span = 5 * SECOND
"""How long a store that could not be written is left in peace: a full disk needs time."""

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError)
"""What becomes of bytes that are no record of ours."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

T = TypeVar("T")


class Striker:
    """Rings the bell for one source."""

    def __init__(self, bell: Bell, governor: Governor, sleep: Sleep | None) -> None:
        self.governor = governor
        self.sleep = sleep or _sleep_by(governor.clock)
        self._bell = bell

    def present(self) -> Instant:
        """Now, as the governor counts it: never before the end of the journal."""
        return self.governor.clock.catch_up(self.governor.store.read(()).at)

    async def strike(self, lines: Iterable[Sequence[Spark]]) -> None:
        """Ring for all of them. Those of one line in their order, each when the one before it is on disk."""
        left = iter(lines)
        while some := list(islice(left, RINGS_MAX)):
            await asyncio.gather(*(self._in_order(line) for line in some))

    async def ring(self, sparks: Sequence[Spark]) -> list[Fate]:
        """Ring for a few, in no order; what became of each."""
        return await asyncio.gather(*(self._ring(spark) for spark in sparks))

    async def keep(self, rows: Rows, *, sync: bool = True) -> None:
        """Write down what no spark carries."""
        if rows:
            await self._insist(lambda: write(self.governor, rows, sync=sync))

    async def _in_order(self, sparks: Sequence[Spark]) -> None:
        for spark in sparks:
            await self._ring(spark)

    async def _ring(self, spark: Spark) -> Fate:
        return await self._insist(lambda: self._bell.ring(spark))

    async def _insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        said = False
        while True:
            try:
                return await ask()
            except StoreError as error:
                if not error.passes:
                    raise
                if not said:
                    log.warning("nothing can be fired for now: %s", error)
                said = True
            await self.sleep(Flag(), self.governor.clock.now() + TROUBLE_WAIT)


def _sleep_by(clock: Clock) -> Sleep:
    """How to wait by the governor's clock, which goes on when somebody sets the machine's back."""

    async def sleep(poked: asyncio.Event, until: Instant) -> None:
        seconds = None if until >= FOREVER - SECOND else max(0.0, (until - clock.now()) / SECOND)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await poked.wait()

    return sleep


def place_of(name: str, rule: str, place: int) -> Key:
    """Where a source remembers something of a rule's trigger: the one at that place."""
    return Key(name, "unit", f"{rule}/{place}")


def digest_of(trigger: Trigger) -> str:
    """Of what a trigger says. Another one starts fresh."""
    said = msgspec.json.encode((type(trigger).__name__, trigger), order="sorted")
    return hashlib.blake2b(said, digest_size=8).hexdigest()


def moment(at: Instant, zone: tzinfo = UTC) -> datetime:
    """An instant on a calendar, exactly."""
    return (EPOCH + timedelta(microseconds=at)).astimezone(zone)


def missing(package: str, what: str) -> FlyballError:
    """The error where a package cannot be imported that a kind of trigger needs."""
    return FlyballError(
        f"{what} need {package}, which is not installed",
        remedy="Install it: pip install 'flyball-governor[rules]'",
    )
