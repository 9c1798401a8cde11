"""Cooldown: after a failure a unit waits, longer each time the same failure comes back.

Each fingerprint climbs by itself, so a new kind of failure starts at the first rung. Delays are a ladder, or, with an
empty ladder, exponential with jitter. The jitter comes from a hash of the unit and its count, not from dice, so that
replay agrees. A success, or a day of lived time without a failure, forgets everything.
"""

from dataclasses import dataclass

from flyball.core.decision import PROCEED, Decision, Reason, wait
from flyball.core.event import Event, Exited, Released, Revise, Start, Stepped, is_failure
from flyball.core.failure import digest
from flyball.core.failures import NONE, Failures
from flyball.core.policy import Gate
from flyball.core.time import DAY, MINUTE, SECOND, Instant, Span, format_span, later


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

    def initial(self) -> Failures:
        return NONE

    def evolve(self, state: Failures, event: Event, now: Instant) -> Failures:
        match event:
            case Exited(cause=cause) if cause.done:
                return NONE
            case Exited(cause=cause) if cause.failed:
                return self._failed(state, event, now)
            case Exited():
                return state.stopped(now)
            case Released() if event.frees(self.name, self.by):
                return state.without(event.fingerprint)
            case Revise():
                return NONE
            case Stepped(done=done) if self.step_forgives and any(not work.error for work in done):
                return NONE
            case Start():
                return state.started(now)
        return state

    def decide(self, state: Failures, now: Instant) -> Decision:
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

    def waits(self, most: int) -> tuple[Span, ...]:
        """The waits of successive failures of one kind, for people: without jitter, and up to the longest."""
        if self.ladder:
            return self.ladder[:most]
        waits: list[Span] = []
        while len(waits) < most and (not waits or waits[-1] < self.longest):
            waits.append(round(min(self.first * self.factor ** len(waits), self.longest)))
            if self.factor <= 1:
                break
        return tuple(waits)

    def _failed(self, state: Failures, event: Exited, now: Instant) -> Failures:
        if self.healthy_after and state.well_for(now) >= self.healthy_after:
            state = NONE
        until = later(now, self._delay(event.unit, state.count_of(event.fingerprint) + 1))
        return state.counted(event, now, until=until)

    def _delay(self, unit: str, count: int) -> Span:
        if self.ladder:
            return self.ladder[min(count, len(self.ladder)) - 1]
        # The exponent is capped: 2.0 ** 1100 is not a number any more, and the cap is reached long before.
        delay = min(self.first * self.factor ** min(count - 1, 64), self.longest)
        swing = int(digest([unit, str(count)])[:8], 16) / 0xFFFFFFFF * 2 - 1
        return min(round(delay * (1 + self.jitter * swing)), self.longest)
