"""What a unit prints: kept in files that turn over, and its last lines in memory.

Output never stops a unit. A file that cannot be written loses output, says so once, and goes on when it can be written
again. Nothing is kept beyond its limit, whatever is printed: lines without end, no lines, no text.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

from flyball.runtimes.process.failure import readable
from flyball.runtimes.sink import Takes

log = logging.getLogger(__name__)

CHUNK_MAX: Final = 65_536
"""Bytes read at once: as much as a pipe holds, so that one unit that prints does not keep the others waiting."""
TAIL_MAX: Final = 8_192
"""Bytes of output kept in memory for each unit: some 50 to 100 lines, enough for a traceback."""
TAIL_LINES_MAX: Final = 50
DRAIN_MAX: Final = 1_048_576
"""Bytes still read after the exit. A pipe holds 64 KiB; more comes only from somebody who goes on writing."""
CHECK_EVERY: Final = 2.0
"""Seconds between looks at a file that the unit writes itself. In this time it can grow beyond its limit."""

Listener = Callable[[bytes], None]


def log_path(logs: Path, unit: str) -> Path:
    """The file of a unit's output. What would lead out of the folder is quoted."""
    return logs / f"{quote(unit, safe=' @+,=:')}.log"


class LogFile:
    """A file of at most so many bytes, and the ones before it: `.log`, `.log.1`, …"""

    __slots__ = ("_descriptor", "_files_max", "_lost", "_path", "_size", "_size_max")

    def __init__(self, path: Path, size_max: int, files_max: int) -> None:
        self._path = os.fspath(path)  # a quarter of the memory
        self._size_max, self._files_max = size_max, max(1, files_max)
        self._descriptor = -1
        self._size = 0
        self._lost = 0
        """Bytes that could not be written since the last that could."""

    @property
    def path(self) -> Path:
        """The newest of them."""
        return Path(self._path)

    def write(self, data: bytes) -> None:
        """Append, and turn over when it is full. Never raises."""
        view = memoryview(data)
        try:
            if self._lost:
                self._confess()
            while view:
                view = view[self._write_some(view) :]
        except OSError as error:
            self._lose(len(view), error)

    def open_for_child(self) -> int:
        """A descriptor of the file for a unit that writes by itself, or of nothing if that cannot be. To be closed by
        the caller."""
        try:
            self._open()
            return os.dup(self._descriptor)
        except OSError as error:
            self._lose(0, error)
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)

    def refresh(self) -> None:
        """Let go of a file that somebody removed: the next write makes a new one."""
        if self._descriptor >= 0 and os.fstat(self._descriptor).st_nlink == 0:
            self.close()

    def size(self) -> int:
        """The size of the file, whoever writes it."""
        try:
            return os.stat(self._path).st_size  # noqa: PTH116 - done every other second for each unit that is kept
        except OSError:
            return 0

    def cut_back(self) -> bool:
        """Turn over a file that somebody else holds open: its end is copied, then it is emptied. Whether it was."""
        if self.size() <= self._size_max:
            return False
        try:
            if self._files_max > 1:
                self._shift(2)
                _copy_end(self.path, self._name(1), self._size_max)
        except OSError as error:  # the disk is full: better no old output than no disk
            self._lose(0, error)
        with contextlib.suppress(OSError):
            os.truncate(self.path, 0)
        return True

    def end(self, size: int) -> bytes:
        """The last bytes of the file."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - size))
                return file.read(size)
        except OSError:
            return b""

    def close(self) -> None:
        """Give the descriptor back. The next write opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write_some(self, view: memoryview) -> int:
        if self._size_max <= 0:
            return len(view)
        if self._descriptor < 0:
            self._open()
        room = self._size_max - self._size
        if room <= 0:
            room = self._turn_over()
        written = os.write(self._descriptor, view[:room])
        self._size += written
        return written

    def _turn_over(self) -> int:
        """Begin a new file; the room in it. Two may write to one file, and the other may have done so already."""
        if not self._is_newest():
            self.close()
            self._open()
        if self._size >= self._size_max:
            self.close()
            self._shift()
            self._open(os.O_TRUNC)
        return self._size_max - self._size

    def _is_newest(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._path))  # noqa: PTH116 - as above
        except FileNotFoundError:
            return True

    def _open(self, flags: int = 0) -> None:
        if self._descriptor < 0:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags |= os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
            self._size = os.fstat(self._descriptor).st_size

    def _shift(self, first: int = 1) -> None:
        """Every file moves up by one, so that there is none with the number before the first; the oldest is dropped."""
        for number in range(self._files_max - 1, first - 1, -1):
            with contextlib.suppress(FileNotFoundError):
                self._name(number - 1).rename(self._name(number))

    def _name(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path

    def _lose(self, count: int, error: OSError) -> None:
        if not self._lost:
            log.warning("%s: %s; output is dropped until it can be written again", self.path, error.strerror)
        self._lost += max(1, count)

    def _confess(self) -> None:
        note = b"\n[flyball: %d bytes of output were lost here]\n" % self._lost
        self._write_some(memoryview(note))
        self._lost = 0


def _copy_end(source: Path, target: Path, size_max: int) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with source.open("rb") as old, os.fdopen(descriptor, "wb") as copy:
        old.seek(max(0, old.seek(0, os.SEEK_END) - size_max))
        copied = 0
        while copied < size_max and (part := old.read(CHUNK_MAX)):
            copied += copy.write(part)


class Heard:
    """Output that somebody brings us: it is kept in the file and in memory, and passed on."""

    __slots__ = ("_file", "_tail", "child_end", "is_held_up", "listener")

    def __init__(self, file: LogFile, listener: Listener | None) -> None:
        self._file = file
        self._tail = b""
        self.listener = listener
        self.is_held_up: Callable[[], bool] = _never
        """Whether whoever it goes to reads so slowly that the unit has to wait. It is not silent then."""
        self.child_end = -1
        """What the child gets as its output; below 0: nothing."""

    def begin(self) -> None:
        """The child has its end of it."""

    def finish(self) -> None:
        """The process is gone, or was never there."""

    def hear(self, data: bytes) -> None:
        """The unit printed this."""
        self._file.write(data)
        self._tail = (self._tail + data)[-TAIL_MAX:]
        _tell(self, data)

    def tail(self) -> str:
        """Its last lines."""
        return last_lines(self._tail)


class Piped(Heard):
    """Output that comes to us through a pipe, and ends with us."""

    __slots__ = ("_loop", "_pipe")

    def __init__(self, file: LogFile, listener: Listener | None) -> None:
        super().__init__(file, listener)
        self._loop = asyncio.get_running_loop()
        self._pipe, self.child_end = os.pipe()
        os.set_blocking(self._pipe, False)
        try:
            self._loop.add_reader(self._pipe, self._read)
        except OSError:
            os.close(self._pipe)
            self._close_child_end()
            raise

    def begin(self) -> None:
        self._close_child_end()

    def finish(self) -> None:
        """What is in the pipe is read; its end is not waited for: somebody may keep it open."""
        self._close_child_end()
        left = DRAIN_MAX
        while self._pipe >= 0 and left > 0:
            count = self._read()
            if not count:
                break
            left -= count
        self._close()

    def _read(self) -> int:
        try:
            data = os.read(self._pipe, CHUNK_MAX)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if data:
            self.hear(data)
        else:  # it closed its output, and may well live on
            self._close()
        return len(data)

    def _close(self) -> None:
        if self._pipe >= 0:
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = -1

    def _close_child_end(self) -> None:
        if self.child_end >= 0:
            os.close(self.child_end)
            self.child_end = -1


class Passed(Heard):
    """Output that is passed on as it comes: stdout and stderr each to its own sink, no faster than that takes it."""

    __slots__ = ("_streams", "child_errors")

    def __init__(self, file: LogFile, listener: Listener | None, sinks: tuple[Takes, Takes]) -> None:
        super().__init__(file, listener)
        self._streams: list[_Stream] = []
        try:
            self._streams += (_Stream(self, file, sink) for sink in sinks)
        except OSError:
            self.finish()
            raise
        self.child_end, self.child_errors = (stream.child_end for stream in self._streams)
        self.is_held_up = lambda: any(stream.waits for stream in self._streams)

    def begin(self) -> None:
        for stream in self._streams:
            stream.begin()

    def finish(self) -> None:
        """What is left in the pipes is not much: it is passed on whether there is room or not."""
        for stream in self._streams:
            stream.finish()


class _Stream(Piped):
    """One of the two pipes of `Passed`."""

    __slots__ = ("_sink", "_whole")

    def __init__(self, whole: Passed, file: LogFile, sink: Takes) -> None:
        super().__init__(file, None)
        self._whole, self._sink = whole, sink
        sink.on_room = self._listen

    def hear(self, data: bytes) -> None:
        self._whole.hear(data)
        self._sink.write(data)
        if self._sink.full and self._pipe >= 0:
            self._loop.remove_reader(self._pipe)

    @property
    def waits(self) -> bool:
        """It is not read, because its sink is full."""
        return self._pipe >= 0 and self._sink.full

    def _listen(self) -> None:
        if self._pipe >= 0:
            self._loop.add_reader(self._pipe, self._read)


class Filed:
    """Output that the unit writes to the file by itself, because it is to outlive us. We look at it now and then."""

    __slots__ = ("_file", "_loop", "_size", "_skip", "_timer", "child_end", "is_held_up", "listener")

    def __init__(self, file: LogFile, listener: Listener | None, *, adopted: bool = False) -> None:
        self._file = file
        self._loop = asyncio.get_running_loop()
        self.listener = listener
        self.is_held_up: Callable[[], bool] = _never
        self._size = file.size()
        self._skip = 0 if adopted else self._size
        """What is in the file before this is of other runs."""
        self._timer: asyncio.TimerHandle | None = None
        self.child_end = -1 if adopted else file.open_for_child()

    def begin(self) -> None:
        """The child has its end of it."""
        self._close_child_end()
        self._timer = self._loop.call_later(CHECK_EVERY, self._check)

    def finish(self) -> None:
        """The process is gone, or was never there."""
        self._close_child_end()
        if self._timer is not None:
            self._timer.cancel()
        self._look()

    def hear(self, data: bytes) -> None:
        """Nobody brings it."""

    def tail(self) -> str:
        """Its last lines."""
        return last_lines(self._file.end(min(TAIL_MAX, max(0, self._file.size() - self._skip))))

    def _close_child_end(self) -> None:
        if self.child_end >= 0:
            os.close(self.child_end)
            self.child_end = -1

    def _check(self) -> None:
        self._look()
        self._timer = self._loop.call_later(CHECK_EVERY, self._check)

    def _look(self) -> None:
        """Tell the listener what is new, and cut the file back."""
        size = self._file.size()
        if size != self._size and self.listener is not None:
            new = size - self._size if size > self._size else size
            _tell(self, self._file.end(min(new, CHUNK_MAX)))
        if self._file.cut_back():
            size = self._skip = 0
        self._size = size


Output = Heard | Filed


def _tell(output: Output, data: bytes) -> None:
    """A listener that fails is told nothing more: the run goes on."""
    try:
        if output.listener is not None:
            output.listener(data)
    except Exception:
        log.exception("who listened to the output failed, and is not told any more")
        output.listener = None


def last_lines(data: bytes) -> str:
    """The last lines of some output, as text."""
    return "\n".join(readable(data).splitlines()[-TAIL_LINES_MAX:])


def _never() -> bool:
    return False
