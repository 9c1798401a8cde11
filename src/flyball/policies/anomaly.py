"""Anomaly: a unit that spends far more than it used to is told of, once. It never refuses anything: budgets do.

What is usual is learned from the unit's own past: a mean and a mean deviation of what it spent in a period, as TCP
learns how long an answer takes. Only periods in which something was spent are learned from, so that rest does not make
the next hour of work look wild. What is too much is told as soon as it is, not at the end of the period; it is learned
from only up to that mark, so that one wild hour does not become the new usual, while a lasting change does, in time.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from flyball.core.amounts import MONEY, amount_text
from flyball.core.decision import PROCEED, Decision, Reason, proceed
from flyball.core.event import Event, Released, Stepped
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import HOUR, Instant, Span, format_span

LEARNED_MAX: Final = 8
"""The newest period counts for an eighth: what lasts for a working day becomes usual."""

DEVIATIONS: Final = 4
"""So many mean deviations above the mean are not chance: of TCP's timers, one in some hundreds fires too early."""


class State(PolicyState, frozen=True):
    """What is usual in a period, and what was spent in the one at hand."""

    period: int = 0
    spent: int = 0
    mean: int = 0
    deviation: int = 0
    learned: int = 0
    """From how many periods; no more are counted than are needed."""
    alerted: bool = False
    """This episode was told of. It ends with a period that is not above the mark, or in which nothing is spent."""
    news: bool = False
    """It is told of with the event at hand, and with no later one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """Four times the usual in an hour."""

    factor: float = 4.0
    """So many times the mean are too much; and more than four mean deviations above it."""
    every: Span = HOUR
    periods_min: int = 6
    """Periods to learn from before it says anything."""
    least: int = 100_000
    """Less than this in a period is never too much: a tenth of a dollar."""
    meter: str = MONEY
    name: str = "anomaly"
    by: str = "unit"
    at: Gate = Gate.STEP

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Stepped)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        if state.news:
            state = msgspec.structs.replace(state, news=False)
        match event:
            case Stepped(done=done):
                used = sum(work.used.get(self.meter, 0) for work in done)
                return self._spent(state, used, now) if used else state
            case Released() if event.frees(self.name, self.by) and not event.fingerprint:
                return State()
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if not state.news:
            return PROCEED
        times = f"{state.spent / state.mean:.1f} times" if state.mean else "far above"
        text = (
            f"{amount_text(self.meter, state.spent)} spent within {format_span(self.every)}: "
            f"{times} its usual {amount_text(self.meter, state.mean)}"
        )
        remedy = "Look at what it does: `flyball why`. To stop it at an amount, set `budget.per_unit` and a period."
        return proceed(nudge=Reason(self.name, "spend_anomaly", text, remedy))

    def _spent(self, state: State, used: int, now: Instant) -> State:
        state = self._turned(state, now // self.every)
        spent = state.spent + used
        above = state.learned >= self.periods_min and spent > self._mark(state)
        return msgspec.structs.replace(
            state, spent=spent, alerted=state.alerted or above, news=above and not state.alerted
        )

    def _turned(self, state: State, period: int) -> State:
        """In a new period: the one before it is learned from."""
        if period == state.period:
            return state
        if not state.spent:
            return State(period=period)
        if not state.learned:
            return State(period, mean=state.spent, deviation=state.spent // 2, learned=1)
        mark = self._mark(state)
        knows = state.learned >= self.periods_min
        spent = min(state.spent, mark) if knows else state.spent
        weight = min(state.learned + 1, LEARNED_MAX)
        return State(
            period=period,
            mean=state.mean + (spent - state.mean) // weight,
            deviation=state.deviation + (abs(spent - state.mean) - state.deviation) // weight,
            learned=min(state.learned + 1, max(LEARNED_MAX, self.periods_min)),
            alerted=state.alerted and state.spent > mark and period == state.period + 1,
        )

    def _mark(self, state: State) -> int:
        """More than this is too much."""
        return max(self.least, round(state.mean * self.factor), state.mean + DEVIATIONS * state.deviation)
