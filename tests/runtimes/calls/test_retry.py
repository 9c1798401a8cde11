"""Retry: how long to wait between attempts, and for which errors."""

import pytest

from flyball.runtimes.calls import Retry
from flyball.runtimes.calls.retry import picks
from tests.runtimes.calls.stage import Broken, Fickle, Stage


@pytest.mark.parametrize(
    ("retry", "delays"),
    [
        (Retry(jitter=0), [1, 2, 4, 8, 16, 32, 60, 60]),
        (Retry(jitter=0, first=0.5, factor=3, longest=5), [0.5, 1.5, 4.5, 5, 5]),
        (Retry(jitter=0, first=0), [0, 0, 0]),
        (Retry(jitter=0, factor=1), [1, 1, 1]),
    ],
)
def test_delays_grow_up_to_the_longest(retry: Retry, delays: list[float]) -> None:
    """Each wait is so many times longer, and none is longer than the longest."""
    assert [retry.delay(number, "") for number in range(1, len(delays) + 1)] == delays


def test_the_exponent_is_bounded() -> None:
    """The millionth attempt waits as long as the longest."""
    assert Retry(jitter=0, attempts=10**6).delay(10**6, "") == 60


def test_jitter_is_no_dice() -> None:
    """The same attempt waits equally long each time; others wait otherwise, all within a tenth."""
    retry = Retry(first=10, longest=100)
    delays = [retry.delay(1, str(salt)) for salt in range(200)]
    assert delays == [retry.delay(1, str(salt)) for salt in range(200)]
    assert len(set(delays)) == 200
    assert 9 <= min(delays) < 9.2
    assert 10.8 < max(delays) <= 11


def test_jitter_never_exceeds_the_longest() -> None:
    """However large it is."""
    retry = Retry(first=10, longest=10, jitter=1)
    assert max(retry.delay(1, str(salt)) for salt in range(200)) == 10


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"attempts": 2.5},
        {"first": -1},
        {"factor": float("nan")},
        {"longest": float("inf")},
        {"jitter": 1.1},
    ],
)
def test_wrong_numbers_are_refused(wrong: dict[str, float]) -> None:
    """With the name of the number and what is allowed."""
    with pytest.raises(ValueError, match=rf"retry: {next(iter(wrong))} is .*; give"):
        Retry(**wrong)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    ("kinds", "picked"),
    [(OSError, False), (Broken, True), ((OSError, Broken), True), (lambda error: "x" in error.args, True)],
)
def test_kinds_of_errors(kinds: object, picked: bool) -> None:
    """A type, several, or a function."""
    assert picks(kinds, Broken("x")) is picked  # type: ignore[arg-type]  # a matrix of all kinds


@pytest.mark.parametrize(("asked_for", "slept"), [(None, [1.0]), (0.5, [1.0]), (7, [7.0]), (60, [60.0])])
def test_the_other_side_says_when(asked_for: float | None, slept: list[float]) -> None:
    """Its Retry-After is honoured where it is longer."""
    stage = Stage()
    call = stage.calls("fetch", retry=Retry(jitter=0, after=lambda _: asked_for))
    assert call(Fickle(1).__call__)() == 2
    assert stage.slept == slept
    stage.calls.close()


@pytest.mark.parametrize("asked_for", [61, float("nan")])
def test_the_other_side_asks_for_too_much(asked_for: float) -> None:
    """Then there is no further attempt, and the error says why."""
    stage = Stage()
    call = stage.calls("fetch", retry=Retry(jitter=0, after=lambda _: asked_for))
    with pytest.raises(Broken) as caught:
        call(Fickle(1).__call__)()
    assert "the longest wait is 60 s" in caught.value.__notes__[0]
    assert not stage.slept
    stage.calls.close()


@pytest.mark.parametrize(("given", "made"), [(None, 1), (False, 1), (True, 3), (1, 1), (5, 5)])
def test_how_often(given: int | bool | None, made: int) -> None:
    """No retry unless it is given; True: as the settings say."""
    stage, work = Stage(), Fickle(99)
    with pytest.raises(Broken):
        stage.calls("fetch", retry=given)(work.__call__)()
    assert work.made == made
    stage.calls.close()
