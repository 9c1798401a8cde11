"""What an agent is given: its steps, its money, its memory, a way to give up, and a person to ask.

All of it goes to the governor. An answer that ends the run is heeded at once: whoever runs the agent is told, and every
further step is refused, so an agent that does not listen is ended from outside.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NoReturn, ParamSpec, TypeVar

from flyball.core.decision import Decision, Verb
from flyball.core.event import Beat, Stepped, Work
from flyball.core.time import FOREVER, SECOND, Instant, Span, later, span
from flyball.governor import NO_ROWS, Governor, Rows
from flyball.runtimes import questions
from flyball.runtimes.agent.ending import GaveUp
from flyball.runtimes.agent.memory import Memory, MemoryRefused
from flyball.runtimes.agent.step import StepBlock
from flyball.runtimes.allowance import ALONE_MAX, STEPS_MAX, RunSteps
from flyball.runtimes.amounts import Given, whole
from flyball.runtimes.current import live
from flyball.runtimes.driver import Sleep, sleep_until
from flyball.runtimes.money import Purse, Reservation, Soon
from flyball.runtimes.refusal import refusal

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Context:
    """One run of an agent, as seen from inside."""

    def __init__(
        self,
        governor: Governor,
        unit: str,
        run: str,
        *,
        labels: Mapping[str, str],
        again: bool = False,
        idle: Span = 0,
        part: bool = False,
        steps_max: int = STEPS_MAX,
        told: Callable[[Decision], None],
        sleep: Sleep | None = None,
    ) -> None:
        self._governor = governor
        self.unit, self.run, self.labels = unit, run, dict(labels)
        self.again = again
        """Whether it was started again by itself, after a failure."""
        # The governor hears of steps when an allowance ends: often enough, that a busy agent is never called silent.
        lasts = min(ALONE_MAX, idle // 3) if idle else ALONE_MAX
        self.steps = RunSteps(governor, unit, run, labels, steps_max=steps_max, lasts_max=lasts, part=part)
        key = Memory.key(unit)
        self.memory = Memory(unit, governor.store.read([key]).records.get(key))
        """Kept over restarts. What is changed in a step is written when the step is made."""
        self.heard: asyncio.Event | None = None
        """Set when somebody gave an order or an answer; None where nothing tells of that."""
        self._purse = Purse(governor, unit, run, labels, whose=lambda: live(self))
        self._told = told
        self._sleep: Sleep = sleep or partial(sleep_until, now=governor.clock.now)
        self._apart = idle // 3 if idle else FOREVER
        """So often it says that it is alive; never, where nobody minds its silence."""
        self._beaten: Instant = 0
        self._over = threading.Event()
        self._verdict: Decision | None = None

    def now(self) -> Instant:
        """The present."""
        return self._governor.clock.now()

    # Work.

    def step(
        self,
        pattern: str = "",
        call: object = None,
        *,
        cost: Given | None = None,
        polling: bool = False,
        last: bool = False,
        wait: bool = True,
    ) -> StepBlock:
        """One step, as a block: `with` it in a thread, `async with` it in a coroutine.

        `pattern` is what kind of step it is (the name of a tool), `call` what it is called with, `cost` its worst case.
        A call that is made again and again until something changes is `polling`. The `last` step may use the money
        that is kept back for it. Where a quota has to be waited for, it is, unless `wait` is false.
        """
        return StepBlock(self, pattern, call, whole(cost, "cost"), polling=polling, last=last, wait=wait)

    async def do(self, pattern: str, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make one call as a step: its arguments and its result are what circles are found by."""
        async with self.step(pattern, call=[args, kwargs]) as step:
            result = await function(*args, **kwargs)
            step.result(result)
            return result

    def spend(self, amounts: Given) -> Decision:
        """Report money that is spent already and was not reserved. A fact counts, also above the limit."""
        return self.happened(Work(used=whole(amounts, "what was spent")))

    def happened(self, work: Work) -> Decision:
        """Report a step that was made without leave. A fact counts; the answer may end the run."""
        stepped = Stepped(unit=self.unit, run=self.run, labels=self.labels, done=(work,), part=self.steps.part)
        return self.heed(self._governor.submit(stepped))

    def beat(self) -> None:
        """Say that it is alive, between steps that take long. Cheap: most beats are not sent."""
        now = self.now()
        if now >= later(self._beaten, self._apart):
            self._beaten = now
            self._governor.submit_soon(Beat(unit=self.unit, run=self.run, labels=self.labels))

    # Money, and a person.

    def reserve(self, worst_case: Given, *, pattern: str = "", last: bool = False, wait: float = 0) -> Reservation:
        """Reserve the worst case of what is about to be spent, for a block that settles what it really was."""
        return self._purse.reserve(worst_case, pattern=pattern, last=last, wait=wait)

    def reserve_soon(self, worst_case: Given, *, pattern: str = "", last: bool = False, wait: float = 0) -> Soon:
        """`reserve`, for coroutines: `async with` it."""
        return self._purse.reserve_soon(worst_case, pattern=pattern, last=last, wait=wait)

    async def ask_human(
        self, text: str, *, choices: Sequence[str] = (), timeout: float | None = None, default: str | None = None
    ) -> str:
        """Ask a person, and wait for the answer, which is given by `flyball answer`. After `timeout` seconds the
        default is taken; NoAnswer if there is none."""
        # What was done before counts before the answer: that is something new, and begins anew.
        self.heed(await live(self).steps.report_soon())
        return await questions.ask(
            self._governor,
            self.unit,
            self.run,
            self.labels,
            text,
            choices=choices,
            timeout=timeout,
            default=default,
            heard=self.heard,
            sleep=self._sleep,
        )

    def ask_human_and_wait(
        self, text: str, *, choices: Sequence[str] = (), timeout: float | None = None, default: str | None = None
    ) -> str:
        """`ask_human`, for threads."""
        self.heed(live(self).steps.report())
        return questions.ask_and_wait(
            self._governor,
            self.unit,
            self.run,
            self.labels,
            text,
            choices=choices,
            timeout=timeout,
            default=default,
            wait=lambda length: self.wait_until(later(self.now(), span(length))),
        )

    def save(self) -> None:
        """Write the memory now, outside any step."""
        rows = live(self).memory.changed()
        try:
            self.heed(self.steps.report(rows))
        except BaseException:
            self.memory.not_kept()
            raise

    def give_up(self, why: str = "") -> NoReturn:
        """End, and do not be started again."""
        raise GaveUp(why)

    # Waiting.

    async def sleep(self, seconds: float) -> None:
        """Sleep, and be known to be alive."""
        await self.sleep_until(later(self.now(), span(seconds)))

    async def sleep_until(self, until: Instant) -> None:
        """Sleep until an instant."""
        while (now := self.now()) < until:
            self.beat()
            await self._sleep(asyncio.Event(), min(until, later(now, self._apart)))

    def wait_until(self, until: Instant) -> None:
        """The same in a thread. Ends with a refusal when the run is to end."""
        while (now := self.now()) < until:
            self.beat()
            self._over.wait((min(until, later(now, self._apart)) - now) / SECOND)
            self.check()

    # The end.

    def heed(self, decision: Decision) -> Decision:
        """Obey an answer of the governor: one that ends the run is passed on to whoever runs it."""
        stricter = self._verdict is None or decision.verb > self._verdict.verb
        if decision.verb >= Verb.FINISH and stricter and not self.steps.over:
            self._verdict = decision
            self._told(decision)
        return decision

    def check(self) -> None:
        """Raise a refusal if the run is to end. For threads, which nobody can interrupt."""
        if self._over.is_set():
            raise refusal(self._verdict or Decision(Verb.STOP, FOREVER), self.now(), f"{self.unit} is to end")

    def end(self, decision: Decision | None = None) -> None:
        """From outside: it is to end now."""
        self._verdict = decision or self._verdict
        self._over.set()

    async def close(self, *, clean: bool) -> None:
        """The run is over: report what is not reported yet, and keep the memory if it ended well."""
        await self.steps.report_soon(self._last_rows(clean))

    def close_and_wait(self, *, clean: bool) -> None:
        """`close`, for threads."""
        self.steps.report(self._last_rows(clean))

    def _last_rows(self, clean: bool) -> Rows:
        self.steps.end()
        try:
            return self.memory.changed() if clean else NO_ROWS
        except MemoryRefused as refused:
            log.error("what %s changed last is not kept: %s. %s", self.unit, refused, refused.remedy)
            return NO_ROWS
