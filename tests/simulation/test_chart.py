"""The chart of a simulation: what it draws is what happened."""

import pytest

from flyball.control.chart import Starts, draw, heights, logarithmic
from flyball.core.time import HOUR, MINUTE, SECOND, Span


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ([SECOND, 2 * SECOND], False),
        ([SECOND, 10 * SECOND], False),
        ([SECOND, 11 * SECOND], True),
        ([0, 0, SECOND], False),
        ([0], False),
        ([], False),
    ],
)
def test_scale(waits: list[Span], expected: bool) -> None:
    """Logarithmic where waits differ by more than tenfold; waits of nothing do not matter."""
    assert logarithmic(waits) is expected


@pytest.mark.parametrize("waits", [[SECOND, 5 * SECOND, 30 * MINUTE], [SECOND, 2 * SECOND, 3 * SECOND], [0, 1, HOUR]])
def test_longer_waits_are_taller(waits: list[Span]) -> None:
    """Order is kept on either scale, the longest fills it, and no wait is drawn as none."""
    shares = heights(waits)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert all((share > 0) == (wait > 0) for share, wait in zip(shares, waits, strict=True))


@pytest.mark.parametrize("count", [1, 2, 7, 50, 64, 65, 1_000])
def test_fits_its_width(count: int) -> None:
    """However many starts there are, no line is wider than a terminal."""
    waits = [SECOND * (n % 50 + 1) for n in range(count - 1)]
    text = draw(Starts([n * MINUTE for n in range(count)], waits, count * MINUTE, "held"))
    assert max(len(line) for line in text.splitlines()) <= 90


def test_starts_are_where_they_happened() -> None:
    """A start in the first half is drawn in the first half, and a crowd is taller than one alone."""
    line = draw(Starts([0, 1, 2, 75], (), 100), width=10).splitlines()[1]
    assert line == "  │█······▄··│"


def test_nothing_waited() -> None:
    """Where nothing waited there are no bars."""
    assert "wait before" not in draw(Starts([0], [], SECOND))
