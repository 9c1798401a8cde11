"""Deadline: a run may last so long; with `idle`, it may be silent so long. It needs no timer: proceed is a lease.

Whoever runs it has to ask again before the lease ends, and then the answer is STOP, with the time by which it has to be
gone. What that means for something that blocks is the runtime's business: a deadline that only cancels is none.
"""

from dataclasses import dataclass

from flyball.core.decision import PROCEED, Decision, Reason, proceed, stop
from flyball.core.event import Answered, Asked, Beat, Event, Exited, Start, Step, Stepped
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import FOREVER, HOUR, SECOND, Instant, Span, format_span, later


class State(PolicyState, frozen=True):
    """When the run started, or was last heard of."""

    since: Instant = FOREVER


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """Stop a run that lasts longer than an hour."""

    lasts_max: Span = HOUR
    idle: bool = False
    """Counted from the last sign of life instead of from the start. Who asks a person gives signs of life while it
    waits; the answer is one too, so that there is time to do something with it."""
    grace: Span = 10 * SECOND
    """How long it has, once told to stop, before it is killed."""
    name: str = "deadline"
    by: str = "run"
    at: Gate = Gate.STEP

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Start)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Start():
                return State(now)
            case Beat(silent=True):
                return state
            case Step() | Stepped() | Beat() | Asked() | Answered() if self.idle and self._lives(state, now):
                return State(now)
            case Exited():
                return State()
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if state.since == FOREVER:
            return PROCEED
        ends = later(state.since, self.lasts_max)
        if not self._over(state, now):
            return proceed(ends)
        if self.idle:
            text = f"no sign of life for {format_span(now - state.since)}; {format_span(self.lasts_max)} are allowed"
        else:
            text = f"runs for {format_span(now - state.since)}; {format_span(self.lasts_max)} are allowed"
        code = "idle_timeout" if self.idle else "timeout"
        remedy = "Look at where it hangs (`flyball why`). If it needs longer, raise its limit."
        return stop(Reason(self.name, code, text, remedy), by=later(ends, self.grace))

    def _lives(self, state: State, now: Instant) -> bool:
        return state.since != FOREVER and not self._over(state, now)

    def _over(self, state: State, now: Instant) -> bool:
        return later(state.since, self.lasts_max) <= now
