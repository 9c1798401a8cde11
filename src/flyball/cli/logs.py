"""`flyball logs`: what a unit printed. The files themselves are read; no daemon is needed."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import click

from flyball import app
from flyball.cli.ask import Asking
from flyball.cli.complete import unit_names
from flyball.control.context import unknown_unit
from flyball.control.log_tail import BLOCK, last_lines_before
from flyball.runtimes.process.output import log_path

FOLLOW_SECONDS: Final = 0.1
"""Between two looks for something new: no longer than an eye waits."""
LINES_MAX: Final = 1_000_000
TAIL_BYTES_MAX: Final = 64 * 1024 * 1024
"""What is held in memory for the last lines: more than all files of a unit with the default limits."""


@click.command()
@click.argument("unit", shell_complete=unit_names)
@click.option("-n", "--lines", default=50, type=click.IntRange(0, LINES_MAX), help="The last so many; 50 if not given.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
def logs(unit: str, lines: int, follow: bool) -> None:
    """Print the last lines that UNIT printed."""
    path = log_path(app.state_dir(os.environ) / "logs", unit)
    if not path.exists():
        _check_known(unit)
        if not follow:
            click.echo(f"{unit} has printed nothing yet.", err=True)
            return
    stream = _opened(path)
    try:
        if stream is not None:
            # Where it ends is noted first: what is added meanwhile is printed by following, once.
            end = os.fstat(stream.fileno()).st_size
            click.echo(last_lines_before(path, stream, end, lines, TAIL_BYTES_MAX), nl=False)
            stream.seek(end)
        for data in _following(path, stream) if follow else ():
            click.echo(data, nl=False)
    finally:
        if stream is not None:
            stream.close()


def _check_known(unit: str) -> None:
    with Asking() as ask:
        there = [view["name"] for view in ask("status")["units"]]
    if unit not in there:
        raise unknown_unit(unit, there)


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
