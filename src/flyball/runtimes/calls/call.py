"""One guarded call: leave is asked before each attempt, and what came of it is told after it.

It serves as a decorator, as a block, and as a loop of attempts. All three go through the same four moves: ask, succeed,
fail, and perhaps wait for the next attempt. Everything that can be prepared is prepared when the call is made.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar

from flyball.core.decision import Decision, Verb
from flyball.core.event import Amounts
from flyball.core.time import FOREVER, SECOND, Instant, Span
from flyball.errors import FlyballError
from flyball.runtimes.amounts import Given, whole
from flyball.runtimes.calls.account import ENTERED, LOOK_AGAIN, Leave
from flyball.runtimes.calls.books import Books
from flyball.runtimes.calls.retry import Kinds, Retry, picks
from flyball.runtimes.calls.talk import Holder, Talk
from flyball.runtimes.calls.wrappers import guarded
from flyball.runtimes.current import running
from flyball.runtimes.refusal import Refused, refusal

P = ParamSpec("P")
R = TypeVar("R")

BREAKER_CODES: Final = frozenset({"circuit_open", "circuit_half_open"})
"""Refusals that giving back what is held cannot change."""


class Call:
    """A guarded call. Made by `guard.call(…)`; safe to use from several threads and tasks at once."""

    def __init__(
        self,
        books: Books,
        name: str,
        labels: Mapping[str, str],
        *,
        cost: Amounts,
        cost_of: Callable[..., Given] | None,
        budgeted: frozenset[str] = frozenset(),
        used_of: Callable[[Any], Given] | None,
        failures: Kinds,
        retry: Retry | None,
        wait: Span,
        holder: Holder,
    ) -> None:
        self.name = name
        self.retry = retry
        self.holder = holder
        self.spends = bool(cost) or cost_of is not None
        """Whether there is money to speak of: only then `spent` has to find its attempt."""
        self.used_of = used_of
        self._books = books
        self._labels = labels
        self._cost, self._cost_of, self._budgeted = cost, cost_of, budgeted
        self._failures = failures
        self._wait = wait
        self._now = books.governor.clock.now
        self._account = books.account(name, labels, cost)
        self.take = self._account.take if cost_of is None else _nothing
        """Leave for an attempt from what is held; None if it has to be asked for."""

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """As a decorator, of functions, coroutine functions, generators and asynchronous generators."""
        return guarded(self, function)

    # The four moves.

    def asking(
        self, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None, before: BaseException | None = None
    ) -> Talk[Leave]:
        """Ask for leave to make an attempt; wait for it, if so agreed. `before` is how the last attempt failed."""
        here = running()
        cost = self._cost if self._cost_of is None else self._computed(self._cost_of(*args, **(kwargs or {})))
        shares = here is None and self._cost_of is None
        account = self._account if here is None else self._books.account_of(here, self.name, self._labels)
        waited, recalled = 0, False
        while True:
            leave = self.take()
            if leave is not None:
                return leave
            decision = yield from account.asking() if shares else account.asking_one(cost)
            if decision is LOOK_AGAIN or (decision.proceeds and decision.allowance is not None):
                continue
            now = self._now()
            if decision.proceeds:
                return Leave(account, now, cost, True)
            if not recalled and not BREAKER_CODES.issuperset(decision.codes):
                recalled = True
                if (yield from self._books.recalling(here)):
                    continue
            pause = self._pause(decision, now, self._wait - waited)
            if pause is None:
                raise refusal(decision, now, self.name) from before
            waited += pause
            yield pause / SECOND

    def _computed(self, given: Given) -> Amounts:
        """What the attempt costs at most, by its arguments. What a budget bounds is never free for want of a word."""
        cost = whole(given, f"call {self.name!r}: cost")
        if missing := sorted(self._budgeted - cost.keys()):
            raise FlyballError(
                f"the cost of {self.name!r} says nothing of {', '.join(missing)}, of which there is a budget",
                remedy="Let the function that is given as `cost` return the worst case, if need be 0.",
            )
        return cost

    def _pause(self, decision: Decision, now: Instant, left: Span) -> Span | None:
        """How long to wait before asking again; None where that is longer than agreed."""
        if decision.verb is not Verb.WAIT or decision.until == FOREVER:
            return None
        pause = max(1, decision.until - now)
        return pause if pause <= left else None

    def succeeding(self, leave: Leave, result: object = None) -> Talk[None]:
        """The attempt was made, and this came of it."""
        try:
            if self.used_of is not None and leave.used is None:
                leave.used = whole(self.used_of(result), f"call {self.name!r}: used")
        finally:
            if leave.single:
                yield from leave.account.telling(leave)
            else:
                leave.account.done.append(leave)

    def left_early(self, leave: Leave) -> None:
        """Nobody reads the generator any more, or awaits the coroutine. Perhaps the garbage collector says so, in
        whatever thread, the store's own included: so nobody waits here."""
        if leave.single:
            leave.account.tell(leave)
        else:
            leave.account.done.append(leave)

    def failing(self, leave: Leave, error: BaseException, number: int = 1) -> Talk[float | None]:
        """The attempt ended with an error. Seconds after which to make another; None: there is none."""
        leave.cut = isinstance(error, Refused) or not isinstance(error, Exception)
        try:
            leave.error = not leave.cut and picks(self._failures, error)
        except BaseException:  # what was to judge it failed: the attempt was made all the same, and did not go well
            leave.error = True
            self.left_early(leave)
            raise
        if not leave.single and not leave.error:
            leave.account.done.append(leave)
            decision = LOOK_AGAIN
        else:
            decision = yield from leave.account.telling(leave)
        if self.retry is None or leave.cut or not picks(self.retry.on, error):
            return None
        delay, why_not = self._delay(self.retry, leave, error, number, decision)
        if why_not:
            error.add_note(f"flyball: {self.name} was tried {number} times; {why_not}")
            return None
        return delay

    def _delay(
        self, retry: Retry, leave: Leave, error: BaseException, number: int, decision: Decision
    ) -> tuple[float, str]:
        """The wait before the next attempt, or why there is none."""
        if number >= retry.attempts:
            return 0, f"{retry.attempts} are allowed"
        delay = retry.delay(number, f"{leave.account.run} {self.name} {leave.asked}")
        asked_for = retry.after(error) if retry.after is not None else None
        if asked_for is not None and not asked_for <= retry.longest:
            return 0, f"it asks to wait {asked_for:g} s, and the longest wait is {retry.longest:g} s"
        delay = max(delay, asked_for or 0)
        # To wait for an attempt that will be refused is to wait in vain.
        now = self._now()
        refused = not decision.proceeds and decision.until > now + delay * SECOND
        if refused and self._pause(decision, now, self._wait + round(delay * SECOND)) is None:
            reason = decision.primary
            return 0, f"not again: {reason.text if reason else 'refused'}"
        return delay, ""

    def spent(self, amounts: Given) -> None:
        """Inside a call: what this attempt really cost. Without this, it cost what was reserved for it."""
        leave = self._inside()
        if leave is None:
            raise FlyballError(
                f"nothing can be spent by {self.name!r} here: it is not being called",
                remedy="Say it inside the guarded function or block; and give the call a `cost`, its worst case.",
            )
        leave.spent(amounts)

    # As a block.

    def __enter__(self) -> Leave:
        leave = self._leave_of_block()
        return self.entered(leave if leave is not None else self.holder.hold(self.asking()))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        leave = self.left()
        if leave is not None:
            self.holder.hold(self.succeeding(leave) if error is None else self.failing(leave, error))

    async def __aenter__(self) -> Leave:
        leave = self._leave_of_block()
        return self.entered(leave if leave is not None else await self.holder.hold_soon(self.asking()))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        leave = self.left()
        if leave is not None:
            await self.holder.hold_soon(self.succeeding(leave) if error is None else self.failing(leave, error))

    def _leave_of_block(self) -> Leave | None:
        if self.retry is not None:
            raise FlyballError(
                f"a `with` block of {self.name!r} cannot be repeated, and `retry` is given",
                remedy="Write `for attempt in call:` and `with attempt:` inside it.",
            )
        return self.leave_of_block()

    def leave_of_block(self) -> Leave | None:
        """`take`, where there are no arguments and no result."""
        if self._cost_of is not None or self.used_of is not None:
            raise FlyballError(
                f"a block of {self.name!r} has no arguments and no result that `cost` or `used` could be computed from",
                remedy="Give `cost` as an amount, and say what it really cost: `with … as attempt: attempt.spent(…)`.",
            )
        return self.take()

    def entered(self, leave: Leave) -> Leave:
        """The code at hand is inside this attempt, from here on."""
        ENTERED.set((*ENTERED.get(), (self, leave)))
        return leave

    def left(self) -> Leave | None:
        """It is outside again, of the innermost attempt at this call."""
        leave = self._inside()
        ENTERED.set(tuple(entry for entry in ENTERED.get() if entry[1] is not leave))
        return leave

    def _inside(self) -> Leave | None:
        return next((leave for call, leave in reversed(ENTERED.get()) if call is self), None)

    # As a loop of attempts.

    def __iter__(self) -> "Iterator[Attempt]":
        attempt = Attempt(self, 1, None)
        while True:
            yield attempt
            if attempt.delay is None:
                return
            self.holder.sleep(attempt.delay)
            attempt = Attempt(self, attempt.number + 1, attempt.error)

    async def __aiter__(self) -> "AsyncIterator[Attempt]":
        attempt = Attempt(self, 1, None)
        while True:
            yield attempt
            if attempt.delay is None:
                return
            await self.holder.sleep_soon(attempt.delay)
            attempt = Attempt(self, attempt.number + 1, attempt.error)


def _nothing() -> None:
    """What costs another amount each time is asked for each time."""


class Attempt:
    """One attempt of several at a block: `with` it in a thread, `async with` it in a coroutine. An error that is worth
    another attempt stays inside."""

    def __init__(self, call: Call, number: int, before: BaseException | None) -> None:
        self.number = number
        """The first is 1."""
        self.error: BaseException | None = None
        """How it failed, if there is to be another."""
        self.delay: float | None = None
        """After so many seconds."""
        self._call = call
        self._before = before

    def spent(self, amounts: Given) -> None:
        """What it really cost. Without this, it cost what was reserved for it."""
        self._call.spent(amounts)

    def __enter__(self) -> Self:
        call = self._call
        leave = call.leave_of_block()
        call.entered(leave if leave is not None else call.holder.hold(call.asking(before=self._before)))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        call, leave = self._call, self._call.left()
        if leave is None:
            return False
        if error is None:
            call.holder.hold(call.succeeding(leave))
            return False
        return self._again(error, call.holder.hold(call.failing(leave, error, self.number)))

    async def __aenter__(self) -> Self:
        call = self._call
        leave = call.leave_of_block()
        call.entered(leave if leave is not None else await call.holder.hold_soon(call.asking(before=self._before)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool:
        call, leave = self._call, self._call.left()
        if leave is None:
            return False
        if error is None:
            await call.holder.hold_soon(call.succeeding(leave))
            return False
        return self._again(error, await call.holder.hold_soon(call.failing(leave, error, self.number)))

    def _again(self, error: BaseException, delay: float | None) -> bool:
        if delay is None:
            return False
        self.delay, self.error = delay, error
        return True
