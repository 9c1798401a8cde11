"""Instants and spans. They are whole microseconds, so that sums and comparisons are exact.

With floats, "the oldest mark leaves the window at t" and "is it in the window at t?" can disagree by one rounding, and
a wait that has passed would be answered with the same wait for ever. Whole numbers cannot disagree.

Nothing here reads a clock: whoever needs the present gets it as an argument.
"""

import re
from typing import Final

Instant = int
"""Microseconds since the Unix epoch."""

Span = int
"""A length of time in microseconds."""

MICROSECOND: Final[Span] = 1
MILLISECOND: Final[Span] = 1_000
SECOND: Final[Span] = 1_000_000
MINUTE: Final[Span] = 60 * SECOND
HOUR: Final[Span] = 60 * MINUTE
DAY: Final[Span] = 24 * HOUR

FOREVER: Final[Instant] = 2**53 - 1
"""Later than any instant (the year 2255). The largest whole number that JSON readers of every language keep exactly."""

_UNITS: Final[dict[str, Span]] = {
    "us": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "min": MINUTE,
    "h": HOUR,
    "d": DAY,
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)\s*")


def span(seconds: float) -> Span:
    """Seconds, as people and settings give them, to a span."""
    return round(seconds * SECOND)


def seconds(length: Span) -> float:
    """A span to seconds, as people and settings read them."""
    return length / SECOND


def later(now: Instant, length: Span) -> Instant:
    """The instant that lies so much after now; never beyond FOREVER."""
    return min(now + length, FOREVER)


def parse_span(text: str) -> Span:
    """`29s`, `1ms`, `10m`, `6h`, `1h30m`, `2.5` (seconds). ValueError says what is allowed."""
    stripped = text.strip().lower()
    position, total = 0, 0
    while position < len(stripped):
        part = _PART.match(stripped, position)
        if part is None or (part[2] or "s") not in _UNITS:
            break
        total += round(min(float(part[1]) * _UNITS[part[2] or "s"], 2.0 * FOREVER))
        position = part.end()
    if position < len(stripped) or not stripped or total > FOREVER:
        raise ValueError(f"{text!r} is not a length of time; write it like 500ms, 29s, 10m, 6h, 1d or 1h30m")
    return total


def format_span(length: Span) -> str:
    """A span as people read it: at most two parts, the smaller one dropped when it says nothing."""
    if length >= FOREVER // 2:
        return "for ever"
    if length < MILLISECOND:
        return f"{length} us" if length else "0 s"
    if length < SECOND:
        return f"{length / MILLISECOND:g} ms"
    if length < MINUTE:
        return f"{length / SECOND:.4g} s"
    for large, large_name, small, small_name in (
        (DAY, "d", HOUR, "h"),
        (HOUR, "h", MINUTE, "min"),
        (MINUTE, "min", SECOND, "s"),
    ):
        if length >= large:
            whole, rest = divmod(length, large)
            rest //= small
            return f"{whole} {large_name} {rest} {small_name}" if rest else f"{whole} {large_name}"
    raise AssertionError("unreachable: every length is below a minute or above it")
