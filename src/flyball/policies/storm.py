"""Storm: a supervisor that starts into a heap of fresh failures pauses the fleet and waits for a person.

Failures are counted, not kinds of failures, and only those of the last minutes. Runs that were lost with the supervisor
do not count: that a machine went down is one event, and boots are counted for it. Too many boots in that time are a
storm too: something restarts the supervisor itself. A fleet on many hosts boots when its first one does: that one more
joins those that live is no boot of the fleet. While running it judges only where that was asked for.
"""

from dataclasses import dataclass

from flyball.core import window
from flyball.core.decision import PROCEED, Decision, Reason, hold
from flyball.core.event import Booted, Cause, Event, Exited, Released, is_failure
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import SECOND, Instant, Span, format_span
from flyball.core.window import Window


class State(PolicyState, frozen=True):
    """Recent failures and boots, and why the fleet is paused, if it is."""

    failures: Window = ()
    boots: Window = ()
    paused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """More than ten failures in the last five minutes at boot: paused."""

    failures_max: int = 10
    window: Span = 300 * SECOND
    share: float = 0.0
    """Instead of failures_max: so many failures per unit of the fleet."""
    boots_max: int = 5
    while_running: bool = False
    name: str = "storm"
    by: str = "fleet"
    at: Gate = Gate.START

    def wakes(self, event: Event) -> bool:
        return is_failure(event) or isinstance(event, Booted)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Released() if event.frees(self.name, self.by) and not event.fingerprint:
                return State()
            case Exited(cause=cause) if cause.failed and cause is not Cause.LOST:
                failures = window.add(state.failures, now, self.window, self._kept_max)
                paused = state.paused or (self._judge(failures, 0, now) if self.while_running else "")
                return State(failures, state.boots, paused)
            case Booted(units=units, others=0):
                boots = window.add(state.boots, now, self.window, self.boots_max + 1)
                paused = state.paused or self._judge(state.failures, units, now) or self._judge_boots(boots, now)
                return State(state.failures, boots, paused)
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if not state.paused:
            return PROCEED
        remedy = "Find out what broke, then `flyball resume`; `flyball status` lists what failed."
        return hold(Reason(self.name, "restart_storm_detected", state.paused, remedy))

    @property
    def _kept_max(self) -> int:
        """With a share the threshold depends on the fleet's size, so the coarse window is used, which has no end."""
        return window.MARKS_MAX + 1 if self.share else self.failures_max + 1

    def _judge(self, failures: Window, units: int, now: Instant) -> str:
        most = max(1, int(self.share * units)) if self.share and units else self.failures_max
        count = window.count(failures, now, self.window)
        if count <= most:
            return ""
        return f"more than {most} failures in the last {format_span(self.window)}: restart storm"

    def _judge_boots(self, boots: Window, now: Instant) -> str:
        if window.count(boots, now, self.window) <= self.boots_max:
            return ""
        return (
            f"more than {self.boots_max} starts of the supervisor in the last {format_span(self.window)}: restart storm"
        )
