"""What a fork has of its program and must not use as it is: streams, modules, connections. Called once, in the child.

A stream has a lock inside, which a thread of the program may have held at the fork; that thread is not here, so nobody
would ever let go of it. It is the same with a module that was just being imported. And a connection that two processes
use is of use to neither.
"""

import contextlib
import importlib
import io
import logging
import os
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from typing import Any, Final

DESCRIPTORS: Final = "/dev/fd"
"""Where the system shows which files this process has open, on Linux and on macOS."""
LAST_STREAM: Final = 2

_old: Final[list[object]] = []
"""The program's streams, which must never be freed here: that would flush and close them."""


def renew_streams() -> None:
    """New streams on the same files, for what is printed and what is logged. Each line is written at once: what was
    printed before it was killed is what tells why. The standard input is the program's, and empty here."""
    renewed: dict[int, Any] = {}
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        setattr(sys, name, _renewed(getattr(sys, name), renewed))
    for handler in handlers():
        if isinstance(handler, logging.StreamHandler):
            handler.stream = _renewed(handler.stream, renewed)  # not by `setStream`, which flushes the old one
    _old.append(sys.stdin)
    with contextlib.suppress(OSError):
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0, inheritable=True)
        os.close(nothing)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it is no path, and stays open


def _renewed(stream: Any, renewed: dict[int, Any]) -> Any:
    if not isinstance(stream, io.TextIOWrapper):  # it is no file, or somebody's own
        return stream
    if id(stream) not in renewed:
        _old.append(stream)
        try:
            renewed[id(stream)] = open(  # noqa: SIM115 - it is no path, and stays open
                stream.fileno(), "w", buffering=1, encoding=stream.encoding, errors=stream.errors, closefd=False
            )
        except (OSError, ValueError):  # it is closed, or no file
            renewed[id(stream)] = stream
    return renewed[id(stream)]


def handlers() -> Iterator[logging.Handler]:
    """All handlers of all loggers; some more than once."""
    yield from logging.root.handlers
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield from logger.handlers


def forget_imports() -> None:
    """What a thread of the program was just importing is imported anew here, when it is needed: nobody finishes it."""
    locks: dict[Any, Any] = getattr(importlib._bootstrap, "_module_locks", {})
    for name, known in list(locks.items()):
        if getattr(known(), "owner", None) not in (None, threading.get_ident()):
            locks.pop(name)
            sys.modules.pop(name, None)


def cut_connections(own: socket.socket) -> None:
    """Put in the place of each connection one whose other end has closed: whoever keeps connections for later finds
    that this one is of no use any more, and makes another. The program's own stay as they are."""
    closed, other = socket.socketpair()
    other.close()
    try:
        for name in os.listdir(DESCRIPTORS):  # noqa: PTH208 - numbers are wanted, not paths
            number = int(name)
            if number > LAST_STREAM and number not in (own.fileno(), closed.fileno()):
                with contextlib.suppress(OSError):
                    if stat.S_ISSOCK(os.fstat(number).st_mode) and _leads_out(number):
                        os.dup2(closed.fileno(), number, inheritable=False)
    except OSError:  # the system does not show them
        pass
    finally:
        closed.close()


def _leads_out(number: int) -> bool:
    """Whether it is a stream to or for somebody else. What the program made for itself has no name."""
    found = socket.socket(fileno=number)
    try:
        if found.type != socket.SOCK_STREAM:
            return False
        return found.family != socket.AF_UNIX or bool(found.getsockname()) or bool(found.getpeername())
    finally:
        found.detach()
