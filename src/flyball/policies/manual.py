"""Manual: what a person ordered stands until a person takes it back.

By unit, by a label, or for the fleet: pause (HOLD), stop (STOP) or finish (FINISH). A stricter order replaces a laxer
one; a laxer one does not soften what stands.
"""

from dataclasses import dataclass

from flyball.core.decision import PROCEED, Decision, Reason, Verb, refuse
from flyball.core.event import Event, Held, Released, Step
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import Instant


class State(PolicyState, frozen=True):
    """The order that stands, and whether the step at hand is the one that wraps up."""

    verb: Verb = Verb.PROCEED
    ordered_by: str = ""
    note: str = ""
    last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Manual:
    """Obey people."""

    name: str = "manual"
    by: str = "unit"
    at: Gate = Gate.STEP

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Held)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Held(scope=scope) if scope == self.by and event.verb >= state.verb:
                return State(event.verb, event.by, event.note)
            case Step(last=last) if state.verb and last != state.last:
                return State(state.verb, state.ordered_by, state.note, last)
            case Released() if event.frees(self.name, self.by) and not event.fingerprint:
                return State()
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if state.verb is Verb.PROCEED or (state.verb is Verb.FINISH and state.last):
            return PROCEED
        code = {Verb.HOLD: "paused", Verb.STOP: "stopped", Verb.FINISH: "finishing"}.get(state.verb, "held")
        text = f"{code} by {state.ordered_by or 'a person'}" + (f": {state.note}" if state.note else "")
        return refuse(state.verb, Reason(self.name, code, text, "To go on: `flyball resume`."))
