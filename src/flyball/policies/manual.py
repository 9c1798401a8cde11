"""Manual: what a person ordered stands until a person takes it back.

By unit, by a label, or for the fleet: pause (HOLD), stop (STOP) or finish (FINISH). A stricter order replaces a laxer
one; a laxer one does not soften what stands.
"""

from dataclasses import dataclass

from flyball.core.decision import PROCEED, Decision, Reason, Verb
from flyball.core.event import Event, Held, Released
from flyball.core.policy import Gate, Kinds
from flyball.core.policy import State as PolicyState
from flyball.core.time import Instant


class State(PolicyState, frozen=True):
    """The order that stands."""

    verb: Verb = Verb.PROCEED
    ordered_by: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manual:
    """Obey people."""

    name: str = "manual"
    by: str = "unit"
    at: Gate = Gate.STEP
    wakes_on: Kinds = (Held,)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Held(scope=scope) if scope == self.by and event.verb >= state.verb:
                return State(event.verb, event.by, event.note)
            case Released() if event.frees(self.name, self.by) and not event.fingerprint:
                return State()
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if state.verb is Verb.PROCEED:
            return PROCEED
        code = {Verb.HOLD: "paused", Verb.STOP: "stopped", Verb.FINISH: "finishing"}.get(state.verb, "held")
        text = f"{code} by {state.ordered_by or 'a person'}" + (f": {state.note}" if state.note else "")
        return Decision(state.verb, reasons=(Reason(self.name, code, text, "To go on: `flyball resume`."),))
