"""Agents in this process: a coroutine in its loop, or a plain function in a thread of its own.

They can be asked to end (cancelled, or refused their next step), not made to. One that does not end is said to be
stuck, with the place where it is; it stays counted as running, so that there are never two of it. Who wants more than
that gives it a process.
"""

import asyncio
import contextvars
import inspect
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from flyball.config.units import Unit
from flyball.core.decision import Decision, Verb
from flyball.core.time import Span, seconds
from flyball.governor import Governor
from flyball.runtimes.agent.context import Context
from flyball.runtimes.agent.ending import Causes, ending_of, ending_of_stopped, ending_of_told
from flyball.runtimes.current import CURRENT
from flyball.runtimes.driver import Ending, Sleep

AWAITS_MAX: Final = 200
"""Coroutines that wait for each other, as far as they are shown. More than this is a recursion, and looks alike."""

Function = Callable[[Context], Awaitable[Any]] | Callable[[Context], Any]
Stuck = Callable[["InlineLife", str], None]
"""Told of a run that does not end, and where it is."""


@dataclass(slots=True)
class InlineHands:
    """Begins the runs of one agent."""

    unit: Unit
    function: Function
    governor: Governor
    causes: Causes = field(default_factory=dict)
    stuck: Stuck | None = None
    sleep: Sleep | None = None
    life: "InlineLife | None" = None
    """The run that is live, or was last."""

    async def begin(self, run: str, *, again: bool) -> "InlineLife":
        """Begin a run: a new call of the function, with a new context."""
        self.life = InlineLife(self, run, again)
        return self.life


class InlineLife:
    """One run of a function."""

    def __init__(self, hands: InlineHands, run: str, again: bool) -> None:
        self._hands = hands
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._told: asyncio.Future[Decision] = self._loop.create_future()
        self._ended: asyncio.Future[Ending] | None = None
        self._cancelled = False
        self._stuck = False
        self._where = ""
        """Where it was when it was asked to end."""
        self.thread: threading.Thread | None = None
        self.context = Context(
            hands.governor,
            hands.unit.name,
            run,
            labels=hands.unit.labels,
            again=again,
            idle=hands.unit.idle,
            told=self._tell,
            sleep=hands.sleep,
        )
        self._token = CURRENT.set(self.context)
        try:
            self.task: asyncio.Future[Any] = self._begin()
        finally:
            CURRENT.reset(self._token)

    def _begin(self) -> "asyncio.Future[Any]":
        function = self._hands.function
        if inspect.iscoroutinefunction(function):
            return self._loop.create_task(_contained(function(self.context)), name=f"flyball {self.context.unit}")
        task: asyncio.Future[Any] = self._loop.create_future()
        here = contextvars.copy_context()

        def work() -> None:
            result: object = None
            error: BaseException | None = None
            try:
                result = here.run(_call, function, self.context)
            except SystemExit as left:
                error = _as_error(left)
            except BaseException as raised:  # noqa: BLE001 - it is how the run ended
                error = raised
            self._loop.call_soon_threadsafe(_finish, task, result, error)

        # A thread of its own: a pool would let one that hangs take the place of another. A daemon, so that one that
        # never ends does not keep the process from ending.
        self.thread = threading.Thread(target=work, name=f"flyball {self.context.unit}", daemon=True)
        self.thread.start()
        return task

    async def ended(self) -> Ending:
        """Wait until it is over, or has to be ended."""
        await asyncio.wait((self.task, self._told), return_when=asyncio.FIRST_COMPLETED)
        if not self.task.done():
            if self._told.result().verb is Verb.FINISH:  # it was refused a step, and may end in order
                await asyncio.wait((self.task,), timeout=seconds(self._hands.unit.grace))
            await self.end(self._hands.unit.grace)
        if self._ended is None:
            self._ended = asyncio.ensure_future(self._over())
        return await asyncio.shield(self._ended)

    async def end(self, grace: Span) -> None:
        """Ask it to end, and wait for that. If it does not within the grace, somebody is told; then it is waited for
        all the same, because it can still act."""
        self.context.end(self.told)
        if not self._cancelled and not self.task.done():
            self._cancelled = True  # once: a second time would interrupt what it does in order to end
            self._where = self.where()
            if self.thread is None:
                self.task.cancel()
        await asyncio.wait((self.task,), timeout=seconds(grace))
        if not self.task.done():
            if self._hands.stuck is not None and not self._stuck:
                self._stuck = True
                self._hands.stuck(self, self.where())
            await asyncio.wait((self.task,))

    @property
    def told(self) -> Decision | None:
        """The answer to one of its steps that told it to end."""
        return self._told.result() if self._told.done() else None

    def owns(self, task: "asyncio.Task[Any] | None") -> bool:
        """Whether that task is a part of this run."""
        if task is None or task is self.task:
            return task is self.task
        get_context = getattr(task, "get_context", None)  # from Python 3.12 on
        return get_context is not None and get_context().get(CURRENT) is self.context

    def where(self) -> str:
        """Where it is now, as a stack."""
        if self.thread is not None:
            frame = sys._current_frames().get(self.thread.ident or 0)
            return "".join(traceback.format_stack(frame)) if frame is not None else ""
        frames = awaits(self.task.get_coro()) if isinstance(self.task, asyncio.Task) else ()
        return "".join(line for frame in frames for line in traceback.format_stack(frame, limit=1))

    async def _over(self) -> Ending:
        unit, told = self.context.unit, self._told
        error = None if self.task.cancelled() else self.task.exception()
        await self.context.close(clean=error is None and not self.task.cancelled())
        if told.done():
            left: BaseException | None = asyncio.CancelledError() if self.task.cancelled() else error
            return ending_of_told(unit, left, told.result(), self._where if self.task.cancelled() else "")
        if self.task.cancelled() or (self._cancelled and error is not None):
            # Cancelled by whoever runs it, it was stopped; by somebody inside it, it failed.
            inside = asyncio.CancelledError("cancelled from inside")
            if self._cancelled:
                return ending_of_stopped(unit, self._where)
            return ending_of(unit, inside, self._hands.causes)
        return ending_of(unit, error, self._hands.causes)

    def _tell(self, decision: Decision) -> None:
        def tell() -> None:
            if not self._told.done():
                self._told.set_result(decision)

        if threading.get_ident() == self._loop_thread:
            tell()
        else:  # a thread of its own, or one that it started
            self._loop.call_soon_threadsafe(tell)


def awaits(waiting: object) -> Iterator[FrameType]:
    """Where a coroutine is suspended, and what it waits for, and so on: the frames, innermost last."""
    for _ in range(AWAITS_MAX):
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is None:
            return
        yield frame
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)


async def _contained(work: Awaitable[Any]) -> Any:
    """An agent that calls `sys.exit` ends itself, not the process that it shares."""
    try:
        return await work
    except SystemExit as left:
        error = _as_error(left)
    if error is not None:
        raise error
    return None


def _call(function: Callable[[Context], object], context: Context) -> object:
    """A plain function. One that only makes a coroutine has done nothing yet, and must not count as done."""
    result = function(context)
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError(f"{function!r} returned a coroutine, which nobody awaits: define the agent with `async def`")
    return result


def _as_error(left: SystemExit) -> Exception | None:
    return RuntimeError(f"it called sys.exit({left.code!r})") if left.code else None


def _finish(task: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    if task.done():
        return
    if error is None:
        task.set_result(result)
    elif isinstance(error, StopIteration):  # a future cannot carry it
        task.set_exception(RuntimeError("StopIteration was raised"))
    else:
        task.set_exception(error)
