"""Breaker: when several units fail at once, something that they share is down, so nothing more is started.

Closed: failures are counted. Open: everything is refused for a while. Half-open: a few trials at a time; so many
successes close it, one failure opens it again. One flapping unit alone must not stop all the others, hence the least
number of different units.

It stands at one of two gates. At starts a trial is a run. Runs that were lost with their supervisor say nothing about
what they share, so they do not open it; a trial that is lost has failed. A trial that lives long enough counts as a
success: a service never exits. At steps a trial is one step, asked for by itself: of steps that were granted together
nobody knows when they are made, so none are granted so while it is not closed, and those from before say nothing. A
step that nobody reports for that long gives its place to another.
"""

from dataclasses import dataclass
from typing import Final

from flyball.core import window
from flyball.core.decision import PROCEED, Allowance, Decision, Reason, proceed, wait
from flyball.core.event import Cause, Event, Exited, Released, Start, Step, Stepped, is_failure
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import SECOND, Instant, Span, format_span, later
from flyball.core.window import Window

STEP_LASTS: Final[Span] = SECOND
"""When all trial steps are in flight, it is worth asking again so soon: a step is short, and nobody knows how short."""


class State(PolicyState, frozen=True):
    """While closed: the failures within the window and the latest one of each of the last few units. Otherwise: since
    when it is open, the trials in flight with their starts, and the successes so far."""

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
        return isinstance(event, Stepped) if self.at is Gate.STEP else is_failure(event)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Released() if event.frees(self.name, self.by) and not event.fingerprint:
                return State()
            case Exited() if self.at is Gate.START:
                return self._after_run(state, event, now)
            case Stepped() if self.at is Gate.STEP:
                return self._after_steps(state, event, now)
            case Start() if self.at is Gate.START and self._half_open(state, now):
                if state.successes + self._passed(state, now) >= self.successes_min:
                    return State()
                return self._with_trials(state, {**state.trials, _run(event): now})
            case Step() if self.at is Gate.STEP and self._half_open(state, now):
                trials = {trial: at for trial, at in state.trials.items() if not self._lasted(at, now)}
                free = next(name for number in range(len(trials) + 1) if (name := _step(event, number)) not in trials)
                return self._with_trials(state, {**trials, free: now})
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if state.opened_at is None or state.successes + self._passed(state, now) >= self.successes_min:
            return PROCEED
        what, who = ("steps", "calls") if self.at is Gate.STEP else ("runs", "units")
        name = self.by if self.by == "fleet" else f"{self.by}:VALUE"
        remedy = (
            f"Look at what the failing {who} share ({self.by}); it closes by itself when {self.successes_min} succeed. "
            f"To close it now: `flyball reset --breaker {name}`."
        )
        if not self._half_open(state, now):
            text = f"circuit open: {self.failures_max} failures within {format_span(self.window)}"
            return wait(later(state.opened_at, self.recovery), Reason(self.name, "circuit_open", text, remedy))
        in_flight = [at for at in state.trials.values() if not self._lasted(at, now)]
        if len(in_flight) > self.trials_max:
            text = f"circuit half-open: {self.trials_max} trial {what} are in flight already"
            # Trials may end long before they pass: who waits for them looks again as soon as it would while it is open.
            soon = STEP_LASTS if self.at is Gate.STEP else self.recovery
            until = min(later(min(in_flight), self.trial_passes_after), later(now, soon))
            return wait(until, Reason(self.name, "circuit_half_open", text, remedy))
        return proceed(allowance=Allowance(1)) if self.at is Gate.STEP else PROCEED

    def _after_run(self, state: State, event: Exited, now: Instant) -> State:
        failed, trial = event.cause.failed, _run(event)
        if state.opened_at is None:
            return self._failed(state, event.unit, 1, now) if failed and event.cause is not Cause.LOST else state
        if trial not in state.trials:
            return state
        succeeded = event.cause.done or self._lasted(state.trials[trial], now)
        return self._tried(state, trial, failed, succeeded, now)

    def _after_steps(self, state: State, event: Stepped, now: Instant) -> State:
        made = [work for work in event.done if not work.refused]
        if state.opened_at is None:
            failures = sum(work.times for work in made if work.error)
            return self._failed(state, event.unit, failures, now) if failures else state
        if event.allowed:
            return state
        for work in made:
            mine = [trial for trial in state.trials if trial.rpartition("/")[0] == _run(event)]
            if mine and self._half_open(state, now - work.ago):
                state = self._tried(state, mine[0], work.error, not work.cut, now)
        return state

    def _failed(self, state: State, unit: str, failures: int, now: Instant) -> State:
        """While it is closed."""
        marks = window.add(state.failures, now, self.window, self.failures_max, failures)
        units = {name: at for name, at in state.units.items() if name != unit and at + self.window >= now}
        units[unit] = now
        while len(units) > self.units_min:
            del units[min(units, key=lambda name: (units[name], name))]
        enough = window.count(marks, now, self.window) >= self.failures_max
        if enough and len(units) >= self.units_min:
            return State(opened_at=now)
        return State(marks, units)

    def _tried(self, state: State, trial: str, failed: bool, succeeded: bool, now: Instant) -> State:
        """While it is half-open."""
        if failed:
            return State(opened_at=now)
        others = {name: at for name, at in state.trials.items() if name != trial}
        after = State(opened_at=state.opened_at, trials=others, successes=state.successes + succeeded)
        return State() if after.successes + self._passed(after, now) >= self.successes_min else after

    def _half_open(self, state: State, now: Instant) -> bool:
        return state.opened_at is not None and later(state.opened_at, self.recovery) <= now

    def _lasted(self, started: Instant, now: Instant) -> bool:
        return later(started, self.trial_passes_after) <= now

    def _passed(self, state: State, now: Instant) -> int:
        """Runs that live long enough have succeeded. Of a step, that nobody reports it is no good sign."""
        return sum(self._lasted(at, now) for at in state.trials.values()) if self.at is Gate.START else 0

    def _with_trials(self, state: State, trials: dict[str, Instant]) -> State:
        return State(opened_at=state.opened_at, trials=trials, successes=state.successes)


def _run(event: Event) -> str:
    """The name of a trial run. A run's id is its unit's own: two units may have runs of the same id."""
    return f"{event.unit}/{event.run}"


def _step(event: Event, number: int) -> str:
    """The name of a trial step: a run may make several at once."""
    return f"{_run(event)}/{number}"
