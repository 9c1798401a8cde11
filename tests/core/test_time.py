"""Lengths of time, as people write and read them."""

import pytest

from flyball.core.time import DAY, FOREVER, HOUR, MINUTE, SECOND, format_span, later, parse_span, seconds, span


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("29s", 29 * SECOND),
        ("29", 29 * SECOND),
        ("2.5", 2_500_000),
        ("1ms", 1_000),
        ("7us", 7),
        ("10m", 10 * MINUTE),
        ("10min", 10 * MINUTE),
        ("6h", 6 * HOUR),
        ("1d", DAY),
        ("1h30m", 90 * MINUTE),
        (" 1 h 30 m ", 90 * MINUTE),
        ("1D", DAY),
        ("0", 0),
    ],
)
def test_parse(text: str, expected: int) -> None:
    """A length is a number with a unit, or several of them; without a unit it is seconds."""
    assert parse_span(text) == expected


@pytest.mark.parametrize("text", ["", " ", "-5s", "5 parsecs", "h", "1h30x", "1.5.2", "1e5", "five", "5s!", "+1s"])
def test_parse_rejects(text: str) -> None:
    """Whatever else it is, it is an error that says how to write it."""
    with pytest.raises(ValueError, match="write it like"):
        parse_span(text)


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, "0 s"),
        (7, "7 us"),
        (1_500, "1.5 ms"),
        (SECOND, "1 s"),
        (2_500_000, "2.5 s"),
        (59 * SECOND, "59 s"),
        (MINUTE, "1 min"),
        (90 * SECOND, "1 min 30 s"),
        (HOUR, "1 h"),
        (90 * MINUTE, "1 h 30 min"),
        (DAY - 1, "23 h 59 min"),
        (DAY, "1 d"),
        (DAY + HOUR, "1 d 1 h"),
        (30 * DAY, "30 d"),
        (FOREVER, "for ever"),
    ],
)
def test_format(length: int, expected: str) -> None:
    """At most two parts, and the smaller one only where it says something."""
    assert format_span(length) == expected


@pytest.mark.parametrize("text", ["1ms", "29s", "10m", "6h", "1d", "1h30m"])
def test_what_is_formatted_can_be_parsed(text: str) -> None:
    """What is printed can be typed in again."""
    assert parse_span(format_span(parse_span(text))) == parse_span(text)


def test_seconds_and_back() -> None:
    """Settings are in seconds, to the microsecond."""
    assert seconds(span(0.1)) == 0.1
    assert span(0.1 + 0.2) == 300_000


@pytest.mark.parametrize(
    ("now", "length", "expected"),
    [(5, 3, 8), (FOREVER - 1, 1, FOREVER), (FOREVER - 1, 2, FOREVER), (FOREVER, DAY, FOREVER)],
)
def test_later(now: int, length: int, expected: int) -> None:
    """Nothing lies beyond for ever."""
    assert later(now, length) == expected


def test_no_length_is_too_long_to_say_so() -> None:
    """A length beyond all numbers is a wrong length, not another kind of error."""
    with pytest.raises(ValueError, match="write it like"):
        parse_span("9" * 400)
