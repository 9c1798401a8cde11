"""A session in a program: a function in stages that keeps checkpoints, may pause, and is resumed until it is done.

`run` begins the work, or resumes it where it was begun and is not done; there is no other way, so nobody gets round the
limit on resumes. Each resume is counted, on disk, before the work goes on. The function is a plain one or a coroutine;
what is waited for (a pause, the cooldown after a crash) is waited for here, outside of any run.
"""

import asyncio
import contextlib
import contextvars
import inspect
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from flyball.config.units import Unit
from flyball.core.decision import Decision, Verb
from flyball.core.event import Cause, Exited, Released, Resume
from flyball.core.time import FOREVER, SECOND, Instant, Span, later
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.policies.limit import OUT_OF_RESUMES
from flyball.policies.session import PERSON
from flyball.runtimes.agent.block import Listener
from flyball.runtimes.agent.ending import Causes
from flyball.runtimes.doorbell import doorbell
from flyball.runtimes.driver import ALREADY_RUNNING, Sleep
from flyball.runtimes.holder import is_gone, me
from flyball.runtimes.refusal import Refused, refusal
from flyball.runtimes.session import record
from flyball.runtimes.session.block import SessionBlock
from flyball.runtimes.session.context import SessionContext
from flyball.runtimes.session.opening import known, resumes
from flyball.store.checkpoints import Kept, load, read_index

log = logging.getLogger(__name__)

T = TypeVar("T")

NOT_WRITTEN: Final = "not_written"
"""How a run ended whose end could not be written when it came."""
WAITS: Final = frozenset({"waits_to_resume", "waits_for_person"})
"""Codes that say that it is paused."""


class SessionPaused(FlyballError):
    """The session is paused, and goes on from its checkpoint when it is run again."""

    def __init__(self, unit: str, reason: str, resume_at: Instant, now: Instant) -> None:
        self.reason = reason
        self.resume_at = resume_at
        self.retry_after = None if reason == PERSON else max(0, resume_at - now) / SECOND
        """Seconds until it may be resumed; None: a person has to say so."""
        when = "until a person resumes it" if self.retry_after is None else f"for {self.retry_after:g} s"
        super().__init__(
            f"{unit} is paused {when}: {reason}",
            remedy="Run it again then; `run(wait=True)` waits for it. Earlier, or for a person: `resume()`.",
        )


class SessionNotFound(FlyballError):
    """There is no such session."""

    remedy = "`flyball sessions` shows those that there are."

    def __init__(self, unit: str) -> None:
        super().__init__(f"Session not found: {unit}")


class SessionFailed(Refused):
    """The session was resumed too often, and does not go on by itself any more. What was kept of it is untouched."""

    def __init__(self, decision: Decision, now: Instant, what: str, *, attempts: int, most: int) -> None:
        super().__init__(decision, now, what)
        self.reason = next(reason for reason in decision.reasons if reason.code == OUT_OF_RESUMES)
        self.remedy = self.reason.remedy
        self.metadata = {"resumeAttempts": attempts, "maxResumeAttempts": most, "failureReason": OUT_OF_RESUMES}


@dataclass(slots=True, eq=False)
class _Waiter:
    """Somebody who waits until it may go on."""

    loop: asyncio.AbstractEventLoop
    poked: asyncio.Event
    stopped: bool = False


class Session:
    """One piece of work. `guard.session` makes it."""

    def __init__(
        self,
        governor: Governor,
        unit: Unit,
        function: Callable[[SessionContext], Any],
        *,
        input: bytes | None,  # noqa: A002 - so people call it
        version: str,
        wait: Span,
        causes: Causes,
        listener: Listener,
        sleep: Sleep,
        file: Path | None,
        view: Callable[[str], Any],
        define: Callable[[], None],
    ) -> None:
        """`wait` is how long a start that has to wait is waited for. `file` is the one that every commit of the store
        changes; None: nobody else can write to it. `view` is what people see of a session. `define` puts it under its
        own limits, where the program had forgotten them for the sake of newer sessions."""
        self._governor = governor
        self._unit = unit
        self._function = function
        self._is_coroutine = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object that is called: what its call is matters
        )
        self._input = input
        self._version = version
        self._wait = wait
        self._causes = causes
        self._listener = listener
        self._sleep = sleep
        self._file = file
        self._view = view
        self._define = define
        self._block: SessionBlock | None = None
        self._waiting: list[_Waiter] = []
        self._lock = threading.Lock()
        """Held to change either of the last two."""
        self._owed: Exited | None = None
        """How the last run ended, where the store could not take that: it is said before the next one."""
        self.result: Any = None
        """What the function returned when the work was done."""

    @property
    def id(self) -> str:
        """The session's name."""
        return self._unit.name

    @property
    def checkpoints(self) -> list[Kept]:
        """The checkpoints that are kept, the newest last."""
        return read_index(self._governor.store, self.id)

    def show(self) -> Any:
        """What people see of it: as `flyball session show` has it."""
        self._define()
        return self._view(self.id)

    @property
    def status(self) -> str:
        """What it is, in a word: pending, running, paused, completed, failed, timed_out, budget_exceeded, stopped or
        lost."""
        return str(self.show().status)

    # To run it.

    def run(self, *, wait: bool = False) -> Any:
        """Begin the work, or resume it, and return what the function returns. With `wait`, pauses are waited for, and
        it is resumed by itself until it is done.

        Raises SessionPaused, SessionFailed (resumed too often), Refused for whatever else does not let it go on, and
        what the function raises."""
        return self._run(None, wait)

    async def run_soon(self, *, wait: bool = False) -> Any:
        """`run`, for coroutines. A plain function has a thread of its own: where this is cancelled, it is told to end
        before its next stage, and not waited for."""
        return await self._run_soon(None, wait)

    def resume(self, checkpoint: str | None = None) -> bool:
        """Resume it now, though its pause is not over or it waits for a person: whoever calls this speaks for one. It
        goes on from the last good checkpoint, or the one that is named. Whether it was resumed: not if it was never
        begun, or is done. When this returns, it is done, or paused again.

        Raises SessionNotFound, SessionFailed (nothing is changed then), what is wrong with the checkpoint, Refused if
        it runs or may not go on, and what the function raises."""
        _refuse_in_a_loop(self.id)
        if not self._let_go(checkpoint):
            return False
        with contextlib.suppress(SessionPaused):
            self._run(checkpoint, wait=False)
        return True

    async def resume_soon(self, checkpoint: str | None = None) -> bool:
        """`resume`, for coroutines."""
        if not await asyncio.to_thread(self._let_go, checkpoint):
            return False
        with contextlib.suppress(SessionPaused):
            await self._run_soon(checkpoint, wait=False)
        return True

    def resume_paused(self) -> bool:
        """Resume it if it is paused and its time has come. Whether it was resumed. For whoever resumes by a schedule:
        this speaks for nobody, so what waits for a person waits on."""
        state = known(self._governor, self.id)
        if not state.pause or WAITS.intersection(self._look().codes):
            return False
        try:
            self._run(None, wait=False)
        except SessionPaused:
            return True
        except Refused as refused:
            if ALREADY_RUNNING in refused.decision.codes:  # another was quicker
                return False
            raise
        return True

    def pause(self, reason: str = PERSON, *, resume_after: float | None = None) -> bool:
        """Have the run that lives in this program pause before its next stage. Whether there is one. What runs
        elsewhere is paused by `flyball pause`."""
        block = self._block
        return block is not None and block.pause(reason, resume_after)

    def stop(self) -> bool:
        """End the run that lives in this program: a coroutine at once, a thread before its next stage; or the waiting
        for one. Whether there was anything to end. It is not done, and can be resumed."""
        with self._lock:
            block, waiting = self._block, list(self._waiting)
        for waiter in waiting:
            waiter.stopped = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                waiter.loop.call_soon_threadsafe(waiter.poked.set)
        return (block is not None and block.stop()) or bool(waiting)

    # In threads, and in coroutines.

    def _run(self, checkpoint: str | None, wait: bool) -> Any:
        _refuse_in_a_loop(self.id)
        if self._is_coroutine:
            return asyncio.run(self._run_soon(checkpoint, wait))
        return self._run_here(checkpoint, wait)

    def _run_here(self, checkpoint: str | None, wait: bool) -> Any:
        by = self._by()
        while True:
            block = self._new_block(checkpoint)
            try:
                with block:
                    self.result = self._called(self._begun(block))
                    return self.result
            except BaseException as error:  # noqa: BLE001 - it is raised again, unless it says when to go on
                until = self._goes_on_at(block, error, by, wait)
            asyncio.run(self._until(until))
            checkpoint = None if block.begun else checkpoint

    async def _run_soon(self, checkpoint: str | None, wait: bool) -> Any:
        if not self._is_coroutine:
            return await _in_a_thread(lambda: self._run_here(checkpoint, wait), self.stop, self.id)
        by = self._by()
        while True:
            block = self._new_block(checkpoint)
            try:
                async with block:
                    self.result = await self._function(self._begun(block))
                    return self.result
            except BaseException as error:  # noqa: BLE001 - as above
                until = self._goes_on_at(block, error, by, wait)
            await self._until(until)
            checkpoint = None if block.begun else checkpoint

    def _called(self, session: SessionContext) -> Any:
        """What a plain function returns. One that only makes a coroutine has done nothing yet, and is not done."""
        result = self._function(session)
        if inspect.iscoroutine(result):
            result.close()
            raise FlyballError(
                f"the function of {self.id} returned a coroutine, which nobody awaits",
                remedy="Define it with `async def`, so that it can be told from a plain one.",
            )
        return result

    def _by(self) -> Instant:
        return later(self._governor.clock.now(), self._wait)

    def _new_block(self, checkpoint: str | None) -> SessionBlock:
        self._define()
        self._say_owed()
        return SessionBlock(
            self._governor,
            self._unit,
            input=self._input,
            version=self._version,
            checkpoint=checkpoint,
            causes=self._causes,
            listener=self._listener,
        )

    def _say_owed(self) -> None:
        """What nobody was told of is not done: whoever runs it again goes on from its last checkpoint."""
        owed = self._owed
        if owed is not None:
            if owed.cause.done:
                owed = msgspec.structs.replace(owed, cause=Cause.STOPPED, error=NOT_WRITTEN)
            self._governor.submit_living(owed)
            self._owed = None

    def _begun(self, block: SessionBlock) -> SessionContext:
        session = block.session()
        with self._lock:
            self._block = block
        return session

    def _goes_on_at(self, block: SessionBlock, error: BaseException, by: Instant, wait: bool) -> Instant:
        """When to ask again, after that. Raises where it is not to be waited for."""
        now = self._governor.clock.now()
        self._owed = block.owed
        if block.owed is not None:
            raise error
        if block.paused is not None:
            paused = SessionPaused(self.id, block.paused.reason, known(self._governor, self.id).resume_at, now)
            if wait and paused.reason != PERSON:
                return paused.resume_at
            raise paused from None
        if block.begun or not isinstance(error, Refused):
            raise error
        decision = error.decision
        if OUT_OF_RESUMES in decision.codes and ALREADY_RUNNING not in decision.codes:  # its last run may yet be done
            raise self._failed(decision) from None
        comes = decision.verb is Verb.WAIT and ALREADY_RUNNING not in decision.codes
        if comes and decision.until <= (FOREVER - 1 if wait else by):
            return decision.until
        raise error

    async def _until(self, until: Instant) -> None:
        """Wait for that instant, or for an order: then it is asked again."""
        waiter = _Waiter(asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.append(waiter)
        try:
            with contextlib.ExitStack() as stack:
                if self._file is not None:
                    bell = doorbell(self._governor.store, self._file, waiter.poked.set)
                    stack.enter_context(contextlib.closing(bell))
                await self._sleep(waiter.poked, until)
        finally:
            with self._lock:
                self._waiting.remove(waiter)
        if waiter.stopped:
            state = known(self._governor, self.id)
            raise SessionPaused(self.id, state.pause or "stopped", state.resume_at, self._governor.clock.now())

    # To resume it.

    def _let_go(self, checkpoint: str | None) -> bool:
        """Whether there is something to resume; and if so, end its pause. What is wrong is found before anything is
        changed."""
        governor, name = self._governor, self.id
        if not record.is_known(governor.store, name):
            raise SessionNotFound(name)
        governor.reap(is_gone, unit=name)
        if not known(governor, name).begun:
            return False
        load(governor.store, name, checkpoint, version=self._version)
        decision = self._look()
        if ALREADY_RUNNING in decision.codes:
            raise refusal(decision, governor.clock.now(), f"{name} may not be resumed")
        # What was resumed too often is refused in a moment, and is paused as it was.
        if WAITS.intersection(decision.codes) and OUT_OF_RESUMES not in decision.codes:
            governor.submit(Released(unit=name, labels=self._unit.labels, policies=("session",), by="its program"))
        return True

    def _look(self) -> Decision:
        """What a resume would be answered now."""
        self._define()
        return self._governor.look(Resume(unit=self.id, run="-", labels=self._unit.labels, holder=me()))

    def _failed(self, decision: Decision) -> SessionFailed:
        count, most = resumes(self._governor, self.id)
        what = f"{self.id} may not be resumed"
        failed = SessionFailed(decision, self._governor.clock.now(), what, attempts=count + 1, most=most)
        said = " ".join(f"{name}={value}" for name, value in failed.metadata.items())
        log.error("%s. %s (%s)", failed, failed.remedy, said, extra={"metadata": failed.metadata})
        return failed


def _refuse_in_a_loop(unit: str) -> None:
    """What waits in an event loop stops everything else in it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise FlyballError(f"{unit} would block the event loop", remedy="`await` it: `run_soon()`, `resume_soon()`.")


async def _in_a_thread(function: Callable[[], T], stop: Callable[[], object], name: str) -> T:
    """Call it in a thread of its own: those of the loop are few, and this takes long."""
    loop = asyncio.get_running_loop()
    came: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if came.done():
            return
        if error is None:
            came.set_result(value)
        else:
            # What ends an iteration cannot be carried by a future.
            came.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)

    def call() -> None:
        value, failed = None, None
        try:
            value = context.run(function)
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(settle, value, failed)

    threading.Thread(target=call, name=f"flyball session {name}", daemon=True).start()
    try:
        return await came
    except asyncio.CancelledError:
        stop()
        raise
