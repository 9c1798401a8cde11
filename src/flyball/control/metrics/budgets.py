"""Budgets as Prometheus sees them: what is spent, reserved and allowed, by whom and of what."""

from collections.abc import Iterator
from typing import NamedTuple

from flyball.control.metrics.labels import WORK, Values
from flyball.core.amounts import MILLION, MONEY
from flyball.core.codec import readable_state
from flyball.core.policy import Key
from flyball.core.time import Instant
from flyball.governor import Governor
from flyball.policies import Budget, Session
from flyball.policies.budget import State


class Purse(NamedTuple):
    """What one budget, or several under one label, come to."""

    spent: int
    reserved: int
    limit: int


Purses = dict[tuple[str, str, str], Purse]
"""By whom, of whom, of what."""


def purses(governor: Governor, now: Instant, values: dict[str, Values]) -> Purses:
    """All budgets that something was spent or reserved of. Those beyond the bound of a label are summed."""
    found: Purses = {}
    for budget, key, state in _states(governor):
        current = budget.current(state, now)
        subject = _subject(governor, key, values.setdefault(_owner(key.by), Values()))
        place = (key.by, subject, budget.meter)
        before = found.get(place, Purse(0, 0, 0))
        found[place] = Purse(
            before.spent + current.spent,
            before.reserved + current.reserved,
            before.limit + budget.limit + current.raised,
        )
    return found


def in_whole(meter: str, amount: int) -> float:
    """An amount as Prometheus has it: money in dollars, not in millionths of one."""
    return amount / MILLION if meter == MONEY else float(amount)


def _states(governor: Governor) -> Iterator[tuple[Budget, Key, State]]:
    shared: dict[tuple[str, str], Budget] = {}
    for policy, _ in governor.panel.standing():
        if isinstance(policy, Budget):
            shared.setdefault((policy.name, policy.by), policy)
    for name in sorted({name for name, _ in shared}):
        for key, data in governor.store.states(name).items():
            state = readable_state(State, data)
            budget = _budget(governor, key) or shared.get((name, key.by))
            if state is not None and budget is not None:
                yield budget, key, state


def _budget(governor: Governor, key: Key) -> Budget | None:
    """The budget of that unit: each may have another limit."""
    for policy in governor.panel.policies_of(_unit(key)) if key.by in ("unit", "run") else ():
        if isinstance(policy, Budget) and (policy.name, policy.by) == (key.policy, key.by):
            return policy
    return None


def _subject(governor: Governor, key: Key, values: Values) -> str:
    if key.by not in ("unit", "run"):
        return values.of(key.subject)
    unit = _unit(key)
    if unit not in values and any(isinstance(policy, Session) for policy in governor.panel.policies_of(unit)):
        return WORK
    return values.of(unit)


def _owner(by: str) -> str:
    """Budgets by run are shown by their unit."""
    return "unit" if by == "run" else by


def _unit(key: Key) -> str:
    return key.subject.rpartition("/")[0] if key.by == "run" else key.subject
