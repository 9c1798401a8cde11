"""`flyball logs`: what a unit printed, or the daemon. The files themselves are read; no daemon is needed."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import click

from flyball import app
from flyball.cli.ask import Asking
from flyball.cli.complete import unit_names
from flyball.control.client import connect
from flyball.control.context import CommandError, unknown_unit
from flyball.control.log_tail import BLOCK, last_lines_before
from flyball.control.text import one_line
from flyball.runtimes.guardian import LOG
from flyball.runtimes.process.output import log_path

FOLLOW_SECONDS: Final = 0.1
"""Between two looks for something new: no longer than an eye waits."""
HINT_MAX: Final = 1.0
"""Seconds for a daemon to say on which host the unit is: its log is here, and that comes first."""
LINES_MAX: Final = 1_000_000
LINE_BYTES_MAX: Final = 1024 * 1024
"""Of a line that is waited for: one that is longer is printed in parts, as JSON too."""
TAIL_BYTES_MAX: Final = 64 * 1024 * 1024
"""What is held in memory for the last lines: more than all files of a unit with the default limits."""


EXAMPLES: Final = """\
\b
Examples:
  flyball logs web               the last 50 lines
  flyball logs web -n 1000       more of them
  flyball logs web --follow      and whatever comes, until Ctrl-C
  flyball logs                   what the daemon says, if it runs in the background
  flyball logs web --json        for a script, one JSON object a line
"""


@click.command(epilog=EXAMPLES)
@click.argument("unit", required=False, shell_complete=unit_names)
@click.option("-n", "--lines", default=50, type=click.IntRange(0, LINES_MAX), help="The last so many; 50 if not given.")
@click.option("-f", "--follow", "--watch", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line: the unit, and what it printed.")
def logs(unit: str | None, lines: int, follow: bool, as_json: bool) -> None:
    """Print the last lines that UNIT printed; without a UNIT, those of the daemon's own log."""
    folder = app.state_dir(os.environ)
    path = folder / LOG if unit is None else log_path(folder / "logs", unit)
    there = path.exists()
    elsewhere = _elsewhere(unit, there=there) if unit is not None else ""
    if elsewhere:
        click.echo(elsewhere, err=True)
    if not there and not follow:
        nobody = "No daemon ran here in the background." if unit is None else f"{unit} has printed nothing yet."
        if not elsewhere:
            click.echo(nobody, err=True)
        return
    write = _Lines(unit or "").write if as_json else _write
    stream = _opened(path)
    try:
        if stream is not None:
            # Where it ends is noted first: what is added meanwhile is printed by following, once.
            end = os.fstat(stream.fileno()).st_size
            write(last_lines_before(path, stream, end, lines, TAIL_BYTES_MAX), last=not follow)
            stream.seek(end)
        for data in _following(path, stream) if follow else ():
            write(data, last=False)
    finally:
        if stream is not None:
            stream.close()


def _write(data: bytes, *, last: bool) -> None:  # noqa: ARG001 - bytes are printed as they come
    click.echo(data, nl=False)


class _Lines:
    """Prints a JSON object for each line. A line without its end waits for that, unless nothing comes any more."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._begun = b""

    def write(self, data: bytes, *, last: bool) -> None:
        *whole, self._begun = (self._begun + data).split(b"\n")
        if len(self._begun) > LINE_BYTES_MAX or (last and self._begun):
            whole.append(self._begun)
            self._begun = b""
        for line in whole:
            click.echo(json.dumps({"unit": self._unit, "line": line.decode(errors="replace")}))


def _elsewhere(unit: str, *, there: bool) -> str:
    """On which other host it prints now; nothing: on none. Where there is a log, only a daemon is asked, and not for
    long: a log is read most when the daemon does not answer."""
    try:
        said = _said_by_daemon(unit) if there else _said(unit)
    except CommandError as error:
        if error.code == "unknown_unit" and not there:
            raise
        return ""
    if not said.get("host"):
        return ""
    page = f" Its page: {said['page']}" if said["page"] else ""
    return one_line(f"{unit} runs on {said['host']}: what it prints now is there.{page}")


def _said(unit: str) -> Mapping[str, Any]:
    with Asking() as ask:
        there = [view["name"] for view in ask("status")["units"]]
        if unit not in there:
            raise unknown_unit(unit, there)
        said: Mapping[str, Any] = ask("logs", unit=unit, lines=0)
    return said


def _said_by_daemon(unit: str) -> Mapping[str, Any]:
    client = connect(app.state_dir(os.environ))
    if client is None:
        return {}
    with client:
        said: Mapping[str, Any] = client.ask("logs", {"unit": unit, "lines": 0}, timeout=HINT_MAX)
    return said


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _following(path: Path, stream: BinaryIO | None) -> Iterator[bytes]:
    """What is added to the file, for ever. A new file in its place is read from its beginning, one that was cut back
    from there on."""
    try:
        while True:
            if stream is not None:
                while block := stream.read(BLOCK):
                    yield block
                if os.fstat(stream.fileno()).st_size < stream.tell():
                    stream.seek(0)
                    continue
            there = _opened(path)
            if there is not None and (stream is None or not _same(there, stream)):
                if stream is not None:
                    yield from iter(lambda before=stream: before.read(BLOCK), b"")  # type: ignore[misc]
                    stream.close()
                stream = there
                continue
            if there is not None:
                there.close()
            time.sleep(FOLLOW_SECONDS)
    finally:
        if stream is not None:
            stream.close()


def _same(one: BinaryIO, other: BinaryIO) -> bool:
    return os.path.sameopenfile(one.fileno(), other.fileno())
