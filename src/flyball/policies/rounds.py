"""Rounds: a deliberation goes on for so many rounds, and never for more than fifteen, whatever was asked for.

The round is a gauge (`round`) that a graph reports with its steps. It never falls, and never goes above the limit: a
graph that breaks this is broken itself, and `check_rounds` raises.
"""

from dataclasses import dataclass
from typing import Final

from flyball.core.decision import PROCEED, Decision, Reason, finish
from flyball.core.event import Event, Exited, Step, Stepped
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import Instant

ROUNDS_CAP: Final = 15
"""Fifteen rounds of three nodes and ten more steps are the 55 steps of the step limit. It cannot be switched off."""
ROUNDS_LEAST: Final = 5


class State(PolicyState, frozen=True):
    """The round that this run finished last, the highest that the work ever reached (a resume may begin at an earlier
    one), and whether the step at hand is the one that wraps up."""

    round: int = 0
    reached: int = 0
    last: bool = False


def check_rounds(before: int, after: int, most: int) -> None:
    """The invariants of a round counter; ValueError names the broken one."""
    if most > ROUNDS_CAP:
        raise ValueError(f"max_rounds is {most}: never above {ROUNDS_CAP}")
    if after < before:
        raise ValueError(f"the round went back from {before} to {after}")
    if after > most:
        raise ValueError(f"round {after} is above max_rounds {most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Seven rounds, then finish with what there is."""

    most: int = 7
    name: str = "rounds"
    by: str = "run"
    at: Gate = Gate.STEP

    def __post_init__(self) -> None:
        if not ROUNDS_LEAST <= self.most <= ROUNDS_CAP:
            raise ValueError(f"max_rounds is {self.most}: it goes from {ROUNDS_LEAST} to {ROUNDS_CAP}")

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Stepped)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Stepped(done=done):
                number = state.round
                for work in done:
                    if "round" in work.gauges:
                        after = int(work.gauges["round"])
                        check_rounds(number, after, self.most)
                        number = after
                if number == state.round and not state.last:
                    return state
                return State(number, max(number, state.reached))
            case Step(last=last) if state.reached and last != state.last:
                return State(state.round, state.reached, last)
            case Exited(cause=cause):
                return State() if self.by == "run" or cause.done else State(0, state.reached)
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if state.last:
            return PROCEED
        if state.reached >= ROUNDS_CAP:
            text = f"round {state.reached}: the cap of {ROUNDS_CAP} rounds is never lifted"
            remedy = "Better convergence, a moderator, or a smaller question: more rounds do not help."
            return finish(Reason(self.name, "hard_cap_15_rounds", text, remedy))
        if state.reached >= self.most:
            text = f"round {state.reached} of {self.most}"
            return finish(Reason(self.name, "max_rounds", text, f"Raise `max_rounds` (to {ROUNDS_CAP} at most)."))
        return PROCEED
