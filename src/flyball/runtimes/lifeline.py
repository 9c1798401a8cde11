"""Lifelines: how a process that a program started does not outlive it, whatever it is doing.

A lifeline is a pipe. The program holds the one end, and nobody else: not even its own forks. When that is closed,
because the program ended in whatever way, the kernel kills the whole process group at the other end (Linux), or a
thread there does.
"""

import contextlib
import fcntl
import os
import signal
import socket
import threading
from typing import Final

STDIN: Final = 0

_held: Final[set[int]] = set()
"""The ends of pipes by which others know that this process lives. They must be in no other process."""


class Lifeline:
    """A pipe of which another process gets the one end. When this one is closed, that process dies."""

    def __init__(self) -> None:
        # Our copy of their end stays open until all is over: not every kernel keeps what is on its way.
        self.theirs, self._ours = os.pipe()
        _held.add(self._ours)

    def close(self) -> None:
        """The other process is gone."""
        _held.discard(self._ours)
        os.close(self._ours)
        os.close(self.theirs)


def tied(channel: socket.socket) -> Lifeline:
    """A lifeline for the process that has the other end of that socket as its standard input."""
    line = Lifeline()
    try:
        socket.send_fds(channel, [b"\0"], [line.theirs])
    except OSError:
        line.close()
        raise
    return line


def connected() -> tuple[socket.socket, int] | None:
    """In that process: the socket, and its end of the lifeline; None if nobody sent one. Its standard input is empty
    from then on."""
    try:
        channel = socket.socket(fileno=os.dup(STDIN))
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, STDIN)
        os.close(nothing)
        _, lines, _, _ = socket.recv_fds(channel, 1, 1)
    except OSError:
        return None
    if not lines:
        return None
    os.set_inheritable(lines[0], False)
    return channel, lines[0]


def die_with(line: int) -> None:
    """See to it that this process, and what it started, does not outlive the program at the other end of that line."""
    own_group = hasattr(fcntl, "F_SETSIG") and os.getpgrp() == os.getpid()
    if own_group:
        # By the kernel: a function that never lets go of the interpreter (a regular expression) stops every thread.
        fcntl.fcntl(line, fcntl.F_SETOWN, -os.getpid())
        fcntl.fcntl(line, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(line, fcntl.F_SETFL, fcntl.fcntl(line, fcntl.F_GETFL) | os.O_ASYNC)
    # Also where the kernel does it: the program may have been gone before it was asked to.
    threading.Thread(target=_wait_for_end, args=(line,), name="flyball lifeline", daemon=True).start()


def _wait_for_end(line: int) -> None:
    with contextlib.suppress(OSError):
        os.read(line, 1)
    os.killpg(0, signal.SIGKILL)


def _cut() -> None:
    """In a fork of the program: it is not the one whose death ends the others."""
    for line in _held:
        os.close(line)
    _held.clear()


os.register_at_fork(after_in_child=_cut)
