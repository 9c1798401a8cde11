"""Clock: a supervisor that starts with a clock far from the journal's time pauses until a person confirms it.

Every wait and window here hangs on time. A clock set back would be answered with old instants; one set far ahead lets
every cooldown pass at once and looks just like a machine that was off for months: only a person can tell.
"""

from dataclasses import dataclass

from flyball.core.decision import PROCEED, Decision, Reason, hold
from flyball.core.event import Booted, Event, Released
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import DAY, MINUTE, Instant, Span, format_span


class State(PolicyState, frozen=True):
    """How far the clock was from the journal at a boot, if that is not confirmed yet."""

    skew: Span = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Five minutes back, or thirty days ahead."""

    back_max: Span = 5 * MINUTE
    ahead_max: Span = 30 * DAY
    name: str = "clock"
    by: str = "fleet"
    at: Gate = Gate.START

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Booted)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Booted(skew=skew) if not -self.back_max <= skew <= self.ahead_max:
                return State(skew)
            case Released() if event.frees(self.name, self.by) and not event.fingerprint:
                return State()
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if not state.skew:
            return PROCEED
        where = "behind" if state.skew < 0 else "ahead of"
        text = f"at boot the clock was {format_span(abs(state.skew))} {where} the journal's last entry"
        remedy = "Check the machine's clock. If it is right, `flyball resume` confirms it."
        return hold(Reason(self.name, "clock_jumped", text, remedy))
