"""Pacing: many units that wait for the same reason do not all start in the same instant."""

import pytest

from flyball.core.time import FOREVER, SECOND
from flyball.runtimes.post import PACED_FROM, Pace

NOW = 1_700_000_000 * SECOND
UNTIL = NOW + 10 * SECOND
NAMES = [f"u{number}" for number in range(100)]


def paced(waiting: int, jitter: float = 0.1) -> list[int]:
    """When each of a hundred units starts that may at the same instant."""
    pace = Pace(jitter)
    pace.waiting = waiting
    return [pace.later(name, NOW, UNTIL) for name in NAMES]


def test_few_are_not_paced() -> None:
    """As long as only some units wait, each starts when it may."""
    assert set(paced(PACED_FROM)) == {UNTIL}


@pytest.mark.parametrize("jitter", [0.0, 0.1, 0.5])
def test_many_are_spread(jitter: float) -> None:
    """Never earlier than it may, later by at most its share of the jitter, and spread evenly over that."""
    starts = paced(PACED_FROM + 1, jitter)
    room = round(10 * SECOND * jitter)
    assert all(0 <= start - UNTIL <= room for start in starts)
    tenths = {(start - UNTIL) * 10 // (room + 1) for start in starts}
    assert tenths == set(range(10 if jitter else 1))


def test_the_same_history_gives_the_same_times() -> None:
    """There are no dice."""
    assert paced(50) == paced(20)


@pytest.mark.parametrize("until", [NOW, NOW - SECOND, FOREVER])
def test_what_need_not_be_paced(until: int) -> None:
    """What may start now does, and what never may does not."""
    pace = Pace(0.5)
    pace.waiting = 1000
    assert pace.later("u", NOW, until) == until
