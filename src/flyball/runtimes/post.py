"""A unit's post in a supervisor: its driver, what it waits for before it starts, and what orders do to it.

The driver decides nothing about itself; this decides nothing about runs. Here is only what comes before a drive and
after it: units that have to be up first, an order that starts again what is over, one that ends what runs, and whose
turn it is when many sessions may be resumed. A drive is left only where nothing is on its way to the store, so no run
is granted that nobody begins.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final, Protocol

from flyball.config.units import OnSupervisorDeath, Unit
from flyball.core.decision import Decision
from flyball.core.event import Event, Exited, Resume, Start
from flyball.core.failure import digest
from flyball.core.time import FOREVER, SECOND, Instant, Span
from flyball.errors import FlyballError
from flyball.governor import Governor, Rows
from flyball.runtimes import kept
from flyball.runtimes.before import is_again, restarts_key
from flyball.runtimes.driver import ALREADY_RUNNING, ASK_EARLY, Driver, Killable, Life, NotBegun, Stage, doze_until
from flyball.runtimes.flag import Flag
from flyball.runtimes.guardian import Guard
from flyball.runtimes.kept import Record
from flyball.runtimes.process import ProcessLife
from flyball.runtimes.session.command import CommandSession
from flyball.runtimes.session.turns import Turns
from flyball.runtimes.watched import WatchedHands

log = logging.getLogger(__name__)

TROUBLE_WAIT: Final = 5.0
"""Seconds before a unit is driven again whose driver failed, because its store is broken, or by a bug."""
ORDER_MAX: Final = 0.25
"""Seconds that whoever ordered something waits, so that the answer says what became of it. No longer than an eye."""
ELSEWHERE_LOOKS: Final = 1 * SECOND
"""Between looks whether a run that is another's has ended."""
PACED_FROM: Final = 10
"""So many units that wait at the same time are no accident: their starts are spread, so that what they share is not
hit by all at once."""


class Pace:
    """Spreads the starts of many units that wait for the same reason. Each unit has its own share of the jitter, by a
    hash: the same history gives the same times."""

    def __init__(self, jitter: float) -> None:
        self.jitter = jitter
        self.waiting = 0

    def later(self, unit: str, now: Instant, until: Instant) -> Instant:
        """When a unit that may start at `until` should."""
        if self.waiting <= PACED_FROM or until >= FOREVER - ASK_EARLY or until <= now:
            return until
        share = int(digest([unit, str(until)])[:8], 16) / 0xFFFF_FFFF
        return until + round((until - now) * self.jitter * share)


class _Left(Exception):
    """The way out of a wait when the drive is to be left."""


class Others(Protocol):
    """The other posts, by name."""

    def up(self, unit: str) -> asyncio.Event:
        """Set while that unit counts as up: it runs and said so, or it is done."""
        ...

    def heard(self, post: "Post", event: Event, decision: Decision) -> None:
        """The governor answered about that one."""
        ...

    def came_up(self, post: "Post") -> None:
        """That one is up."""
        ...

    def troubled(self, name: str, error: FlyballError | None) -> None:
        """The store cannot be written; or, None, it can be again."""
        ...


@dataclass(slots=True)
class Post:
    """One unit. `keep` drives it for as long as it is wanted."""

    unit: Unit
    hands: WatchedHands
    governor: Governor
    holder: str
    others: Others
    pace: Pace
    kept_folder: Path
    guard: Guard | None = None
    turns: Turns = field(default_factory=Turns)
    """Of all sessions of the supervisor."""
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    """Of the unit's runs, also at the posts that it had before."""
    may_begin: Callable[[], bool] = lambda: True
    """Asked right before each start: whether this host may still begin anything."""
    again: bool | None = None
    """Its first start is one that nobody asked for; None: to be looked up."""
    driver: Driver = field(init=False)
    up: asyncio.Event = field(init=False)
    _waits_for: tuple[str, ...] = ()
    """Besides what its unit says: whom of its group it is restarted with."""
    _life: Life | None = None
    _process: ProcessLife | None = None
    _adopting: ProcessLife | None = None
    _task: "asyncio.Task[None] | None" = None
    """Which keeps it."""
    _driving: bool = False
    """The driver is at work, within that task."""
    _wanted: bool = True
    _leaving: bool = False
    _cancelled: bool = False
    kills: bool = False
    """Its run is to be ended without grace."""
    _fresh: bool = False
    """It is to be started anew, whatever ended its last run."""
    _asked_for: bool = False
    """A person wants its next run: it does not wait for its turn."""
    _turn: "asyncio.Future[None] | None" = None
    """Which it waits for."""
    _lives_elsewhere: bool = False
    """Another run of the unit lives, which is not this post's."""
    _ordered: asyncio.Event = field(default_factory=Flag)
    _answered: asyncio.Event | None = None
    """Set by the next answer of the governor, while somebody waits for it."""
    _tasks: "tuple[asyncio.Task[None], ...]" = ()

    def __post_init__(self) -> None:
        self.driver = Driver(
            unit=self.unit.name,
            hands=self,
            governor=self.governor,
            # What outlives this supervisor is not lost with it, so it is held under a name of its own.
            holder=f"{self.holder}/{self.unit.name}" if self.is_kept else self.holder,
            labels=self.unit.labels,
            grace=self.unit.grace,
            listener=self._heard,
            troubled=self._troubled,
            sleep=self._sleep,
            opening=self._open if self.hands.session is not None else None,
            numbers=self.numbers,
        )
        self.up = self.others.up(self.unit.name)
        self.hands.on_up = self._came_up

    @property
    def is_kept(self) -> bool:
        """It lives on when its supervisor is killed."""
        return self.unit.on_supervisor_death is OnSupervisorDeath.KEEP

    @property
    def pid(self) -> int:
        """Its process; 0 if none runs."""
        process = self._process
        return process.pid if self._life is not None and process is not None and process.ending is None else 0

    @property
    def is_adopting(self) -> bool:
        """Its first run is one that lives already."""
        return self._adopting is not None

    # Before the first drive.

    def adopt(self, record: Record) -> bool:
        """Take over a run that outlived its supervisor. False if it is not there any more."""
        life = self.hands.process.adopt(record.pid, record.started, record.run)
        if life is None:
            return False
        self._adopting = life
        self.driver.adopted = record.run
        return True

    # Driving.

    async def keep(self) -> None:
        """Drive the unit until it is told to quit. Whatever runs then is ended in order."""
        self._task = asyncio.current_task()
        try:
            if self.again is None:
                self.again = await asyncio.to_thread(self._is_again)
            self.driver.again = self.again
            while self._wanted:
                if self._adopting is None:
                    await self._others_up()
                    if self._fresh:
                        self._fresh = self.driver.again = False
                error: BaseException | None = None
                self._driving, self._cancelled = True, False
                try:
                    await self.driver.drive()
                except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - judged below, after the rest
                    error = raised
                self._driving = self._leaving = False
                if not self._goes_on(error):
                    break
                if not await self._failed(error) and not self._fresh:
                    await self._ordered.wait()
                self._ordered.clear()
        finally:
            if self._adopting is not None:
                await self._adopting.end(self.unit.grace)
            self.hands.close()

    async def _others_up(self) -> None:
        waits_for, self._waits_for = self._waits_for, ()
        for name in (*self.unit.after, *waits_for):
            await self.others.up(name).wait()

    def quit(self) -> None:
        """Have `keep` end. What it drives is ended in order first."""
        self._wanted = False
        if self._driving:
            self._leave()
        elif self._task is not None:
            self._task.cancel()

    def _goes_on(self, error: BaseException | None) -> bool:
        """Whether the unit is kept after this drive. What was cancelled to have the drive end is the drive, and not the
        task that keeps the unit; what somebody else cancelled is both."""
        if self._task is not None and self._cancelled:
            self._task.uncancel()
        if self._task is not None and self._task.cancelling():
            raise error or asyncio.CancelledError
        return self._wanted

    async def _failed(self, error: BaseException | None) -> bool:
        """Whether the driver itself failed: then nobody looked after the run, so it is ended and counted as lost."""
        if error is None or isinstance(error, _Left | asyncio.CancelledError):
            return False
        text = str(error) if isinstance(error, FlyballError) else repr(error)
        trace = None if isinstance(error, FlyballError) else error
        name = self.unit.name
        log.error("%s: %s; its run is ended, and it is tried again", name, text, exc_info=trace, extra={"unit": name})
        life = self.hands.process.life
        if life is not None:
            await life.end(self.unit.grace)
            self._over()
        with contextlib.suppress(FlyballError):
            await asyncio.to_thread(self._report_lost)
        self.driver.again = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ordered.wait(), TROUBLE_WAIT)
        self._ordered.clear()
        return True

    def _report_lost(self) -> None:
        holder = self.driver.holder
        self.governor.reap(lambda other: other == holder, unit=self.unit.name)

    def _is_again(self) -> bool:
        key = restarts_key(self.unit.name)
        return is_again(self.governor.store.read([key]).records.get(key), after_done=True)

    def _leave(self) -> None:
        """Have the drive end, and what runs with it. Where an answer of the governor is on its way, that comes first:
        then the drive ends at its next wait, or instead of its next run."""
        if not self._driving:
            self._leaving = self.is_adopting
            return
        self._leaving = True
        if self._life is not None and self._process is not None and self._process.ending is None:
            self._cancel()
        self._wait_no_more()
        self.driver.give_up()

    def _cancel(self) -> None:
        """Cancel the drive, which then ends its run. Once: a second time would take it away from that."""
        if self._task is not None and self._driving and not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    # Orders.

    async def order(self, verb: str) -> None:
        """Somebody ordered something, and it is in the journal. Have it obeyed; returns when the unit has asked what
        that means for it, unless it has reasons to take long."""
        answered = self._answered = asyncio.Event()
        self._asked_for = verb in ("start", "resume") and self._life is None
        self._wait_no_more()
        if verb in ("start", "resume", "reset") and self._life is None:
            self.driver.again = verb != "start" and await asyncio.to_thread(self._is_again)
        if verb == "kill":
            self.kills = True
            if self._leaving or self.driver.stage is Stage.ENDING:
                self.hurry()
        if verb == "restart":
            self.begin_again()
        else:
            self.driver.poke()
            if verb in ("start", "resume", "reset"):
                self._ordered.set()
        if self._asks_soon(verb):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(answered.wait(), ORDER_MAX)

    def _asks_soon(self, verb: str) -> bool:
        """Whether that order makes it ask the governor at once."""
        if self._driving:
            return True
        starts = verb in ("start", "resume", "reset", "restart")
        return starts and all(self.others.up(name).is_set() for name in self.unit.after)

    def begin_again(self, after: Iterable[str] = ()) -> None:
        """End it, if it runs, and start it again, after those are up."""
        self._waits_for = tuple(after)
        self._fresh = True
        self._ordered.set()
        self._leave()

    async def abandon(self, grace: Span) -> None:
        """End its process, and nothing more: what becomes of its run is told by whoever takes over."""
        process = self.hands.process.life or self._adopting
        if process is not None and process.ending is None:
            await process.end(min(grace, self.unit.grace))

    def hurry(self) -> None:
        """End without grace what is being ended."""
        self.kills = True
        if self._life is not None:
            self._soon(self._life.end(0))

    def _soon(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks = (*(other for other in self._tasks if not other.done()), task)

    # What the driver is given.

    async def _open(self, start: Start) -> tuple[Start, Rows]:
        """A session's start as what it is. If it is resumed by itself, and may be, it waits for its turn."""
        session = self.hands.session
        assert session is not None  # noqa: S101 - only then this is called
        may_be = await asyncio.to_thread(self._may_be_resumed, session, start)
        if may_be and not (self._asked_for or self._leaving):
            self._turn = self.turns.take(self.unit.name, self.unit.priority)
            await self._turn
        self._asked_for = False
        opened = await asyncio.to_thread(session.open, start)
        if self._leaving:
            raise _Left
        return opened

    def _may_be_resumed(self, session: CommandSession, start: Start) -> bool:
        opened, _ = session.open(start)
        return isinstance(opened, Resume) and self.governor.look(opened).proceeds

    def _wait_no_more(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    async def begin(self, run: str, *, again: bool) -> Life:
        """Begin a run, unless the drive is being left."""
        self.kills = False
        if self._adopting is not None:
            process: ProcessLife | None = self._adopting
            inner: Life = self.hands.adopted(self._adopting)
            self._adopting = None
        elif self._leaving or not self.may_begin():
            return NotBegun()
        else:
            inner = await self.hands.begin(run, again=again)
            process = self.hands.process.life
        if process is not None and process.pid:
            await self._note(process, run)
        # No waiting from here on: a drive that has a life may be cancelled, this may not.
        self._process, self._life = process, Killable(self, inner)
        if self._leaving:
            asyncio.get_running_loop().call_soon(self._cancel)
        return self._life

    async def _note(self, process: ProcessLife, run: str) -> None:
        """For whoever comes after this supervisor: what to spare, or what to end. Without such a note it runs all the
        same, and is not spared."""
        try:
            if self.is_kept:
                record = Record(self.unit.name, process.pid, process.started, run, self._holder_of(run))
                await asyncio.to_thread(kept.write, self.kept_folder, record)
            elif self.guard is not None:
                self.guard.note(process.pid)
        except OSError as error:
            log.error("%s: no note of its process can be made: %s", self.unit.name, error.strerror)

    def _holder_of(self, run: str) -> str:
        """Who asked for that run: this supervisor, or the one that it was adopted from."""
        return run.rpartition(".")[0]

    def _heard(self, _: Driver, event: Event, decision: Decision) -> None:
        self._lives_elsewhere = ALREADY_RUNNING in decision.codes
        if isinstance(event, Exited):
            self._over()
            if event.cause.done:
                self.up.set()
        if self._answered is not None:
            self._answered.set()
        self.others.heard(self, event, decision)

    def _troubled(self, error: FlyballError | None) -> None:
        self.others.troubled(self.unit.name, error)

    def _came_up(self) -> None:
        self.up.set()
        self.others.came_up(self)

    def _over(self) -> None:
        """The run is gone."""
        self.up.clear()
        if self._process is not None and self._process.pid:
            if self.is_kept:
                kept.forget(self.kept_folder, self.unit.name)
            elif self.guard is not None:
                self.guard.forget(self._process.pid)
        self._life = None

    def _sleep(self, poked: asyncio.Event, until: Instant) -> Awaitable[None]:
        if self._life is None:
            return self._sleep_between_runs(poked, until)
        return doze_until(poked, until, self.governor.clock.now)

    async def _sleep_between_runs(self, poked: asyncio.Event, until: Instant) -> None:
        if self._leaving:
            raise _Left
        if self._lives_elsewhere:  # its lease ends then; but it may end before, and nobody here would hear of that
            until = min(until, self.governor.clock.now() + ELSEWHERE_LOOKS)
        is_paced = self.hands.session is None  # sessions have turns instead
        self.pace.waiting += is_paced
        try:
            at = self.pace.later(self.unit.name, self.governor.clock.now(), until) if is_paced else until
            await doze_until(poked, at, self.governor.clock.now)
        finally:
            self.pace.waiting -= is_paced
        if self._leaving:
            raise _Left
