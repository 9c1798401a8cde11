"""Rate: so many starts within so long; the next one waits until the window has slid.

A start is counted when it is granted, whatever becomes of the run. By unit it bounds one rule, by a label all that have
it: a storm of triggers becomes a steady drip, and what does not fit waits in its queue.
"""

from dataclasses import dataclass
from typing import Final

from flyball.core import window
from flyball.core.decision import PROCEED, Decision, Reason, wait
from flyball.core.event import Event, Released, Start
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import MINUTE, Instant, Span, format_span
from flyball.core.window import Window

RATE_LIMITED: Final = "rate_limited"
"""The code of what has to wait for the window."""


class State(PolicyState, frozen=True):
    """The starts within the window."""

    starts: Window = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A thousand a minute."""

    starts_max: int = 1_000
    window: Span = MINUTE
    name: str = "rate"
    by: str = "unit"
    at: Gate = Gate.START

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Start)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Start():
                return State(window.add(state.starts, now, self.window, self.starts_max + 1))
            case Released() if event.frees(self.name, self.by) and not event.fingerprint:
                return State()
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        count = window.count(state.starts, now, self.window)
        if count <= self.starts_max:
            return PROCEED
        until = window.below_at(state.starts, now, self.window, self.starts_max + 1)
        text = f"{count} starts within {format_span(self.window)}; the limit is {self.starts_max}"
        remedy = "It starts by itself when the window has slid; raise its rate if that is too slow."
        return wait(until, Reason(self.name, RATE_LIMITED, text, remedy))
