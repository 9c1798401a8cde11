"""One step of an agent, as a block: leave is asked before it, and what came of it is reported after it.

The same block serves threads (`with`) and coroutines (`async with`). Calls and results are kept as fingerprints only:
they may carry secrets.
"""

from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from flyball.core.decision import PROCEED, Decision, Verb
from flyball.core.event import Amounts, Work
from flyball.core.failure import call_fingerprint, digest, result_fingerprint, text_fingerprint
from flyball.core.time import FOREVER
from flyball.governor import NO_ROWS, Rows
from flyball.runtimes.agent.memory import MemoryRefused
from flyball.runtimes.amounts import Given, check_name, whole
from flyball.runtimes.refusal import refusal

if TYPE_CHECKING:
    from flyball.runtimes.agent.context import Context


def canonical(value: object) -> str:
    """The same text for the same value: what a call was made with, or what came of it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    try:
        return msgspec.json.encode(value, enc_hook=repr, order="sorted").decode()
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError):
        return repr(value)


class StepBlock:
    """A step that is to be made. Inside the block, say what came of it."""

    def __init__(
        self,
        context: "Context",
        pattern: str,
        call: object,
        cost: Amounts,
        *,
        polling: bool,
        last: bool,
        wait: bool,
    ) -> None:
        self._context = context
        self._pattern = pattern
        self._call = call_fingerprint(pattern, canonical(call)) if call is not None else ""
        self._cost = cost
        self._polling, self._last, self._wait = polling, last, wait
        self._result = self._world = ""
        self._error = False
        self._used: Amounts | None = None
        self._gauges: dict[str, float] = {}
        self.decision: Decision = PROCEED
        """The last answer: to the request, then to the report of what came of it."""

    @property
    def nudge(self) -> str:
        """What to tell the agent, for instance that it repeats itself; empty if there is nothing."""
        return " ".join(reason.text for reason in self.decision.reasons) if self.decision.proceeds else ""

    def result(self, value: object, *, error: bool = False) -> None:
        """What came of it. The same again and again is what a circle is made of."""
        self._result = result_fingerprint(canonical(value))
        self._error = error

    def said(self, text: str) -> None:
        """What a model said in it. To say the same again and again is a circle, too."""
        self._call = text_fingerprint(text)

    def spent(self, amounts: Given) -> None:
        """What it really cost. Without this, a step that was made cost what was reserved for it."""
        self._used = whole(amounts, "what was spent")

    def world(self, state: object) -> None:
        """What the world looks like after it (a working tree, a database): a new one is progress."""
        self._world = digest(["world", canonical(state)])

    def gauge(self, name: str, reading: float) -> None:
        """A reading, such as `convergence`."""
        check_name(name)
        self._gauges[name] = reading

    # Threads.

    def __enter__(self) -> "StepBlock":
        steps = self._context.steps
        while True:
            self.decision = steps.ask(self._pattern, self._call, self._cost, last=self._last)
            if self.decision.proceeds:
                return self
            if not self._waits():
                self._refuse(steps.made(self._refused()) if self.decision.verb is Verb.WAIT else PROCEED)
            self._context.wait_until(self.decision.until)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        rows, failed = self._rows(error)
        try:
            after = self._context.steps.made(self._work(failed), rows)
        except BaseException:
            self._context.memory.not_kept()
            raise
        self._heed(after, failed if error is None else None)

    # Coroutines.

    async def __aenter__(self) -> "StepBlock":
        steps = self._context.steps
        while True:
            self.decision = await steps.ask_soon(self._pattern, self._call, self._cost, last=self._last)
            if self.decision.proceeds:
                return self
            if not self._waits():
                self._refuse(await steps.made_soon(self._refused()) if self.decision.verb is Verb.WAIT else PROCEED)
            await self._context.sleep_until(self.decision.until)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, GeneratorExit):  # its loop is gone, and nothing can be awaited any more
            self.__exit__(kind, error, trace)
            return
        rows, failed = self._rows(error)
        try:
            after = await self._context.steps.made_soon(self._work(failed), rows)
        except BaseException:
            self._context.memory.not_kept()
            raise
        self._heed(after, failed if error is None else None)

    # Both.

    def _heed(self, after: Decision, refused: BaseException | None) -> None:
        if after.reasons:
            self.decision = after
        self._context.heed(after)
        if refused is not None:
            raise refused

    def _waits(self) -> bool:
        """A pause until a quota is there again is no failure: it is waited for."""
        return self._wait and self.decision.verb is Verb.WAIT and self.decision.until < FOREVER

    def _refused(self) -> Work:
        """Refusing alone does not stop an agent: a call that was refused is a fact like any other."""
        return Work(pattern=self._pattern, call=self._call, refused=True)

    def _refuse(self, after: Decision) -> None:
        self.decision |= after
        self._context.heed(self.decision)
        raise refusal(self.decision, self._context.now(), f"{self._context.unit} may not {self._pattern or 'go on'}")

    def _rows(self, error: BaseException | None) -> tuple[Rows, BaseException | None]:
        """The memory to be written with the report of this step, and how the step failed. One that leaves a memory
        which cannot be kept has failed, too."""
        memory = self._context.memory
        if error is not None or self._context.steps.over:  # the memory of a run that has ended is the next one's
            memory.discard()
            return NO_ROWS, error
        try:
            return memory.changed(), None
        except MemoryRefused as refused:
            return NO_ROWS, refused

    def _work(self, error: BaseException | None) -> Work:
        result = self._result
        if error is not None and not result:
            result = result_fingerprint(f"{type(error).__name__}: {error}")
        return Work(
            pattern=self._pattern,
            call=self._call,
            result=result,
            world=self._world,
            error=self._error or error is not None,
            polling=self._polling,
            reserved=self._cost,
            used=self._used if self._used is not None else self._cost,
            gauges=self._gauges,
        )
