"""Quarantine: a unit that failed the same way too often is held until a person looks at it.

It does not expire: not by time, not by a restart of flyball, not by a clean exit. Counts below the limit are forgotten
after a success or a day of lived time without a failure; a count at the limit is left only by a person or a change.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from flyball.core.decision import PROCEED, Decision, Reason, hold
from flyball.core.event import Event, Exited, Released, Revise, Start, is_failure
from flyball.core.lived import UNBORN, Lived
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import DAY, Instant, Span, format_span

FAILURES_MAX: Final = 32
"""Kinds of failures remembered for one unit; those at the limit are never dropped for newer ones."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One kind of failure of this unit."""

    error: str = ""
    version: int = 0
    count: int = 0
    first: Instant = 0
    last: Instant = 0


class State(PolicyState, frozen=True):
    """Counts by fingerprint, and how long the unit had lived when it last failed."""

    failures: dict[str, Failure] = {}
    lived: Lived = UNBORN
    failed_at: Span = 0


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

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Exited(cause=cause) if cause.done:
                return self._succeeded(state) if state.failures else state
            case Exited(cause=cause) if cause.failed:
                return self._failed(state, event, now)
            case Released() if event.frees(self.name, self.by):
                return self._forget(state, event.fingerprint)
            case Revise():
                return State()
            case Start() if state.failures:
                return State(state.failures, state.lived.started(now), state.failed_at)
            case Exited() if state.failures:
                return State(state.failures, state.lived.exited(now, now), state.failed_at)
        return state

    def decide(self, state: State, now: Instant) -> Decision:
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

    def _succeeded(self, state: State) -> State:
        held = {name: failure for name, failure in state.failures.items() if failure.count >= self.failures_max}
        if len(held) == len(state.failures):
            return state
        return State(held, state.lived, state.failed_at) if held else State()

    def _failed(self, state: State, event: Exited, now: Instant) -> State:
        lived = state.lived.at(now)
        healthy = bool(self.healthy_after) and lived - state.failed_at >= self.healthy_after
        failures = dict((self._succeeded(state) if healthy else state).failures)
        before = failures.get(event.fingerprint, Failure(first=now))
        failures[event.fingerprint] = Failure(event.error, event.version, before.count + 1, before.first, now)
        if len(failures) > FAILURES_MAX:
            free = [name for name in failures if failures[name].count < self.failures_max]
            if free:
                del failures[min(free, key=lambda name: (failures[name].last, name))]
            else:
                del failures[event.fingerprint]
        return State(failures, state.lived.exited(now, now), lived)

    def _forget(self, state: State, fingerprint: str) -> State:
        if not fingerprint:
            return State()
        if fingerprint not in state.failures:
            return state
        rest = {name: failure for name, failure in state.failures.items() if name != fingerprint}
        return State(rest, state.lived, state.failed_at) if rest else State()
