"""Budget: spent + reserved + worst case <= limit, at every instant. Checked before the spend, never after.

A step reserves its worst case and settles what it really used. Amounts are whole numbers (millionths of a unit of
money, or tokens). A reservation whose holder died stays reserved, so it counts as spent until somebody reports what it
really cost. Some of the limit can be kept back for the last step, so that there is always money to wrap up with.

A person may raise the limit: for the period at hand, or, where there are none, for good. Settings stay as they are.
"""

from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from flyball.core.amounts import MONEY, amount_text
from flyball.core.decision import Allowance, Decision, Reason, Verb, proceed, refuse
from flyball.core.event import Event, Exited, Raised, Released, Settled, Start, Step, Stepped
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import FOREVER, Instant, Span, format_span

OVER_BUDGET: Final = "cost_budget_exceeded"
"""The code of what would cost more than there is."""

RAISED_MAX: Final = 1_000_000_000_000_000
"""How far a limit can be raised in all: a billion dollars. More is a slip of the keyboard, and the sum of both stays
where every JSON reader keeps it exactly."""


class State(PolicyState, frozen=True):
    """What was spent (in this period), what is reserved, and what the request at hand asks for."""

    spent: int = 0
    reserved: int = 0
    period: int = 0
    asked: int = 0
    last: bool = False
    meter: str = MONEY
    """Of what. Kept, so that whoever finds the state without its policy can settle it."""
    raised: int = 0
    """By how much a person raised the limit (for this period)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One dollar."""

    limit: int = 1_000_000
    kept_back: int = 0
    """Only the last step may use this part."""
    meter: str = MONEY
    every: Span = 0
    """The limit is for each such period, counted from the epoch (a day: from midnight UTC); 0: for ever."""
    over: Verb = Verb.FINISH
    """FINISH; or, where there is a next period, WAIT for it."""
    name: str = "budget"
    by: str = "run"
    at: Gate = Gate.STEP

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Start | Step | Stepped | Settled | Raised)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Step(cost=cost, steps=steps):
                state = self.current(state, now)
                asked = cost.get(self.meter, 0) * steps
                return self._state(state, state.spent, state.reserved + asked, asked, event.last)
            case Stepped():
                state = self.current(state, now)
                freed = event.returned.get(self.meter, 0)
                used = 0
                for work in event.done:
                    freed += work.reserved.get(self.meter, 0)
                    used += work.used.get(self.meter, 0)
                return self._state(state, state.spent + used, max(0, state.reserved - freed))
            case Settled() if self.by != "run":
                state = self.current(state, now)
                used, freed = event.used.get(self.meter, 0), event.reserved.get(self.meter, 0)
                return self._state(state, state.spent + used, max(0, state.reserved - freed))
            case Raised() if event.raises(self.by) and event.more.get(self.meter, 0):
                state = self.current(state, now)
                raised = min(RAISED_MAX, state.raised + event.more[self.meter])
                return self._state(replace(state, raised=raised), state.spent, state.reserved)
            case Released() if event.frees(self.name, self.by) and not event.fingerprint:
                return self._state(replace(state, raised=self._kept(state)), 0, state.reserved)
            case Exited() | Settled() if self.by == "run":
                return State()
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        state = self.current(state, now)
        used = state.spent + state.reserved
        limit = self.limit + state.raised
        most = limit if state.last else limit - self.kept_back
        # Who asks for nothing now is refused for what is spent, not for what others hold: that may come back. To wrap
        # up for nothing is never refused: it spends nothing, and what there is would be lost.
        free = state.last and not state.asked
        if free or (used <= most and (state.asked or state.spent < limit)):
            return proceed(allowance=Allowance(_NO_BOUND, {self.meter: max(0, most - used)}))
        text = (
            f"{amount_text(self.meter, state.spent)} spent and {amount_text(self.meter, state.reserved)} reserved "
            f"of {amount_text(self.meter, limit)} per {self.by}"
        )
        if self.every:
            text += f" every {format_span(self.every)}"
        if state.raised:
            text += f", {amount_text(self.meter, state.raised)} of it raised by a person"
        if self.kept_back:
            text += f", {amount_text(self.meter, self.kept_back)} of it kept back for the last step"
        remedy = "Raise the budget, or settle what runs that died still hold: `flyball settle`."
        until = (now // self.every + 1) * self.every if self.every and self.over is Verb.WAIT else FOREVER
        return refuse(self.over, Reason(self.name, OVER_BUDGET, text, remedy), until)

    def current(self, state: State, now: Instant) -> State:
        """The state as it is at that instant: a new period starts with nothing spent and the limit of the settings;
        what is reserved stays so."""
        if not self.every or now // self.every == state.period:
            return state
        return State(
            0, state.reserved, now // self.every, state.asked, state.last, state.meter, raised=self._kept(state)
        )

    def _kept(self, state: State) -> int:
        """What stays of a raised limit when all else begins anew: only what was reserved under it."""
        return min(state.raised, max(0, state.reserved - self.limit))

    def _state(self, before: State, spent: int, reserved: int, asked: int = 0, last: bool = False) -> State:
        meter = self.meter if spent or reserved or before.raised else MONEY
        return State(spent, reserved, before.period, asked, last, meter, before.raised)


_NO_BOUND = 2**31
