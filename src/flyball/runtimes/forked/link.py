"""The link: what a forked run has of the program that began it. Everything that is the program's is reached over it.

Any thread and any coroutine of the run may use it. One thread reads; whoever sends waits for room, so a run that says
more than anybody reads is slowed down, and nothing piles up.
"""

import contextlib
import itertools
import logging
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Final

from flyball.errors import FlyballError
from flyball.runtimes import bridge
from flyball.runtimes.forked import packing
from flyball.runtimes.forked.frames import CHUNK, Frame, Frames, Kind, head

log = logging.getLogger(__name__)

TOLD_MAX: Final = 1_000
"""What the run was told before it listens that is kept. It is told of its end, and of little else."""


POSTED: Final = "posted"
"""The service that answers when everything that was posted before is done."""


class Cut(FlyballError):
    """The program cannot be reached from here."""

    remedy = "Ask from the process of the run itself, not from one that it forked off, and before it has ended."


class Link:
    """The run's end of the socket."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._pid = os.getpid()
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._asked: dict[int, Future[Any]] = {}
        self._told: Callable[[Any], object] | None = None
        self._untold: deque[bytes | bytearray] = deque(maxlen=TOLD_MAX)
        self._telling = threading.Lock()
        self._at_end: Callable[[], object] | None = None
        self._failed: BaseException | None = None
        """What came of something that was posted, and was not raised here yet."""
        self._cut = False
        self.reader: Final = threading.Thread(target=self._read, name="flyball link", daemon=True)
        self.reader.start()

    def send(self, message: object) -> None:
        """Say something to whoever began the run: `Forked.receive` has it, in the order in which it was sent."""
        self._send(Kind.MESSAGE, 0, packing.pack(message))

    def ask(self, service: str, *args: object) -> "Future[Any]":
        """Have the program do something: one of the services that the run was begun with."""
        body = packing.pack((service, args), f"what {service} is asked")
        answer: Future[Any] = Future()
        answer.set_running_or_notify_cancel()  # it is done there, also if nobody waits any more
        number = next(self._numbers)
        self._asked[number] = answer
        try:
            self._send(Kind.CALL, number, body)
        except BaseException:
            self._asked.pop(number, None)
            raise
        return answer

    def post(self, service: str, *args: object) -> None:
        """Have the program do something, without waiting for it: what is posted is done in order, also if this process
        dies meanwhile. What it raises is raised by the next `post`, or by `posted`."""
        self._check_posted()
        self._send(Kind.POST, 0, packing.pack((service, args), f"what {service} is asked"))

    def posted(self) -> None:
        """Wait until everything that was posted is done; raise what it raised."""
        self.ask(POSTED).result()
        self._check_posted()

    def _check_posted(self) -> None:
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    def call(self, service: str, *args: object) -> Any:
        """`ask`, and wait: what it returns, or raises, in the program."""
        return self.ask(service, *args).result()

    async def call_soon(self, service: str, *args: object) -> Any:
        """`call`, for coroutines."""
        return await bridge.bring(self.ask(service, *args))

    @property
    def told(self) -> Callable[[Any], object] | None:
        """Called with what the run is told, in a thread of the link. What it was told before is said at once."""
        return self._told

    @told.setter
    def told(self, callback: Callable[[Any], object]) -> None:
        with self._telling:
            self._told = callback
            while self._untold:
                self._tell(callback, self._untold.popleft())

    def on_end(self, callback: Callable[[], object]) -> None:
        """End in order: when the run is to end, that is called, in a thread of the link, and the run has its grace.
        Without it, it is killed at once. To be called in the run's main thread."""
        self._at_end = callback
        signal.signal(signal.SIGTERM, _stay)
        self._send(Kind.HEEDS, 0, b"")

    def raised(self, error: BaseException) -> None:
        """The last word of a run that did not end well."""
        self._send(Kind.RAISED, 0, packing.pack_error(error))

    def clean(self) -> None:
        """The last word of a run that leaves nothing behind."""
        self._send(Kind.CLEAN, 0, b"")

    def leaves(self, code: int) -> None:
        """The last word of one that leaves something."""
        self._send(Kind.LEAVES, code, b"")

    def forget(self) -> None:
        """In a fork of the run: what it would say here would get between the frames of the run. And it ends when it is
        told to by a signal: whoever forked it off, such as a pool of workers, waits for that."""
        if signal.getsignal(signal.SIGTERM) is _stay:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._cut = True
        self._sending = threading.Lock()
        self._channel.close()

    def _send(self, kind: Kind, number: int, body: bytes) -> None:
        with self._sending:
            if self._cut:
                raise Cut("the program that began this run cannot be reached")
            try:
                if len(body) < CHUNK:
                    self._channel.sendall(head(kind, number, body) + body)
                else:
                    self._channel.sendall(head(kind, number, body))
                    self._channel.sendall(body)
            except BaseException as error:
                # Half a frame is the end of all talk: what comes after it would be read as its rest.
                self._cut = True
                if isinstance(error, OSError):
                    raise Cut("the program that began this run is gone") from error
                raise

    def _read(self) -> None:
        frames = Frames(self._channel)
        try:
            while True:
                frame = frames.next()
                if frame is not None:
                    self._take(frame)
        except EOFError:
            self._cut = True
        while self._asked:
            _, answer = self._asked.popitem()
            answer.set_exception(Cut("the program that began this run is gone"))

    def _take(self, frame: Frame) -> None:
        match frame.kind:
            case Kind.FAULT if not frame.number:
                self._failed = packing.unpack_error(frame.body).error
            case Kind.ANSWER | Kind.FAULT:
                answer = self._asked.pop(frame.number)
                try:
                    if frame.kind is Kind.FAULT:
                        answer.set_exception(packing.unpack_error(frame.body).error)
                    else:
                        answer.set_result(packing.unpack(frame.body, "the answer"))
                except Exception as error:  # noqa: BLE001 - it belongs to whoever asked
                    answer.set_exception(error)
            case Kind.TOLD:
                with self._telling:
                    if self._told is None:
                        self._untold.append(frame.body)
                    else:
                        self._tell(self._told, frame.body)
            case Kind.END if self._at_end is not None:
                with _said("that the run is to end"):
                    self._at_end()
            case _:
                pass

    def _tell(self, callback: Callable[[Any], object], body: bytes | bytearray) -> None:
        with _said("what the run was told"):
            callback(packing.unpack(body))


@contextlib.contextmanager
def _said(what: str) -> Iterator[None]:
    """An error in somebody's callback is not the link's."""
    try:
        yield
    except Exception:
        log.exception("%s could not be handled", what)


def _stay(number: int, frame: object) -> None:
    """The handler of SIGTERM in a run that ends in order: the link has told it, too."""
