"""Restart: which exits are followed by another run, and how many runs may follow.

By unit: error and timeout are followed by another run, `done` and `stopped` are not, `starved` waits for its resource;
so many an hour (wait until the window slides), and so many failures in a row, of whatever kind (hold). By fleet: so
many an hour over all units, then hold. Failing runs in a row are counted on their exits: an exit that nobody reports is
found as `lost`, so a crash of flyball gives no free attempt. What follows a lost run is counted for its unit and not
for the fleet: that a machine went down with a thousand units on it is one event.

What was stopped starts again with its supervisor, unless another policy stopped it, because its money was gone or it
went in circles: that would only happen again, so it waits for a person. Of what starves, it waits for a resource that
comes back, but not for money that a budget refuses.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec

from flyball.core import window
from flyball.core.decision import PROCEED, Decision, Reason, Verb, finish, hold, wait
from flyball.core.event import Cause, Event, Exited, Released, Revise, Start
from flyball.core.lived import UNBORN, Lived
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import DAY, FOREVER, HOUR, MINUTE, Instant, Span, format_span, later
from flyball.core.window import Window

BY_A_PERSON: Final = "manual"
"""The policy that speaks for people: they need not be asked once more whether what they stopped may start."""

ENDED_BY_POLICY: Final = "ended_by_policy"
"""The code of what was stopped because of its money or its circles: it is not held, but waits for a person too."""


LOST_MAX: Final = 10_000_000
"""More runs than any fleet has: a bound, not a limit."""


class State(PolicyState, frozen=True):
    """The last exit, failing runs in a row, restarts within the hour."""

    last: Cause | None = None
    last_at: Instant = 0
    row: int = 0
    restarts: Window = ()
    lived: Lived = UNBORN
    failed_at: Span = 0
    held_at: Instant = FOREVER
    ended_for: str = ""
    """Why a policy stopped the last run: the code of its reason."""
    lost: int = 0
    lost_at: Instant = 0
    """Runs over all units that were lost and are not followed by another one yet, and when the last of them was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Restart what crashed, not what is done; and not for ever."""

    on_error: bool = True
    on_timeout: bool = True
    on_starved: bool = False
    """Restart what ran out of money, quota or memory like any other; otherwise it waits for the resource."""
    always: bool = False
    """Restart after `done` too: a service."""
    starved_wait: Span = 5 * MINUTE
    restarts_max: int = 10
    window: Span = HOUR
    row_max: int = 50
    """Failing runs in a row after the first one; 0: no such limit."""
    healthy_after: Span = DAY
    over: Verb = Verb.WAIT
    """What more than restarts_max are answered with: WAIT until the window slides, or HOLD."""
    name: str = "restart"
    by: str = "unit"
    at: Gate = Gate.START

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Start | Exited)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Start():
                return self._started(state, event, now)
            case Exited():
                return self._exited(state, event, now)
            case Released() if event.frees(self.name, self.by) and not event.fingerprint:
                return State()
            case Revise() if self.by == "unit":
                return State()
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        if state.last is None and not state.row and not state.restarts and state.held_at == FOREVER:
            return PROCEED
        if self.row_max and state.row > self.row_max:
            return hold(
                Reason(
                    self.name,
                    "restarts_in_a_row",
                    f"{state.row} failing runs in a row without a success; the limit is {self.row_max} restarts",
                    "Look at its failures, then `flyball resume`; or change the unit's definition.",
                )
            )
        decision = self._by_cause(state, now)
        count = window.count(state.restarts, now, self.window)
        # With an exit behind us the next restart is still to be counted; at a start it is counted already.
        most = self.restarts_max if state.last is not None else self.restarts_max + 1
        if self.over is Verb.HOLD and (state.held_at <= now or count > self.restarts_max):
            decision |= hold(self._too_many(count, "Find out what broke, then `flyball resume`."))
        elif self.over is Verb.WAIT and count >= most:
            until = window.below_at(state.restarts, now, self.window, most)
            decision |= wait(until, self._too_many(count, "It starts again by itself when the window has slid."))
        return decision

    def _started(self, state: State, event: Start, now: Instant) -> State:
        if not event.again and state.last is None:
            return state
        if event.again and not self._by_cause(state, now).proceeds:
            return state
        restarts, lost = state.restarts, state.lost
        if event.again and lost and now - state.lost_at < self.window:
            lost -= 1
        elif event.again or (state.last is not None and state.last.failed):
            restarts = window.add(restarts, now, self.window, self.restarts_max + 1)
        if self.by != "unit":
            return State(restarts=restarts, held_at=state.held_at, lost=lost, lost_at=state.lost_at if lost else 0)
        lived = state.lived.started(now) if state.row else state.lived
        return State(None, 0, state.row, restarts, lived, state.failed_at, state.held_at)

    def _exited(self, state: State, event: Exited, now: Instant) -> State:
        after = self._after(state, event, now)
        if not state.ended_for or after.ended_for:
            return after
        # Every start takes back what another run was ended for. So this one was begun before that, and lived beside it.
        return msgspec.structs.replace(after, last=state.last, last_at=state.last_at, ended_for=state.ended_for)

    def _after(self, state: State, event: Exited, now: Instant) -> State:
        cause = event.cause
        if self.by != "unit" and cause is Cause.LOST:
            return msgspec.structs.replace(state, lost=min(state.lost + 1, LOST_MAX), lost_at=now)
        held_at = self._held_at(state, cause, now)
        if self.by != "unit":
            return state if held_at == state.held_at else msgspec.structs.replace(state, held_at=held_at)
        held = bool(self.row_max) and state.row > self.row_max
        if event.pause:  # it goes on, which is no restart
            return State(None, 0, state.row, state.restarts, state.lived, state.failed_at, held_at)
        if not cause.failed:
            row = 0 if cause.done and not held else state.row
            lived = state.lived.exited(now, now) if row else UNBORN
            by_policy = cause is Cause.STOPPED and event.policy not in ("", BY_A_PERSON)
            ended_for = event.error if by_policy else ""
            return State(cause, now, row, state.restarts, lived, state.failed_at if row else 0, held_at, ended_for)
        lived = state.lived.exited(now, now)
        healthy = bool(self.healthy_after) and lived.total - state.failed_at >= self.healthy_after
        row = 1 if healthy and not held else state.row + 1
        bankrupt = cause is Cause.STARVED and event.policy not in ("", BY_A_PERSON)
        ended_for = event.error if bankrupt else ""
        return State(cause, now, row, state.restarts, lived, lived.total, held_at, ended_for)

    def _held_at(self, state: State, cause: Cause, now: Instant) -> Instant:
        """Since when it is held. Noted at the exit whose restart would be one too many, so that the hold stands when
        the window slides."""
        if self.over is not Verb.HOLD or state.held_at <= now:
            return state.held_at
        if not (self._follows(cause) if self.by == "unit" else cause.failed):
            return state.held_at
        full = window.count(state.restarts, now, self.window) >= self.restarts_max
        return now if full else state.held_at

    def _follows(self, last: Cause | None) -> bool:
        """Whether another run follows that exit by itself."""
        match last:
            case Cause.DONE:
                return self.always
            case Cause.STOPPED:
                return False
            case Cause.ERROR | Cause.LOST:
                return self.on_error
            case Cause.TIMEOUT:
                return self.on_timeout
        return True

    def _by_cause(self, state: State, now: Instant) -> Decision:
        if self.by != "unit":
            return PROCEED
        bankrupt = state.last is Cause.STARVED and bool(state.ended_for) and not self.on_starved
        if bankrupt or (state.last is not None and not self._follows(state.last)):
            return _ended(self.name, state.last, state.ended_for)
        starved_until = later(state.last_at, self.starved_wait)
        if state.last is Cause.STARVED and not self.on_starved and now < starved_until:
            text = f"it ran out of a resource (money, quota, memory): asks again after {format_span(self.starved_wait)}"
            return wait(starved_until, Reason(self.name, "starved", text, "Raise the budget or free the resource."))
        return PROCEED

    def _too_many(self, count: int, remedy: str) -> Reason:
        whose = "of this unit" if self.by == "unit" else f"over all of this {self.by}"
        within = f"{whose} within {format_span(self.window)}"
        if self.over is Verb.HOLD:  # it stands when the window has slid, so it does not say how many there are now
            text = f"all {self.restarts_max} restarts {within} were used up"
        else:
            text = f"{count} restarts {within}; the limit is {self.restarts_max}"
        return Reason(self.name, "too_many_restarts", text, remedy)


@lru_cache(maxsize=64)
def _ended(policy: str, cause: Cause, ended_for: str) -> Decision:
    """No other run follows. Made once: this is the answer to every clean exit."""
    text = f"its last run ended: {ended_for or cause}; no other follows by itself"
    if ended_for:
        return finish(Reason(policy, ENDED_BY_POLICY, text, "Put right what it says, then `flyball resume`."))
    return finish(Reason(policy, f"ended_{cause}", text, "To run it again: `flyball start`."))
