"""A terminal between a person and a child: what is typed goes to the child, what it shows goes to the person.

The child gets a terminal of its own (a PTY), with the size and the settings of the person's; that one is in raw mode as
long as the child lives, so that every key, Ctrl-C and Ctrl-Z included, is the child's to understand. Its mode is put
back whatever happens. Nothing here waits for a slow side: what cannot be written is kept, and no more is read then.
"""

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import termios
import tty
from collections.abc import Callable, Iterator
from typing import Any, Final

from flyball.core.event import Cause
from flyball.core.time import Span
from flyball.runtimes.driver import Ending, Life
from flyball.runtimes.process.failure import ending_of, ending_of_told
from flyball.runtimes.process.kernel import Status
from flyball.runtimes.sink import WAITING_MAX, opened_anew
from flyball.runtimes.watched import WatchedHands

CHUNK: Final = 65_536
"""Bytes that are read at once."""
DRAIN_MAX: Final = 2.0
"""Seconds for a person's terminal to take the last that a child showed. One that takes nothing at all is stuck."""
INTERRUPT: Final = b"\x03"
"""Ctrl-C, as it comes from a terminal in raw mode."""

INTERRUPTED: Final = 130
"""The exit code of a program that ends itself because of it."""

SIZE: Final = bytes(8)
"""Room for rows, columns and pixels, as the kernel has them."""

UNDONE: Final = frozenset({b"1", b"9", b"47", b"1000", b"1002", b"1003", b"1004", b"1006", b"1015", b"1049", b"2004"})
"""Modes that a program that draws its own screen turns on, and a shell cannot live with: another screen, the mouse."""
MODE: Final = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")
MODE_MAX: Final = 32
"""Bytes of such a sequence: so many are kept of what was shown last, as it may have been cut in two."""


class Terminal:
    """The person's."""

    def __init__(self, typed: int = 0, shown: int = 1) -> None:
        self.cooked = termios.tcgetattr(typed)
        """Its settings as they were found."""
        self.is_raw = False
        self.on_hang_up: Callable[[], None] = lambda: None
        """Called when it is gone while a child has it. Not everybody whom that concerns gets SIGHUP."""
        self.typed = opened_anew(typed, os.O_RDONLY)
        self.shown = opened_anew(shown, os.O_WRONLY)

    def close(self) -> None:
        """Put its mode back, and leave it."""
        self._set(self.cooked)
        os.close(self.typed)
        os.close(self.shown)

    @contextlib.contextmanager
    def raw(self) -> Iterator[None]:
        """Raw inside, as it was outside. Also after the whole program was suspended, when the shell has changed it."""
        loop = asyncio.get_running_loop()
        try:
            self.is_raw = True
            self._make_raw()
            loop.add_signal_handler(signal.SIGCONT, self._make_raw)
            yield
        finally:
            loop.remove_signal_handler(signal.SIGCONT)
            self._set(self.cooked)
            self.is_raw = False

    def size(self) -> bytes:
        """Its size, as the kernel has it."""
        return fcntl.ioctl(self.shown, termios.TIOCGWINSZ, SIZE)

    async def show(self, data: bytes) -> None:
        """Show it, all of it: a terminal that is busy with much output takes nothing for a while."""
        loop, left = asyncio.get_running_loop(), bytearray(data)
        _write(self.shown, left)
        while left:
            takes: asyncio.Future[None] = loop.create_future()
            loop.add_writer(self.shown, _settle, takes)
            try:
                await takes
            finally:
                loop.remove_writer(self.shown)
            _write(self.shown, left)

    async def ask(self, question: str) -> str | None:
        """What the person answers, up to Enter; None if nobody is there any more. What was typed before the question
        is no answer to it."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str | None] = loop.create_future()

        def read() -> None:
            try:
                line = os.read(self.typed, CHUNK)
            except BlockingIOError:
                return
            except OSError:
                line = b""
            if not answer.done():
                answer.set_result(line.decode(errors="replace").strip() if line else None)

        with contextlib.suppress(termios.error):
            termios.tcflush(self.typed, termios.TCIFLUSH)
        await self.show(question.encode())
        loop.add_reader(self.typed, read)
        try:
            return await answer
        finally:
            loop.remove_reader(self.typed)

    def _make_raw(self) -> None:
        with contextlib.suppress(termios.error):
            tty.setraw(self.typed, termios.TCSANOW)

    def _set(self, settings: list[Any]) -> None:
        with contextlib.suppress(termios.error):  # it hung up: then there is nothing to put back
            termios.tcsetattr(self.typed, termios.TCSANOW, settings)


class Pty:
    """The child's terminal, joined to the person's until it is closed. `path` is what the child has to open, first
    thing in a session of its own: then it is its controlling terminal."""

    def __init__(self, terminal: Terminal, on_output: Callable[[bytes], None] = lambda _: None) -> None:
        self.interrupted = False
        """The person has typed Ctrl-C."""
        self._terminal = terminal
        self._on_output = on_output
        self._loop = asyncio.get_running_loop()
        self._to_child = bytearray()
        self._to_person = bytearray()
        self._ended = False
        """The child's last word was read."""
        self._shown = asyncio.Event()
        """And was shown."""
        self._modes: set[bytes] = set()
        self._last = b""
        self._master, self._slave = os.openpty()
        self.path = os.ttyname(self._slave)
        termios.tcsetattr(self._slave, termios.TCSANOW, terminal.cooked)
        os.set_blocking(self._master, False)
        self._resize()
        self._loop.add_signal_handler(signal.SIGWINCH, self._resize)
        self._loop.add_reader(terminal.typed, self._read_person)
        self._loop.add_reader(self._master, self._read_child)

    async def close(self) -> None:
        """The child is gone: show the last of what it wrote, undo what it did to the person's terminal, and end."""
        loop, terminal = self._loop, self._terminal
        loop.remove_signal_handler(signal.SIGWINCH)
        loop.remove_reader(terminal.typed)
        loop.remove_writer(self._master)
        os.close(self._slave)  # the last one that had it: now what was written has an end
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._shown.wait(), DRAIN_MAX)
        loop.remove_reader(self._master)
        loop.remove_writer(terminal.shown)
        with contextlib.suppress(TimeoutError):
            modes = b"".join(b"\x1b[?%bl" % mode for mode in sorted(self._modes))
            await asyncio.wait_for(terminal.show(modes), DRAIN_MAX)
        os.close(self._master)

    @property
    def is_full(self) -> bool:
        """The child's terminal is not read, because the person's takes nothing."""
        return not self._ended and len(self._to_person) >= WAITING_MAX

    def _resize(self) -> None:
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, self._terminal.size())

    # From the person to the child.

    def _read_person(self) -> None:
        data = _read(self._terminal.typed)
        if data is None:
            return
        if not data:
            self._loop.remove_reader(self._terminal.typed)
            self._terminal.on_hang_up()
            return
        self.interrupted = self.interrupted or INTERRUPT in data
        self._to_child += data
        self._write_child()

    def _write_child(self) -> None:
        _write(self._master, self._to_child)
        if self._to_child:
            self._loop.add_writer(self._master, self._write_child)
        else:
            self._loop.remove_writer(self._master)
        _listen(self._loop, self._terminal.typed, self._read_person, len(self._to_child) < WAITING_MAX)

    # From the child to the person.

    def _read_child(self) -> None:
        data = _read(self._master)
        if data is None:
            return
        if data:
            self._on_output(data)
            self._note_modes(data)
            self._to_person += data
        else:
            self._ended = True
        self._write_person()

    def _write_person(self) -> None:
        _write(self._terminal.shown, self._to_person)
        if self._to_person:
            self._loop.add_writer(self._terminal.shown, self._write_person)
        else:
            self._loop.remove_writer(self._terminal.shown)
        _listen(self._loop, self._master, self._read_child, not self._ended and not self.is_full)
        if self._ended and not self._to_person:
            self._shown.set()

    def _note_modes(self, data: bytes) -> None:
        for numbers, switch in MODE.findall(self._last + data):
            modes = UNDONE.intersection(numbers.split(b";"))
            self._modes = self._modes | modes if switch == b"h" else self._modes - modes
        self._last = data[-MODE_MAX:]


async def begin_on(terminal: Terminal, hands: WatchedHands, run: str, *, again: bool) -> "TerminalLife":
    """Begin a run on a terminal of its own, joined to the person's."""

    def heard(data: bytes) -> None:
        if hands.process.life is not None:
            hands.process.life.hear(data)

    with contextlib.ExitStack() as stack:
        stack.enter_context(terminal.raw())  # before it begins: what is typed from then on is the child's
        pty = Pty(terminal, heard)
        hands.process.terminal = pty.path
        life = await hands.begin(run, again=again)
        if hands.process.life is not None:
            hands.process.life.held_up_by(lambda: pty.is_full)
        return TerminalLife(hands, life, pty, stack.pop_all())


class TerminalLife:
    """One run on a terminal. It is over when the last of it was shown and the person's terminal is as it was."""

    def __init__(self, hands: WatchedHands, life: Life, pty: Pty, raw: contextlib.ExitStack) -> None:
        self._hands, self._life, self._pty = hands, life, pty
        self._over = asyncio.ensure_future(self._live(raw))

    async def ended(self) -> Ending:
        """Wait until it is over."""
        return await asyncio.shield(self._over)

    async def end(self, grace: Span) -> None:
        """Make it end."""
        await self._life.end(grace)
        await asyncio.shield(self._over)

    async def _live(self, raw: contextlib.ExitStack) -> Ending:
        with raw:
            ending = await self._life.ended()
            await self._pty.close()
        process, unit = self._hands.process.life, self._hands.unit
        if ending.cause is not Cause.ERROR or process is None or not process.pid:
            return ending
        status, secrets = Status(ending.code, ending.signal), unit.env.values()
        if self._pty.interrupted and (ending.signal == signal.SIGINT or ending.code == INTERRUPTED):
            return ending_of_told(unit.name, status, process.tail(), secrets=secrets)
        # The last lines, which name the failure, may have come after the exit.
        return ending_of(unit.name, status, process.tail(), pid=process.pid, secrets=secrets)


def _read(descriptor: int) -> bytes | None:
    """What there is to read; nothing at its end, None if there is nothing yet."""
    try:
        return os.read(descriptor, CHUNK)
    except BlockingIOError:
        return None
    except OSError:  # EIO: the other side of a terminal is closed
        return b""


def _write(descriptor: int, data: bytearray) -> None:
    """Write as much as goes, and keep the rest. To a terminal that is gone everything goes."""
    try:
        while data:
            del data[: os.write(descriptor, data)]
    except BlockingIOError:
        return
    except OSError:
        data.clear()


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _listen(loop: asyncio.AbstractEventLoop, descriptor: int, read: Callable[[], object], wanted: bool) -> None:
    if wanted:
        loop.add_reader(descriptor, read)
    else:
        loop.remove_reader(descriptor)
