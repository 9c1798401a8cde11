"""Limit: so many of something, and no more: steps of a run, resumes of a session, starts of a tree.

Counted when leave is given, before the act, and kept with the work: by unit the count survives resumes and restarts,
and starts anew only when the work is done (or, if so set, not even then). By tree it starts anew only by a person: that
one of many is done does not make the tree's work done. Refused requests are not counted; the text still says "(4/3)":
the fourth, of three.
"""

from dataclasses import dataclass
from typing import Final

from flyball.core.decision import PROCEED, Allowance, Decision, Reason, Verb, proceed, refuse
from flyball.core.event import Event, Exited, Released, Resume, Start, Step, Stepped
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import Instant


class State(PolicyState, frozen=True):
    """How many."""

    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """At most so many; one more is answered with the verb."""

    of: type[Step] | type[Resume] | type[Start] = Step
    most: int = 55
    verb: Verb = Verb.STOP
    code: str = "max_steps"
    text: str = "Step limit reached"
    remedy: str = "Look at why it does not end. If the work is really that long, raise the limit or split the work."
    over_done: bool = False
    """The count goes on when the work is done: whoever calls it again does not begin at zero."""
    forgives: bool = False
    """Of resumes: one that made progress before it ended again does not count."""
    name: str = "steps"
    by: str = "run"
    at: Gate = Gate.STEP

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Step | Stepped if self.of is Step else Start)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Step(part=True) | Stepped(part=True):
                return state
            case Step(steps=steps) if self.of is Step:
                return State(state.count + steps)
            case Stepped(allowed=allowed, done=done) if allowed and self.of is Step:
                made = sum(work.times for work in done if not work.refused)
                return State(max(0, state.count - (allowed - made)))
            case Start() if isinstance(event, self.of) or (self.of is Resume and event.again):
                return State(state.count + 1)
            case Exited(cause=cause) if self.by == "run" or (self.by == "unit" and cause.done and not self.over_done):
                return State()
            case Exited(progress=True) if self.forgives and state.count:
                return State(state.count - 1)
            case Released() if event.frees(self.name, self.by) and not event.fingerprint:
                return State()
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if state.count > self.most:
            text = f"{self.text} ({state.count}/{self.most})"
            return refuse(self.verb, Reason(self.name, self.code, text, self.remedy))
        if self.of is Step:
            return proceed(allowance=Allowance(self.most - state.count))
        return PROCEED


def resume_limit(most: int = 3, *, forgives: bool = False) -> Limit:
    """A session may be resumed so often; 0: never. To be started again by itself, after a crash, is a resume too."""
    return Limit(
        of=Resume,
        most=most,
        forgives=forgives,
        verb=Verb.HOLD,
        code="max_resume_attempts_exceeded",
        text="Maximum resume attempts exceeded",
        remedy="Split the work into smaller subtasks; or raise `sessionRecovery.maxResumeAttempts`; "
        "or investigate why it keeps pausing.",
        name="resumes",
        by="unit",
        at=Gate.START,
    )


RESUMES: Final = resume_limit().name
"""The policy that counts them."""

OUT_OF_RESUMES: Final = resume_limit().code
"""The code of what was resumed too often."""
