"""A chart of starts in the terminal: where on the line of time they are, and a bar for each wait between them.

Plain text, made of block characters. Time runs evenly; the bars are on a logarithmic scale where waits differ by more
than tenfold, because a ladder from a second to half an hour is otherwise one tall bar and a flat line. The picture
module draws the same thing.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from flyball.core.time import SECOND, Span, format_span

EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
WIDTH: Final = 64
HEIGHT: Final = 6
"""Lines of the bars: 48 levels, more than an eye tells apart."""
COLUMN_MAX: Final = 6
"""Characters for one bar, where there are few."""
LOGARITHMIC_FROM: Final = 10.0
"""A ratio of waits above which small ones would vanish on an even scale."""


class Starts(NamedTuple):
    """What there is to draw. Instants are counted from the first start."""

    at: Sequence[Span]
    waits: Sequence[Span]
    """Before each start but the first, after the exit before it. Of several units together they would say nothing."""
    lasts: Span
    """The end of the line of time."""
    end: str = ""
    """What happened there: `held by quarantine`."""


def logarithmic(waits: Sequence[Span]) -> bool:
    """Whether these are better drawn on a logarithmic scale."""
    above = [wait for wait in waits if wait > 0]
    return bool(above) and max(above) > LOGARITHMIC_FROM * min(above)


def heights(waits: Sequence[Span]) -> list[float]:
    """Each wait as a share of the longest, on the scale that suits them. A wait is never drawn as none."""
    above = [wait for wait in waits if wait > 0]
    if not above:
        return [0.0] * len(waits)
    longest, shortest = max(above), min(above)
    if not logarithmic(waits):
        return [wait / longest for wait in waits]
    # The scale begins below the shortest wait, so that this one is seen too.
    low = math.log10(shortest) - 0.5
    return [(math.log10(wait) - low) / (math.log10(longest) - low) if wait > 0 else 0.0 for wait in waits]


def draw(starts: Starts, width: int = WIDTH) -> str:
    """The whole chart, as lines."""
    lines = _line_of_time(starts, width)
    if any(starts.waits):
        lines += ["", *_bars(starts.waits, width)]
    return "\n".join(lines)


def _line_of_time(starts: Starts, width: int) -> list[str]:
    """How many starts fall on each place of the line, as blocks."""
    lasts = max(starts.lasts, 1)
    counts = [0] * width
    for at in starts.at:
        counts[min(at * width // lasts, width - 1)] += 1
    most = max(counts)
    line = "".join(EIGHTHS[_level(count, most)] if count else "·" for count in counts)
    block = "one start" if most == 1 else f"up to {most} starts within {format_span(_rounded(lasts // width))}"
    end = f"; at the end: {starts.end}" if starts.end else ""
    return [
        f"starts over time (a block: {block}){end}",
        f"  │{line}│",
        f"   0{format_span(_rounded(starts.lasts)):>{width - 1}}",
    ]


def _level(count: int, most: int) -> int:
    """One start alone is drawn half as high as a block can be, so that a crowd stands out."""
    return 4 + round(4 * (count - 1) / (most - 1)) if most > 1 else 8


def _bars(waits: Sequence[Span], width: int) -> list[str]:
    grouped, per = _grouped(waits, width)
    column = max(1, min(COLUMN_MAX, width // len(grouped)))
    longest, shortest = max(grouped), min(wait for wait in grouped if wait > 0)
    rows = HEIGHT if min(grouped) < longest else 1
    levels = [round(share * rows * 8) for share in heights(grouped)]
    labels = {rows - 1: format_span(_rounded(longest))}
    if shortest != longest:
        labels[0] = format_span(_rounded(shortest))
    margin = max(len("start"), *(len(label) for label in labels.values()))
    scale = ", logarithmic scale" if logarithmic(waits) else ""
    lines = [f"wait before each start{scale}" + (f", the longest of each {per}" if per > 1 else "")]
    for row in reversed(range(rows)):
        cells = (EIGHTHS[max(0, min(8, level - row * 8))] for level in levels)
        bars = "".join(_column(cell, column) for cell in cells)
        lines.append(f"  {labels.get(row, ''):>{margin}} │{bars}".rstrip())
    last = f"{len(waits) + 1}" if len(waits) > 1 else ""
    room = max(1, column * len(grouped) - len(last) - 1)
    lines.append(f"  {'start':>{margin}} │{'2':<{room}} {last}".rstrip())
    return lines


def _column(cell: str, width: int) -> str:
    return cell if width == 1 else cell * (width - 1) + " "


def _grouped(waits: Sequence[Span], width: int) -> tuple[list[Span], int]:
    """At most `width` bars: the longest of each so many."""
    per = -(-len(waits) // width)
    return [max(waits[start : start + per]) for start in range(0, len(waits), per)], per


def _rounded(length: Span) -> Span:
    """To whole seconds where it is longer than some: a label is for reading, not for reckoning."""
    return length if length < 10 * SECOND else round(length / SECOND) * SECOND
