"""Budget: spent + reserved + worst case <= limit, at every instant. Checked before the spend, never after.

A step reserves its worst case and settles what it really used. Amounts are whole numbers (millionths of a unit of
money, or tokens). A reservation whose holder died stays reserved, so it counts as spent until somebody reports what it
really cost. Some of the limit can be kept back for the last step, so that there is always money to wrap up with.
"""

from dataclasses import dataclass

from flyball.core.decision import Allowance, Decision, Reason, Verb, proceed, refuse
from flyball.core.event import Event, Exited, Released, Start, Step, Stepped
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import FOREVER, Instant, Span


class State(PolicyState, frozen=True):
    """What was spent (in this period), what is reserved, and what the request at hand asks for."""

    spent: int = 0
    reserved: int = 0
    period: int = 0
    asked: int = 0
    last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One dollar."""

    limit: int = 1_000_000
    kept_back: int = 0
    """Only the last step may use this part."""
    meter: str = "usd"
    every: Span = 0
    """The limit is for each such period, counted from the epoch (a day: from midnight UTC); 0: for ever."""
    over: Verb = Verb.FINISH
    """FINISH; or, where there is a next period, WAIT for it."""
    name: str = "budget"
    by: str = "run"
    at: Gate = Gate.STEP

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Start | Step | Stepped)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Step(cost=cost, steps=steps):
                state = self._turned(state, now)
                asked = cost.get(self.meter, 0) * steps
                return State(state.spent, state.reserved + asked, state.period, asked, event.last)
            case Stepped():
                state = self._turned(state, now)
                freed = event.returned.get(self.meter, 0)
                used = 0
                for work in event.done:
                    freed += work.reserved.get(self.meter, 0)
                    used += work.used.get(self.meter, 0)
                return State(state.spent + used, max(0, state.reserved - freed), state.period)
            case Released() if event.frees(self.name, self.by) and not event.fingerprint:
                return State(0, state.reserved, state.period)
            case Exited() if self.by == "run":
                return State()
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        state = self._turned(state, now)
        used = state.spent + state.reserved
        most = self.limit if state.last else self.limit - self.kept_back
        if used <= most and (state.asked or state.last or used < self.limit):
            return proceed(allowance=Allowance(_NO_BOUND, {self.meter: max(0, most - used)}))
        text = (
            f"{self._amount(state.spent)} spent and {self._amount(state.reserved)} reserved "
            f"of {self._amount(self.limit)} per {self.by}"
        )
        if self.kept_back:
            text += f", {self._amount(self.kept_back)} of it kept back for the last step"
        remedy = "Raise the budget, or settle reservations of runs that died."
        until = (now // self.every + 1) * self.every if self.every and self.over is Verb.WAIT else FOREVER
        return refuse(self.over, Reason(self.name, "cost_budget_exceeded", text, remedy), until)

    def _turned(self, state: State, now: Instant) -> State:
        """A new period starts with nothing spent; what is reserved stays reserved."""
        if not self.every or now // self.every == state.period:
            return state
        return State(0, state.reserved, now // self.every, state.asked, state.last)

    def _amount(self, amount: int) -> str:
        return f"{amount / 1_000_000:.2f} {self.meter.upper()}" if self.meter == "usd" else f"{amount} {self.meter}"


_NO_BOUND = 2**31
