"""Amounts of meters, for people: money with as many digits as it has, everything else counted whole."""

from typing import Final

from flyball.core.event import Amounts

MONEY: Final = "usd"
"""The meter that is kept in millionths."""

MILLION: Final = 1_000_000


def amount_text(meter: str, amount: int) -> str:
    """`0.40 USD`, `0.000512 USD`, `900 tokens`."""
    if meter != MONEY:
        return f"{amount} {meter}"
    whole, millionths = divmod(amount, MILLION)
    digits = f"{millionths:06}".rstrip("0")
    return f"{whole}.{digits:0<2} USD"


def amounts_text(amounts: Amounts) -> str:
    """All of them: `0.40 USD and 900 tokens`; nothing at all is `nothing`."""
    return " and ".join(amount_text(meter, amount) for meter, amount in sorted(amounts.items())) or "nothing"
