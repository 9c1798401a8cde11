"""Question: what a run asks a person and has no answer to yet. It refuses nothing: it is what people see.

A question is open until it is answered, or until the run that asked is over: an answer is for that run and no other.
"""

from dataclasses import dataclass
from typing import ClassVar

import msgspec

from flyball.core.decision import PROCEED, Decision
from flyball.core.event import Answered, Asked, Event, Exited
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import FOREVER, Instant


class Open(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question that waits for its answer."""

    text: str = ""
    run: str = ""
    choices: tuple[str, ...] = ()
    default: str | None = None
    at: Instant = 0
    until: Instant = FOREVER


class State(PolicyState, frozen=True):
    """Open questions by id, the oldest first."""

    open: dict[str, Open] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Keep what is asked."""

    questions_max: int = 8
    """Of one unit. Nobody answers more than a few at a time; of more, the oldest are given up."""
    NAME: ClassVar = "question"
    name: str = NAME
    by: str = "unit"
    at: Gate = Gate.STEP

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Asked)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Asked():
                asked = Open(event.text, event.run, event.choices, event.default, now, event.until)
                waiting = {id_: one for id_, one in state.open.items() if one.until > now and id_ != event.id}
                return State(dict([*waiting.items(), (event.id, asked)][-self.questions_max :]))
            case Answered() if event.id in state.open:
                return State({id_: one for id_, one in state.open.items() if id_ != event.id})
            case Exited() if any(one.run == event.run for one in state.open.values()):
                return State({id_: one for id_, one in state.open.items() if one.run != event.run})
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        return PROCEED
