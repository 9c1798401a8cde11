"""Looking again and again, until Ctrl-C. On a terminal the picture is drawn in place, on a screen of its own, and the
terminal is left as it was found; anywhere else there is one block, or one JSON object a line, for each change.
"""

import contextlib
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import click

from flyball.cli.ask import Asking
from flyball.cli.show import on_terminal
from flyball.core.time import parse_span, seconds

EVERY: Final = 1.0
"""Seconds between two looks: as often as ages change."""
EVERY_MIN: Final = 0.1
"""More often than this nobody sees anything more."""
EVERY_MAX: Final = 3600.0
ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
"""Another screen, without a cursor. What is too long, because its letters are wide, is cut off and not wrapped."""
LEAVE: Final = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"


@dataclass(frozen=True, slots=True)
class Picture:
    """What there is to see at one moment."""

    lines: Sequence[str]
    data: Any
    """For scripts."""
    gist: object
    """What has to be another for it to be a change: ages go on, and change nothing."""


def _every(_: click.Context, __: click.Parameter, given: str | None) -> float | None:
    if given is None:
        return None
    try:
        found = seconds(parse_span(given))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if not EVERY_MIN <= found <= EVERY_MAX:
        raise click.BadParameter(f"{given!r} is not between {EVERY_MIN:g} s and {EVERY_MAX / 60:g} min")
    return found


watch_option: Final = click.option("-w", "--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
every_option: Final = click.option(
    "--every", callback=_every, metavar="TIME", help="How often --watch looks; 1s if not given."
)


def watch(ask: Asking, look: Callable[[], Picture], every: float | None, *, as_json: bool) -> NoReturn:
    """Show it for ever."""
    show = _in_place if on_terminal() and not as_json else _by_changes
    with _screen() if show is _in_place else contextlib.nullcontext():
        before: Picture | None = None
        while True:
            now = look()
            if ask.warning:
                now = Picture([f"warning: {ask.warning}", *now.lines], now.data, (ask.warning, now.gist))
            show(before, now, as_json)
            before = now
            time.sleep(every or EVERY)
            ask.renew()


def _in_place(_: Picture | None, now: Picture, as_json: bool) -> None:  # noqa: ARG001 - the shape of both
    rows = shutil.get_terminal_size().lines
    lines = list(now.lines)
    if len(lines) > rows:
        lines = [*lines[: rows - 1], f"… {len(lines) - rows + 1} more lines: a higher window, or fewer units"]
    sys.stdout.write("\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[K\x1b[J")
    sys.stdout.flush()


def _by_changes(before: Picture | None, now: Picture, as_json: bool) -> None:
    if before is not None and before.gist == now.gist:
        return
    if as_json:
        click.echo(json.dumps(now.data))
    else:
        click.echo("\n".join([*([""] if before is not None else []), *now.lines]))
    sys.stdout.flush()


@contextlib.contextmanager
def _screen() -> Iterator[None]:
    """A screen of its own inside; the terminal as it was outside, also if a signal ends this."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    handlers = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    sys.stdout.write(ENTER)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # a window that was closed takes nothing any more
            sys.stdout.write(LEAVE)
            sys.stdout.flush()
        for number, handler in handlers.items():
            signal.signal(number, handler)
