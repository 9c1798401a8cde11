"""Loop: the same pattern of step again and again within a short time is a loop, and the run is stopped.

Counted per unit and pattern, over runs: a rule that fires itself makes a new run each time. A step is counted when it
is asked for. Steps granted together are not known by pattern until they are reported, so until then they count against
every pattern; the headroom that is granted keeps that from ever stopping an honest run.
"""

from dataclasses import dataclass
from typing import Final

from flyball.core import window
from flyball.core.decision import Allowance, Decision, Reason, proceed, stop
from flyball.core.event import Event, Exited, Released, Step, Stepped, Work
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import SECOND, Instant, Span, format_span
from flyball.core.window import Window

LOOP_DETECTED: Final = "loop_detected"
"""The code of what goes on too often."""
PATTERNS_MAX: Final = 64
"""Patterns remembered for one unit, the latest used. With more than this in turn, 100 of one take 6,400 steps."""


class State(PolicyState, frozen=True):
    """The steps of each pattern, those granted together and not reported yet, the pattern last asked for, and the
    count of the busiest pattern when that was last looked at (it can only have fallen since)."""

    patterns: dict[str, Window] = {}
    granted: Window = ()
    asked: str | None = None
    busiest: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A hundred times the same within a minute."""

    repeats_max: int = 100
    """The step that reaches this number is stopped."""
    window: Span = 60 * SECOND
    name: str = "loop"
    by: str = "unit"
    at: Gate = Gate.STEP

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Step | Stepped)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Step(steps=1):
                return self._asked(state, event.pattern, now)
            case Step(steps=steps):
                granted = window.add(state.granted, now, self.window, self.repeats_max, steps)
                return State(state.patterns, granted, event.pattern, state.busiest)
            case Stepped(allowed=allowed, done=done):
                return self._reported(state, done, allowed, now) if allowed else state
            case Exited():
                recent = {name: marks for name, marks in state.patterns.items() if marks[-1][0] + self.window >= now}
                return State(recent, state.granted if window.count(state.granted, now, self.window) else ())
            case Released() if event.frees(self.name, self.by) and not event.fingerprint:
                return State()
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        granted = window.count(state.granted, now, self.window)
        asked = state.patterns.get(state.asked or "", ())
        count = granted + window.count(asked, now, self.window)
        if state.asked is not None and count >= self.repeats_max:
            return stop(
                Reason(
                    self.name,
                    LOOP_DETECTED,
                    f"Loop detected: {state.asked or 'the same step'} {count} times within {format_span(self.window)}; "
                    f"the limit is {self.repeats_max}",
                    "Look at what makes it repeat. If it has to be that often, raise `safety.max_loop_iterations`.",
                )
            )
        return proceed(allowance=Allowance(max(0, self.repeats_max - 1 - granted - state.busiest)))

    def _asked(self, state: State, pattern: str, now: Instant) -> State:
        patterns = dict(state.patterns)
        self._mark(patterns, pattern, now)
        busiest = max(state.busiest, window.count(patterns[pattern], now, self.window))
        return State(patterns, state.granted, pattern, busiest)

    def _reported(self, state: State, done: tuple[Work, ...], allowed: int, now: Instant) -> State:
        patterns = dict(state.patterns)
        for work in done:
            if not work.refused:
                self._mark(patterns, work.pattern, now - work.ago, work.times)
        busiest = max((window.count(marks, now, self.window) for marks in patterns.values()), default=0)
        return State(patterns, window.take(state.granted, allowed), busiest=busiest)

    def _mark(self, patterns: dict[str, Window], pattern: str, at: Instant, times: int = 1) -> None:
        patterns[pattern] = window.add(patterns.get(pattern, ()), at, self.window, self.repeats_max, times)
        if len(patterns) > PATTERNS_MAX:
            del patterns[min(patterns, key=lambda name: (patterns[name][-1][0], name))]
