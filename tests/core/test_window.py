"""The one sliding window, against a list of all that ever happened."""

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.time import FOREVER, SECOND
from flyball.core.window import MARKS_MAX, Window, add, below_at, count

LENGTHS = st.sampled_from([1, 10, 1_000, 60 * SECOND])
GAPS = st.lists(st.one_of(st.sampled_from([0, 1, 9, 10, 11, 60 * SECOND]), st.integers(0, 2_000)), max_size=60)


def filled(gaps: list[int], length: int, limit: int) -> tuple[Window, list[int], int]:
    """A window, all instants that were put into it, and the present."""
    window: Window = ()
    marks: list[int] = []
    now = 1_000_000
    for gap in gaps:
        now += gap
        window = add(window, now, length, limit)
        marks.append(now)
    return window, marks, now


@given(GAPS, LENGTHS, st.integers(1, MARKS_MAX), st.integers(0, 100))
def test_counts_as_a_list_would(gaps: list[int], length: int, limit: int, passed: int) -> None:
    """Up to the limit the count is exact; beyond it, it says at least the limit."""
    window, marks, now = filled(gaps, length, limit)
    now += passed
    truth = len(marks) - bisect_left(marks, now - length)
    assert min(count(window, now, length), limit) == min(truth, limit)
    assert len(window) <= limit


@given(GAPS, LENGTHS, st.integers(MARKS_MAX + 1, 10_000), st.integers(0, 100))
def test_a_grain_never_forgets_early(gaps: list[int], length: int, limit: int, passed: int) -> None:
    """A coarse window counts all there is, and at most what lies one grain further back."""
    window, marks, now = filled(gaps, length, limit)
    now += passed
    grain = max(1, length // MARKS_MAX)
    truth = len(marks) - bisect_left(marks, now - length)
    almost = len(marks) - bisect_left(marks, now - length - grain)
    assert truth <= count(window, now, length) <= almost


@given(GAPS, LENGTHS, st.integers(1, MARKS_MAX), st.integers(1, 10))
def test_below_at_is_the_first_such_instant(gaps: list[int], length: int, limit: int, most: int) -> None:
    """At that instant fewer are in the window; one microsecond before, there were not."""
    window, _, now = filled(gaps, length, limit)
    until = below_at(window, now, length, most)
    assert until >= now
    assert count(window, until, length) < most
    assert until == now or count(window, until - 1, length) >= most


@pytest.mark.parametrize(("age", "expected"), [(0, 1), (59_999_999, 1), (60 * SECOND, 1), (60 * SECOND + 1, 0)])
def test_boundary_is_inclusive(age: int, expected: int) -> None:
    """What is exactly as old as the window is long still counts; a microsecond later it does not."""
    assert count(add((), 0, 60 * SECOND, 5), age, 60 * SECOND) == expected


@pytest.mark.parametrize("limit", [1, 5, MARKS_MAX, MARKS_MAX + 1, 1_000_000])
@pytest.mark.parametrize("gap", [0, 1, 1_000, SECOND])
def test_marks_are_bounded(limit: int, gap: int) -> None:
    """However high the limit and however many there are."""
    window: Window = ()
    for number in range(2_000):
        window = add(window, number * gap, 300 * SECOND, limit)
    assert len(window) <= min(limit, MARKS_MAX + 1)


@pytest.mark.parametrize(
    "length",
    [129, 255],
)
def test_marks_are_bounded_in_a_short_window_too(length: int) -> None:
    """A window that is not a multiple of its marks holds no more of them."""
    window: Window = ()
    for now in range(2_000):
        window = add(window, now, length, 1_000_000)
    assert len(window) <= MARKS_MAX + 2


def test_several_at_once() -> None:
    """Some at one instant are one mark that counts for all of them."""
    window = add(add((), 5, 10, 100, n=3), 5, 10, 100, n=4)
    assert window == ((5, 7),)
    assert count(window, 15, 10) == 7


def test_late_news_is_not_lost() -> None:
    """What is reported late counts with the newest mark: never forgotten early, and instants never fall."""
    window = add(add((), 100, 50, 10), 70, 50, 10)
    assert window == ((100, 2),)


def test_is_a_value() -> None:
    """Adding leaves the window as it was."""
    before = add((), 1, 10, 5)
    add(before, 2, 10, 5)
    assert before == ((1, 1),)


def test_fewer_than_none_is_never() -> None:
    """With a limit of 0 there is no instant at which fewer than none are in the window."""
    assert below_at((), 5, 10, 0) == FOREVER
