"""What the commands that look have in common: colours, the width of the terminal, JSON."""

import json
import os
import shutil
import sys
from typing import Any, Final

import click

COLOURS: Final = {
    "healthy": "green",
    "running": "green",
    "finished": "green",
    "degraded": "yellow",
    "cooling": "yellow",
    "draining": "yellow",
    "stopped": "bright_black",
    "paused": "magenta",
    "quarantined": "red",
    "halted": "red",
    "failed": "red",
    "completed": "green",
    "pending": "bright_black",
    "timed_out": "red",
    "budget_exceeded": "red",
    "lost": "red",
}
"""Of the words for what a unit, a session or the fleet is."""


def coloured(text: str, word: str) -> str:
    """The text in the colour of the word, where there is a terminal that wants colours."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return click.style(text, fg=COLOURS.get(word))


def width() -> int | None:
    """How wide the terminal is; none if there is none, and nothing need be cut off."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_json(data: Any) -> None:
    """For scripts."""
    click.echo(json.dumps(data, indent=2))
