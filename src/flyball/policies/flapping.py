"""Flapping: a unit that keeps exiting soon after each start is slowed down, then held.

The window counts lived time: the delays that flyball itself imposed do not age the history, or a child that always
crashes would be restarted for ever. A clean exit ends the row of flaps, but never a hold.
"""

from dataclasses import dataclass

from flyball.core.decision import PROCEED, Decision, Reason, hold, wait
from flyball.core.event import Cause, Event, Exited, Released, Revise, Start, is_failure
from flyball.core.lived import UNBORN, Lived
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import FOREVER, SECOND, Instant, Span, format_span, later


class State(PolicyState, frozen=True):
    """The last exits in lived time, failing or not, and how many flaps there were in a row."""

    exits: tuple[tuple[Span, bool], ...] = ()
    flaps: int = 0
    lived: Lived = UNBORN
    until: Instant = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flapping:
    """Three failing exits in a minute are a flap; the fifth flap in a row holds the unit."""

    window: Span = 60 * SECOND
    exits_max: int = 3
    flaps_max: int = 5
    delay: Span = 2 * SECOND
    flap_delay: Span = 30 * SECOND
    kept_max: int = 10
    clean_counts: bool = False
    """Where a unit is restarted after clean exits too, one that follows its start within a window counts as failing."""
    name: str = "flapping"
    by: str = "unit"
    at: Gate = Gate.START

    def wakes(self, event: Event) -> bool:
        return is_failure(event) or (self.clean_counts and isinstance(event, Start | Exited))

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Released() if event.frees(self.name, self.by) and not event.fingerprint:
                return State()
            case Revise():
                return State()
            case _ if state.flaps >= self.flaps_max:
                return state
            case Start() if state.exits or self.clean_counts:
                return State(state.exits, state.flaps, state.lived.started(now), state.until)
            case Exited(cause=cause) if cause.failed or (self.clean_counts and self._too_short(state, cause, now)):
                return self._failed(state, now)
            case Exited(cause=cause) if cause.done and state.exits:
                return self._clean(state, now)
            case Exited() if state.exits:
                return State(state.exits, state.flaps, state.lived.exited(now, now), state.until)
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if state.flaps >= self.flaps_max:
            return hold(
                Reason(
                    self.name,
                    "halted",
                    f"{state.flaps} flaps in a row: each time {self.exits_max} or more failing exits "
                    f"within {format_span(self.window)} of running",
                    "Look at its log, then `flyball resume`; or change the unit's definition.",
                )
            )
        if state.until <= now:
            return PROCEED
        if state.flaps:
            text = f"flap {state.flaps} of {self.flaps_max}: waits {format_span(self.flap_delay)}"
            return wait(state.until, Reason(self.name, "flapping", text, "It starts again by itself; look at its log."))
        text = f"a failing exit: waits {format_span(self.delay)}"
        return wait(state.until, Reason(self.name, "restarting", text, "It starts again by itself."))

    def failing_within_window(self, state: State, lived: Span) -> int:
        """How many failing exits lie within the window that ends at that lived time, its boundary included."""
        return sum(failing and at + self.window >= lived for at, failing in state.exits)

    def _too_short(self, state: State, cause: Cause, now: Instant) -> bool:
        return cause.done and state.lived.since != FOREVER and now - state.lived.since < self.window

    def _failed(self, state: State, now: Instant) -> State:
        lived = state.lived.at(now)
        exits = (*state.exits, (lived, True))[-self.kept_max :]
        flap = self.failing_within_window(State(exits), lived) >= self.exits_max
        until = later(now, self.flap_delay if flap else self.delay)
        return State(exits, state.flaps + 1 if flap else 0, state.lived.exited(now, until), until)

    def _clean(self, state: State, now: Instant) -> State:
        exits = (*state.exits, (state.lived.at(now), False))[-self.kept_max :]
        if not any(failing for _, failing in exits):
            return State()
        return State(exits, 0, state.lived.exited(now, now))
