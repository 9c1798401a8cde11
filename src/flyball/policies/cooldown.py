"""Cooldown: after a failure a unit waits, longer each time the same failure comes back.

Each fingerprint climbs by itself, so a new kind of failure starts at the first rung. Delays are a ladder, or, with an
empty ladder, exponential with jitter. The jitter comes from a hash of the unit and its count, not from dice, so that
replay agrees. A success, or a day of lived time without a failure, forgets everything.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from flyball.core.decision import PROCEED, Decision, Reason, wait
from flyball.core.event import Event, Exited, Released, Revise, Start, Stepped, is_failure
from flyball.core.failure import digest
from flyball.core.lived import UNBORN, Lived
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import DAY, MINUTE, SECOND, Instant, Span, format_span, later

FAILURES_MAX: Final = 32
"""Kinds of failures remembered for one unit. A unit that fails in more ways than this is caught by the restart policy,
which counts failures of any kind."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One kind of failure of this unit."""

    error: str = ""
    version: int = 0
    count: int = 0
    first: Instant = 0
    last: Instant = 0
    until: Instant = 0


class State(PolicyState, frozen=True):
    """Kinds of failures by fingerprint, and how long the unit had lived when it last failed."""

    failures: dict[str, Failure] = {}
    lived: Lived = UNBORN
    failed_at: Span = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    """Wait after a failure."""

    ladder: tuple[Span, ...] = (1 * SECOND, 5 * SECOND, 15 * SECOND, 5 * MINUTE, 30 * MINUTE)
    first: Span = 5 * SECOND
    factor: float = 2.0
    longest: Span = 5 * MINUTE
    jitter: float = 0.10
    healthy_after: Span = DAY
    step_forgives: bool = False
    name: str = "cooldown"
    by: str = "unit"

    @property
    def at(self) -> Gate:
        """It hears of steps only where a successful one ends the backoff."""
        return Gate.STEP if self.step_forgives else Gate.START

    def wakes(self, event: Event) -> bool:
        return is_failure(event)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Exited(cause=cause) if cause.done:
                return State() if state.failures else state
            case Exited(cause=cause) if cause.failed:
                return self._failed(state, event, now)
            case Released() if event.frees(self.name, self.by):
                return self._forget(state, event.fingerprint)
            case Revise():
                return State()
            case Stepped(done=done) if self.step_forgives and any(not work.error for work in done):
                return State()
            case Start() if state.failures:
                return State(state.failures, state.lived.started(now), state.failed_at)
            case Exited() if state.failures:
                return State(state.failures, state.lived.exited(now, now), state.failed_at)
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if not state.failures:
            return PROCEED
        fingerprint, failure = max(state.failures.items(), key=lambda item: (item[1].until, item[0]))
        if failure.until <= now:
            return PROCEED
        wait_of = format_span(failure.until - failure.last)
        return wait(
            failure.until,
            Reason(
                self.name,
                "cooling",
                f"failure {failure.count} of {failure.error or 'this kind'} ({fingerprint[:8]}): waits {wait_of}",
                f"It starts again by itself. To start it now: `flyball reset {fingerprint[:8]}`.",
            ),
        )

    def _failed(self, state: State, event: Exited, now: Instant) -> State:
        lived = state.lived.at(now)
        healthy = bool(self.healthy_after) and lived - state.failed_at >= self.healthy_after
        failures = {} if healthy else dict(state.failures)
        before = failures.pop(event.fingerprint, Failure(first=now))
        count = before.count + 1
        until = later(now, self._delay(event.unit, count))
        failures[event.fingerprint] = Failure(event.error, event.version, count, before.first, now, until)
        if len(failures) > FAILURES_MAX:
            del failures[min(failures, key=lambda name: (failures[name].last, name))]
        return State(failures, state.lived.exited(now, until), lived)

    def _delay(self, unit: str, count: int) -> Span:
        if self.ladder:
            return self.ladder[min(count, len(self.ladder)) - 1]
        # The exponent is capped: 2.0 ** 1100 is not a number any more, and the cap is reached long before.
        delay = min(self.first * self.factor ** min(count - 1, 64), self.longest)
        swing = int(digest([unit, str(count)])[:8], 16) / 0xFFFFFFFF * 2 - 1
        return min(round(delay * (1 + self.jitter * swing)), self.longest)

    def _forget(self, state: State, fingerprint: str) -> State:
        if not fingerprint:
            return State()
        if fingerprint not in state.failures:
            return state
        rest = {name: failure for name, failure in state.failures.items() if name != fingerprint}
        return State(rest, state.lived, state.failed_at) if rest else State()
