"""Rounds: a deliberation goes on for so many rounds, and never for more than fifteen, whatever was asked for.

The round is a gauge (`round`) that a graph reports with its steps. It never falls, and never goes above the limit: a
graph that breaks this is broken itself, and `check_rounds` raises.
"""

from dataclasses import dataclass
from typing import Final

from flyball.core.decision import PROCEED, Decision, Reason, finish
from flyball.core.event import Event, Exited, Stepped
from flyball.core.policy import Gate, Kinds
from flyball.core.policy import State as PolicyState
from flyball.core.time import Instant

ROUNDS_CAP: Final = 15
"""Fifteen rounds of three nodes and ten more steps are the 55 steps of the step limit. It cannot be switched off."""
ROUNDS_LEAST: Final = 5


class State(PolicyState, frozen=True):
    """The round that was finished last."""

    round: int = 0


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
    wakes_on: Kinds = (Stepped,)

    def __post_init__(self) -> None:
        if not ROUNDS_LEAST <= self.most <= ROUNDS_CAP:
            raise ValueError(f"max_rounds is {self.most}: it goes from {ROUNDS_LEAST} to {ROUNDS_CAP}")

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Stepped(done=done):
                reached = state.round
                for work in done:
                    if "round" in work.gauges:
                        after = int(work.gauges["round"])
                        check_rounds(reached, after, self.most)
                        reached = after
                return state if reached == state.round else State(reached)
            case Exited(cause=cause) if cause.done:
                return State()
            case Exited() if self.by == "run":
                return State()
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if state.round >= ROUNDS_CAP:
            text = f"round {state.round}: the cap of {ROUNDS_CAP} rounds is never lifted"
            remedy = "Better convergence, a moderator, or a smaller question: more rounds do not help."
            return finish(Reason(self.name, "hard_cap_15_rounds", text, remedy))
        if state.round >= self.most:
            text = f"round {state.round} of {self.most}"
            return finish(Reason(self.name, "max_rounds", text, f"Raise `max_rounds` (to {ROUNDS_CAP} at most)."))
        return PROCEED
