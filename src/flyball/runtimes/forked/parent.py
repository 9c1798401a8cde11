"""A run in a forked child of the program: begun, served, heard and ended here, in the parent.

One thread per run reads its socket: messages are kept until somebody receives them, calls are served by a few threads.
A run that says more than anybody reads is not read further, so it waits, and the memory here is bounded. The same
thread sees the child end, kills what is left of it, and only then says that it is gone.
"""

import asyncio
import contextlib
import logging
import os
import re
import select
import signal
import socket
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple

from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.runtimes.forked import life, packing
from flyball.runtimes.forked.frames import Frame, Frames, Kind, head
from flyball.runtimes.forked.link import POSTED, Link
from flyball.runtimes.forked.packing import CannotSend
from flyball.runtimes.forked.serving import Servers
from flyball.runtimes.holder import is_gone
from flyball.runtimes.lifeline import Lifeline
from flyball.runtimes.process import kernel, strays, tree
from flyball.runtimes.process.kernel import UNKNOWN, Status
from flyball.runtimes.process.tree import Kin

log = logging.getLogger(__name__)

KEPT_MAX: Final = 1_000
KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Messages that wait to be received, and bytes of them. One that is larger than this is kept when no other is."""

ASKED_MAX: Final = 256
"""Calls of a run that are not answered yet. More than this wait in the run."""

TOLD_MAX: Final = 1_000
"""Frames on their way to a run that does not read, after which it is told nothing more: it hangs. The answers to its
calls are among them, and are not more than those."""

LOOK_EVERY: Final = 0.05
"""Seconds between looks whether a child has ended, where there is no event for that, or nobody reads it further."""

LINGERS_MAX: Final = 5.0
"""Seconds in which a child ends that has closed its socket. It takes less than one thousandth: it is what exiting
begins with."""

POSTED_WITHIN: Final = 10.0
"""Seconds in which is done what a run posted before it ended. It takes milliseconds, unless somebody's code hangs."""

COMPLAIN_AFTER: Final = 5.0
"""Seconds after SIGKILL, which takes milliseconds, until somebody is told that it did not help."""

STACKS_WITHIN: Final = 1.0
"""Seconds to say where it is. It takes milliseconds, also in a run that hangs."""
STACKS_SETTLE: Final = 0.05
"""Seconds without another line after which all was said."""
STACKS_MAX: Final = 65_536
"""Bytes of stacks that are read: what a pipe holds, so the run never waits for whoever reads them."""

_WARNING: Final = re.compile(r".*multi-threaded, use of fork\(\) may lead to deadlocks", re.IGNORECASE)
_HERE: Final = re.compile(re.escape(__name__))

_channels: Final[set[socket.socket]] = set()
"""The program's ends of the sockets. They must be in no other process: the runs would not see the program end."""
_forking = threading.Lock()
"""One fork at a time, so that no child gets the ends of another's socket that are not put away yet."""


class Gone(FlyballError):
    """The process of the run has ended, and all that it said was read."""

    remedy = "Look at what it printed last; one that was killed by the system had too little memory."

    def __init__(self, code: int | None, number: int | None, unit: str = "") -> None:
        how = f"with exit code {code}" if code is not None else "in an unknown way"
        if number is not None:
            how = f"by signal {signal.Signals(number).name if number in set(signal.Signals) else number}"
        super().__init__(f"the process of {unit or 'the run'} ended {how}")
        self.code, self.signal = code, number


class Prompt:
    """A service that does not block: it is done where the call is read, not in another thread. It may answer with a
    future."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)


class _Member(NamedTuple):
    """The run, as those see it who look for its processes."""

    pid: int
    mark: tuple[str, str]
    started: int


class Forked:
    """One run. It is begun at once; `close` it when it is not needed any more."""

    def __init__(
        self, work: Callable[[Link], None], *, services: Mapping[str, Callable[..., Any]], unit: str, run: str
    ) -> None:
        """`work` is called in the child, with its link. `services` are what it may call there: in threads here, unless
        they are `Prompt`. `unit` and `run` are the mark of all that it starts."""
        self._unit = unit
        self._services = services
        self._servers, self._in_order = Servers(unit), Servers(unit, most=1)
        self._means = kernel.detect(reaps=False)
        kernel.libc()  # opened here, for all children
        self._news = threading.Condition()
        """Something was received, read or answered, or the child has ended."""
        self._kept: deque[Frame] = deque()
        self._bytes = 0
        self._asked = 0
        self._bells: set[Callable[[], None]] = set()
        """Wake the coroutines that wait for a message."""
        self._sending = threading.Lock()
        self._unsent: deque[bytes | memoryview] = deque()
        self._heeds = False
        self._clean = False
        self._code: int | None = None
        """Its exit code, where it left something, and so was killed when it was over."""
        self._kin: tuple[Kin, ...] = ()
        """What it had started when it was told to end: when it has ended, not all of it can be found any more."""
        self._signalling = threading.Lock()
        self._looking = threading.Lock()
        """Held to read its stacks, and to put away the pipe that they come from."""
        self._reaped = False
        self._status = UNKNOWN
        self._over = threading.Event()
        with _forking:
            self.pid, self._channel, self._line, self._stacks = _fork(work, unit, run)
        self._member = _Member(self.pid, (unit, run), _started(self.pid))
        self._pidfd = _pidfd(self.pid) if self._means.pidfd else -1
        try:
            threading.Thread(target=self._look_after, name=f"flyball hears {unit}", daemon=True).start()
        except RuntimeError as error:  # no room for another thread
            self._signal(signal.SIGKILL)
            self._conclude()
            raise _no_room(unit, str(error)) from error

    # What it says.

    def receive(self, within: float | None = None) -> Any:
        """The next message of the run; Raised, if it did not end well. Gone when it has ended and all was read,
        TimeoutError if there is none within so many seconds."""
        by = None if within is None else time.monotonic() + within
        with self._news:
            while (frame := self._next()) is None:
                if not self._news.wait(None if by is None else max(0.0, by - time.monotonic())) and by is not None:
                    raise TimeoutError(f"{self._unit} said nothing within {within} s")
        return _opened(frame)

    async def receive_soon(self) -> Any:
        """`receive`, for coroutines. One that is cancelled takes no message with it."""
        loop = asyncio.get_running_loop()
        while True:
            came = asyncio.Event()
            ring = partial(_wake, loop, came)
            with self._news:
                frame = self._next()
                if frame is None:
                    self._bells.add(ring)
            if frame is not None:
                return _opened(frame)
            try:
                await came.wait()
            finally:
                with self._news:
                    self._bells.discard(ring)

    def _next(self) -> Frame | None:
        if self._kept:
            frame = self._kept.popleft()
            self._bytes -= len(frame.body)
            self._news.notify_all()
            return frame
        if self._over.is_set():
            raise Gone(*self._status, self._unit)
        return None

    # What it is told.

    def tell(self, message: object) -> None:
        """Tell the run something: `Link.told` is called with it. Nothing happens when it has ended."""
        if len(self._unsent) >= TOLD_MAX:
            raise CannotSend(f"{self._unit} does not read what it is told", remedy="End it: it hangs.")
        self._send(Kind.TOLD, 0, packing.pack(message))

    def end(self, grace: float) -> None:
        """Make it end: if it wants to end in order it is told, and has so many seconds; then it is killed with all that
        it started. Returns when nothing of it is left. Any thread may call this, at any time."""
        if grace and self._heeds and not self._over.is_set():
            self._kin = (*self._kin, *self._descendants())
            self._send(Kind.END, 0, b"")
            self._signal(signal.SIGTERM)
            self._over.wait(grace)
        if not self._over.is_set():
            self._kill()
        while not self._over.wait(COMPLAIN_AFTER):
            log.error("process %d of %s was killed and is not gone; the kernel cannot let it go", self.pid, self._unit)

    def where(self, within: float = STACKS_WITHIN) -> str:
        """The stacks of its threads, the newest call first: where it is, or hangs. Empty if it does not say so within
        so many seconds."""
        data = b""
        poll = select.poll()
        with self._looking:
            if self._over.is_set():
                return ""
            poll.register(self._stacks, select.POLLIN)
            with self._signalling:
                if not self._reaped:
                    os.kill(self.pid, life.DUMP_SIGNAL)
            while len(data) < STACKS_MAX and poll.poll((STACKS_SETTLE if data else within) * 1000):
                part = os.read(self._stacks, STACKS_MAX)
                if not part:
                    break
                data += part
        return data.decode(errors="replace")

    def close(self) -> None:
        """The run is not needed any more: end it at once, if it has not ended."""
        self.end(0)

    def _kill(self) -> None:
        # It must not start anything between the last look and its end. Its orphans come to it until then.
        self._signal(signal.SIGSTOP)
        strays.end_all(self._descendants, self._means)
        self._signal(signal.SIGKILL)

    def _descendants(self) -> list[Kin]:
        with self._signalling:
            return [] if self._reaped else tree.walk(self.pid, self._means)

    def _signal(self, number: int) -> None:
        """Send a signal to it and its group; to it alone, if that is so young that it has no group yet."""
        with self._signalling:
            if not self._reaped and not tree.send_to_group(self.pid, number):
                os.kill(self.pid, number)

    def _send(self, kind: Kind, number: int, body: bytes) -> None:
        """Never waits: whoever calls this may be the store's own thread, and the run may hang."""
        data = head(kind, number, body) + body
        with self._sending:
            if self._over.is_set():
                return
            if self._unsent:
                self._unsent.append(data)
                return
            try:
                sent = self._channel.send(data, socket.MSG_DONTWAIT)
            except BlockingIOError:
                sent = 0
            except OSError:  # it has ended
                return
            if sent < len(data):
                self._unsent.append(memoryview(data)[sent:])
                threading.Thread(target=self._send_rest, name=f"flyball tells {self._unit}", daemon=True).start()

    def _send_rest(self) -> None:
        while True:
            with self._sending:
                if not self._unsent or self._over.is_set():
                    return
                data = self._unsent[0]
            with contextlib.suppress(OSError):
                self._channel.sendall(data)
            with self._sending:
                self._unsent.popleft()

    # The thread that looks after it.

    def _look_after(self) -> None:
        try:
            self._hear()
        finally:
            self._conclude()

    def _hear(self) -> None:
        """Read what it says, until it has ended."""
        frames = Frames(self._channel)
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        if self._pidfd >= 0:
            poll.register(self._pidfd, select.POLLIN)
        patience = None if self._pidfd >= 0 else LOOK_EVERY * 1000
        while True:
            poll.poll(patience)
            ended = self._has_ended(0)  # before the last look: what it said is there by now
            try:
                while (frame := frames.next(socket.MSG_DONTWAIT)) is not None:
                    self._take(frame)
            except EOFError:
                if not self._has_ended(LINGERS_MAX):
                    log.warning("%s has closed the socket to its program, and is killed", self._unit)
                    self._kill()
                    self._has_ended(None)
                return
            if ended:
                return

    def _has_ended(self, within: float | None) -> bool:
        """Whether the child has ended, within so many seconds."""
        if self._pidfd >= 0:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            return bool(poll.poll(None if within is None else within * 1000))
        by = None if within is None else time.monotonic() + within
        while not self._reap(os.WNOHANG):
            if by is not None and time.monotonic() >= by:
                return False
            time.sleep(LOOK_EVERY)
        return True

    def _reap(self, flags: int) -> bool:
        """Take note of how it ended. From then on its number may be another's."""
        with self._signalling:
            if self._reaped:
                return True
            try:
                pid, status = os.waitpid(self.pid, flags)
            except ChildProcessError:  # the program, or the kernel on its behalf, reaps every child
                pid, status = self.pid, None
            if not pid:
                return False
            self._reaped = True
            self._status = UNKNOWN if status is None else kernel.status_of(status)
            return True

    def _take(self, frame: Frame) -> None:
        match frame.kind:
            case Kind.MESSAGE | Kind.RAISED:
                self._wait_for(lambda: self._has_room(len(frame.body)))
                with self._news:
                    self._kept.append(frame)
                    self._bytes += len(frame.body)
                    self._ring()
            case Kind.CALL:
                self._wait_for(lambda: self._asked < ASKED_MAX)
                with self._news:
                    self._asked += 1
                self._serve(frame)
            case Kind.POST:
                self._wait_for(lambda: self._asked < ASKED_MAX)
                with self._news:
                    self._asked += 1
                self._in_order.do(lambda: self._do_posted(frame))
            case Kind.HEEDS:
                self._heeds = True
            case Kind.CLEAN:
                self._clean = True
            case Kind.LEAVES:
                self._code = frame.number
                self._kill()
            case _:
                pass

    def _has_room(self, size: int) -> bool:
        return not self._kept or (len(self._kept) < KEPT_MAX and self._bytes + size <= KEPT_BYTES_MAX)

    def _wait_for(self, room: Callable[[], bool]) -> None:
        """Wait until there is room, but not for a child that has ended: what that has said is little."""
        with self._news:
            while not room() and not self._has_ended(0):
                self._news.wait(LOOK_EVERY)

    def _ring(self) -> None:
        self._news.notify_all()
        while self._bells:
            self._bells.pop()()

    def _serve(self, frame: Frame) -> None:
        number = frame.number
        try:
            name, args = packing.unpack(frame.body, "what the run asked")
            if name == POSTED:
                self._in_order.do(lambda: self._said(number, lambda: None))
                return
            service = self._service(name)
            if not isinstance(service, Prompt):
                self._servers.do(lambda: self._done(number, service, args))
                return
        except Exception as error:  # noqa: BLE001 - it belongs to whoever asked
            self._answer(number, Kind.FAULT, packing.pack_error(error))
            return
        self._done(number, service, args)

    def _service(self, name: str) -> Callable[..., Any]:
        service = self._services.get(name)
        if service is None:
            remedy = "It is one that the child was not given: name it where the child is started."
            raise FlyballError(f"there is no service {name!r} for {self._unit}", remedy=remedy)
        return service

    def _do_posted(self, frame: Frame) -> None:
        try:
            name, args = packing.unpack(frame.body, "what the run asked")
            self._service(name)(*args)
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever asked
            self._send(Kind.FAULT, 0, packing.pack_error(error))
        with self._news:
            self._asked -= 1
            if self._asked == ASKED_MAX - 1:
                self._news.notify_all()

    def _done(self, number: int, service: Callable[..., Any], args: Iterable[Any]) -> None:
        try:
            result = service(*args)
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever asked
            self._answer(number, Kind.FAULT, packing.pack_error(error))
            return
        if isinstance(result, Future):
            result.add_done_callback(lambda said: self._said(number, said.result))
        else:
            self._said(number, lambda: result)

    def _said(self, number: int, result: Callable[[], Any]) -> None:
        try:
            kind, body = Kind.ANSWER, packing.pack(result(), "the answer")
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever asked
            kind, body = Kind.FAULT, packing.pack_error(error)
        self._answer(number, kind, body)

    def _answer(self, number: int, kind: Kind, body: bytes) -> None:
        with self._news:
            self._asked -= 1
            if self._asked == ASKED_MAX - 1:
                self._news.notify_all()
        self._send(kind, number, body)

    def _conclude(self) -> None:
        """It has ended: kill what is left of it, and say that it is gone. It is reaped last, because its number is that
        of its group and session: until then nobody else can have it."""
        self._servers.close()
        self._in_order.close(POSTED_WITHIN)
        if not self._clean:
            self._signal(signal.SIGKILL)
            if self._reaped:  # without a pidfd that is how its end was seen; who is still in its group keeps the number
                tree.send_to_group(self.pid, signal.SIGKILL)
            strays.end_all(self._remains, self._means)
        self._reap(0)
        if self._code is not None:
            self._status = Status(self._code, None)
        with self._sending, self._looking:
            self._over.set()
            os.close(self._stacks)
        _channels.discard(self._channel)
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)  # wakes whoever still sends
        self._channel.close()
        self._line.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
        with self._news:
            self._ring()

    def _remains(self) -> list[Kin]:
        found = tree.search(self._member) if self._means.proc else []
        return [*found, *self._kin]


def clear(governor: Governor, unit: str) -> int:
    """End what is left of runs of that unit whose program was killed; how many processes there were. They ended with
    it, but for what had left their process group. To be called before such runs are reported as lost."""
    runs = {(unit, run) for _, run, live in governor.live_runs(unit) if is_gone(live.holder)}
    return strays.end(runs, kernel.detect(reaps=False))


def _opened(frame: Frame) -> Any:
    if frame.kind is Kind.MESSAGE:
        return packing.unpack(frame.body)
    raised = packing.unpack_error(frame.body)
    raised.error.add_note(f"It was raised in the process of the run:\n{raised.trace}")
    return raised


def _wake(loop: asyncio.AbstractEventLoop, came: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
        loop.call_soon_threadsafe(came.set)


def _started(pid: int) -> int:
    stat = kernel.stat(pid)
    return stat.started if stat is not None else 0


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError:  # too many open files: then it is looked at now and then
        return -1


def _no_room(unit: str, why: str) -> FlyballError:
    remedy = "Run fewer at once, or raise the limits of processes, open files and memory."
    return FlyballError(f"there is no room for a process of {unit}: {why}", remedy=remedy)


def _fork(work: Callable[[Link], None], unit: str, run: str) -> tuple[int, socket.socket, Lifeline, int]:
    """Fork a child that does the work; its number, our end of its socket, its lifeline, and where its stacks come."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # what was printed before the run is to be read before it
            stream.flush()
    _expect_warning()
    with contextlib.ExitStack() as undo, contextlib.ExitStack() as theirs:
        try:
            ours, channel = socket.socketpair()
            undo.callback(ours.close)
            theirs.callback(channel.close)
            stacks, shows = os.pipe()
            undo.callback(os.close, stacks)
            theirs.callback(os.close, shows)
            line = Lifeline()
            undo.callback(line.close)
            _channels.add(ours)
            undo.callback(_channels.discard, ours)
            # A signal that comes before the child has handlers of its own is not for those of the program.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            theirs.callback(signal.pthread_sigmask, signal.SIG_SETMASK, mask)
            pid = os.fork()
        except OSError as error:
            raise _no_room(unit, os.strerror(error.errno or 0)) from error
        if not pid:
            life.live(work, life.Ends(channel, line.theirs, shows), unit, run)
        undo.pop_all()
    return pid, ours, line, stacks


def _expect_warning() -> None:
    """Python warns of forks in programs with threads, because the child may need a lock that one of them holds. This
    is known here: see docs/decisions. Others' forks are theirs to be warned of."""
    expected = ("ignore", _WARNING, DeprecationWarning, _HERE, 0)
    if expected not in warnings.filters:
        warnings.filterwarnings("ignore", _WARNING.pattern, DeprecationWarning, _HERE.pattern)


def _forked_off() -> None:
    """In any fork of the program: the runs are not its own."""
    global _forking  # noqa: PLW0603 - whoever held it is not here
    _forking = threading.Lock()
    for channel in _channels:
        channel.close()
    _channels.clear()


os.register_at_fork(after_in_child=_forked_off)
