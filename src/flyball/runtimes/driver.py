"""The driver: the one loop that turns decisions into starting, waiting, finishing and stopping a unit.

One driver per unit; none waits for another; every wait ends early when the driver is poked, because somebody gave an
order; nothing polls. What the hands do (a process, a function) is not known here: only that a life begins, ends, and
can be ended. There is no other way to run a unit: each start, each sign of life and each exit is put to the governor.

While the store cannot be written, because its disk is full, what runs goes on as long as the policies let it, nothing
new is begun, and an exit waits until it can be written down.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Final, Protocol, TypeVar

from flyball.core.decision import PROCEED, Decision, Verb, proceed
from flyball.core.event import Beat, Cause, Event, Exited, Start
from flyball.core.time import FOREVER, SECOND, Instant, Span
from flyball.errors import StoreError, StoreUnsure
from flyball.governor import NO_ROWS, Governor, Rows
from flyball.runtimes.bridge import bring, submit
from flyball.runtimes.flag import Flag

ASK_EARLY: Span = 1 * SECOND
"""How long before a lease ends the driver asks again: time enough for a busy store."""
LEASE_EVERY: float = 5.0
"""Seconds between beats that keep the lease of a run that does not end: far below any lease."""
TROUBLE_WAIT: Span = 5 * SECOND
"""How long a store that could not be written is left in peace: a full disk needs time."""

T = TypeVar("T")


ALREADY_RUNNING: Final = "already_running"
"""The code that says that another run of the unit lives."""

OVERDUE: Final = frozenset({"timeout", "idle_timeout"})
"""Codes that say of a run that its time is over."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a life ended: what `Exited` says of it."""

    cause: Cause
    fingerprint: str = ""
    version: int = 0
    error: str = ""
    code: int | None = None
    signal: int | None = None
    detail: str = ""
    policy: str = ""
    pause: str = ""
    resume_at: Instant = 0
    progress: bool = False


class Life(Protocol):
    """One run that was begun."""

    def ended(self) -> Awaitable[Ending]:
        """Wait until it is over. May be asked for again after such a wait was cancelled."""
        ...

    async def end(self, grace: Span) -> None:
        """Make it end: ask, wait for the grace, then by force. Returns when it is proven to be gone; `ended` then
        returns at once."""
        ...


NOT_BEGUN: Final = Ending(Cause.STOPPED, error="not begun")


class NotBegun:
    """A run that was granted when it was to end already: whoever runs it begins nothing."""

    def __init__(self, ending: Ending = NOT_BEGUN) -> None:
        self._ending = ending

    async def ended(self) -> Ending:
        return self._ending

    async def end(self, grace: Span) -> None:
        pass


class Ordered(Protocol):
    """Who looks after a life, and hears what people order."""

    kills: bool
    """What runs is to be ended without grace."""


class Killable:
    """A life that knows whether it was ordered to be killed."""

    __slots__ = ("_life", "_whose")

    def __init__(self, whose: Ordered, life: Life) -> None:
        self._whose, self._life = whose, life

    def ended(self) -> Awaitable[Ending]:
        return self._life.ended()

    async def end(self, grace: Span) -> None:
        await self._life.end(0 if self._whose.kills else grace)


class Hands(Protocol):
    """What can begin the runs of one unit."""

    async def begin(self, run: str, *, again: bool) -> Life:
        """Begin a run. What goes wrong is an ending too: a life that ended at once."""
        ...


class Stage(StrEnum):
    """Where a driver is."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDING = "ending"
    OVER = "over"


Listener = Callable[["Driver", Event, Decision], None]
Opening = Callable[[Start], Awaitable[tuple[Start, Rows]]]
"""Makes of a plain start what the run really is (a session that was begun is resumed), and says what is to be written
with it if it is granted. It may take its time."""
Closing = Callable[[Exited], Rows]
"""What is to be written with an exit."""
Sleep = Callable[[asyncio.Event, Instant], Awaitable[None]]


def _machine_now() -> Instant:
    return time.time_ns() // 1000


async def sleep_until(poked: asyncio.Event, until: Instant, now: Callable[[], Instant] = _machine_now) -> None:
    """Wait for that instant, on the clock that `now` reads, or to be poked."""
    seconds = None if until >= FOREVER - ASK_EARLY else max(0.0, (until - now()) / SECOND)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await poked.wait()


async def doze_until(poked: asyncio.Event, until: Instant, now: Callable[[], Instant] = _machine_now) -> None:
    """The same with less to keep in mind, for those who have thousands of waits. When the time is over it pokes by
    itself, so it is for those only who take back every poke before they ask."""
    if until >= FOREVER - ASK_EARLY:
        await poked.wait()
        return
    seconds = max(0.0, (until - now()) / SECOND)
    timer = asyncio.get_running_loop().call_later(seconds, poked.set)
    try:
        await poked.wait()
    finally:
        timer.cancel()


@dataclass(slots=True)
class Driver:
    """Drives one unit until it is over: finished, stopped or held. `poke` makes it ask again at once."""

    unit: str
    hands: Hands
    governor: Governor
    holder: str
    labels: Mapping[str, str] = field(default_factory=dict)
    grace: Span = 10 * SECOND
    again: bool = False
    """The first start is already a restart: the unit was running when its supervisor died."""
    adopted: str = ""
    """The first run is one that lives already, begun by another supervisor. It was granted long ago, so nothing is
    asked but whether it may go on."""
    opening: Opening | None = None
    """Of units whose runs do not all begin alike."""
    closing: Closing | None = None
    """Of units whose runs leave something to be written with their exit. They have an `opening` as well."""
    listener: Listener | None = None
    """Told of every answer, for one line of log or terminal. It decides nothing."""
    troubled: Callable[[StoreError | None], None] | None = None
    """Told when the store cannot be written, and, by None, when it can be again."""
    sleep: Sleep = sleep_until
    """How to wait. Tests move a clock instead."""
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    """Of its runs. Whoever makes another driver for the same unit and holder goes on with the same: no two runs are
    called alike."""
    stage: Stage = Stage.WAITING
    run_id: str = ""
    _poked: asyncio.Event = field(default_factory=Flag)
    _exited_at: Instant = 0
    _trouble: bool = False
    _gives_up: bool = False

    def poke(self) -> None:
        """Somebody gave an order: ask again now, whatever it is waiting for."""
        self._poked.set()

    def give_up(self) -> None:
        """It has to end: a store that cannot be written is waited for no more."""
        self._gives_up = True
        self.poke()

    async def drive(self) -> Decision:
        """Run the unit as long as the governor lets it. Returns the decision that ended it."""
        leave: Decision | None = None
        self._gives_up = False
        while True:
            if leave is None:
                leave = await self._ask_start()
            if leave.verb is Verb.WAIT:
                await self.sleep(self._poked, leave.until)
                leave = None
            elif leave.proceeds:
                answer, leave = await self._live(leave)
                if leave is None and answer.verb is Verb.WAIT:
                    await self.sleep(self._poked, answer.until)
            else:
                self.stage = Stage.OVER
                return leave

    async def _ask_start(self) -> Decision:
        self.stage = Stage.WAITING
        if self.adopted:
            self.run_id, self.adopted = self.adopted, ""
            return proceed(until=0)
        start, rows = self._next_start(), NO_ROWS
        if self.opening is not None:
            start, rows = await self.opening(start)
        self.run_id = start.run
        return await self._submit(start, rows)

    def _next_start(self) -> Start:
        run = f"{self.holder}.{next(self.numbers)}"
        down = self.governor.clock.now() - self._exited_at if self._exited_at else 0
        return Start(unit=self.unit, run=run, labels=self.labels, again=self.again, holder=self.holder, down=down)

    async def _live(self, leave: Decision) -> tuple[Decision, Decision | None]:
        """One life, from the leave that was given to the answer to its exit; and the answer to the next start, if that
        could be asked at once."""
        self.stage = Stage.RUNNING
        life = await self.hands.begin(self.run_id, again=self.again)
        if isinstance(life, NotBegun):
            # Reported before any wait: whoever is being left leaves at the next one, and this would stay granted.
            return await self._exit_and_ask(self._exited(await life.ended(), PROCEED))
        ending_of_life = asyncio.ensure_future(life.ended())
        ending_of_life.add_done_callback(self._wake)
        told_to_end = PROCEED
        until = leave.until
        try:
            while not ending_of_life.done():
                await self.sleep(self._poked, self._ask_at(until))
                if ending_of_life.done():
                    break
                answer = await self._renew()
                until = answer.until
                if answer.verb >= Verb.FINISH:
                    told_to_end = answer
                    self.stage = Stage.ENDING
                    await self._end(life)
            ending = await ending_of_life
        except asyncio.CancelledError:
            self._gives_up = True
            await self._end(life)
            exited = self._exited(await life.ended(), told_to_end, stopped=True)
            await self._submit(exited, self.closing(exited) if self.closing is not None else NO_ROWS)
            raise
        return await self._exit_and_ask(self._exited(ending, told_to_end))

    async def _end(self, life: Life) -> None:
        """End it, and keep its lease meanwhile: what takes longer to end than a lease lasts, or cannot be ended, is
        still there, and nobody may take its place."""
        ending = asyncio.ensure_future(life.end(self.grace))
        while not (await asyncio.wait((ending,), timeout=LEASE_EVERY))[0]:
            beat = Beat(unit=self.unit, run=self.run_id, labels=self.labels, silent=True)
            with contextlib.suppress(StoreError):
                await submit(self.governor, beat)
        await ending

    async def _exit_and_ask(self, exited: Exited) -> tuple[Decision, Decision | None]:
        """Report the exit, and ask for the next start in the same breath, unless there is something to wait for, or
        what that start is depends on how the exit is judged."""
        self.again = not exited.pause
        self._exited_at = self.governor.clock.now()
        if self.opening is not None:
            return await self._exit(exited), None
        start = self._next_start()
        asked: Future[tuple[Decision, Decision | None]] | None = None

        def ask() -> "Future[tuple[Decision, Decision | None]]":
            nonlocal asked
            asked = self.governor.report_and_ask_soon(exited, start)
            return asked

        try:
            try:
                answer, leave = await self._insist(ask)
            except StoreUnsure:
                answer = await self._insist(lambda: self.governor.submit_again_soon(exited), repeatable=True)
                leave = await self._insist(lambda: self.governor.submit_again_soon(start), repeatable=True)
        except asyncio.CancelledError:
            self._gives_up = True
            _, leave = await bring(asked or ask())
            if leave is not None and leave.proceeds:
                self.run_id = start.run
                await self._submit(self._exited(NOT_BEGUN, PROCEED, stopped=True))
            raise
        self._tell(exited, answer)
        if leave is not None:
            self.stage = Stage.WAITING
            self.run_id = start.run
            self._tell(start, leave)
        return answer, leave

    async def _exit(self, exited: Exited) -> Decision:
        """Report the exit; also when the drive is cancelled meanwhile."""
        rows = self.closing(exited) if self.closing is not None else NO_ROWS
        reporting = asyncio.ensure_future(self._submit(exited, rows))
        try:
            return await asyncio.shield(reporting)
        except asyncio.CancelledError:
            self.give_up()
            await reporting
            raise

    def _ask_at(self, until: Instant) -> Instant:
        """Shortly before the lease ends; or, where asking early did not make it longer, at its end."""
        early = until - ASK_EARLY
        return early if early > self.governor.clock.now() else until

    def _exited(self, ending: Ending, told: Decision, *, stopped: bool = False) -> Exited:
        """The exit as the journal has it. What was told to end did not fail by itself: it stopped, or its time was
        over, or its money. What one of its own steps told it came first, and stands."""
        cause, error, policy = ending.cause, ending.error, ending.policy
        if stopped:
            cause = Cause.STOPPED
        elif told is not PROCEED and not policy:
            cause = _cause_of(told)
        if told.primary is not None and (stopped or not policy):
            error, policy = told.primary.code, told.primary.policy
        return Exited(
            unit=self.unit,
            run=self.run_id,
            labels=self.labels,
            cause=cause,
            fingerprint=ending.fingerprint,
            version=ending.version,
            error=error,
            policy=policy,
            code=ending.code,
            signal=ending.signal,
            detail=ending.detail,
            pause=ending.pause if told is PROCEED and not stopped else "",
            resume_at=ending.resume_at,
            progress=ending.progress,
        )

    async def _renew(self) -> Decision:
        """Say that the run is still looked after. Where that cannot be written down, what is known can still be read:
        a deadline ends the run then as well."""
        beat = Beat(unit=self.unit, run=self.run_id, labels=self.labels, silent=True)
        self._poked.clear()
        try:
            decision = await submit(self.governor, beat)
        except StoreError as error:
            if not error.passes:
                raise
            self._in_trouble(error)
            known = await asyncio.to_thread(self.governor.look, beat)
            ask_at = min(known.until, self.governor.clock.now() + TROUBLE_WAIT)
            decision = Decision(known.verb, ask_at, known.reasons)
        else:
            self._in_trouble(None)
        self._tell(beat, decision)
        return decision

    async def _submit(self, event: Event, rows: Rows = NO_ROWS) -> Decision:
        try:
            decision = await self._insist(lambda: self.governor.submit_soon(event, rows))
        except StoreUnsure:
            if not isinstance(event, Start | Exited):
                raise
            sure = event
            decision = await self._insist(lambda: self.governor.submit_again_soon(sure, rows), repeatable=True)
        self._tell(event, decision)
        return decision

    async def _insist(self, ask: "Callable[[], Future[T]]", *, repeatable: bool = False) -> T:
        """Ask until the store could write it down: what was not is not done, and what was done is not forgotten. Where
        nobody knows whether it was, it is asked again only if it is `repeatable`."""
        while True:
            # Cleared before asking, not before waiting: an order that comes while the answer is on its way is not lost.
            self._poked.clear()
            try:
                answer = await bring(ask())
            except StoreError as error:
                if self._gives_up or not error.passes or (isinstance(error, StoreUnsure) and not repeatable):
                    raise
                self._in_trouble(error)
            else:
                self._in_trouble(None)
                return answer
            await self.sleep(self._poked, self.governor.clock.now() + TROUBLE_WAIT)

    def _in_trouble(self, error: StoreError | None) -> None:
        if self._trouble is not (error is not None):
            self._trouble = error is not None
            if self.troubled is not None:
                self.troubled(error)

    def _tell(self, event: Event, decision: Decision) -> None:
        if self.listener is not None:
            self.listener(self, event, decision)

    def _wake(self, _: "asyncio.Future[Ending]") -> None:
        """The life is over: the wait for the end of its lease is, too."""
        self._poked.set()


def _cause_of(told: Decision) -> Cause:
    """Why a run that was told to end did so: its time was over, or it was stopped. What was stopped is not started
    again by itself: not what was told to finish because its money was gone, nor what went round in circles."""
    return Cause.TIMEOUT if OVERDUE.intersection(told.codes) else Cause.STOPPED
