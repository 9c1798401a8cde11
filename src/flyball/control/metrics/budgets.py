"""Budgets as Prometheus sees them: what is spent, reserved and allowed, by whom and of what."""

from typing import NamedTuple

from flyball.control.budgets import Account, accounts
from flyball.control.metrics.labels import WORK, Values
from flyball.core.amounts import MILLION, MONEY
from flyball.core.time import Instant
from flyball.governor import Governor
from flyball.policies import Session


class Purse(NamedTuple):
    """What one budget, or several under one label, come to."""

    spent: int
    reserved: int
    limit: int
    """0: nobody here knows it."""


Purses = dict[tuple[str, str, str], Purse]
"""By whom, of whom, of what."""


def purses(governor: Governor, now: Instant, values: dict[str, Values]) -> Purses:
    """All budgets that anything is known of. Those beyond the bound of a label are summed."""
    found: Purses = {}
    for one in accounts(governor, now):
        meter = one.policy.meter if one.policy is not None else one.state.meter
        place = (one.key.by, _subject(governor, one, values), meter)
        before = found.get(place, Purse(0, 0, 0))
        found[place] = Purse(
            before.spent + one.state.spent, before.reserved + one.state.reserved, before.limit + (one.limit or 0)
        )
    return found


def in_whole(meter: str, amount: int) -> float:
    """An amount as Prometheus has it: money in dollars, not in millionths of one."""
    return amount / MILLION if meter == MONEY else float(amount)


def _subject(governor: Governor, one: Account, values: dict[str, Values]) -> str:
    """Of whom. Budgets by run are told by their unit."""
    unit = one.unit
    known = values.setdefault("unit" if unit else one.key.by, Values())
    if unit and unit not in known and any(isinstance(policy, Session) for policy in governor.panel.policies_of(unit)):
        return WORK
    return known.of(unit or one.key.subject)
