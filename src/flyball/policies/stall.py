"""Stall: an agent that goes round in circles is told, then refused the repeated call, then stopped.

A score is folded over the finished steps: repeating a call that gave the same result before raises it, new ground
lowers it. With it go a finder of circles of any period, and a count of errors that were seen before; each names the
step where it began. Refusing alone does not stop an agent: a refused call is reported back as a step like any other, so
an agent that insists is stopped. A call that was not made before never stops it by the score: it may be the way out.

What an agent says is a step too: a call (`text_fingerprint`) without a result. It is no ground, so an agent that
explains each repetition in other words is stopped all the same; and one that only chants is in a circle.

The numbers come from recorded agent runs (`bench/stall.py`): a new call with a result that is no error is followed by
any later gain in one of twelve cases, a repeated pair of call and result in one of two hundred.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from flyball.core.decision import PROCEED, Decision, Reason, proceed, stop, wait
from flyball.core.event import Answered, Event, Exited, Step, Stepped, Work
from flyball.core.failure import FINGERPRINT_LENGTH, digest
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.seen import NOTHING_SEEN, Seen
from flyball.core.time import FOREVER, MINUTE, Instant, Span, format_span

REPEATED_PAIR: Final = 2
KNOWN_ERROR: Final = 1
REFUSED: Final = 1
NEW_GROUND: Final = -2

FAILED: Final = -1
"""In place of the step at which a call was last made: it failed then."""
OVERCOME: Final = 0
"""In place of the step at which an error was last seen: the call that it came from works since."""

NAMED_MAX: Final = 4
"""Steps of a circle that are named in a text: enough to know it again."""
PATTERN_MAX: Final = 40
"""Characters of a step's name in a text."""


class State(PolicyState, frozen=True):
    """The score and what it is made from."""

    score: int = 0
    since: int = 0
    """The step with which the score began to rise."""
    step: int = 0
    """Finished steps so far."""
    ground: int = 0
    """The last step that broke new ground."""
    seen: Seen = NOTHING_SEEN
    period: int = 0
    """The distance at which steps repeat now, how many in a row did so, and whether there was one without a result."""
    matched: int = 0
    bare: bool = False
    circle: tuple[str, ...] = ()
    """The names of the last of those steps."""
    error: str = ""
    """The result of the last step, if it was an error; and how many errors came in a row, each seen before but the
    first."""
    errors: int = 0
    pattern: str = ""
    """The name of the last step that was not new ground."""
    back: bool = False
    """The last step went back to a failed call."""
    polling_since: Instant = FOREVER
    asked: str = ""
    """The call that is asked for, if it was made before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Nudge at 4, refuse the repeated call at 5, stop at 6."""

    nudge_at: int = 4
    refuse_at: int = 5
    stop_at: int = 6
    returned: int = 3
    """What going back to a failed call adds, after nothing but failures in between. To repeat it at once adds 2: a
    retry has more hope than a return."""
    repeats_max: int = 3
    """Circles of the same calls and results; where steps carry no results, bare_repeats_max."""
    bare_repeats_max: int = 5
    same_error_nudge: int = 4
    same_error_max: int = 8
    """Errors in a row that were seen before, by whatever calls."""
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
                    state = State(step=state.step, ground=state.ground, seen=state.seen)
                for work in event.done:
                    if work.call or work.result or work.world or work.error or work.refused:
                        state = self._after(state, work, now - work.ago)
                return state
            case Step():
                return self._asked(state, event.call)
            case Answered(heard=True):
                return State(step=state.step, seen=state.seen)
            case Exited():
                return State()
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if now - state.polling_since > self.polling_max:
            text = f"polled for {format_span(now - state.polling_since)} without anything new"
            return stop(Reason(self.name, "polled_too_long", text, self._remedy))
        nudged = state.score >= self.nudge_at or state.back or state.errors >= self.same_error_nudge
        if not nudged and not state.matched:
            return PROCEED
        if state.score >= self.stop_at or self._circles(state) or state.errors >= self.same_error_max:
            return stop(Reason(self.name, "going_in_circles", self._text(state), self._remedy))
        if state.score >= self.refuse_at and state.asked:
            text = f"this call was made before and nothing came of it: {self._text(state)}"
            return wait(FOREVER, Reason(self.name, "repeated_call", text, "Make another call, or give up and say why."))
        if nudged:
            text = f"You are repeating yourself: {self._text(state)}. Try something that you have not tried yet."
            return proceed(nudge=Reason(self.name, "repeating", text, "Try another way, or ask a person."))
        return PROCEED

    _remedy = "Look at where the circle began (`flyball why`), tell the agent something new, and start it again."

    def _asked(self, state: State, call: str) -> State:
        """Note the call that is asked for, where it could be refused: at that score, and made before."""
        if state.score < self.refuse_at and not state.asked:
            return state
        call = _short(call)
        known = call if call and state.seen.get("c" + call) is not None else ""
        return state if known == state.asked else msgspec.structs.replace(state, asked=known)

    def _after(self, state: State, work: Work, at: Instant) -> State:
        step = state.step + 1
        if work.refused:
            return self._insisted(state, work)
        if work.polling:
            return self._polled(state, work, at, step)
        seen, call, result = state.seen, _short(work.call), _short(work.result)
        bare = not result
        pair = "p" + call + result
        called = seen.get("c" + call)
        last = seen.get(pair) if called is not None and call else None
        things = {pair: step, "c" + call: FAILED if work.error else step}
        new_world = False
        if work.world:
            world = "w" + _short(work.world)
            new_world = seen.get(world) is None
            things[world] = step
        error, errors, known_error = "", 0, False
        if work.error:
            known_error = not bare and bool(seen.get("e" + result))
            things["e" + result] = step
            error, errors = result, state.errors + 1 if known_error else 1
        # The score stops nobody who was not told before, unless nobody is to be told.
        told = state.score >= self.nudge_at or state.back or self.nudge_at == self.stop_at
        ground, back, most = state.ground, False, FOREVER if told else self.stop_at - 1
        if new_world:
            change, ground = NEW_GROUND, step
        elif last is not None:
            back = not bare and work.error and step - last > 1 and ground < last
            change = 0 if bare else self.returned if back else REPEATED_PAIR
        elif called == FAILED and not work.error and not bare:
            # What failed works now: the way out. The error that was overcome is as good as new.
            change, ground = -state.score, step
            if state.error:
                things["e" + state.error] = OVERCOME
        elif called is not None or (bare and not work.error):
            change = 0
        elif known_error:
            change, most = KNOWN_ERROR, self.stop_at - 1
        else:
            change = NEW_GROUND
            ground = state.ground if work.error else step
        # What is above `most` already stays there: it may not rise, that is all.
        score = max(0, min(state.score + change, max(most, state.score)))
        since = 0 if not score else state.since or last or step
        pattern = state.pattern if ground == step else work.pattern[:PATTERN_MAX]
        seen = seen.with_(things)
        if last is None or new_world:
            return State(score, since, step, ground, seen, error=error, errors=errors, pattern=pattern, back=back)
        period, matched = step - last, 1
        circle: tuple[str, ...] = (pattern,)
        if period == state.period:
            matched, bare = state.matched + 1, bare or state.bare
            circle = (*state.circle, pattern)[-min(period, NAMED_MAX) :]
        return State(score, since, step, ground, seen, period, matched, bare, circle, error, errors, pattern, back)

    def _insisted(self, state: State, work: Work) -> State:
        """It was told no, and hears so. No step was made, so nothing else changes: least of all where it began."""
        since, pattern = state.since or state.step, work.pattern[:PATTERN_MAX]
        return msgspec.structs.replace(state, score=state.score + REFUSED, since=since, pattern=pattern, asked="")

    def _polled(self, state: State, work: Work, at: Instant, step: int) -> State:
        """A call that is made to be repeated: only the time without anything new counts."""
        pair = "p" + _short(work.call) + _short(work.result)
        known = state.seen.get(pair) is not None
        since = min(state.polling_since, at) if known else at
        return State(state.score, state.since, step, state.ground, state.seen.with_({pair: step}), polling_since=since)

    def _circles(self, state: State) -> bool:
        repeats = self.bare_repeats_max if state.bare else self.repeats_max
        return state.period > 0 and state.matched >= repeats * state.period

    def _text(self, state: State) -> str:
        last = f"; the last: {state.pattern}" if state.pattern else ""
        if state.errors >= self.same_error_nudge and not state.period:
            began = state.step - state.errors + 1
            return f"{state.errors} errors in a row that it had before, since step {began}{last}"
        if state.period:
            began = state.step - state.matched - state.period + 1
            steps = "one step" if state.period == 1 else f"{state.period} steps"
            return f"a circle of {steps} since step {began} (score {state.score}{self._names(state)})"
        return f"calls repeated since step {state.since} that gave the same before (score {state.score}{last})"

    def _names(self, state: State) -> str:
        named = [name for name in state.circle if name]
        if not named:
            return ""
        return "; " + ", ".join(named) + (", …" if state.period > len(state.circle) else "")


def _short(name: str) -> str:
    """A fingerprint as it is; what is longer is made as short as one, so that the memory of a run has a bound."""
    return name if len(name) <= FINGERPRINT_LENGTH else digest([name])
