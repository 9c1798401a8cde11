"""Files of JSON lines, plain or gzipped: one line after the other, so that a file may be as long as it likes.

Here too is what a broken file is answered with: where, what, and what to do.
"""

import gzip
import io
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from flyball.errors import FlyballError

LINE_MAX: Final = 64 * 1024 * 1024
"""Bytes of a line: a run of ten thousand steps with results of 6 kB each."""

STDIN: Final = "-"
_GZIP: Final = b"\x1f\x8b"


class BadLine(FlyballError):
    """A line that is not what it should be."""

    def __init__(self, file: str, number: int, problem: str) -> None:
        super().__init__(
            f"{file}:{number}: {problem}",
            remedy="Nothing was replayed. Mend the line, or leave such lines out with --skip-broken.",
        )


class Lines:
    """The lines of a file. They can be gone through more than once: what comes from stdin is kept in a file that has no
    name meanwhile."""

    def __init__(self, path: str) -> None:
        self.name = "stdin" if path == STDIN else path
        self.broken = 0
        """Lines that were left out."""
        try:
            if path == STDIN:
                self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
                shutil.copyfileobj(sys.stdin.buffer, self._file)
            else:
                self._file = Path(path).open("rb")  # noqa: SIM115 - closed by close()
        except OSError as error:
            raise FlyballError(f"{self.name}: {error.strerror or error}", remedy="Give a file of JSON lines.") from None

    def leave_out(self, number: int, problem: str, *, skip: bool) -> None:
        """A line is broken: BadLine, unless such lines are to be skipped."""
        if not skip:
            raise BadLine(self.name, number, problem)
        self.broken += 1

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Each line that is not empty, with its number."""
        try:
            self._file.seek(0)
            self.broken = 0
        except (OSError, io.UnsupportedOperation):
            raise FlyballError(
                f"{self.name}: it can be read only once", remedy=f"Give it as stdin: flyball replay {STDIN} < FILE"
            ) from None
        zipped = self._file.read(len(_GZIP)) == _GZIP
        self._file.seek(0)
        stream = gzip.GzipFile(fileobj=self._file) if zipped else self._file
        number = 0
        try:
            while line := stream.readline(LINE_MAX + 1):
                number += 1
                if len(line) > LINE_MAX:
                    raise FlyballError(
                        f"{self.name}:{number}: the line is longer than {LINE_MAX // 1024**2} MiB",
                        remedy="One JSON object a line is read: recorded runs, or `flyball events --json`.",
                    )
                if not line.isspace():
                    yield number, line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise FlyballError(
                f"{self.name}: after line {number} the gzip data is broken: {error}",
                remedy="The file is cut off or damaged: get it again.",
            ) from None
