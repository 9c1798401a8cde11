"""What a program and its forked run say to each other, as bytes: frames over one socket, each after its length.

Nothing here knows what a frame means, nor waits for anything but the socket.
"""

import enum
import socket
import struct
from typing import Final, NamedTuple

FRAME_MAX: Final = 256 * 1024 * 1024
"""Bytes of one frame. The state of a graph is kilobytes, rarely megabytes; more than this is a mistake, or belongs into
a file."""

CHUNK: Final = 65_536
HEAD: Final = struct.Struct("!BQQ")
"""Kind, number and length."""


class Kind(enum.IntEnum):
    """What a frame is."""

    MESSAGE = 1
    """From the run, for whoever began it."""
    RAISED = 2
    """The last message of a run that did not end well."""
    CALL = 3
    ANSWER = 4
    FAULT = 5
    """The answer to a call that raised."""
    TOLD = 6
    """From whoever began the run."""
    END = 7
    """The run is to end."""
    HEEDS = 8
    """The run wants to end in order."""
    CLEAN = 9
    """The run ends, and leaves nothing behind."""
    POST = 11
    """A call without an answer: only that it raised is said."""
    LEAVES = 10
    """The run is over, with the number as its exit code, and has left something: it is to be killed with that."""


class Frame(NamedTuple):
    """One of them."""

    kind: Kind
    number: int
    """Which call it is about."""
    body: bytes | bytearray


def head(kind: Kind, number: int, body: bytes) -> bytes:
    """What goes before the body."""
    return HEAD.pack(kind, number, len(body))


class Frames:
    """Reads frames from a socket."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._here = bytearray()
        """What was received and is not a whole frame yet."""
        self._body = bytearray()
        """The body of a long frame, as far as it has come."""
        self._filled = 0
        self._long: tuple[Kind, int] | None = None

    def next(self, flags: int = 0) -> Frame | None:
        """The next frame; None if it is not here yet and the flags say not to wait. EOFError where there is no more."""
        while True:
            frame = self._whole()
            if frame is not None:
                return frame
            try:
                if self._long is not None:
                    got = self._channel.recv_into(memoryview(self._body)[self._filled :], 0, flags)
                    self._filled += got
                else:
                    data = self._channel.recv(CHUNK, flags)
                    self._here += data
                    got = len(data)
            except BlockingIOError:
                return None
            except OSError as error:
                raise EOFError from error
            if not got:
                raise EOFError

    def _whole(self) -> Frame | None:
        here = self._here
        if self._long is not None:
            if self._filled < len(self._body):
                return None
            frame = Frame(*self._long, self._body)
            self._long, self._body = None, bytearray()
            return frame
        if len(here) < HEAD.size:
            return None
        kind, number, size = HEAD.unpack_from(here)
        if size > FRAME_MAX:
            raise EOFError  # no frame of ours: somebody else wrote to the socket
        end = HEAD.size + size
        if len(here) < end:
            if size > CHUNK:
                self._long, self._body, self._filled = (Kind(kind), number), bytearray(size), len(here) - HEAD.size
                self._body[: self._filled] = here[HEAD.size :]
                here.clear()
            return None
        body = bytes(here[HEAD.size : end])
        del here[:end]
        return Frame(Kind(kind), number, body)
