"""The one sliding window. Whatever counts "so many within so long" counts it here.

A window is a tuple of marks (instant, how many), oldest first, and it is a value: adding gives a new one. A mark of age
exactly `length` still counts (the documents' boundary is inclusive), and one microsecond later it does not.

Bounded: small limits are counted exactly; where the limit is above MARKS_MAX, marks are rounded up to a grain of
`length / MARKS_MAX`. So a mark may be remembered up to one grain longer than it should be, and never forgotten early.
"""

from typing import Final

from flyball.core.time import FOREVER, Instant, Span, later

Window = tuple[tuple[Instant, int], ...]

MARKS_MAX: Final = 128
"""A window never holds more marks than this (plus the one being added), however high its limit is set."""


def add(window: Window, now: Instant, length: Span, limit: int, n: int = 1) -> Window:
    """The window with n more at now. What is too old, or beyond the last `limit`, is dropped."""
    if limit > MARKS_MAX:
        grain = max(1, -(-length // MARKS_MAX))
        now_mark = -(-now // grain) * grain
    else:
        now_mark = now
    start = 0
    while start < len(window) and window[start][0] + length < now:
        start += 1
    if window and window[-1][0] >= now_mark:
        last = window[-1]
        return (*window[start:-1], (last[0], last[1] + n))
    if limit <= MARKS_MAX:
        start = max(start, len(window) + 1 - limit)
    return (*window[start:], (now_mark, n))


def take(window: Window, n: int) -> Window:
    """The window without n of what it counts, the oldest first."""
    for place, (at, held) in enumerate(window):
        if held > n:
            return ((at, held - n), *window[place + 1 :])
        n -= held
    return ()


def count(window: Window, now: Instant, length: Span) -> int:
    """How many lie within the last `length`, its boundary included."""
    total = 0
    for at, n in reversed(window):
        if at + length < now:
            break
        total += n
    return total


def below_at(window: Window, now: Instant, length: Span, limit: int) -> Instant:
    """The first instant, not before now, at which fewer than `limit` are within the window."""
    if limit <= 0:
        return FOREVER
    total = count(window, now, length)
    if total < limit:
        return now
    for at, n in window:
        if at + length < now:
            continue
        total -= n
        if total < limit:
            return later(at, length + 1)
    return now
