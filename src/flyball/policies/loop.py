"""Loop: the same pattern of step again and again within a short time is a loop, and the run is stopped.

Counted per unit and pattern, over runs: a rule that fires itself makes a new run each time. A step is counted when it
is asked for. Steps granted together are not known by pattern until they are reported, so until then they count against
every pattern; the headroom that is granted keeps that from ever stopping an honest run.
"""

from dataclasses import dataclass
from typing import Final

from flyball.core import window
from flyball.core.decision import Allowance, Decision, Reason, proceed, stop
from flyball.core.event import Event, Released, Step, Stepped, Work
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import SECOND, Instant, Span, format_span
from flyball.core.window import Window

PATTERNS_MAX: Final = 64
"""Patterns remembered for one unit, the latest used. With more than this in turn, 100 of one take 6,400 steps."""


class State(PolicyState, frozen=True):
    """The steps of each pattern, those granted together and not reported yet, and the pattern last asked for."""

    patterns: dict[str, Window] = {}
    granted: Window = ()
    asked: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A hundred times the same within a minute."""

    repeats_max: int = 100
    """The step that reaches this number is stopped."""
    window: Span = 60 * SECOND
    name: str = "loop"
    by: str = "unit"
    at: Gate = Gate.STEP

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Step(steps=1):
                return State(self._with(state.patterns, event.pattern, now), state.granted, event.pattern)
            case Step(steps=steps):
                granted = window.add(state.granted, now, self.window, self.repeats_max, steps)
                return State(state.patterns, granted, event.pattern)
            case Stepped(allowed=allowed, done=done) if allowed:
                return self._reported(state, done, now)
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
                    "loop_detected",
                    f"Loop detected: {state.asked or 'the same step'} {count} times within {format_span(self.window)}; "
                    f"the limit is {self.repeats_max}",
                    "Look at what makes it repeat. If it has to be that often, raise `safety.max_loop_iterations`.",
                )
            )
        busiest = max((window.count(marks, now, self.window) for marks in state.patterns.values()), default=0)
        return proceed(allowance=Allowance(max(0, self.repeats_max - 1 - granted - busiest)))

    def _with(self, patterns: dict[str, Window], pattern: str, at: Instant) -> dict[str, Window]:
        marks = window.add(patterns.get(pattern, ()), at, self.window, self.repeats_max)
        after = {**patterns, pattern: marks}
        if len(after) > PATTERNS_MAX:
            del after[min(after, key=lambda name: (after[name][-1][0], name))]
        return after

    def _reported(self, state: State, done: tuple[Work, ...], now: Instant) -> State:
        patterns = state.patterns
        for work in done:
            patterns = self._with(patterns, work.pattern, now - work.ago)
        return State(patterns, (), None)
