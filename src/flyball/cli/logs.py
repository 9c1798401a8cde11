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
from flyball.runtimes.process.output import log_path

FOLLOW_SECONDS: Final = 0.1
"""Between two looks for something new: no longer than an eye waits."""
BLOCK: Final = 65_536
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
            click.echo(_last_lines(path, stream, end, lines), nl=False)
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


def _last_lines(path: Path, stream: BinaryIO, end: int, lines: int) -> bytes:
    """The last lines of the file, and of those before it if it has too few."""
    if not lines:
        return b""
    found = _tail(stream, end, lines)
    number = 1
    while found.count(b"\n") < lines and len(found) < TAIL_BYTES_MAX:
        older = _opened(path.with_name(f"{path.name}.{number}"))
        if older is None:
            break
        with older:
            found = _tail(older, os.fstat(older.fileno()).st_size, lines - found.count(b"\n")) + found
        number += 1
    return found


def _tail(stream: BinaryIO, end: int, lines: int) -> bytes:
    """The last lines before the end. A last line without its end counts as one."""
    blocks: list[bytes] = []
    newlines, start = 0, end
    while start > 0 and newlines <= lines and end - start < TAIL_BYTES_MAX:
        start = max(0, start - BLOCK)
        stream.seek(start)
        block = stream.read(min(BLOCK, end - start - sum(map(len, blocks))))
        newlines += block.count(b"\n")
        blocks.append(block)
    found = b"".join(reversed(blocks)).split(b"\n")
    # What follows the last line's end is nothing, and no line.
    return b"\n".join(found[-lines - 1 :] if not found[-1] else found[-lines:])


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
