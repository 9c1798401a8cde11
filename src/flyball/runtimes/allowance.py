"""A run's own steps: asked for many at a time, so that most of them cost no commit.

The governor grants an allowance of so many steps and so much money, and counts it as used before the first of them is
made (a kill -9 gives nothing away). Inside it, a step asks only the policies of the run itself, in memory, with the
very same functions: whether an agent goes round in circles depends on what each step says, not on how many there were.
What was done is reported when the allowance is used up, when its lease ends, or as soon as a policy objects.

A run may make several steps at once. What it says to the governor is written once, as a talk (a generator of events
that is sent their answers); threads hold such a talk by waiting, coroutines by awaiting.
"""

import asyncio
import threading
from collections.abc import Generator, Mapping
from typing import Final

import msgspec

from flyball.core.decision import PROCEED, Decision, Reason, stop
from flyball.core.event import NOTHING, Amounts, Event, Step, Stepped, Work
from flyball.core.policy import AnyPolicy, State
from flyball.core.time import SECOND, Instant, Span, later
from flyball.errors import FlyballError
from flyball.governor import NO_ROWS, Governor, Rows
from flyball.policies import Budget, Exclusive, Limit
from flyball.runtimes import bridge

STEPS_MAX: Final = 64
"""Steps asked for at once. A crash counts at most this many as used that were not made."""

LASTS_MAX: Final[Span] = 5 * SECOND
"""How long an allowance lasts that holds something of what others share."""

ALONE_MAX: Final[Span] = 30 * SECOND
"""How long one lasts that holds nothing of theirs. What was done is on record after this, at the latest."""

SHARE: Final = 16
"""An allowance takes at most this part of a limit that others share: what one holds and does not use is refused to them
until it is given back."""

OWN: Final = ("run", "unit")
"""Scopes that one run has to itself."""

OVER: Final = stop(
    Reason(
        Exclusive.NAME,
        "run_not_live",
        "its run has ended, and this was still at work",
        "Wait for whatever a run begins (tasks, threads) before it ends.",
    )
)
"""The answer to whoever asks for a run that has ended: nobody looks after it any more, and its limits are gone."""

Talk = Generator[tuple[Event, Rows], Decision, Decision]


class RunSteps:
    """The steps of one run. Its threads use `ask` and `made`, its coroutines `ask_soon` and `made_soon`."""

    def __init__(
        self,
        governor: Governor,
        unit: str,
        run: str,
        labels: Mapping[str, str] | None = None,
        *,
        steps_max: int = STEPS_MAX,
        lasts_max: Span = ALONE_MAX,
        part: bool = False,
    ) -> None:
        self.part = part
        """They are parts of steps that were granted already."""
        self.last = False
        """The run wraps up: each step that is asked for from now on is one of its last."""
        self._governor = governor
        self._now = governor.clock.now
        self._unit, self._run, self._labels = unit, run, dict(labels or {})
        self._steps_max = steps_max
        self._lasts_max = lasts_max
        self._open = 0
        """Steps of allowances that are not reported yet: left, being made, or made."""
        self._left = 0
        self._out = 0
        """Of them, those that are being made."""
        self._singles = 0
        """Steps being made that were granted one by one, and so were counted when they were asked for."""
        self._until: Instant = 0
        self._room: dict[str, int] = {}
        self._own: list[_Own] = []
        self._asked_at: Instant = 0
        self._done: list[tuple[Instant, Work]] = []
        """The steps that are not reported yet, with the times at which they were asked for."""
        self._single_done = 0
        """Of them, those that were granted one by one."""
        self._over = False
        self._mutex = threading.Lock()
        """Held to change any of this, and never while anything is waited for."""
        self._turn_of_threads = threading.Lock()
        self._turn: asyncio.Lock | None = None
        """The turn to ask, of threads and of coroutines. Who waits for it finds an allowance when it is his turn. The
        second is made in the loop of the first who needs it."""

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self._over

    def end(self) -> None:
        """The run has ended: no step is granted any more. One that is being made is reported when it is made."""
        with self._mutex:
            self._over = True

    # For threads.

    def ask(self, pattern: str = "", call: str = "", cost: Amounts = NOTHING, *, last: bool = False) -> Decision:
        """May the run make this step? `cost` is its worst case."""
        last = last or self.last
        decision = self._ask_here(pattern, call, cost, last)
        if decision is not None:
            return decision
        with self._turn_of_threads:
            decision = self._ask_here(pattern, call, cost, last)
            return decision if decision is not None else self._hold(self._asking(pattern, call, cost, last))

    def made(self, work: Work, rows: Rows = NO_ROWS) -> Decision:
        """The step was made; `work.reserved` is the cost that was asked for. The answer says whether to go on. With
        rows to keep beside it, it is reported at once."""
        # A report is noted before it is sent, so nobody has to wait for another.
        decision = self._made_here(work)
        return decision if decision is not None and not rows else self._hold(self._telling(decision, rows))

    def report(self, rows: Rows = NO_ROWS) -> Decision:
        """Tell the governor what was done since it was last asked, and give back what was not used. To be called
        before the run exits, too."""
        return self._hold(self._reporting(rows))

    def _hold(self, talk: Talk) -> Decision:
        try:
            event, rows = next(talk)
            while True:
                try:
                    answer = self._governor.submit(event, rows)
                except FlyballError as error:
                    event, rows = talk.throw(error)
                else:
                    event, rows = talk.send(answer)
        except StopIteration as end:
            last: Decision = end.value
            return last

    # For coroutines.

    async def ask_soon(
        self, pattern: str = "", call: str = "", cost: Amounts = NOTHING, *, last: bool = False
    ) -> Decision:
        """`ask`, without blocking the loop."""
        last = last or self.last
        decision = self._ask_here(pattern, call, cost, last)
        if decision is not None:
            return decision
        asking = asyncio.ensure_future(self._ask_in_turn(pattern, call, cost, last))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            # What is on its way to the governor is counted there. If it is granted, nobody makes that step.
            asking.add_done_callback(lambda asked: self._not_made(asked, cost))
            raise

    async def _ask_in_turn(self, pattern: str, call: str, cost: Amounts, last: bool) -> Decision:
        async with self._in_turn():
            decision = self._ask_here(pattern, call, cost, last)
            return decision if decision is not None else await self._hold_soon(self._asking(pattern, call, cost, last))

    def _not_made(self, asked: "asyncio.Future[Decision]", cost: Amounts) -> None:
        if asked.cancelled() or asked.exception() is not None or not asked.result().proceeds:
            return
        with self._mutex:
            if self._singles:
                self._singles -= 1
                self._open += 1  # so that it is reported as one that was allowed and not made
            else:
                self._out -= 1
                self._left += 1
            for meter, amount in cost.items():
                self._room[meter] = self._room.get(meter, 0) + amount

    async def made_soon(self, work: Work, rows: Rows = NO_ROWS) -> Decision:
        """`made`, without blocking the loop."""
        decision = self._made_here(work)
        return decision if decision is not None and not rows else await self._hold_soon(self._telling(decision, rows))

    async def report_soon(self, rows: Rows = NO_ROWS) -> Decision:
        """`report`, without blocking the loop."""
        return await self._hold_soon(self._reporting(rows))

    def _in_turn(self) -> asyncio.Lock:
        if self._turn is None:
            self._turn = asyncio.Lock()
        return self._turn

    async def _hold_soon(self, talk: Talk) -> Decision:
        try:
            event, rows = next(talk)
            while True:
                try:
                    answer = await bridge.submit(self._governor, event, rows)
                except FlyballError as error:
                    event, rows = talk.throw(error)
                else:
                    event, rows = talk.send(answer)
        except StopIteration as end:
            last: Decision = end.value
            return last

    # What is the same for both.

    def _ask_here(self, pattern: str, call: str, cost: Amounts, last: bool) -> Decision | None:
        """The answer to a step inside the allowance. None: it has to be put to the governor."""
        now = self._now()
        with self._mutex:
            if self._over:
                return OVER
            if not self._left or now >= self._until or last or (cost and not self._affords(cost)):
                return None
            decision = self._weigh_own(Step(unit=self._unit, run=self._run, pattern=pattern, call=call), now)
            if not decision.proceeds:
                return None
            self._asked_at = now
            self._left -= 1
            self._out += 1
            for meter, amount in cost.items():
                self._room[meter] -= amount
        return decision

    def _made_here(self, work: Work) -> Decision | None:
        """Note a step that was made. None: it is to be reported now."""
        with self._mutex:
            if not work.refused:
                if self._singles:
                    self._singles -= 1
                    self._single_done += 1
                elif self._out:
                    self._out -= 1
            self._done.append((self._asked_at, work))
            decision = self._weigh_own(Stepped(unit=self._unit, run=self._run, done=(work,)), self._asked_at)
            full = self._over or not self._open or len(self._done) >= self._steps_max
        return None if full or not decision.proceeds or _overran(work) else decision

    def _asking(self, pattern: str, call: str, cost: Amounts, last: bool) -> Talk:
        yield from self._reporting(NO_ROWS)
        self._asked_at = self._now()
        step = Step(
            unit=self._unit,
            run=self._run,
            labels=self._labels,
            pattern=pattern,
            call=call,
            cost=cost,
            last=last,
            part=self.part,
        )
        lasts = self._lasts_max
        if not last:
            steps, shares = self._fair(step)
            step = msgspec.structs.replace(step, steps=steps)
            lasts = min(lasts, LASTS_MAX) if shares else lasts
        decision = yield step, NO_ROWS
        if not decision.proceeds:
            return decision
        granted = decision.allowance
        if self._over:  # it ended while this was on its way
            steps = granted.steps if granted is not None else 1
            yield self._stepped((), steps, {meter: amount * steps for meter, amount in cost.items()}), NO_ROWS
            return OVER
        if granted is None:
            with self._mutex:
                self._singles += 1
            return decision
        # Policies that grant an allowance have counted it already; the others are asked at each step.
        own = [
            _Own(policy, state)
            for policy, state, opinion in self._governor.opinions(step, by="run")
            if opinion.allowance is None
        ]
        with self._mutex:
            self._open += granted.steps
            self._left += granted.steps - 1
            self._out += 1
            for meter, amount in granted.money.items():
                self._room[meter] = self._room.get(meter, 0) + amount - cost[meter]
            self._until = min(decision.until, later(self._now(), lasts))
            self._own = own
        return decision

    def _fair(self, step: Step) -> tuple[int, bool]:
        """How many steps to ask for, and whether others share what they take: of that, little."""
        steps, shares = self._steps_max, False
        for policy in self._governor.panel.concerning(step).policies:
            match policy:
                case Limit(by=by) if by not in OWN:
                    steps, shares = min(steps, policy.most // SHARE), True
                case Budget(by=by) if by not in OWN and step.cost.get(policy.meter):
                    steps, shares = min(steps, policy.limit // SHARE // step.cost[policy.meter]), True
        return max(1, steps), shares

    def _telling(self, decision: Decision | None, rows: Rows) -> Talk:
        """Report what was made. The allowance goes on, unless a policy objects, or nothing is left of it."""
        if decision is None or not self._left:
            return (yield from self._reporting(rows))
        with self._mutex:
            done, singles = self._taken()
            made = sum(not work.refused for _, work in done) - singles
            self._open -= made
        return (yield from self._saying(done, singles, made, {}, rows))

    def _reporting(self, rows: Rows) -> Talk:
        """Report what was made, and give back the rest."""
        with self._mutex:
            allowed = self._open - self._out
            returned = {meter: amount for meter, amount in self._room.items() if amount}
            if not allowed and not self._done and not rows and not returned:
                return PROCEED
            done, singles = self._taken()
            # What is being made now is of this allowance still, and is reported when it is made.
            self._open = self._out
            self._left = 0
            self._room, self._own = {}, []
        return (yield from self._saying(done, singles, allowed, returned, rows))

    def _taken(self) -> tuple[list[tuple[Instant, Work]], int]:
        """What was made since the last report; and how many of it were granted one by one."""
        done, self._done = self._done, []
        singles, self._single_done = self._single_done, 0
        return done, singles

    def _saying(
        self, done: list[tuple[Instant, Work]], singles: int, allowed: int, returned: dict[str, int], rows: Rows
    ) -> Talk:
        """Say what was made and what is given back. If it cannot be written down, it is said with the next report."""
        now = self._now()
        aged = tuple(msgspec.structs.replace(work, ago=now - at) if at < now else work for at, work in done)
        try:
            # A report that is about an allowance counts also those that were granted one by one.
            return (yield self._stepped(aged, allowed + singles if allowed else 0, returned), rows)
        except FlyballError:
            with self._mutex:
                self._done[:0] = done
                self._single_done += singles
                self._open += allowed
                for meter, amount in returned.items():
                    self._room[meter] = self._room.get(meter, 0) + amount
            raise

    def _stepped(self, done: tuple[Work, ...], allowed: int, returned: Amounts = NOTHING) -> Stepped:
        return Stepped(
            unit=self._unit,
            run=self._run,
            labels=self._labels,
            done=done,
            allowed=allowed,
            returned=returned,
            part=self.part,
        )

    def _affords(self, cost: Amounts) -> bool:
        return all(self._room.get(meter, 0) >= amount for meter, amount in cost.items())

    def _weigh_own(self, event: Event, now: Instant) -> Decision:
        """What the run's own policies say, which nobody else's events can change. A request that one of them refuses is
        put to the governor, where it leaves no trace; so it need not be undone here."""
        decision = PROCEED
        for own in self._own:
            own.state = own.policy.evolve(own.state, event, now)
            answer = own.policy.decide(own.state, now)
            if answer is not PROCEED:
                decision |= answer
        return decision


def _overran(work: Work) -> bool:
    """Whether it used more than was reserved for it: budgets know nothing of that until it is reported."""
    return any(amount > work.reserved.get(meter, 0) for meter, amount in work.used.items())


class _Own:
    """A policy of the run itself, with its state as it is after the steps that are not reported yet."""

    __slots__ = ("policy", "state")

    def __init__(self, policy: AnyPolicy, state: State) -> None:
        self.policy = policy
        self.state = state
