"""A run's own steps: asked for many at a time, so that most of them cost no commit.

The governor grants an allowance of so many steps and so much money, and counts it as used before the first of them is
made (a kill -9 gives nothing away). Inside it, a step asks only the policies of the run itself, in memory, with the
very same functions: whether an agent goes round in circles depends on what each step says, not on how many there were.
What was done is reported when the allowance is used up, when its lease ends, or as soon as a policy objects.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from flyball.core.decision import PROCEED, Decision
from flyball.core.event import NOTHING, Amounts, Event, Step, Stepped, Work
from flyball.core.policy import AnyPolicy, State
from flyball.core.time import SECOND, Instant, Span, later
from flyball.governor import Governor

STEPS_MAX: Final = 64
"""Steps asked for at once. A crash counts at most this many as used that were not made."""

LASTS_MAX: Final[Span] = 5 * SECOND
"""How long an allowance lasts: an order from a person is obeyed by the next step after this, at the latest."""


class RunSteps:
    """The steps of one run. For one thread or task at a time: the run's own."""

    def __init__(
        self,
        governor: Governor,
        unit: str,
        run: str,
        labels: Mapping[str, str] | None = None,
        *,
        steps_max: int = STEPS_MAX,
        lasts_max: Span = LASTS_MAX,
    ) -> None:
        self._governor = governor
        self._now = governor.clock.now
        self._unit, self._run, self._labels = unit, run, dict(labels or {})
        self._steps_max = steps_max
        self._lasts_max = lasts_max
        self._allowed = 0
        self._left = 0
        self._until: Instant = 0
        self._room: dict[str, int] = {}
        self._own: list[_Own] = []
        self._asked_at: Instant = 0
        self._done: list[tuple[Instant, Work]] = []
        """The steps that are not reported yet, with the times at which they were asked for."""

    def ask(self, pattern: str = "", call: str = "", cost: Amounts = NOTHING, *, last: bool = False) -> Decision:
        """May the run make this step? `cost` is its worst case."""
        self._asked_at = now = self._now()
        if self._left and now < self._until and not last and (not cost or self._affords(cost)):
            decision = self._weigh_own(Step(unit=self._unit, run=self._run, pattern=pattern, call=call), now)
            if decision.proceeds:
                self._left -= 1
                for meter, amount in cost.items():
                    self._room[meter] -= amount
                return decision
        self.report()
        return self._ask_governor(pattern, call, cost, last)

    def made(self, work: Work) -> Decision:
        """The step was made; `work.reserved` is the cost that was asked for. The answer says whether to go on."""
        self._done.append((self._asked_at, work))
        decision = self._weigh_own(Stepped(unit=self._unit, run=self._run, done=(work,)), self._asked_at)
        if decision.proceeds and self._allowed:
            return decision
        return self.report()

    def report(self) -> Decision:
        """Tell the governor what was done since it was last asked, and give back what was not used. To be called
        before the run exits, too."""
        if not self._allowed and not self._done:
            return PROCEED
        now = self._now()
        done = tuple(msgspec.structs.replace(work, ago=now - at) if at < now else work for at, work in self._done)
        stepped = Stepped(
            unit=self._unit,
            run=self._run,
            labels=self._labels,
            done=done,
            allowed=self._allowed,
            returned={meter: amount for meter, amount in self._room.items() if amount},
        )
        self._allowed = self._left = 0
        self._room, self._own, self._done = {}, [], []
        return self._governor.submit(stepped)

    def _ask_governor(self, pattern: str, call: str, cost: Amounts, last: bool) -> Decision:
        step = Step(
            unit=self._unit,
            run=self._run,
            labels=self._labels,
            pattern=pattern,
            call=call,
            cost=cost,
            steps=1 if last else self._steps_max,
            last=last,
        )
        decision = self._governor.submit(step)
        granted = decision.allowance
        if decision.proceeds and granted is not None:
            self._allowed, self._left = granted.steps, granted.steps - 1
            self._room = {meter: amount - cost[meter] for meter, amount in granted.money.items()}
            self._until = min(decision.until, later(self._now(), self._lasts_max))
            # Policies that grant an allowance have counted it already; the others are asked at each step.
            self._own = [
                _Own(policy, state)
                for policy, state, opinion in self._governor.opinions(step)
                if policy.by == "run" and opinion.allowance is None
            ]
        return decision

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


class _Own:
    """A policy of the run itself, with its state as it is after the steps that are not reported yet."""

    __slots__ = ("policy", "state")

    def __init__(self, policy: AnyPolicy, state: State) -> None:
        self.policy = policy
        self.state = state
