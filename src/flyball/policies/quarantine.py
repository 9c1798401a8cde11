"""Quarantine: a unit that failed the same way too often is held until a person looks at it.

It does not expire: not by time, not by a restart of flyball, not by a clean exit. Counts below the limit are forgotten
after a success or a day of lived time without a failure; a count at the limit is left only by a person or a change.
"""

from dataclasses import dataclass

from flyball.core.decision import PROCEED, Decision, Reason, hold
from flyball.core.event import Event, Exited, Released, Revise, Start, is_failure
from flyball.core.failures import NONE, Failures
from flyball.core.policy import Gate
from flyball.core.time import DAY, Instant, Span, format_span


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Hold a unit at the sixth failure of one kind."""

    failures_max: int = 6
    healthy_after: Span = DAY
    name: str = "quarantine"
    by: str = "unit"
    at: Gate = Gate.START

    def wakes(self, event: Event) -> bool:
        return is_failure(event)

    def initial(self) -> Failures:
        return NONE

    def evolve(self, state: Failures, event: Event, now: Instant) -> Failures:
        match event:
            case Exited(cause=cause) if cause.done:
                return state.only(self.failures_max)
            case Exited(cause=cause) if cause.failed:
                if self.healthy_after and state.well_for(now) >= self.healthy_after:
                    state = state.only(self.failures_max)
                return state.counted(event, now, spared_from=self.failures_max)
            case Exited():
                return state.stopped(now)
            case Released() if event.frees(self.name, self.by):
                return state.without(event.fingerprint)
            case Revise():
                return NONE
            case Start():
                return state.started(now)
        return state

    def decide(self, state: Failures, now: Instant) -> Decision:
        decision = PROCEED
        for fingerprint, failure in state.failures.items():
            if failure.count >= self.failures_max:
                within = format_span(failure.last - failure.first)
                decision |= hold(
                    Reason(
                        self.name,
                        "quarantined",
                        f"{failure.count} failures of {failure.error or 'the same kind'} ({fingerprint[:8]}) "
                        f"within {within}; the limit is {self.failures_max}",
                        f"Look into it, then `flyball reset {fingerprint[:8]}`; or change the unit's definition.",
                    )
                )
        return decision
