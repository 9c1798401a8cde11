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
from flyball.errors import FlyballError

METERS_MAX: Final = 8
"""Meters of one step: what it costs is kept in every entry and state, and nobody counts more kinds of things."""
NAME_MAX: Final = 64
"""Characters in the name of a meter or gauge."""
AMOUNT_MAX: Final = Decimal(10**15)
"""Of a meter that is counted whole: what is above it is a slip, and would not fit where JSON keeps numbers exactly."""
SHOWN_MAX: Final = 80
"""Characters of what was given, in an error: enough to find it by."""

Amount = int | float | str | Decimal
Given = Amount | Mapping[str, Amount]
"""`"0.05"` is money; `{"usd": "0.05", "tokens": 1200}` says of what."""


class AmountError(FlyballError, ValueError):
    """What was given is no amount. It says where it was given."""

    remedy = "Give dollars from 0, such as \"0.50\", or say of what: {'usd': '0.50', 'tokens': 1200}."


def whole(given: Given | None, where: str = "the amount") -> Amounts:
    """Amounts in whole numbers. AmountError says what is wrong with what was given, `where`, and what is allowed."""
    if given is None:
        return NOTHING
    meters = given if isinstance(given, Mapping) else {MONEY: given}
    try:
        if len(meters) > METERS_MAX:
            raise ValueError(f"{len(meters)} meters in one step; at most {METERS_MAX}")
        for meter in meters:
            check_name(meter)
        return {meter: _whole_of(meter, amount) for meter, amount in meters.items()}
    except ValueError as error:
        raise AmountError(f"{where} is {_shown(given)}: {error}") from None


def check_name(name: str) -> None:
    """ValueError if it is no name for a meter or gauge."""
    if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX:
        raise ValueError(f"a meter or gauge has a name of 1 to {NAME_MAX} characters, and not {_shown(name)}")


def _whole_of(meter: str, given: Amount) -> int:
    """One amount of that meter."""
    try:
        if meter == MONEY:
            return micro(rounded_up(given))
        amount = exact(given, AMOUNT_MAX)
    except ValueError as error:
        raise ValueError(f"{meter} {error}") from None
    if amount != int(amount):
        raise ValueError(f"{meter} should be a whole number up to {AMOUNT_MAX}")
    return int(amount)


def _shown(given: object) -> str:
    try:
        text = repr(given)
    except ValueError:  # Python does not write whole numbers of thousands of digits
        text = "a number too long to write"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
