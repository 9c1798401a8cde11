"""Money without rounding: decimal text or a number to whole millionths.

A float is read by its shortest text, so 0.1 is a tenth, and three times 0.1 is 0.3. What a person writes and is finer
than a millionth is refused, not rounded: somebody who writes it means something that would not happen. What a program
computed is rounded up: it happened, and must not count for less.
"""

from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Final

AMOUNT_MAX: Final = Decimal(1_000_000_000)
"""A billion: what is above it is a slip of the keyboard, and would not fit where every JSON reader keeps it exactly."""
_MILLIONTH: Final = Decimal("0.000001")


def exact(given: object, most: Decimal = AMOUNT_MAX) -> Decimal:
    """An amount from what a file or a variable has. ValueError says what is allowed."""
    amount = _amount(given, most)
    if amount != amount.quantize(_MILLIONTH):
        raise ValueError("should not be finer than a millionth")
    return amount


def rounded_up(given: object) -> Decimal:
    """An amount from what a program computed, in whole millionths. ValueError says what is allowed."""
    return _amount(given, AMOUNT_MAX).quantize(_MILLIONTH, rounding=ROUND_CEILING)


def _amount(given: object, most: Decimal) -> Decimal:
    if isinstance(given, bool) or not isinstance(given, int | float | str | Decimal):
        raise ValueError("should be an amount such as 0.50")
    try:
        # Not repr(): some libraries have floats of their own, which write themselves with their type.
        amount = Decimal(float.__repr__(given) if isinstance(given, float) else given)
    except InvalidOperation:
        raise ValueError("should be an amount such as 0.50") from None
    if not amount.is_finite() or not 0 <= amount <= most:
        raise ValueError(f"should be an amount from 0 to {most}")
    return amount


def micro(amount: Decimal) -> int:
    """An amount in millionths."""
    return int(amount * 1_000_000)
