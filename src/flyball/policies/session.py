"""Session: a piece of work that was begun and is not done can only be resumed; and, where it was paused, not before its
time.

So nobody gets round the limit on resumes by starting it anew, and nothing is resumed that has nothing to go on from.
What was paused for a person waits for one. A person may also resume earlier what waits for a time.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from flyball.core.decision import PROCEED, Decision, Reason, hold, stop, wait
from flyball.core.event import Event, Exited, Released, Resume, Start
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import MINUTE, Instant, Span, later

CALL: Final = "call"
"""The kind of work that is one call of a graph, without a thread: when it ended, nothing is left to resume."""

PERSON: Final = "person"
"""The pause that only a person ends."""


class State(PolicyState, frozen=True):
    """Whether the work was begun and is not done; why, since when and until when it is paused; and what is wrong with
    the request at hand."""

    begun: bool = False
    pause: str = ""
    paused_at: Instant = 0
    resume_at: Instant = 0
    let_go: bool = False
    """A person said that it may go on."""
    anew: bool = False
    nothing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What is not done is resumed, not begun anew."""

    pauses: Span = 1 * MINUTE
    """How long a pause lasts of which that was not said."""
    of: str = "session"
    """What kind of work it is, for people: a session, a graph, or one call of a graph."""
    NAME: ClassVar = "session"
    name: str = NAME
    by: str = "unit"
    at: Gate = Gate.START

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Start | Exited)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Resume() if not state.begun:
                return State(nothing=True)
            case Start() if state.begun and not event.again and not isinstance(event, Resume):
                return State(True, state.pause, state.paused_at, state.resume_at, state.let_go, anew=True)
            case Start():
                return state if self._waits(state, now) else State(True)
            case Exited() if self._waits(state, now) and state.pause == PERSON:
                return state
            case Exited(cause=cause) if cause.done:
                return State()
            case Exited(pause=pause) if pause:
                return State(True, pause, now, event.resume_at or later(now, self.pauses))
            case Exited():
                return State(True)
            case Released() if event.frees(self.name, self.by) and not event.fingerprint:
                if not event.policies:  # everything about the unit is to be forgotten, not only its pause ended
                    return State()
                return State(True, state.pause, state.paused_at, state.resume_at, True) if state.pause else state
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        waits = self._waits(state, now)
        if waits and state.pause == PERSON:
            return hold(Reason(self.name, "waits_for_person", "paused for a person", "To go on: `flyball resume`."))
        if state.anew:
            text = "it was begun and is not done: it can be resumed, not begun anew"
            remedy = "Resume it: `flyball resume`; or give the new work a name of its own."
            return stop(Reason(self.name, "not_done_yet", text, remedy))
        if state.nothing:
            text = "there is nothing to resume: it was not begun, or is done"
            return stop(Reason(self.name, "not_paused", text, "Start it instead."))
        if waits:
            remedy = "It is resumed by itself then; earlier: `flyball resume`."
            return wait(state.resume_at, Reason(self.name, "waits_to_resume", f"paused: {state.pause}", remedy))
        return PROCEED

    def _waits(self, state: State, now: Instant) -> bool:
        return bool(state.pause) and not state.let_go and (state.pause == PERSON or now < state.resume_at)
