"""Where the foreground's output goes: a file, a pipe or a terminal of somebody else, who may read slowly or not at all.

Nothing here waits. What cannot be written is kept, and whoever brings more is told to stop while there is much of it.
Whether not to wait is not set on the descriptor, which is shared with others: so little is written at a time, and only
when there is room, that it goes at once.
"""

import asyncio
import contextlib
import os
import select
from collections.abc import Callable
from typing import Final, Protocol

WAITING_MAX: Final = 65_536
"""Bytes kept for a reader that is slow. No more is brought as long as there are as many."""
KEPT_MAX: Final = 4_194_304
"""Bytes kept of what is brought all the same: the last words of runs that ended meanwhile. More is thrown away."""
PIECE: Final = select.PIPE_BUF
"""Bytes for which there is room in every pipe that says that it has some."""
STUCK_AFTER: Final = 2.0
"""Seconds without a byte taken after which a reader is not waited for any more, once the end was ordered."""


class Takes(Protocol):
    """Whoever output is brought to."""

    on_room: Callable[[], None]

    @property
    def full(self) -> bool:
        """Bring no more for now."""

    def write(self, data: bytes) -> None:
        """Take it, also when it is full."""


class Sink:
    """One descriptor to write to. Used inside the event loop."""

    def __init__(self, descriptor: int) -> None:
        self.on_room: Callable[[], None] = _ignore
        """Called when more may be brought."""
        self.on_broken: Callable[[OSError], None] = lambda _: None
        """Called once, when it cannot be written any more: who read it went away, or its disk is full. What is brought
        then is thrown away."""
        self._descriptor = opened_anew(descriptor, os.O_WRONLY) if os.isatty(descriptor) else os.dup(descriptor)
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()
        self._taken = 0
        self._broken = False
        self._written = asyncio.Event()
        self._written.set()
        self._poll: select.poll | None = select.poll()
        self._poll.register(self._descriptor, select.POLLOUT)
        try:
            self._loop.add_writer(self._descriptor, _ignore)
            self._loop.remove_writer(self._descriptor)
        except PermissionError:  # a file: there is always room
            self._poll = None

    @property
    def full(self) -> bool:
        """Bring no more for now."""
        return len(self._waiting) >= WAITING_MAX

    def write(self, data: bytes) -> None:
        """Write it, now or as soon as there is room."""
        if not self._broken and len(self._waiting) < KEPT_MAX:
            self._waiting += data
            self._write()

    async def written(self) -> None:
        """Wait until everything is written, or cannot be."""
        await self._written.wait()

    def hurry(self) -> None:
        """The end was ordered: a reader that takes nothing at all is not waited for."""
        self._loop.call_later(STUCK_AFTER, self._look, self._taken)

    def close(self) -> None:
        """Leave it."""
        self._loop.remove_writer(self._descriptor)
        os.close(self._descriptor)

    def _write(self) -> None:
        was_full = self.full
        try:
            while self._waiting and self._has_room():
                count = os.write(self._descriptor, self._waiting[:PIECE])
                del self._waiting[:count]
                self._taken += count
        except BlockingIOError:
            pass
        except OSError as error:
            self._break()
            self.on_broken(error)
            return
        if self._waiting:
            self._written.clear()
            self._loop.add_writer(self._descriptor, self._write)
        else:
            self._written.set()
            if self._poll is not None:
                self._loop.remove_writer(self._descriptor)
        if was_full and not self.full:
            self.on_room()

    def _has_room(self) -> bool:
        return self._poll is None or bool(self._poll.poll(0))

    def _break(self) -> None:
        self._broken = True
        self._waiting.clear()
        self._written.set()
        if self._poll is not None:
            self._loop.remove_writer(self._descriptor)
        self.on_room()

    def _look(self, taken: int) -> None:
        if self._waiting and self._taken == taken:
            self._break()
        elif not self._broken:
            self._loop.call_later(STUCK_AFTER, self._look, self._taken)


def opened_anew(terminal: int, how: int) -> int:
    """The same terminal, opened once more: not to wait for it is then our choice alone, and not that of the shell that
    it is shared with."""
    for name in (os.ttyname, lambda _: "/dev/tty"):
        with contextlib.suppress(OSError):
            return os.open(name(terminal), how | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    return os.dup(terminal)


def _ignore() -> None:
    pass
