"""Supervises the agents of one program: one driver each, and what they share.

The drivers decide nothing about each other. Here is what comes before the first start (runs that were lost with the
last program, definitions that changed), what an order from outside does, and how all of them end together.
"""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from flyball.config import definitions
from flyball.config.units import Unit
from flyball.core.decision import PROCEED, Decision, Verb
from flyball.core.event import Beat, Event, Exited, Start
from flyball.core.time import SECOND, Instant, Span, later, seconds
from flyball.errors import FlyballError, StoreError
from flyball.governor import Governor
from flyball.policies.restart import ENDED_BY_POLICY
from flyball.runtimes.agent.inline import InlineHands, InlineLife
from flyball.runtimes.agent.process import WorkerHands
from flyball.runtimes.agent.watchdog import Watchdog
from flyball.runtimes.before import is_again, restarts_key, revised, revision_key
from flyball.runtimes.doorbell import doorbell
from flyball.runtimes.driver import ALREADY_RUNNING, Driver, Life, NotBegun, Sleep, sleep_until
from flyball.runtimes.holder import is_gone, me

log = logging.getLogger(__name__)

TROUBLE_WAIT: Final = 5.0
"""Seconds before an agent is driven again whose driver failed, because the store did: a full disk needs time."""

STAND_BY_LOOKS: Final[Span] = 2 * SECOND
"""Between looks whether another program, which runs the same agent, is still there."""

HUNG: Final = 70
"""The exit code of a process that was ended because something in it hung (EX_SOFTWARE)."""

Listener = Callable[[str, Event, Decision], None]


class Begins(Protocol):
    """Hands that know the run that they began last."""

    @property
    def unit(self) -> Unit:
        """Whose runs they begin."""

    async def begin(self, run: str, *, again: bool) -> Life:
        """Begin a run."""
        ...


class _Left(Exception):
    """The way out of a wait when all is to end."""


@dataclass(slots=True)
class Supervisor:
    """Supervises agents until all of them are over, or it is told to end."""

    governor: Governor
    hands: Mapping[str, Begins]
    revisions: Mapping[str, str]
    listener: Listener
    file: Path | None = None
    """The file that every commit of the store changes; None: nobody else can write to it."""
    blocked_max: float = 5.0
    """Seconds that the event loop may be blocked before that is said."""
    exits_when_hung: bool = False
    sleep: Sleep = sleep_until
    ended: dict[str, Decision] = field(default_factory=dict)
    """What ended each of those that are over."""
    _seats: "dict[str, _Seat]" = field(default_factory=dict)
    over_count: int = 0
    """How many of them are over now."""
    _leaving: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def supervise(self) -> dict[str, Decision]:
        """Start the agents, and look after them until all are over. If this is cancelled they are ended in order."""
        with _here.all_of(self.file or id(self.governor.store), self.hands):
            return await self._supervise()

    async def _supervise(self) -> dict[str, Decision]:
        await asyncio.to_thread(self._prepare)
        self._seats = {name: _Seat(self, hands) for name, hands in self.hands.items()}
        with contextlib.ExitStack() as stack:
            if self.file is not None:
                stack.enter_context(contextlib.closing(doorbell(self.governor.store, self.file, self.ring)))
            if any(isinstance(hands, InlineHands) for hands in self.hands.values()):
                watchdog = Watchdog(self.governor, self.lives, self.stuck, blocked_max=self._blocked_max())
                stack.enter_context(contextlib.closing(watchdog))
            tasks = [asyncio.ensure_future(seat.keep()) for seat in self._seats.values()]
            try:
                await asyncio.gather(*tasks)
            except BaseException:  # cancelled, or one cannot be driven any more: nobody is left behind
                self.end()
                await asyncio.gather(*tasks, return_exceptions=True)
                raise
        return self.ended

    def end(self) -> None:
        """End all of them in order."""
        self._leaving = True
        for seat in self._seats.values():
            seat.leave()
        self.ring()

    def ring(self) -> None:
        """Somebody gave an order: everybody asks what that means for them."""
        self._changed.set()
        self._changed = asyncio.Event()
        for seat in self._seats.values():
            seat.ring()

    def lives(self) -> list[InlineLife]:
        """The runs in this process that are live."""
        return [seat.life for seat in list(self._seats.values()) if isinstance(seat.life, InlineLife)]

    def stuck(self, life: InlineLife | None, where: str) -> None:
        """Something hangs that cannot be killed: tell people, and end the process if that is wanted. Also called from
        the watchdog's thread."""
        name = life.context.unit if life is not None else "something that is no agent"
        log.error("%s does not go on, and cannot be ended from inside its process; it is here:\n%s", name, where)
        if life is not None:
            context = life.context
            beat = Beat(unit=context.unit, run=context.run, labels=context.labels, silent=True, stuck=where or "?")
            with contextlib.suppress(FlyballError):  # that it hangs is said; that it cannot be written down is another
                self.listener(context.unit, beat, self.governor.submit(beat))
        if self.exits_when_hung:
            log.error("the process is ended, because %s hangs", name)
            os._exit(HUNG)

    @property
    def all_over(self) -> bool:
        """Whether nobody runs or waits any more."""
        return self.over_count == len(self._seats)

    @property
    def leaving(self) -> bool:
        """Whether all is to end."""
        return self._leaving

    async def changed(self) -> None:
        """Wait until there is an order, or somebody is over."""
        await self._changed.wait()

    def _blocked_max(self) -> float:
        """A hung agent is reported within its deadline."""
        shortest = [
            seconds(length) / 2
            for hands in self.hands.values()
            for length in (hands.unit.deadline, hands.unit.idle)
            if length
        ]
        return min([self.blocked_max, *shortest])

    # Before the first start.

    def _prepare(self) -> None:
        """Report runs that were lost with the last program, and tell of definitions that changed. All at once: there
        may be thousands of them."""
        governor, holder = self.governor, me()
        for hands in self.hands.values():
            if isinstance(hands, WorkerHands):
                hands.clear(governor)
        for name in {unit for unit, _, _ in governor.live_runs()} & set(self.hands):
            governor.reap(lambda other: other == holder or is_gone(other), unit=name)
        definitions.keep(governor, *self.hands)
        known = governor.store.read([revision_key(name) for name in self.hands]).records
        asked = revised(((hands.unit, self.revisions[name]) for name, hands in self.hands.items()), known)
        answers = [governor.submit_soon(revise) for revise, _ in asked]
        for (revise, changed), answer in zip(asked, answers, strict=True):
            decision = answer.result()
            if changed:
                self.listener(revise.unit, revise, decision)


class _Here:
    """What is supervised in this process, by whatever guard. A run that this process holds and nobody in it looks after
    is lost; one that somebody looks after is not, and must not be started twice."""

    def __init__(self) -> None:
        self._held: set[tuple[object, str]] = set()
        self._mutex = threading.Lock()

    @contextlib.contextmanager
    def all_of(self, store: object, names: Iterable[str]) -> Iterator[None]:
        """Nobody else here supervises these of that store meanwhile. FlyballError if somebody does."""
        wanted = {(store, name) for name in names}
        with self._mutex:
            taken = sorted(name for _, name in self._held & wanted)
            if taken:
                raise FlyballError(
                    f"another guard of this process supervises {', '.join(taken)} already",
                    remedy="Use one guard, or run each agent once.",
                )
            self._held |= wanted
        try:
            yield
        finally:
            with self._mutex:
                self._held -= wanted


_here = _Here()


class _Seat:
    """One agent: its driver, and when that is asked to drive again."""

    def __init__(self, supervisor: Supervisor, hands: Begins) -> None:
        self._supervisor = supervisor
        self.hands = hands
        self.life: Life | None = None
        self._answer = PROCEED
        """The governor's last."""
        self._over = False
        self._ending: asyncio.Task[None] | None = None
        self.driver = Driver(
            unit=hands.unit.name,
            hands=self,
            governor=supervisor.governor,
            holder=me(),
            labels=hands.unit.labels,
            grace=hands.unit.grace,
            listener=self._heard,
            sleep=self._sleep,
        )

    @property
    def is_over(self) -> bool:
        """Whether it neither runs nor waits."""
        return self._over

    @is_over.setter
    def is_over(self, over: bool) -> None:
        self._supervisor.over_count += over - self._over
        self._over = over

    async def keep(self) -> None:
        """Drive it until all are over: one that is held may be released while others still run."""
        supervisor, name = self._supervisor, self.hands.unit.name
        self.driver.again = await asyncio.to_thread(self._is_again)
        while not supervisor.leaving:
            self.is_over = False
            try:
                supervisor.ended[name] = await self.driver.drive()
            except _Left:
                break
            except FlyballError as error:
                await self._troubled(error)
                continue
            self.is_over = True
            if supervisor.all_over:
                supervisor.ring()
            while not supervisor.all_over and not supervisor.leaving and not self._may_start():
                await supervisor.changed()
            if supervisor.all_over:
                break
        self.is_over = True

    def leave(self) -> None:
        """End what runs; what waits stops waiting."""
        if self.life is not None and self._ending is None:
            self._ending = asyncio.ensure_future(self.life.end(self.hands.unit.grace))

    def ring(self) -> None:
        """Somebody gave an order or an answer."""
        self.driver.poke()
        if isinstance(self.life, InlineLife) and self.life.context.heard is not None:
            self.life.context.heard.set()

    # What the driver is given.

    async def begin(self, run: str, *, again: bool) -> Life:
        """Begin a run, unless all is to end."""
        if self._supervisor.leaving:
            return NotBegun()
        self.life = await self.hands.begin(run, again=again)
        if isinstance(self.life, InlineLife) and self._supervisor.file is not None:
            self.life.context.heard = asyncio.Event()
        return self.life

    async def _sleep(self, poked: asyncio.Event, until: Instant) -> None:
        if self.life is None and self._supervisor.leaving:
            raise _Left
        if ALREADY_RUNNING in self._answer.codes:
            await self._stand_by(poked, until)
        else:
            await self._supervisor.sleep(poked, until)
        if self.life is None and self._supervisor.leaving:
            raise _Left

    async def _stand_by(self, poked: asyncio.Event, until: Instant) -> None:
        """Another program runs it. When that is gone, which nobody tells, this one takes its place."""
        governor, name = self._supervisor.governor, self.hands.unit.name
        while not poked.is_set() and governor.clock.now() < until:
            await self._supervisor.sleep(poked, min(until, later(governor.clock.now(), STAND_BY_LOOKS)))
            if await asyncio.to_thread(governor.reap, is_gone, unit=name):
                return

    def _heard(self, _: Driver, event: Event, decision: Decision) -> None:
        self._answer = decision
        if isinstance(event, Exited):
            self.life = None
        self._supervisor.listener(self.hands.unit.name, event, decision)

    # When it is over.

    def _is_again(self) -> bool:
        """Whether its next start is a restart, and counted as one. Who runs a program anew wants what was done to run
        again."""
        key = restarts_key(self.hands.unit.name)
        return is_again(self._supervisor.governor.store.read([key]).records.get(key), after_done=False)

    def _may_start(self) -> bool:
        """Whether a person let go what a person, or a policy, had ended. What ended by itself stays over."""
        unit = self.hands.unit
        ended = self._supervisor.ended[unit.name]
        if ended.verb is Verb.FINISH and ENDED_BY_POLICY not in ended.codes:
            return False
        self.driver.again = self._is_again()
        start = Start(unit=unit.name, run="-", labels=unit.labels, again=self.driver.again, holder=self.driver.holder)
        return self._supervisor.governor.look(start).verb <= Verb.WAIT

    async def _troubled(self, error: FlyballError) -> None:
        """The store failed, so nobody looked after the run: it is ended, and counted as lost. Raises what stays so."""
        name = self.hands.unit.name
        log.error("%s: %s; its run is ended", name, error)
        if self.life is not None:
            await self.life.end(self.hands.unit.grace)
            self.life = None
        holder = self.driver.holder
        with contextlib.suppress(FlyballError):
            governor = self._supervisor.governor
            await asyncio.to_thread(governor.reap, lambda other: other == holder, unit=name)
        self.driver.again = True
        if isinstance(error, StoreError) and not error.passes:  # closed, or damaged: it does not come back
            raise error
        if not self._supervisor.leaving:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._supervisor.changed(), TROUBLE_WAIT)
