"""One unit in the foreground: driven until it is over, in front of a person or inside a script.

It is driven like any other; here is what is special about being watched. What nobody can wait for ends it: another
process runs the same unit, or a wait has no end. A signal ends the unit in order, a second one at once. On a terminal a
clean exit is followed by a question; without one nobody is asked.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from flyball.config import definitions
from flyball.config.units import Unit
from flyball.core.codec import decode_state
from flyball.core.decision import PROCEED, Decision, Verb
from flyball.core.event import Cause, Event, Exited, Released, Revise, Start
from flyball.core.policy import Key
from flyball.core.time import FOREVER, Instant, Span
from flyball.errors import StoreError
from flyball.governor import Governor
from flyball.policies.exclusive import Exclusive
from flyball.policies.exclusive import State as Leases
from flyball.runtimes.doorbell import doorbell
from flyball.runtimes.driver import ASK_EARLY, Driver, Ending, Life, NotBegun, sleep_until
from flyball.runtimes.guardian import Guard
from flyball.runtimes.holder import is_gone, me
from flyball.runtimes.process import kernel, strays
from flyball.runtimes.sink import Sink
from flyball.runtimes.terminal import Terminal, begin_on
from flyball.runtimes.watched import WatchedHands

ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""The signals that end it."""

FOR_THE_UNIT: Final = (signal.SIGUSR1, signal.SIGUSR2)
"""The signals that mean nothing here, but may mean something to the unit."""

WAL: Final = "state.db-wal"
"""The file in the folder of the store that every commit changes."""

STDIN: Final = 0

UNKNOWN: Final = "?/?/?"
"""A holder that went away before it could be named."""


class Audience(Protocol):
    """Who sees what happens, and may have a say in it."""

    def told(self, event: Event, decision: Decision) -> None:
        """Something was decided."""
        ...

    def noted(self, text: str) -> None:
        """Something happened that is no decision."""
        ...

    async def wants_more(self) -> bool:
        """Whether to run it again after a clean exit."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it was over: the decision that ended it, the last exit, and the signal, if one ended it."""

    decision: Decision
    exited: Exited | None = None
    signal: int | None = None
    holder: str = ""
    """Who runs it, if somebody else does."""


class _Over(Exception):
    """The way out of a wait that nobody waits for."""


@dataclass(slots=True)
class Foreground:
    """Runs one unit until it is over. `interrupt` ends it."""

    unit: Unit
    governor: Governor
    audience: Audience
    user: str
    """The person who asked for it."""
    state: Path
    """The folder of the store."""
    guard: Guard
    sinks: tuple[Sink, Sink]
    """Where its stdout and its stderr go."""
    terminal: Terminal | None = None
    """Where all of it goes instead."""
    driver: Driver = field(init=False)
    _hands: WatchedHands = field(init=False)
    _life: Life | None = None
    _pid: int = 0
    _decision: Decision = PROCEED
    _exited: Exited | None = None
    _signal: int | None = None
    _asking: "asyncio.Task[bool] | None" = None
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.driver = Driver(
            unit=self.unit.name,
            hands=self,
            governor=self.governor,
            holder=me(),
            labels=self.unit.labels,
            grace=self.unit.grace,
            listener=self._told,
            troubled=self._troubled,
            sleep=self._sleep,
        )

    async def run(self) -> Outcome:
        """Run it until it is over."""
        loop = asyncio.get_running_loop()
        for number in ENDING:
            # Whoever started it may have made sure that it outlives its terminal (nohup).
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self.interrupt, number)
        for number in FOR_THE_UNIT:
            loop.add_signal_handler(number, self._pass_on, number)
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        loop.add_reader(self.guard.pipe, self._unguarded)
        if self.terminal is not None:
            self.terminal.on_hang_up = lambda: self.interrupt(signal.SIGHUP)
        self.sinks[0].on_broken = self._unread
        try:
            holder = await asyncio.to_thread(self._prepare, loop.call_soon_threadsafe)
            if holder is not None or self._is_over():
                return Outcome(self._decision, signal=self._signal, holder=holder or "")
            self._hands = WatchedHands(
                self.unit, self.governor, logs=self.state / "logs", sockets=self.state / "sockets"
            )
            bell = doorbell(self.governor.store, self.state / WAL, self.driver.poke)
            with contextlib.closing(self._hands), contextlib.closing(bell):
                return await self._drive()
        finally:
            if self._life is not None:  # the store failed: nobody looks after it any more
                await self._life.end(self.unit.grace)
            for sink in self.sinks:
                await sink.written()
            loop.remove_reader(self.guard.pipe)
            for number in (*ENDING, *FOR_THE_UNIT, signal.SIGTSTP):
                loop.remove_signal_handler(number)

    async def _drive(self) -> Outcome:
        while True:
            with contextlib.suppress(_Over):
                await self.driver.drive()
            if not await self._wants_more():
                return Outcome(self._decision, self._exited, self._signal)
            self.driver.again, self._exited = False, None

    def interrupt(self, number: int) -> None:
        """End it in order; when told again, at once. That a terminal is gone can be told twice."""
        if number == self._signal == signal.SIGHUP:
            return
        self._end(self.unit.grace if self._signal is None else 0)
        self._signal = self._signal or number
        for sink in self.sinks:
            sink.hurry()
        if self._asking is not None:
            self._asking.cancel()
        self.driver.give_up()

    def _end(self, grace: Span) -> None:
        if self._life is not None:
            task = asyncio.get_running_loop().create_task(self._life.end(grace))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _pass_on(self, number: int) -> None:
        if self._life is not None and self._hands.process.life is not None:
            self._hands.process.life.signal(number)

    def _suspend(self) -> None:
        """Ctrl-Z stops the unit too, which is in a session of its own: nothing runs while nobody looks after it."""
        for number in (signal.SIGSTOP, signal.SIGCONT):
            if self._life is not None and self._pid:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._pid, number)
            if number == signal.SIGSTOP:
                os.kill(os.getpid(), signal.SIGSTOP)

    def _unguarded(self) -> None:
        """The guardian was killed. Nothing runs unguarded."""
        asyncio.get_running_loop().remove_reader(self.guard.pipe)
        self.audience.noted("has no guardian any more, which was killed: it is ended")
        self.interrupt(signal.SIGTERM)

    def _unread(self, error: OSError) -> None:
        """Nobody reads what it prints. If it is to end already, that is no reason to hurry."""
        if not isinstance(error, BrokenPipeError):
            self.audience.noted(f"prints what cannot be written ({error.strerror}): it is ended")
        if not self._is_over():
            self.interrupt(signal.SIGPIPE)

    # What the driver is given.

    async def begin(self, run: str, *, again: bool) -> Life:
        """Begin a run, unless it is to end already."""
        if self._is_over():
            return NotBegun(Ending(Cause.STOPPED))
        process = self._hands.process
        if self.terminal is None:
            process.stdin, process.sinks = _stdin(), self.sinks
            self._life = await self._hands.begin(run, again=again)
        else:
            self._life = await begin_on(self.terminal, self._hands, run, again=again)
        self._pid = process.life.pid if process.life is not None else 0
        self.guard.note(self._pid)
        if self._is_over():  # it was interrupted meanwhile
            self._end(self.unit.grace)
        return self._life

    def _told(self, _: Driver, event: Event, decision: Decision) -> None:
        self._decision = decision
        if isinstance(event, Exited):
            self.guard.forget(self._pid)
            self._exited, self._life = event, None
        self.audience.told(event, decision)

    def _troubled(self, error: StoreError | None) -> None:
        if error is None:
            self.audience.noted("can be written down again")
        else:
            self.audience.noted(f"cannot be written down: {error}. {error.remedy}")

    async def _sleep(self, poked: asyncio.Event, until: Instant) -> None:
        endless = until >= FOREVER - ASK_EARLY or "already_running" in self._decision.codes
        if self._life is None and (endless or self._is_over()):
            raise _Over
        await sleep_until(poked, until, self.governor.clock.now)
        if self._life is None and self._is_over():
            raise _Over

    def _is_over(self) -> bool:
        return self._signal is not None

    async def _wants_more(self) -> bool:
        """After a clean exit that nothing else follows."""
        clean = self._exited is not None and self._exited.cause is Cause.DONE and self._decision.verb is Verb.FINISH
        if not clean or self._is_over():
            return False
        self._asking = asyncio.ensure_future(self.audience.wants_more())
        try:
            return await self._asking
        except asyncio.CancelledError:
            return False
        finally:
            self._asking = None

    # Before the first start.

    def _prepare(self, soon: Callable[..., object]) -> str | None:
        """Find out whether somebody else runs it (who), and tell the governor that a person wants it to run. In a
        thread of its own: what is to be said is said `soon`, in the loop."""
        name, governor = self.unit.name, self.governor
        strays.end({(name, run) for _, run, live in governor.live_runs(name) if is_gone(live.holder)}, kernel.detect())
        if governor.reap(is_gone, unit=name):
            soon(self.audience.noted, "ran when its supervisor was killed: that counts as a failure")
        start = Start(unit=name, run=f"{self.driver.holder}.0", labels=self.unit.labels, holder=self.driver.holder)
        self._decision = governor.look(start)
        if "already_running" in self._decision.codes:
            return self._holder()
        definitions.keep(governor, name)
        revise = Revise(unit=name, labels=self.unit.labels, revision=self.unit.revision, by=self.user)
        if governor.look(revise).proceeds:
            decision = governor.submit(revise)
            if decision.reasons:
                soon(self.audience.told, revise, decision)
        if self._knows("budget"):
            # A person who runs it again gives it its money again. Its own restarts do not.
            governor.submit(Released(unit=name, policies=("budget",), by=self.user, note="flyball run"))
        return None

    def _knows(self, policy: str) -> bool:
        key = Key(policy, "unit", self.unit.name)
        return key in self.governor.store.read([key]).records

    def _holder(self) -> str:
        key = Key(Exclusive.NAME, "unit", self.unit.name)
        data = self.governor.store.read([key]).records.get(key)
        runs = decode_state(Leases, data).runs if data is not None else {}
        return next((live.holder for live in runs.values()), UNKNOWN)


def _stdin() -> int:
    """Ours. But not a terminal whose keys are for somebody else now: in the background nothing is read."""
    with contextlib.suppress(OSError):
        if os.tcgetpgrp(STDIN) != os.getpgrp():
            return -1
    return STDIN
