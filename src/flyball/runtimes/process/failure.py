"""What a failed exit says: the error for people, its fingerprint, and the last lines as detail.

The fingerprint is made of what stays the same when the same thing fails again: exit code, signal, the innermost frames
of a Python traceback, or the last lines that look like an error. Progress lines, process numbers and times are not.
"""

import re
import signal as signals
from collections.abc import Iterable
from typing import Final, NamedTuple

from flyball.core.event import DETAIL_MAX, Cause
from flyball.core.failure import FINGERPRINT_VERSION, fingerprint
from flyball.core.hiding import hide
from flyball.runtimes.driver import Ending
from flyball.runtimes.process.kernel import UNKNOWN, Status

ERROR_MAX: Final = 200
"""Characters of an error as people read it in one line."""
LINE_MAX: Final = 1_000
"""Characters of a line that are looked at: what is longer is no message."""
ERROR_LINES_MAX: Final = 2
"""Lines that name a failure without a traceback: the error, and what it was wrapped in."""

_ESCAPES: Final = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])")
_UNPRINTABLE: Final = re.compile(r"[^\n\t\x20-\x7e\xa0-\U0010ffff]")
_FRAME: Final = re.compile(r'^[ |+]*File "([^"]+)", line \d+(?:, in (\S+))?')
_EXCEPTION: Final = re.compile(r"^[ |+]*((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (.*))?$")
_LOOKS_BAD: Final = re.compile(
    r"error|exception|fatal|panic|fail|cannot|can't|could not|unable|denied|refused|not found|no such|invalid|"
    r"unknown|unexpected|killed|abort|segmentation|assert|out of memory|no space|timed out",
    re.IGNORECASE,
)
_PROCESS_NUMBERS: Final = re.compile(
    r"(?<=\w\[)\d+(?=\])|"  # app[4711]: as system logs have it
    r"(?<=\[)\d{4,}(?=\])|"  # [4711]; with three digits it may be a status
    r"(?<=\bpid[ =:])\s*\d+|"
    r"(?<=: )\s*\d+(?=\s+(?:Segmentation|Killed|Aborted|Terminated|Bus error|Illegal|Floating))",  # as shells have it
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"\b\d+\b")


class Traceback(NamedTuple):
    """The last Python exception among some lines."""

    type: str
    message: str
    frames: tuple[str, ...]


def ending_of(unit: str, status: Status, tail: str, *, pid: int = 0, secrets: Iterable[str] = ()) -> Ending:
    """How a run ended that nobody told to end."""
    code, number = status
    if code == 0:
        return Ending(Cause.DONE, code=0)
    text = hide(tail, secrets)
    if status == UNKNOWN:
        return Ending(
            Cause.LOST,
            fingerprint(unit, "lost"),
            FINGERPRINT_VERSION,
            "lost",
            detail=cut(f"it ended while it was nobody's child: its exit code is not known\n{text}"),
        )
    name = signal_name(number) if number is not None else f"exit {code}"
    lines = text.splitlines()
    raised = find_traceback(lines)
    if raised is None:
        message = "\n".join(find_errors(lines, pid))
        mark = fingerprint(unit, name, message=message, code=code, signal=number)
        return Ending(Cause.ERROR, mark, FINGERPRINT_VERSION, name, code, number, cut(text))
    mark = fingerprint(unit, raised.type, message=raised.message, frames=raised.frames, code=code, signal=number)
    error = f"{raised.type}: {raised.message}" if raised.message else raised.type
    if number is not None:
        error = f"{name} after {error}"
    return Ending(Cause.ERROR, mark, FINGERPRINT_VERSION, error[:ERROR_MAX], code, number, cut(text))


def ending_of_told(unit: str, status: Status, tail: str, *, secrets: Iterable[str] = ()) -> Ending:
    """How a run ended that was told to. Whoever told it knows why; the last lines show where it was."""
    code, number = status
    name = signal_name(number) if number is not None else "lost" if code is None else f"exit {code}"
    mark = fingerprint(unit, "stopped")
    return Ending(Cause.STOPPED, mark, FINGERPRINT_VERSION, name, code, number, cut(hide(tail, secrets)))


def find_traceback(lines: list[str]) -> Traceback | None:
    """The last one. Its head may have been cut off: the innermost frames are what counts."""
    last = next((place for place in range(len(lines) - 1, -1, -1) if _FRAME.match(lines[place])), None)
    if last is None:
        return None
    indent = len(lines[last]) - len(lines[last].lstrip(" |+"))
    for place in range(last + 1, len(lines)):
        line = lines[place]
        raised = _EXCEPTION.match(line[:LINE_MAX])
        if raised and len(line) - len(line.lstrip(" |+")) < indent:
            return Traceback(raised[1], raised[2] or "", _frames(lines[: last + 1]))
    return None


def _frames(lines: list[str]) -> tuple[str, ...]:
    """The frames at the end of these lines, innermost last: file and function, because lines move."""
    found: list[str] = []
    for line in reversed(lines):
        if line.strip(" |+").startswith("Traceback ("):
            break
        if frame := _FRAME.match(line):
            found.append(f"{frame[1].rpartition('/')[2]}:{frame[2] or ''}")
    return tuple(reversed(found))


def find_errors(lines: list[str], pid: int = 0) -> list[str]:
    """The last lines that look like an error, without numbers of processes, which are others each time."""
    found = [line[:LINE_MAX] for line in lines if _LOOKS_BAD.search(line[:LINE_MAX])][-ERROR_LINES_MAX:]
    own = str(pid)
    return [
        _PROCESS_NUMBERS.sub("<pid>", _NUMBER.sub(lambda number: "<pid>" if number[0] == own else number[0], line))
        for line in found
    ]


def readable(data: bytes) -> str:
    """Output as text that can be shown on a terminal: no colours, no control characters."""
    text = _ESCAPES.sub("", data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n"))
    return _UNPRINTABLE.sub("�", text)


def cut(text: str) -> str:
    """The end of it: what is said last is what matters."""
    return text[-DETAIL_MAX:]


def signal_name(number: int) -> str:
    """`SIGKILL`."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
