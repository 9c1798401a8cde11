"""Breaker: when several units fail at once, something that they share is down, so nothing more is started.

Closed: failures are counted. Open: everything is refused for a while. Half-open: a few trial runs at a time; so many
successes close it, one failure opens it again. One flapping unit alone must not stop all the others, hence the least
number of different units. Runs that were lost with their supervisor say nothing about what they share, so they do not
open it; a trial that is lost has failed. A trial that lives long enough counts as a success: a service never exits.
"""

from dataclasses import dataclass

from flyball.core import window
from flyball.core.decision import PROCEED, Decision, Reason, wait
from flyball.core.event import Cause, Event, Exited, Released, Start, is_failure
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import SECOND, Instant, Span, format_span, later
from flyball.core.window import Window


class State(PolicyState, frozen=True):
    """While closed: the failures within the window and the latest one of each of the last few units. Otherwise: since
    when it is open, the trial runs in flight with their starts, and the successes so far."""

    failures: Window = ()
    units: dict[str, Instant] = {}
    opened_at: Instant | None = None
    trials: dict[str, Instant] = {}
    successes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Five failures of three units within a minute open it for a minute."""

    failures_max: int = 5
    window: Span = 60 * SECOND
    units_min: int = 3
    """Of at least so many different units; 1 gives the plain rule."""
    recovery: Span = 60 * SECOND
    trials_max: int = 3
    successes_min: int = 3
    trial_passes_after: Span = 60 * SECOND
    name: str = "breaker"
    by: str = "fleet"
    at: Gate = Gate.START

    def wakes(self, event: Event) -> bool:
        return is_failure(event)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Released() if event.frees(self.name, self.by) and not event.fingerprint:
                return State()
            case Exited() if state.opened_at is None:
                return self._counted(state, event, now)
            case Exited():
                return self._tried(state, event, now)
            case Start() if state.opened_at is not None and self._half_open(state, now):
                passed = self._passed(state, now)
                if state.successes + passed >= self.successes_min:
                    return State()
                return self._with_trials(state, {**state.trials, _trial(event): now})
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if state.opened_at is None:
            return PROCEED
        passed = self._passed(state, now)
        if state.successes + passed >= self.successes_min:
            return PROCEED
        remedy = (
            f"Look at what the failing units share ({self.by}); it closes by itself when {self.successes_min} succeed."
        )
        if not self._half_open(state, now):
            text = f"circuit open: {self.failures_max} failures within {format_span(self.window)}"
            return wait(later(state.opened_at, self.recovery), Reason(self.name, "circuit_open", text, remedy))
        in_flight = len(state.trials) - passed
        if in_flight > self.trials_max:
            text = f"circuit half-open: {self.trials_max} trial runs are in flight already"
            oldest = min(at for at in state.trials.values() if not self._passes(at, now))
            until = later(oldest, self.trial_passes_after)
            return wait(until, Reason(self.name, "circuit_half_open", text, remedy))
        return PROCEED

    def _counted(self, state: State, event: Exited, now: Instant) -> State:
        if not event.cause.failed or event.cause is Cause.LOST:
            return state
        failures = window.add(state.failures, now, self.window, self.failures_max)
        units = {unit: at for unit, at in state.units.items() if unit != event.unit and at + self.window >= now}
        units[event.unit] = now
        while len(units) > self.units_min:
            del units[min(units, key=lambda unit: (units[unit], unit))]
        enough = window.count(failures, now, self.window) >= self.failures_max
        if enough and len(units) >= self.units_min:
            return State(opened_at=now)
        return State(failures, units)

    def _tried(self, state: State, event: Exited, now: Instant) -> State:
        trial = _trial(event)
        if trial not in state.trials:
            return state
        if event.cause.failed:
            return State(opened_at=now)
        others = {run: at for run, at in state.trials.items() if run != trial}
        succeeded = event.cause.done or self._passes(state.trials[trial], now)
        after = State(opened_at=state.opened_at, trials=others, successes=state.successes + succeeded)
        return State() if after.successes + self._passed(after, now) >= self.successes_min else after

    def _half_open(self, state: State, now: Instant) -> bool:
        return state.opened_at is not None and later(state.opened_at, self.recovery) <= now

    def _passes(self, started: Instant, now: Instant) -> bool:
        return later(started, self.trial_passes_after) <= now

    def _passed(self, state: State, now: Instant) -> int:
        return sum(self._passes(started, now) for started in state.trials.values())

    def _with_trials(self, state: State, trials: dict[str, Instant]) -> State:
        return State(opened_at=state.opened_at, trials=trials, successes=state.successes)


def _trial(event: Event) -> str:
    """The name of a trial run. A run's id is its unit's own: two units may have runs of the same id."""
    return f"{event.unit}/{event.run}"
