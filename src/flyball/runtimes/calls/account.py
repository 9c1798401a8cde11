"""What one run holds for one call: leave for so many attempts at once, so that most of them cost no commit.

An allowance is counted, and its money reserved, before the first attempt is made (a kill -9 gives nothing away). Inside
it an attempt takes a token from a list, which threads share without a lock, and puts what came of it on another. Both
are told to the governor when the tokens are used up, when the lease ends, and at once when an attempt fails: a breaker
must know. What is not reported counts as used.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from flyball.core.decision import PROCEED, Decision
from flyball.core.event import NOTHING, Amounts, Step, Stepped, Work
from flyball.core.time import Instant, Span, later
from flyball.errors import FlyballError
from flyball.policies import Budget, Limit, Loop
from flyball.runtimes.allowance import LASTS_MAX, SHARE
from flyball.runtimes.amounts import Given, whole
from flyball.runtimes.calls.talk import Talk
from flyball.runtimes.current import CURRENT

if TYPE_CHECKING:
    from flyball.runtimes.calls.books import Books

log = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 512
"""Attempts asked for at once. A crash counts at most this many as used that were not made; with half of it the disk is
waited for twice as often."""
ATTEMPTS_FIRST: Final = 4
"""Attempts asked for at first, and whenever most of what was granted is not used."""
GROWTH: Final = 4
"""An allowance that was used up is followed by one so many times larger, an idle one by one so many times smaller."""

LOOP_PARTS: Final = 12
"""An allowance lasts at most this part of a loop's window, so that it is known within a twelfth when attempts were
made. Of the default minute that is the five seconds that every allowance lasts."""


class Leave:
    """Leave to make one attempt, and in the end what came of it."""

    __slots__ = ("account", "asked", "cost", "cut", "error", "single", "used")

    def __init__(self, account: "Account", asked: Instant, cost: Amounts, single: bool) -> None:
        self.account = account
        self.asked = asked
        self.cost = cost
        self.single = single
        """Granted by itself, and so reported by itself."""
        self.error = False
        self.cut = False
        self.used: Amounts | None = None
        """None: nobody said, so it is the worst case."""

    def spent(self, amounts: Given) -> None:
        """What it really cost. Without this, an attempt cost what was reserved for it."""
        self.used = whole(amounts, f"what call {self.account.name!r} spent")

    def work(self, now: Instant) -> Work:
        """As it is reported."""
        used = self.cost if self.used is None else self.used
        ago = max(0, now - self.asked)
        return Work(pattern=self.account.name, error=self.error, cut=self.cut, reserved=self.cost, used=used, ago=ago)


ENTERED: Final[ContextVar[tuple[tuple[object, Leave], ...]]] = ContextVar("flyball_calls", default=())
"""The attempts that the code at hand is inside of, each with its call, the innermost last."""


class Account:
    """One run's account with one call. Safe to use from several threads."""

    def __init__(
        self,
        books: "Books",
        name: str,
        *,
        unit: str,
        run: str,
        labels: Mapping[str, str],
        cost: Amounts,
        part: bool = False,
    ) -> None:
        """`part`: its attempts are made inside steps that were granted already."""
        self._books = books
        self._governor = books.governor
        self._now = books.governor.clock.now
        self.unit, self.run, self.labels, self.name, self._cost = unit, run, labels, name, cost
        self._part = part
        self.forget()

    def forget(self) -> None:
        """Hold nothing: a new account, or one whose tokens belong to the process that this one was forked from."""
        self._tokens: list[None] = []
        self.done: list[Leave] = []
        """Attempts that were made inside the allowance and are not reported yet."""
        self._until: Instant = 0
        self._size = ATTEMPTS_FIRST
        """How many to ask for."""
        self._open = 0
        """Attempts that were granted together and are not reported: left, being made, or made."""
        self._flight: Future[Decision] | None = None
        """The request for the next allowance, while it is on its way: one asks, the others wait for him."""
        self._mutex = threading.Lock()
        """Never held while anything is waited for."""

    @property
    def until(self) -> Instant:
        """When the allowance ends."""
        return self._until

    @property
    def holds(self) -> bool:
        """Whether anything is granted and not reported."""
        return self._open > 0

    def take(self) -> Leave | None:
        """Leave for one attempt, from the allowance; None if there is none, or a run of an agent is at work here: that
        one asks for itself."""
        now = self._now()
        if now >= self._until or CURRENT.get() is not None:
            return None
        try:
            self._tokens.pop()
        except IndexError:
            return None
        return Leave(self, now, self._cost, False)

    def expire(self) -> None:
        """Let nobody take anything before it is asked for anew."""
        self._until = 0

    # Asking.

    def asking(self) -> Talk[Decision]:
        """Ask for an allowance, or wait for whoever does already. Where leave is given, look again whether there is a
        token to take; the one who asked, and was granted a single attempt, has it."""
        with self._mutex:
            flight = self._flight
            mine = flight is None
            if flight is None:
                flight = self._flight = Future()
                flight.set_running_or_notify_cancel()
        if mine:
            self._ask(flight)
        try:
            decision: Decision = yield flight
        except BaseException:
            if mine:
                flight.add_done_callback(lambda asked: self._unclaimed(asked, self._cost))
            raise
        return decision if mine or not decision.proceeds else LOOK_AGAIN

    def asking_one(self, cost: Amounts) -> Talk[Decision]:
        """Ask for one attempt."""
        answer = self._governor.submit_soon(self._step(cost, 1))
        try:
            decision: Decision = yield answer
        except BaseException:
            answer.add_done_callback(lambda asked: self._unclaimed(asked, cost))
            raise
        return decision

    def _ask(self, flight: "Future[Decision]") -> None:
        try:
            self.report()
            steps, lasts = self._terms()
            answer = self._governor.submit_soon(self._step(self._cost, steps))
        except BaseException as error:  # noqa: BLE001 - the future carries it to all who wait
            self._flight = None
            flight.set_exception(error)
            return

        def answered(asked: "Future[Decision]") -> None:
            error = asked.exception()
            if error is None:
                self._granted(asked.result(), lasts)
            self._flight = None
            if error is None:
                flight.set_result(asked.result())
            else:
                flight.set_exception(error)

        answer.add_done_callback(answered)

    def _granted(self, decision: Decision, lasts: Span) -> None:
        if not decision.proceeds or decision.allowance is None:
            return
        with self._mutex:
            self._open += decision.allowance.steps
            self._until = min(decision.until, later(self._now(), lasts))
            self._tokens.extend([None] * decision.allowance.steps)
        self._books.opened(self)

    def _unclaimed(self, asked: "Future[Decision]", cost: Amounts) -> None:
        """Who asked was cancelled meanwhile. If a single attempt was granted, nobody makes it."""
        if asked.exception() is None and asked.result().proceeds and asked.result().allowance is None:
            leave = Leave(self, self._now(), cost, True)
            leave.cut, leave.used = True, NOTHING
            self.tell(leave)

    def _step(self, cost: Amounts, steps: int) -> Step:
        return Step(
            unit=self.unit,
            run=self.run,
            labels=self.labels,
            pattern=self.name,
            cost=cost,
            steps=steps,
            part=self._part,
        )

    def _terms(self) -> tuple[int, Span]:
        """For how many attempts to ask at once, and for how long: little of what must be shared with others."""
        steps, lasts = self._size, LASTS_MAX
        for policy in self._governor.panel.concerning(self._step(self._cost, 1)).policies:
            match policy:
                case Loop():
                    steps = min(steps, policy.repeats_max // SHARE)
                    lasts = min(lasts, policy.window // LOOP_PARTS)
                case Limit(of=of) if of is Step:
                    steps = min(steps, policy.most // SHARE)
                case Budget() if self._cost.get(policy.meter):
                    steps = min(steps, policy.limit // SHARE // self._cost[policy.meter])
        return max(1, steps), lasts

    # Telling.

    def telling(self, leave: Leave) -> Talk[Decision]:
        """Report one attempt at once, with all that is not reported yet. Never fails: what cannot be reported counts
        as used, and the next one to ask is told why."""
        if not leave.single:
            self.done.append(leave)
        answer = self.tell(leave) if leave.single else self.report(rest=False)
        if answer is None:  # another thread has just reported it
            return PROCEED
        try:
            decision: Decision = yield answer
        except FlyballError:  # logged where it was told
            return PROCEED
        return decision

    def tell(self, leave: Leave) -> "Future[Decision] | None":
        """Report one attempt that was granted by itself."""
        done = (leave.work(self._now()),)
        return self._submit(Stepped(unit=self.unit, run=self.run, labels=self.labels, done=done, part=self._part))

    def report(self, *, rest: bool = True) -> "Future[Decision] | None":
        """Report what was done inside the allowance and, with the rest, give back what was not used. What is being
        made now is reported when it is made."""
        with self._mutex:
            unused = self._take_back() if rest else 0
            many = len(self.done)
            made = self.done[:many]
            # Others only add to its end meanwhile.
            del self.done[:many]
            allowed = unused + many
            self._open -= allowed
            if unused > many:
                self._size = max(ATTEMPTS_FIRST, self._size // GROWTH)
            elif rest and many:
                self._size = min(ATTEMPTS_MAX, self._size * GROWTH)
        if not allowed:
            return None
        return self._submit(
            Stepped(
                unit=self.unit,
                run=self.run,
                labels=self.labels,
                done=self._works(made),
                allowed=allowed,
                returned=_times(self._cost, unused) if unused else NOTHING,
            )
        )

    def _works(self, made: Sequence[Leave]) -> tuple[Work, ...]:
        """Attempts that went well are alike, and reported as one work; each of the others says something."""
        now = self._now()
        special = tuple([leave.work(now) for leave in made if leave.error or leave.cut])
        well = [leave for leave in made if not leave.error and not leave.cut] if special else made
        if not well:
            return special
        told = [leave.used for leave in well if leave.used is not None]
        used = _times(self._cost, len(well) - len(told))
        for amounts in told:
            for meter, amount in amounts.items():
                used[meter] = used.get(meter, 0) + amount
        ago = max(0, now - max([leave.asked for leave in well]))
        reserved = _times(self._cost, len(well))
        return (Work(pattern=self.name, reserved=reserved, used=used, ago=ago, times=len(well)), *special)

    def _take_back(self) -> int:
        """The tokens that nobody has taken. One by one: each is taken either here or by an attempt."""
        self._until = 0
        many = 0
        try:
            while True:
                self._tokens.pop()
                many += 1
        except IndexError:
            return many

    def _submit(self, stepped: Stepped) -> "Future[Decision] | None":
        try:
            answer = self._governor.submit_soon(stepped)
        except FlyballError as error:
            _not_told(self.name, error)
            return None
        answer.add_done_callback(self._told)
        return answer

    def _told(self, answer: "Future[Decision]") -> None:
        error = answer.exception()
        if error is not None:
            _not_told(self.name, error)
        elif not answer.result().proceeds:
            self._books.expire()


LOOK_AGAIN: Final = Decision()
"""Leave was given, to somebody who asked for all. Known by identity."""


def _times(amounts: Amounts, many: int) -> dict[str, int]:
    return {meter: amount * many for meter, amount in amounts.items()}


def _not_told(name: str, error: BaseException) -> None:
    log.warning("what was done by %r could not be reported, and counts as used: %s", name, error)
