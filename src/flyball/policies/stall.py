"""Stall: an agent that goes round in circles is told, then refused the repeated call, then stopped.

A score is folded over the finished steps: repeating a call that gave the same result before raises it, new ground
lowers it. With it go a finder of circles of any period, which names the step where the circle began, and a count of the
same error across different calls. Refusing alone does not stop an agent: a refused call is reported back as a step like
any other, so an agent that insists is stopped.

The numbers come from recorded agent runs: a step that repeats a known pair of call and result is followed by any later
gain in one of two hundred cases, a new call with a new result in one of six.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from flyball.core.decision import PROCEED, Decision, Reason, proceed, stop, wait
from flyball.core.event import Event, Exited, Step, Stepped, Work
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.seen import NOTHING_SEEN, Seen
from flyball.core.time import FOREVER, MINUTE, Instant, Span, format_span

REPEATED_PAIR: Final = 2
KNOWN_ERROR: Final = 1
REFUSED: Final = 1
NEW_GROUND: Final = -2


class State(PolicyState, frozen=True):
    """The score and what it is made from."""

    score: int = 0
    step: int = 0
    """Finished steps so far."""
    seen: Seen = NOTHING_SEEN
    period: int = 0
    """The distance at which steps repeat now, and how many in a row did so; with results, or of calls alone."""
    matched: int = 0
    bare: bool = False
    error: str = ""
    """The error result that came last, and how often in a row it came from different calls."""
    errors: int = 0
    polling_since: Instant = FOREVER
    asked: str = ""
    """The call that is asked for, if it was made before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Nudge at 4, refuse the repeated call at 5, stop at 6."""

    nudge_at: int = 4
    refuse_at: int = 5
    stop_at: int = 6
    repeats_max: int = 3
    """Circles of the same calls and results; where steps carry no results, bare_repeats_max."""
    bare_repeats_max: int = 5
    same_error_nudge: int = 4
    same_error_max: int = 8
    polling_max: Span = 30 * MINUTE
    """How long a call that is declared as polling may go on without anything new."""
    name: str = "stall"
    by: str = "run"
    at: Gate = Gate.STEP

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Stepped)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Stepped():
                if event.heard:
                    state = State(step=state.step, seen=state.seen)
                for work in event.done:
                    if work.call or work.result or work.world or work.error or work.refused:
                        state = self._after(state, work, now - work.ago)
                return state
            case Step():
                return self._asked(state, event.call)
            case Exited():
                return State()
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if now - state.polling_since > self.polling_max:
            text = f"polled for {format_span(now - state.polling_since)} without anything new"
            return stop(Reason(self.name, "polled_too_long", text, self._remedy))
        if state.score < self.nudge_at and not state.matched and state.errors < self.same_error_nudge:
            return PROCEED
        if state.score >= self.stop_at or self._circles(state) or state.errors >= self.same_error_max:
            return stop(Reason(self.name, "going_in_circles", self._text(state), self._remedy))
        if state.score >= self.refuse_at and state.asked:
            text = f"this call was made before and nothing came of it (score {state.score})"
            return wait(FOREVER, Reason(self.name, "repeated_call", text, "Make another call, or give up and say why."))
        if state.score >= self.nudge_at or state.errors >= self.same_error_nudge:
            text = f"You are repeating yourself: {self._text(state)}. Try something that you have not tried yet."
            return proceed(nudge=Reason(self.name, "repeating", text, "Try another way, or ask a person."))
        return PROCEED

    _remedy = "Look at where the circle began (`flyball why`), tell the agent something new, and start it again."

    def _asked(self, state: State, call: str) -> State:
        """Note the call that is asked for, where it could be refused: at that score, and made before."""
        if state.score < self.refuse_at and not state.asked:
            return state
        known = call if call and state.seen.get("c" + call) is not None else ""
        return state if known == state.asked else msgspec.structs.replace(state, asked=known)

    def _after(self, state: State, work: Work, at: Instant) -> State:
        step = state.step + 1
        if work.polling:
            return self._polled(state, work, at, step)
        seen, call, result = state.seen, work.call, work.result
        bare = not result
        pair = "p" + call + result
        known_call = seen.get("c" + call) is not None
        last = seen.get(pair) if known_call and call else None
        things = {pair: step, "c" + call: step}
        new_world = False
        if work.world:
            new_world = seen.get("w" + work.world) is None
            things["w" + work.world] = step
        error, errors, known_error = "", 0, False
        if work.error:
            known_error = seen.get("e" + result) is not None
            things["e" + result] = step
            error, errors = result, state.errors + 1 if result and result == state.error else 1
        if new_world:
            change = NEW_GROUND
        elif work.refused:
            change = REFUSED
        elif last is not None:
            change = 0 if bare else REPEATED_PAIR
        elif known_call:
            change = 0
        else:
            change = KNOWN_ERROR if known_error else NEW_GROUND
        score = max(0, state.score + change)
        seen = seen.with_(things)
        if last is None or new_world:
            return State(score, step, seen, 0, 0, bare, error, errors)
        period = step - last
        matched = state.matched + 1 if period == state.period and bare == state.bare else 1
        return State(score, step, seen, period, matched, bare, error, errors)

    def _polled(self, state: State, work: Work, at: Instant, step: int) -> State:
        """A call that is made to be repeated: only the time without anything new counts."""
        pair = "p" + work.call + work.result
        known = state.seen.get(pair) is not None
        since = min(state.polling_since, at) if known else at
        return State(state.score, step, state.seen.with_({pair: step}), polling_since=since)

    def _circles(self, state: State) -> bool:
        repeats = self.bare_repeats_max if state.bare else self.repeats_max
        return state.period > 0 and state.matched >= repeats * state.period

    def _text(self, state: State) -> str:
        if state.errors >= self.same_error_nudge and state.score < self.nudge_at:
            return f"the same error {state.errors} times in a row"
        if state.period:
            began = state.step - state.matched - state.period + 1
            steps = "one step" if state.period == 1 else f"{state.period} steps"
            return f"a circle of {steps} since step {began} (score {state.score})"
        return f"calls repeated that gave the same results before (score {state.score}, step {state.step})"
