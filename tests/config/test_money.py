"""Money without rounding."""

import random
from decimal import Decimal
from typing import Any

import pytest

from flyball.config.money import exact, micro, rounded_up


@pytest.mark.parametrize(
    ("given", "millionths"),
    [
        (0.1, 100_000),
        (0.3, 300_000),
        (1, 1_000_000),
        ("1.00", 1_000_000),
        ("0.000001", 1),
        (1e-6, 1),
        (0.29, 290_000),  # 0.29 * 100 is 28.999999999999996
        (1.1, 1_100_000),
        ("0.50", 500_000),
        (" 0.50 ", 500_000),
        (Decimal("2.5"), 2_500_000),
        (1_000_000_000, 10**15),
        (0, 0),
    ],
)
def test_exact(given: Any, millionths: int) -> None:
    """What a person writes is what is counted, to the millionth."""
    assert micro(exact(given)) == millionths


def test_sums_are_exact() -> None:
    """0.1 + 0.2 is 0.3."""
    assert micro(exact(0.1)) + micro(exact(0.2)) == micro(exact(0.3))


def test_every_amount_of_cents_is_exact() -> None:
    """For any amount of millionths, its text and its nearest float mean that amount."""
    dice = random.Random(7)
    for _ in range(2_000):
        amount = dice.randrange(10**10)
        text = f"{amount // 10**6}.{amount % 10**6:06d}"
        assert micro(exact(text)) == micro(exact(float(text))) == amount


@pytest.mark.parametrize(
    "given",
    [
        -1,
        "-0.01",
        float("nan"),
        float("inf"),
        "NaN",
        "Infinity",
        "1e400",
        "lots",
        "",
        "1,50",
        "$1",
        True,
        None,
        [],
        1e10,
    ],
)
def test_refused(given: Any) -> None:
    """What is no amount is refused, with what would be one."""
    with pytest.raises(ValueError, match="should be an amount"):
        exact(given)


@pytest.mark.parametrize("given", ["0.0000001", 0.1234567, 1e-7])
def test_finer_than_a_millionth(given: Any) -> None:
    """Too fine is refused, not rounded."""
    with pytest.raises(ValueError, match="finer than a millionth"):
        exact(given)


@pytest.mark.parametrize(
    ("given", "millionths"),
    [("0.0000001", 1), (0.1 + 0.2, 300_001), ("0.000001", 1), (1e-12, 1), (0, 0), ("1.0000000", 1_000_000)],
)
def test_what_was_computed_is_rounded_up(given: Any, millionths: int) -> None:
    """What happened never counts for less than it was."""
    assert micro(rounded_up(given)) == millionths


@pytest.mark.parametrize("given", [-1e-9, "NaN", "lots", None, True, 1e10])
def test_what_was_computed_is_an_amount(given: Any) -> None:
    """What is no amount is refused all the same."""
    with pytest.raises(ValueError, match="should be an amount"):
        rounded_up(given)
