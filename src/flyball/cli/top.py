"""`flyball top`: the whole fleet on one screen, live, with keys to put things right.

The terminal is left as it was found, however this ends. What is shown comes from the daemon as changes, so ten thousand
units cost as much as what happens to them; without a daemon it comes from the store.
"""

import contextlib
import os
import re
import select
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click
import msgspec

from flyball import app
from flyball.cli import FINE
from flyball.cli.ask import Asking
from flyball.cli.top_screen import Order, Top
from flyball.cli.watching import ENTER, LEAVE
from flyball.cli.why import why_lines
from flyball.control.client import connect
from flyball.control.context import CommandError
from flyball.errors import FlyballError

EVERY: Final = 0.5
"""Seconds between looks: as often as somebody can read."""
AGAIN_EVERY: Final = 2.0
"""Seconds between attempts to find a daemon that went away."""
KEYS_MAX: Final = 4_096
"""Bytes that are read at a time: more than anybody types, and no more of what is pasted."""
NAMES: Final = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "pageup",
    "\x1b[6~": "pagedown",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\b": "backspace",
    "\x1b": "escape",
}
_KEY: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)

EXAMPLES: Final = """\
\b
Examples:
  flyball top    until q

\b
Keys:
  j k, arrows, PgUp PgDn, g G   move
  /                             filter by name, state, kind, user, host or reason; Esc clears it
  s                             sort by need, name, restarts, spent or since
  Enter                         why the unit is what it is
  p r R                         pause it, resume it, reset its failure
  q                             quit
"""


@click.command(epilog=EXAMPLES)
def top() -> int:
    """Watch all units on the whole screen, and put things right with single keys. Needs a terminal; without a daemon it
    shows what the store knows."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise FlyballError(
            "top needs a terminal", remedy="In a script use `flyball status --json`; to watch a log, `flyball events`."
        )
    with Feed() as feed:
        first = feed.frame(-1, "")
        with full_screen() as resized:
            _live(feed, first, resized)
    return FINE


def _live(feed: "Feed", first: Mapping[str, Any], resized: int) -> None:
    shown = Top()
    shown.take(first)
    colours = not os.environ.get("NO_COLOR")
    looks_at = time.monotonic() + EVERY
    while True:
        size, shown.at = shutil.get_terminal_size(), max(shown.at, time.time())
        _draw(shown.picture(size.lines, size.columns, colours=colours))
        ready, _, _ = select.select([sys.stdin, resized], [], [], max(0.0, looks_at - time.monotonic()))
        if resized in ready:
            os.read(resized, KEYS_MAX)
        if sys.stdin in ready:
            typed = os.read(sys.stdin.fileno(), KEYS_MAX)
            if not typed:  # the terminal is gone
                return
            for key in keys_of(typed.decode(errors="replace")):
                if key in ("q", "\x03") and shown.text is None and not shown.typing and shown.asking is None:
                    return
                order = shown.key("escape" if key == "\x03" else key)
                if order is not None:
                    _carry_out(feed, shown, order)
                    looks_at = 0.0
        if time.monotonic() >= looks_at:
            looks_at = time.monotonic() + _look(feed, shown)


def _look(feed: "Feed", shown: Top) -> float:
    """Take what changed; the seconds until the next look."""
    try:
        shown.take(feed.frame(shown.rev, shown.epoch))
    except CommandError as error:
        shown.gone = f"The daemon does not answer, and this is as it was: {error}"
        return AGAIN_EVERY
    return EVERY


def _carry_out(feed: "Feed", shown: Top, order: Order) -> None:
    try:
        said = feed.ask(order.verb, **order.args)
    except FlyballError as error:
        shown.note = f"Not done: {error}"
        return
    if order.verb == "why":
        shown.text, shown.text_first = [click.unstyle(line) for line in why_lines(said)], 0
        return
    names = ", ".join(f"{unit['name']} is {unit['state']}" for unit in said["units"][:3])
    shown.note = f"Done: {order.verb}. {names}"


def keys_of(typed: str) -> Iterator[str]:
    """The keys that were pressed. What is unknown, such as a function key, is none."""
    for found in _KEY.findall(typed):
        if found in NAMES:
            yield NAMES[found]
        elif len(found) == 1:
            yield found


def _draw(lines: list[str]) -> None:
    """Over what is there, line by line: nothing flickers."""
    body = "\x1b[K\r\n".join(lines)
    sys.stdout.write(f"\x1b[H{body}\x1b[K\x1b[J")
    sys.stdout.flush()


@contextlib.contextmanager
def full_screen() -> Iterator[int]:
    """The whole terminal inside; as it was outside, also if a signal ends this. Yields what can be read from when the
    window has another size."""
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    def resized(_number: int, _frame: object) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(writer, b"r")

    handlers = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, resized)
    try:
        tty.setcbreak(stdin, termios.TCSANOW)
        sys.stdout.write(ENTER)
        yield reader
    finally:
        # A window that was closed takes nothing any more, and needs nothing.
        with contextlib.suppress(OSError, termios.error):
            sys.stdout.write(LEAVE)
            sys.stdout.flush()
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(stdin, termios.TCSANOW, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


class Feed:
    """What changed, by the daemon or by the store."""

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        self._folder = app.state_dir(env)
        self._client = connect(self._folder)
        self._store = Asking(env) if self._client is None else None
        """Only where no daemon ran from the beginning: the store does not take the place of one that went away."""
        self._board = self._store.board() if self._store is not None else None

    def __enter__(self) -> "Feed":
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()
        if self._store is not None:
            self._store.__exit__(None, None, None)

    def frame(self, since: int, epoch: str) -> Any:
        """What changed after that. CommandError if the daemon that told it is gone."""
        if self._board is None:
            return self.ask("watch", since=since, epoch=epoch)
        self._board.refresh()
        return msgspec.json.decode(self._board.frame(since, epoch))

    def ask(self, verb: str, **args: Any) -> Any:
        """The answer to a verb. A daemon that went away is looked for again."""
        if self._store is not None:
            return self._store(verb, **args)
        self._client = self._client or connect(self._folder)
        if self._client is None:
            raise CommandError("no_answer", "no daemon runs here any more", remedy="Start one: `flyball up -d`.")
        try:
            return self._client.ask(verb, args)
        except CommandError as error:
            if error.code == "no_answer":
                self._client.close()
                self._client = None
            raise
