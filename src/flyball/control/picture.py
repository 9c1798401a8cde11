"""The same chart as a picture, for a page or a message: a staircase of starts over time, and a bar for each wait.

Drawn with Pillow, which is an extra. Twice as large as it is meant to be seen, so that it is sharp.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flyball.control.chart import Starts, heights, logarithmic
from flyball.core.time import format_span
from flyball.errors import FlyballError

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

WIDTH: Final = 1600
HEIGHT: Final = 1100
LEFT: Final = 150
RIGHT: Final = WIDTH - 60
STAIRS: Final = (240, 600)
"""From the top of the upper panel to its bottom; the lower one likewise."""
BARS: Final = (725, 1000)
TICKS: Final = 4
BARS_LABELLED_MAX: Final = 16
"""With more bars than this their labels would touch."""

PAPER: Final = "#ffffff"
INK: Final = "#1f2933"
PALE: Final = "#7b8794"
GRID: Final = "#e4e7eb"
LINE: Final = "#2563a8"
BAR: Final = "#8bb4dc"
END: Final = "#c2362b"


def write(path: Path, title: str, subtitles: Sequence[str], starts: Starts) -> None:
    """Write the picture as PNG. FlyballError if Pillow is missing or the file cannot be written."""
    try:
        from PIL import Image, ImageDraw  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise FlyballError(
            "a picture needs Pillow, which is not installed", remedy='Install it: pip install "flyball-governor[png]"'
        ) from None
    image = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    draw = ImageDraw.Draw(image)
    _text(draw, (LEFT - 90, 48), title, 40, INK)
    for place, subtitle in enumerate(subtitles):
        _text(draw, (LEFT - 90, 104 + 36 * place), subtitle, 26, PALE)
    _stairs(draw, starts)
    _bars(draw, starts)
    try:
        image.save(path, format="PNG", optimize=True)
    except OSError as error:
        raise FlyballError(
            f"cannot write {path}: {error.strerror or error}", remedy="Check its folder, or name another file."
        ) from None


def _stairs(draw: "ImageDraw", starts: Starts) -> None:
    top, bottom = STAIRS
    lasts, most = max(starts.lasts, 1), max(len(starts.at), 1)

    def x_of(at: int) -> float:
        return LEFT + (RIGHT - LEFT) * at / lasts

    def y_of(count: int) -> float:
        return bottom - (bottom - top) * count / most

    _text(draw, (LEFT, top - 44), "starts", 24, PALE)
    for count in range(0, most + 1, -(-most // TICKS)):
        draw.line([(LEFT, y_of(count)), (RIGHT, y_of(count))], fill=GRID, width=2)
        _text(draw, (LEFT - 16, y_of(count)), str(count), 24, PALE, anchor="rm")
    for tick in range(TICKS + 1):
        at = starts.lasts * tick // TICKS
        anchor = "la" if tick == 0 else "ra" if tick == TICKS else "ma"
        _text(draw, (x_of(at), bottom + 14), format_span(at), 24, PALE, anchor=anchor)
    points = [(float(LEFT), float(bottom))]
    for count, at in enumerate(starts.at):
        points += [(x_of(at), y_of(count)), (x_of(at), y_of(count + 1))]
    points.append((RIGHT, y_of(len(starts.at))))
    draw.line(points, fill=LINE, width=5, joint="curve")
    if starts.end:
        y = y_of(len(starts.at))
        draw.ellipse([RIGHT - 11, y - 11, RIGHT + 11, y + 11], fill=END, outline=PAPER, width=3)
        _text(draw, (RIGHT, y - 44), starts.end, 26, END, anchor="ra")


def _bars(draw: "ImageDraw", starts: Starts) -> None:
    top, bottom = BARS
    scale = ", logarithmic scale" if logarithmic(starts.waits) else ""
    _text(draw, (LEFT, top - 60), f"wait before each start{scale}", 24, PALE)
    draw.line([(LEFT, bottom), (RIGHT, bottom)], fill=GRID, width=2)
    if not starts.waits:
        why = "it was never started again" if len(starts.at) == 1 else "drawn where there is one unit alone"
        _text(draw, (LEFT, (top + bottom) / 2), why, 24, PALE, anchor="lm")
        return
    slot = (RIGHT - LEFT) / len(starts.waits)
    width = min(slot * 0.72, 90)
    labelled = len(starts.waits) <= BARS_LABELLED_MAX
    longest = max(range(len(starts.waits)), key=lambda place: starts.waits[place])
    every = -(-len(starts.waits) // BARS_LABELLED_MAX)
    for place, share in enumerate(heights(starts.waits)):
        middle = LEFT + slot * (place + 0.5)
        y = bottom - (bottom - top) * share
        draw.rectangle([middle - width / 2, y, middle + width / 2, bottom], fill=BAR)
        if labelled or place == longest:
            _text(draw, (middle, y - 8), format_span(starts.waits[place]), 22, INK, anchor="mb")
        if place % every == 0:
            _text(draw, (middle, bottom + 12), str(place + 2), 22, PALE, anchor="ma")
    _text(draw, (RIGHT, bottom + 48), "start number", 22, PALE, anchor="ra")


def _text(draw: "ImageDraw", at: tuple[float, float], text: str, size: int, colour: str, *, anchor: str = "la") -> None:
    draw.text(at, text, fill=colour, font=_font(size), anchor=anchor)


def _font(size: int) -> "FreeTypeFont | ImageFont":
    from PIL import ImageFont  # noqa: PLC0415 - an extra

    return ImageFont.load_default(size)
