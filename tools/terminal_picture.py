"""A picture of a terminal: what commands really printed, with their colours, as SVG.

The letters are those of the reader's own fixed-width font: the picture loads nothing from anywhere.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text


def _colours(names: str) -> list[tuple[int, int, int]]:
    """Red, green and blue of each."""
    return [(int(name[:2], 16), int(name[2:4], 16), int(name[4:], 16)) for name in names.split()]


THEME: Final = TerminalTheme(
    (16, 20, 27),
    (215, 222, 231),
    _colours("484f58 ff7b72 3fb950 d29922 58a6ff bc8cff 39c5cf b1bac4"),
    _colours("6e7681 ffa198 56d364 e3b341 79c0ff d2a8ff 56d4dd f0f6fc"),
)
"""Dark, as most terminals are: it stands out on a light page, and does not glare on a dark one."""
PROMPT: Final = "[bold #7ee787]$[/] "
FRAME: Final = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" \
xmlns="http://www.w3.org/2000/svg">
    <style>
    .{unique_id}-matrix {{
        font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
        font-size: {char_height}px;
        line-height: {line_height}px;
        font-variant-east-asian: full-width;
    }}
    .{unique_id}-title {{ display: none; }}
    {styles}
    </style>
    <defs>
    {lines}
    </defs>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
</svg>
"""
"""Rich's own frame, without the fonts that it would fetch and the edge that cuts off the last line's tails."""


class Shown(NamedTuple):
    """A command and what it printed."""

    command: str
    output: str


def run(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, columns: int) -> str:
    """What a command prints on a terminal of that width."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    told = {**env, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    with subprocess.Popen(argv, env=told, cwd=cwd, stdin=subprocess.DEVNULL, stdout=its, stderr=its):  # noqa: S603 - ours
        os.close(its)
        parts = []
        while part := _read(ours):
            parts.append(part)
    os.close(ours)
    return b"".join(parts).decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    """Some of what is printed; nothing when nobody prints any more."""
    try:
        return os.read(terminal, 65_536)
    except OSError:  # so Linux says that the other side is closed
        return b""


def draw(shown: Sequence[Shown], columns: int) -> str:
    """The picture."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=columns, file=nowhere, force_terminal=True, color_system="truecolor")
        for place, one in enumerate(shown):
            if place:
                console.print()
            console.print(Text.from_markup(PROMPT).append(one.command, style="bold"))
            console.print(Text.from_ansi(one.output.rstrip("\n")))
        svg = console.export_svg(theme=THEME, code_format=FRAME, unique_id="terminal")
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)
