"""The steps of a workflow: asked for inside DBOS' own step, so that one which is replayed asks nothing.

Steps that cost nothing are asked for a few at a time, so that most of them need no commit. One that costs is asked for
alone: what was reserved for steps that a killed worker never made would be gone.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Final

from flyball.core.decision import Reason, stop
from flyball.core.event import Amounts, Step
from flyball.core.time import FOREVER, Span
from flyball.errors import StoreError
from flyball.integrations.dbos.errors import WorkflowLeft, left_without_store
from flyball.policies import Exclusive
from flyball.runtimes.agent.context import Context
from flyball.runtimes.agent.step import StepBlock
from flyball.runtimes.allowance import RunSteps, Talk
from flyball.runtimes.current import CURRENT
from flyball.runtimes.refusal import Refused

log = logging.getLogger(__name__)

NOT_LIVE: Final = "run_not_live"

LOST: Final = stop(
    Reason(
        Exclusive.NAME,
        NOT_LIVE,
        "its lease ran out, and it was given up as lost; another process may have taken the workflow over",
        "Let it end. What DBOS has kept before is safe.",
    )
)

THIS_STEP: Final[ContextVar[StepBlock | None]] = ContextVar("flyball_dbos_step", default=None)
"""The step that the code at hand is in."""


class WorkflowSteps(RunSteps):
    """The steps of one execution."""

    is_live: Callable[[], bool] = staticmethod(lambda: True)
    """Whether the run was not given up. Asked before the governor is: inside an allowance the lease holds."""

    def _fair(self, step: Step) -> tuple[int, bool]:
        return (1, False) if step.cost else super()._fair(step)

    def _asking(self, pattern: str, call: str, cost: Amounts, last: bool) -> Talk:
        return (yield from super()._asking(pattern, call, cost, last)) if self.is_live() else LOST


class WorkflowStep(StepBlock):
    """One step of a workflow. What has to be waited for is, but not longer than was said."""

    wait_max: Span = FOREVER

    def _waits(self) -> bool:
        return super()._waits() and self.decision.until - self._context.now() <= self.wait_max


class Stepping:
    """Around a step: what is called inside it is a part of it. `with` it in a thread, `async with` it in a
    coroutine."""

    def __init__(self, step: WorkflowStep, unit: str, inner: Context, made: Callable[[], None]) -> None:
        self._step, self._unit, self._inner, self._made = step, unit, inner, made

    def __enter__(self) -> StepBlock:
        with self._asked():
            self._step.__enter__()
        self._set()
        return self._step

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reset()
        with self._reported():
            self._step.__exit__(kind, error, trace)
        if error is None:
            self._made()

    async def __aenter__(self) -> StepBlock:
        with self._asked():
            await self._step.__aenter__()
        self._set()
        return self._step

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reset()
        with self._reported():
            await self._step.__aexit__(kind, error, trace)
        if error is None:
            self._made()

    def _set(self) -> None:
        self._tokens = CURRENT.set(self._inner), THIS_STEP.set(self._step)

    def _reset(self) -> None:
        current, step = self._tokens
        CURRENT.reset(current)
        THIS_STEP.reset(step)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        try:
            with left_without_store(self._unit):
                yield
        except Refused as refused:
            if NOT_LIVE in refused.decision.codes:
                raise WorkflowLeft(self._unit, str(refused)) from None
            raise

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """A step that was made is made, also if the store cannot take that now: DBOS keeps its result, or it would be
        made twice. It was counted when it was asked for, and is reported with the next one."""
        try:
            yield
        except StoreError as error:
            log.warning("%s: what came of a step is not reported yet: %s", self._unit, error)
