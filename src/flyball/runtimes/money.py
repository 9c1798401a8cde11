"""Money before it is spent: reserve the worst case, spend, settle what it really was.

A reservation is a step: it is on disk before it is given out, so a kill -9 at any instant can only make it count for
more than was spent, never for less. Whatever is not settled was spent in full: an exception says nothing of what the
call had cost by then. What was really spent always counts, also above the reservation.

Refusals are raised here (`OutOfBudget`, with the numbers), because code that goes on must not spend.
"""

import asyncio
import enum
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self

from flyball.core.amounts import amounts_text
from flyball.core.decision import Decision, Verb
from flyball.core.event import Amounts, Step, Stepped, Work
from flyball.core.time import SECOND, Instant, later, span
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.policies import Budget
from flyball.runtimes.amounts import Given, whole
from flyball.runtimes.current import Running, running
from flyball.runtimes.refusal import refusal

log = logging.getLogger(__name__)

NO_LABELS: Final[Mapping[str, str]] = {}

TOLD_MAX: Final = 256
"""Units and meters of which it is told that nothing bounds them: after so many, the log has said it."""


class SettledAlready(FlyballError):
    """A reservation is settled once: a second time would give back what somebody else has reserved."""

    remedy = "Settle each reservation once, with all that it cost."


class _Phase(enum.Enum):
    OPEN = enum.auto()
    CLOSING = enum.auto()
    CLOSED = enum.auto()


class Reservation:
    """So much may be spent. As a block, what was not settled inside it was spent in full when it is left."""

    def __init__(self, governor: Governor, step: Step) -> None:
        self._governor = governor
        self._step = step
        self._phase = _Phase.OPEN
        self._lock = threading.Lock()
        self.used: Amounts = {}
        """What it really cost, once it is settled."""

    @property
    def reserved(self) -> Amounts:
        """The worst case, in whole numbers: money in millionths."""
        return self._step.cost

    @property
    def settled(self) -> bool:
        """Whether it was said what it cost."""
        return self._phase is _Phase.CLOSED

    @property
    def overrun(self) -> Amounts:
        """By how much it cost more than was reserved."""
        over = {meter: amount - self.reserved.get(meter, 0) for meter, amount in self.used.items()}
        return {meter: amount for meter, amount in over.items() if amount > 0}

    def settle(self, actual: Given) -> Decision:
        """It really cost that; what was reserved beyond it is free again. The answer says whether to go on."""
        return self._close(whole(actual, "the actual cost"))

    async def settle_soon(self, actual: Given) -> Decision:
        """The same without blocking an event loop."""
        return await self._close_soon(whole(actual, "the actual cost"))

    def cancel(self) -> Decision:
        """Nothing was spent."""
        return self._close({})

    async def cancel_soon(self) -> Decision:
        """The same without blocking an event loop."""
        return await self._close_soon({})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._phase is _Phase.OPEN:
            self._close(self.reserved)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._phase is _Phase.OPEN:
            await self._close_soon(self.reserved)

    def _close(self, used: Amounts) -> Decision:
        self._begin_closing()
        try:
            decision = self._governor.submit(_settling(self._step, used))
        except Exception:
            self._phase = _Phase.OPEN  # nothing was written: it can be settled when the store is well again
            raise
        return self._closed(used, decision)

    async def _close_soon(self, used: Amounts) -> Decision:
        self._begin_closing()
        future = self._governor.submit_soon(_settling(self._step, used))
        # Whoever waits may be cancelled; what was said is written all the same.
        future.add_done_callback(lambda said: self._noted(used, said))
        return await asyncio.wrap_future(future)

    def _noted(self, used: Amounts, said: "Future[Decision]") -> None:
        if said.exception() is not None:
            self._phase = _Phase.OPEN
        else:
            self._closed(used, said.result())

    def _begin_closing(self) -> None:
        with self._lock:
            if self._phase is not _Phase.OPEN:
                raise SettledAlready(f"the reservation of {amounts_text(self.reserved)} was settled already")
            self._phase = _Phase.CLOSING

    def _closed(self, used: Amounts, decision: Decision) -> Decision:
        self.used = used
        self._phase = _Phase.CLOSED
        if self.overrun:
            log.warning(
                "%s: it cost %s, %s more than was reserved; all of it counts",
                self._step.unit,
                amounts_text(used),
                amounts_text(self.overrun),
            )
        return decision


class Soon:
    """A reservation that is made when it is awaited, or entered with `async with`."""

    def __init__(self, reserve: Callable[[], Awaitable[Reservation]]) -> None:
        self._reserve = reserve
        self._made: Reservation | None = None

    def __await__(self) -> Generator[Any, None, Reservation]:
        return self._reserve().__await__()

    async def __aenter__(self) -> Reservation:
        self._made = await self._reserve()
        return self._made

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._made is not None:
            await self._made.__aexit__(kind, error, trace)


class Purse:
    """Where reservations are made: for the run at hand, or, outside any, for the run that it was made with."""

    def __init__(
        self,
        governor: Governor,
        unit: str,
        run: str,
        labels: Mapping[str, str] = NO_LABELS,
        *,
        whose: Callable[[], Running | None] = running,
        sleep: Callable[[float], None] = time.sleep,
        sleep_soon: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._governor = governor
        self._unit, self._run, self._labels = unit, run, dict(labels)
        self._whose = whose
        """The run at hand, if there is one."""
        self._sleep, self._sleep_soon = sleep, sleep_soon
        self._unbounded: set[tuple[str, str]] = set()
        """Units and meters of which it was told that nothing bounds them."""

    def reserve(
        self,
        worst_case: Given,
        *,
        labels: Mapping[str, str] = NO_LABELS,
        pattern: str = "",
        last: bool = False,
        wait: float = 0,
    ) -> Reservation:
        """Reserve the worst case: `"0.05"` is money, `{"usd": "0.05", "tokens": 1200}` says of what. When this returns,
        it is on disk. OutOfBudget if there is not enough, or Refused for any other reason.

        `labels` say for whom (`user`, `tree`), `pattern` what kind of step it is. The `last` one may use what is kept
        back. Where there is more in the next period, `wait` is how many seconds may be waited for that.
        """
        step = self._step(whole(worst_case, "the worst case"), labels, pattern, last)
        until = later(self._governor.clock.now(), span(wait))
        while True:
            pause = self._pause(step, self._governor.submit(step), until)
            if pause is None:
                return Reservation(self._governor, step)
            self._sleep(pause)

    def reserve_soon(
        self,
        worst_case: Given,
        *,
        labels: Mapping[str, str] = NO_LABELS,
        pattern: str = "",
        last: bool = False,
        wait: float = 0,
    ) -> Soon:
        """The same for coroutines: `async with purse.reserve_soon(…) as money:`, or `await` it. Nothing is reserved
        before that."""
        step = self._step(whole(worst_case, "the worst case"), labels, pattern, last)
        return Soon(lambda: self._reserved(step, later(self._governor.clock.now(), span(wait))))

    async def _reserved(self, step: Step, until: Instant) -> Reservation:
        while True:
            asked = self._governor.submit_soon(step)
            try:
                decision = await asyncio.wrap_future(asked)
            except asyncio.CancelledError:
                asked.add_done_callback(lambda answer: self._give_back(step, answer))
                raise
            pause = self._pause(step, decision, until)
            if pause is None:
                return Reservation(self._governor, step)
            await self._sleep_soon(pause)

    def _give_back(self, step: Step, answer: "Future[Decision]") -> None:
        """Whoever asked was cancelled before the answer came: nobody will spend it."""
        if answer.exception() is None and answer.result().proceeds:
            self._governor.submit_soon(_settling(step, {}))

    def _step(self, cost: Amounts, labels: Mapping[str, str], pattern: str, last: bool) -> Step:
        if not cost:
            raise FlyballError(
                "a reservation of nothing", remedy='Give the worst case: `guard.reserve("0.05")`; 0 if it is free.'
            )
        here = self._whose()
        unit, run, own = (self._unit, self._run, self._labels) if here is None else (here.unit, here.run, here.labels)
        part = here is not None and here.steps.part
        last = last or (here is not None and here.steps.last)
        step = Step(unit=unit, run=run, labels={**own, **labels}, pattern=pattern, cost=cost, last=last, part=part)
        for meter in cost:
            told = (unit, meter) in self._unbounded or len(self._unbounded) >= TOLD_MAX
            if not told and not self._is_bounded(step, meter):
                self._unbounded.add((unit, meter))
                log.warning("%s: nothing bounds its %s: no budget is set for it", unit, meter)
        return step

    def _is_bounded(self, step: Step, meter: str) -> bool:
        scopes = {"unit", "run", "fleet", *step.labels}
        policies = self._governor.panel.policies_of(step.unit)
        return any(isinstance(policy, Budget) and policy.meter == meter and policy.by in scopes for policy in policies)

    def _pause(self, step: Step, decision: Decision, until: Instant) -> float | None:
        """How many seconds to wait before asking again; none where leave was given. Raises where it never comes, or
        not in time."""
        if decision.proceeds:
            return None
        now = self._governor.clock.now()
        if decision.verb is not Verb.WAIT or decision.until > until:
            raise refusal(decision, now, f"{amounts_text(step.cost)} cannot be reserved")
        return max(1, decision.until - now) / SECOND


def _settling(step: Step, used: Amounts) -> Stepped:
    work = Work(pattern=step.pattern, reserved=step.cost, used=used)
    return Stepped(unit=step.unit, run=step.run, labels=step.labels, done=(work,), part=step.part)
