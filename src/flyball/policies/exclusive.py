"""Exclusive: one live run per unit, over all processes and hosts. A run lives as long as its lease is renewed.

Steps and beats renew it. A run whose lease ran out, or whose holder is gone, is reported as `lost` by the governor, and
counts as a failure like any other; until then its place is taken. If it wakes up after another run took its place, its
next step is refused. A run that lives already cannot be started once more under the same id.
"""

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from flyball.core.decision import PROCEED, Decision, Reason, proceed, stop, wait
from flyball.core.event import Beat, Event, Exited, Start, Step, Stepped
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import MINUTE, Instant, Span, later


class Live(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run that was granted and has not exited."""

    until: Instant
    holder: str = ""
    labels: dict[str, str] = {}
    """Kept, so that its loss can be reported to everybody whom the run concerned."""


class State(PolicyState, frozen=True):
    """Live runs by id, and what is wrong with the request at hand: its run lives already, or others live instead."""

    runs: dict[str, Live] = {}
    twice: bool = False
    stray: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusive:
    """One at a time."""

    runs_max: int = 1
    lease: Span = 10 * MINUTE
    NAME: ClassVar = "exclusive"
    name: str = NAME
    by: str = "unit"
    at: Gate = Gate.STEP

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Start)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Start():
                if event.run in state.runs:
                    return State(state.runs, twice=True)
                live = Live(later(now, self.lease), event.holder, dict(event.labels))
                return State({**state.runs, event.run: live})
            case Exited() if event.run in state.runs:
                return State({run: live for run, live in state.runs.items() if run != event.run})
            case Step() | Stepped() | Beat() if event.run in state.runs:
                live = state.runs[event.run]
                # A third of the lease is left unrenewed, so that steps in quick succession do not each write.
                if live.until - now > self.lease * 2 // 3:
                    return state
                renewed = Live(later(now, self.lease), live.holder, live.labels)
                return State({**state.runs, event.run: renewed})
            case Step() if state.runs:
                return State(state.runs, stray=True)
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        runs = len(state.runs)
        if not runs:
            return PROCEED
        ends = min([live.until for live in state.runs.values()])
        if state.stray:
            text = "its lease ran out, it was given up as lost, and another run took its place"
            return stop(
                Reason(self.name, "run_not_live", text, "Let it end: what it does now, the other run does too.")
            )
        if runs <= self.runs_max and not state.twice:
            return proceed(ends)
        others = runs if state.twice else runs - 1
        text = f"{others} live already, {self.runs_max} allowed at a time"
        return wait(max(ends, now + 1), Reason(self.name, "already_running", text, "Wait for it to end, or stop it."))
