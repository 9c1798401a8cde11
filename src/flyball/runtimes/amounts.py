"""Amounts as people and programs give them, as the whole numbers that budgets count.

Money (`usd`) is given in dollars and kept in millionths, rounded up; tokens, credits and whatever else is counted are
whole.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from flyball.config.money import exact, micro, rounded_up
from flyball.core.amounts import MONEY
from flyball.core.event import NOTHING, Amounts

METERS_MAX: Final = 8
"""Meters of one step: what it costs is kept in every entry and state, and nobody counts more kinds of things."""
NAME_MAX: Final = 64
"""Characters in the name of a meter or gauge."""
AMOUNT_MAX: Final = 10**15
"""Of a meter that is counted whole: what is above it is a slip, and would not fit where JSON keeps numbers exactly."""

Amount = int | float | str | Decimal
Given = Amount | Mapping[str, Amount]
"""`"0.05"` is money; `{"usd": "0.05", "tokens": 1200}` says of what."""


def whole(given: Given | None) -> Amounts:
    """Amounts in whole numbers. ValueError says which of them is wrong, and what is allowed."""
    if given is None:
        return NOTHING
    if not isinstance(given, Mapping):
        given = {MONEY: given}
    if len(given) > METERS_MAX:
        raise ValueError(f"{len(given)} meters in one step; at most {METERS_MAX}")
    for meter in given:
        check_name(meter)
    return {meter: whole_of(meter, amount) for meter, amount in given.items()}


def whole_of(meter: str, given: Amount) -> int:
    """One amount of that meter."""
    try:
        if meter == MONEY:
            return micro(rounded_up(given))
        amount = exact(given)
    except ValueError as error:
        raise ValueError(f"{meter} {error}") from None
    if amount != int(amount) or amount > AMOUNT_MAX:
        raise ValueError(f"{meter} should be a whole number up to {AMOUNT_MAX}")
    return int(amount)


def check_name(name: str) -> None:
    """ValueError if it is no name for a meter or gauge."""
    if not 0 < len(name) <= NAME_MAX:
        raise ValueError(f"a meter or gauge has a name of 1 to {NAME_MAX} characters")
