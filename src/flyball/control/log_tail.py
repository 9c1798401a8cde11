"""The end of what a unit printed: of its log file, and of those before it where it has too few lines. Where the file
is, whoever knows says; here it is only read, from its end and no further than has to be."""

import os
from pathlib import Path
from typing import Any, BinaryIO, Final

from flyball.control.context import Args, CommandError, Context, bounded, known_unit
from flyball.core.time import seconds

LINES_MAX: Final = 2_000
"""Lines in one answer. The files themselves have more: `flyball logs` reads them."""
BYTES_MAX: Final = 1024 * 1024
"""Bytes of the lines in one answer: 2,000 long ones."""
BLOCK: Final = 65_536
"""Bytes read at a time."""


def logs(context: Context, args: Args) -> Any:
    """The last lines that a unit printed here; and which other host has what it prints now, if one runs it."""
    lines = bounded(args, "lines", LINES_MAX)
    look = context.look()
    unit = known_unit(look, args["unit"])
    path = context.log_of(unit)
    if path is None:
        wrong = "nobody here knows where the logs are"
        raise CommandError("not_found", wrong, remedy="Ask the daemon, or use `flyball logs`.")
    try:
        text = last_lines(path, lines, BYTES_MAX).decode(errors="replace").removesuffix("\n")
    except FileNotFoundError:
        text = ""
    except OSError as error:
        wrong = f"{path.name}: {error.strerror or error}"
        raise CommandError("failed", wrong, remedy="Check the owner and mode of the folder of logs.") from None
    host = look.unit(unit).host
    host = host if host != context.host else ""
    return {
        "unit": unit,
        "lines": text.split("\n") if text else [],
        "host": host,
        "page": look.hosts[host].page if host in look.hosts else "",
        "at": seconds(look.now),
    }


def last_lines(path: Path, lines: int, bytes_max: int) -> bytes:
    """The last lines of a log. FileNotFoundError if there is none."""
    with path.open("rb") as stream:
        return last_lines_before(path, stream, os.fstat(stream.fileno()).st_size, lines, bytes_max)


def last_lines_before(path: Path, stream: BinaryIO, end: int, lines: int, bytes_max: int) -> bytes:
    """The last lines of the file before that place, and of the files before it if it has too few."""
    if not lines:
        return b""
    found = _tail(stream, end, lines, bytes_max)
    number = 1
    while found.count(b"\n") < lines and len(found) < bytes_max:
        try:
            older = path.with_name(f"{path.name}.{number}").open("rb")
        except FileNotFoundError:
            break
        with older:
            missing = lines - found.count(b"\n")
            found = _tail(older, os.fstat(older.fileno()).st_size, missing, bytes_max - len(found)) + found
        number += 1
    return found


def _tail(stream: BinaryIO, end: int, lines: int, bytes_max: int) -> bytes:
    """The last lines before the end. A last line without its end counts as one."""
    blocks: list[bytes] = []
    newlines, start = 0, end
    while start > 0 and newlines <= lines and end - start < bytes_max:
        start = max(0, start - BLOCK)
        stream.seek(start)
        block = stream.read(min(BLOCK, end - start - sum(map(len, blocks))))
        newlines += block.count(b"\n")
        blocks.append(block)
    found = b"".join(reversed(blocks)).split(b"\n")
    # What follows the last line's end is nothing, and no line.
    return b"\n".join(found[-lines - 1 :] if not found[-1] else found[-lines:])
