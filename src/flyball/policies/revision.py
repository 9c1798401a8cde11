"""Revision: a changed definition may be a fix, so it clears the unit's failures; by itself only a few times a day.

An agent that can edit its own settings must not be able to clear its own quarantine for ever. A change that a person
made is always granted. Where this refuses, no policy's state changes: the failures stay. So it also refuses what is no
change: the same definition, loaded again, must not clear anything.
"""

from dataclasses import dataclass

from flyball.core import window
from flyball.core.decision import PROCEED, Decision, Reason, proceed, wait
from flyball.core.event import Event, Revise
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import DAY, FOREVER, Instant, Span, format_span
from flyball.core.window import Window


class State(PolicyState, frozen=True):
    """The revision that is in force, and the changes that nobody made."""

    revision: str = ""
    changes: Window = ()
    same: bool = False
    """The request at hand names the revision that is in force."""
    replaces: bool = False
    """Another revision was in force before the one at hand: there was something to clear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """Three changes a day clear failures by themselves."""

    changes_max: int = 3
    window: Span = DAY
    name: str = "revision"
    by: str = "unit"
    at: Gate = Gate.CHANGE

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Revise)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Revise(revision=revision, by=by):
                if revision == state.revision:
                    return State(revision, state.changes, same=True)
                if by or not state.revision:
                    return State(revision, state.changes, replaces=bool(state.revision))
                changes = window.add(state.changes, now, self.window, self.changes_max + 1)
                return State(revision, changes, replaces=True)
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if state.same:
            text = "the definition is the one that is in force: there is nothing to clear for"
            return wait(
                FOREVER, Reason(self.name, "not_revised", text, "To clear failures all the same: `flyball reset`.")
            )
        count = window.count(state.changes, now, self.window)
        if count <= self.changes_max:
            return _CLEARED if state.replaces else PROCEED
        until = window.below_at(state.changes, now, self.window, self.changes_max + 1)
        text = f"{count} changes within {format_span(self.window)} that nobody made; {self.changes_max} clear failures"
        remedy = "If the change is a fix, say so: `flyball reset` lifts what stands."
        return wait(until, Reason(self.name, "revised_too_often", text, remedy))


_CLEARED = proceed(
    nudge=Reason(
        "revision", "cleared_by_change", "failures cleared by change", "If it was no fix, they are counted anew."
    )
)
