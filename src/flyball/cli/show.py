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
    "up": "green",
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
    "critical": "red",
    "warning": "yellow",
    "info": "cyan",
    "hold": "red",
    "stop": "red",
    "finish": "yellow",
    "wait": "yellow",
}
"""Of the words for what a unit, a session or the fleet is; how bad a problem is; what a safeguard says."""


def _choose(context: click.Context, _: click.Parameter, given: str) -> None:
    """Click leaves escapes in, or takes them out, by this too."""
    context.color = {"always": True, "never": False}.get(given)


colour_option: Final = click.option(
    "--color",
    type=click.Choice(("auto", "always", "never")),
    default="auto",
    expose_value=False,
    is_eager=True,
    callback=_choose,
    help="Colours: where there is a terminal that wants them, always, never.",
)


def with_colours() -> bool:
    """Whether there is a terminal that wants colours; or somebody says so."""
    context = click.get_current_context(silent=True)
    if context is not None and context.color is not None:
        return context.color
    return on_terminal() and not os.environ.get("NO_COLOR")


def on_terminal() -> bool:
    """Whether a person reads this on something that can do more than print."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def coloured(text: str, word: str, *, bold: bool = False) -> str:
    """The text in the colour of the word, where there are colours."""
    return click.style(text, fg=COLOURS.get(word), bold=bold or None) if with_colours() else text


def strong(text: str) -> str:
    """A heading."""
    return click.style(text, bold=True) if with_colours() else text


def faint(text: str) -> str:
    """What is read last."""
    return click.style(text, fg="bright_black") if with_colours() else text


def fitted(text: str, wide: int | None) -> str:
    """One line that fits. Colours come after."""
    return text if wide is None or len(text) <= wide else text[: max(1, wide - 1)] + "…"


def width() -> int | None:
    """How wide the terminal is; none if there is none, and nothing need be cut off."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_json(data: Any) -> None:
    """For scripts."""
    click.echo(json.dumps(data, indent=2))
