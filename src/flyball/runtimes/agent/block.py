"""A run that is a block of somebody's own code: `with guard.watch("research")`. Asked for and reported as any run is,
but not supervised: nobody starts it again.

A thread keeps its lease, and hears there when its time is over or a person wants it to end. A coroutine is then
cancelled, and leaves the block with the refusal; a thread cannot be interrupted, so its next step is refused.
"""

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final

from flyball.config import definitions
from flyball.config.units import Unit
from flyball.core.decision import Decision, Verb
from flyball.core.event import Beat, Cause, Event, Exited, Start
from flyball.core.time import SECOND, Instant, Span, later
from flyball.errors import FlyballError, StoreError
from flyball.governor import NO_ROWS, Governor, Rows
from flyball.runtimes.agent.context import Context
from flyball.runtimes.agent.ending import Causes, ending_of, ending_of_told
from flyball.runtimes.allowance import STEPS_MAX
from flyball.runtimes.current import CURRENT
from flyball.runtimes.driver import ALREADY_RUNNING, ASK_EARLY, NOT_BEGUN, Ending
from flyball.runtimes.holder import is_gone, me
from flyball.runtimes.refusal import refusal

log = logging.getLogger(__name__)

BEATS_APART_MIN: Final = 0.05
"""Seconds between two beats at least, also where a lease is very short."""
BEATS_APART_MAX: Final = 3600.0
"""Seconds between two beats at most, also where there is no lease: a thread cannot wait for ever."""

LOOKS_APART: Final = 1.0
"""Seconds between two looks whether a person wants it to end. A look reads a few rows, and leaves no trace."""

Listener = Callable[[str, Event, Decision], None]
Opening = Callable[[Start], Start]
"""Makes of a plain start what the run really is: a session that was begun is resumed."""

_numbers = itertools.count(1)


class WatchedBlock:
    """A run of a unit, as a block: `with` it in a thread, `async with` it in a coroutine."""

    def __init__(
        self,
        governor: Governor,
        unit: Unit,
        *,
        causes: Causes,
        listener: Listener,
        opening: Opening = lambda start: start,
        rows: Callable[[Start], Rows] = lambda _: NO_ROWS,
        steps_max: int = STEPS_MAX,
        wait: Span = 0,
        told: Callable[[Decision], None] | None = None,
    ) -> None:
        """A start that has to wait is waited for as long as `wait`; when it is granted, its `rows` are kept with it.
        `told` hears, in any thread, what ends the run."""
        self._governor = governor
        self._unit = unit
        self._causes = causes
        self._listener = listener
        self._opening = opening
        self._rows = rows
        self._steps_max = steps_max
        self._wait = wait
        self._on_told = told
        self._told: Decision | None = None
        self.owed: Exited | None = None
        """How it ended, if that could not be written: until it is, its place is taken."""
        self._closed = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._cancelled = False

    # Threads.

    def __enter__(self) -> Context:
        until = self._start()
        return self._begin(until)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        self._report(error)

    # Coroutines.

    async def __aenter__(self) -> Context:
        starting = asyncio.ensure_future(asyncio.to_thread(self._start))
        try:
            until = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._closed.set()
            starting.add_done_callback(self._not_begun)
            raise
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        return self._begin(until)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        # As a deadline of asyncio does it: whoever else cancelled the task is not robbed of that.
        alone = self._cancelled and self._task is not None and self._task.uncancel() <= self._cancelling
        await asyncio.to_thread(self._report, error)
        if alone and self._told is not None and isinstance(error, asyncio.CancelledError):
            raise refusal(self._told, self._governor.clock.now(), f"{self._unit.name} is to end") from None

    # Both.

    def _start(self) -> Instant:
        """Ask leave; when the lease ends that was given."""
        governor, name, labels = self._governor, self._unit.name, self._unit.labels
        holder = me()
        self._run = f"{holder}.{next(_numbers)}"
        definitions.keep_soon(governor, name)
        governor.reap(is_gone, unit=name)
        by = later(governor.clock.now(), self._wait)
        while True:
            start = self._opening(Start(unit=name, run=self._run, labels=labels, holder=holder))
            decision = governor.submit(start, self._rows(start))
            self._listener(name, start, decision)
            if decision.proceeds:
                break
            now = governor.clock.now()
            comes = decision.verb is Verb.WAIT and decision.until <= by and ALREADY_RUNNING not in decision.codes
            if not comes or self._closed.wait(max(0, decision.until - now) / SECOND):
                raise refusal(decision, now, f"{name} may not start")
        self._context = Context(
            governor,
            name,
            self._run,
            labels=labels,
            idle=self._unit.idle,
            steps_max=self._steps_max,
            told=self._tell,
        )
        return decision.until

    def _not_begun(self, starting: "asyncio.Future[Instant]") -> None:
        """Whoever wanted it was cancelled before it was granted."""
        if not starting.cancelled() and starting.exception() is None:
            name, labels = self._unit.name, self._unit.labels
            exited = Exited(unit=name, run=self._run, labels=labels, cause=NOT_BEGUN.cause, error=NOT_BEGUN.error)
            self._governor.submit_soon(exited)

    def _begin(self, until: Instant) -> Context:
        self._token = CURRENT.set(self._context)
        # A daemon: a block that nobody leaves does not keep the process from ending.
        self._thread = threading.Thread(
            target=self._keep, args=(until,), name=f"flyball {self._unit.name}", daemon=True
        )
        self._thread.start()
        return self._context

    def _keep(self, until: Instant) -> None:
        """Keep the lease, look for orders in between, and obey what is answered."""
        beat = Beat(unit=self._unit.name, run=self._run, labels=self._unit.labels, silent=True)
        while not self._closed.is_set():
            try:
                if self._is_closed_within(self._apart(until), beat):
                    return
                answer = self._governor.submit(beat)
            except FlyballError as error:
                log.error("the lease of %s cannot be kept: %s", self._unit.name, error)
                until = 0
                continue
            until = answer.until
            self._context.heed(answer)

    def _is_closed_within(self, seconds: float, beat: Beat) -> bool:
        """Wait for that; or until somebody wants the run to end, which the next beat is told."""
        by = time.monotonic() + seconds
        while not self._closed.wait(min(seconds, LOOKS_APART)):
            seconds = by - time.monotonic()
            if seconds <= 0 or self._governor.look(beat).verb >= Verb.FINISH:
                return False
        return True

    def _apart(self, until: Instant) -> float:
        """Seconds until shortly before the lease ends; or, where asking early did not make it longer, until its end."""
        if not until:
            return ASK_EARLY / SECOND
        left = until - self._governor.clock.now()
        seconds = (left - ASK_EARLY if left > ASK_EARLY else left) / SECOND
        return min(BEATS_APART_MAX, max(BEATS_APART_MIN, seconds))

    def _tell(self, decision: Decision) -> None:
        """The run is to end. One that may end in order is refused its next step, and that is all."""
        self._told = decision
        if self._on_told is not None:
            self._on_told(decision)
        if decision.verb >= Verb.STOP:
            self._context.end(decision)
            if self._loop is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None and not self._cancelled and not self._closed.is_set():
            self._cancelled = True
            self._task.cancel()

    def _leave(self) -> None:
        self._closed.set()
        CURRENT.reset(self._token)

    def _report(self, error: BaseException | None) -> None:
        self._thread.join()
        with self._owing(error):
            self._context.close_and_wait(clean=error is None)
            exited = self._exited(error)
            answer = self._governor.submit_living(exited)
        if answer is None:
            self._was_lost(error)
        else:
            self._listener(self._unit.name, exited, answer)

    @contextlib.contextmanager
    def _owing(self, error: BaseException | None) -> Iterator[None]:
        """If the store cannot take what is said here at the end of the run, that end is owed."""
        try:
            yield
        except StoreError:
            self.owed = self._exited(error)
            raise

    def _exited(self, error: BaseException | None) -> Exited:
        ending = self._ending(error)
        return Exited(
            unit=self._unit.name,
            run=self._run,
            labels=self._unit.labels,
            cause=ending.cause,
            fingerprint=ending.fingerprint,
            version=ending.version,
            error=ending.error,
            policy=ending.policy,
            detail=ending.detail,
            pause=ending.pause,
            resume_at=ending.resume_at,
            progress=ending.progress,
        )

    def _was_lost(self, error: BaseException | None) -> None:
        """It was given up, and another run may have taken its place: how it ended is on record already."""
        log.warning("%s ended, after its lease ran out and it was given up as lost", self._unit.name)

    def _ending(self, error: BaseException | None) -> Ending:
        if self._told is not None:
            return ending_of_told(self._unit.name, error, self._told)
        if isinstance(error, KeyboardInterrupt | asyncio.CancelledError | GeneratorExit):
            return Ending(Cause.STOPPED, error=type(error).__name__)
        if isinstance(error, SystemExit) and not error.code:
            return Ending(Cause.DONE)
        return ending_of(self._unit.name, error, self._causes)
