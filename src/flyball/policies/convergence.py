"""Convergence: a deliberation that agrees is done.

Two gauges that a graph reports with its steps: `convergence`, a score of how alike the contributions have become, and
`agreement`, the share of those who agree. Above the first threshold, or at the second, it goes on to its end.
"""

from dataclasses import dataclass

from flyball.core.decision import PROCEED, Decision, Reason, finish
from flyball.core.event import Event, Exited, Step, Stepped
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import Instant


class State(PolicyState, frozen=True):
    """The latest readings, and whether the step at hand is the one that wraps up."""

    convergence: float = 0.0
    agreement: float = 0.0
    last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence:
    """Above 0.85 alike, or 80 % agreed."""

    above: float = 0.85
    agreement_min: float = 0.80
    name: str = "convergence"
    by: str = "run"
    at: Gate = Gate.STEP

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Stepped)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Stepped(done=done):
                convergence, agreement = state.convergence, state.agreement
                for work in done:
                    if work.gauges:
                        convergence = work.gauges.get("convergence", convergence)
                        agreement = work.gauges.get("agreement", agreement)
                after = State(convergence, agreement)
                return state if after == state else after
            case Step(last=last) if (state.convergence or state.agreement) and last != state.last:
                return State(state.convergence, state.agreement, last)
            case Exited():
                return State()
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if state.last:
            return PROCEED
        if state.convergence > self.above:
            text = f"convergence {state.convergence:.2f} is above {self.above:.2f}"
        elif state.agreement >= self.agreement_min:
            text = f"{state.agreement:.0%} agree, {self.agreement_min:.0%} are enough"
        else:
            return PROCEED
        return finish(Reason(self.name, "consensus", text, "Nothing to do: this is how it should end."))
