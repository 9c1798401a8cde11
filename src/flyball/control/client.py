"""A client of the daemon: finds its socket in the state folder and speaks one JSON request a line.

Nobody listening is no error: the command line then goes to the store itself.
"""

import errno
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from flyball.control.commands import PROTOCOL
from flyball.control.context import CommandError

SOCKET: Final = "flyball.sock"
"""The socket's name in the state folder."""
ANSWER_MAX: Final = 30.0
"""Seconds for an answer. Orders wait for the disk; nothing that is asked here waits for a unit to end."""
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of an answer: far more than a status of ten thousand units."""
ADDRESS_MAX: Final = 104
"""Bytes of a socket's address that every system takes."""
NOBODY: Final = (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR)
"""Errors that mean that nobody listens: no socket, or one that was left behind."""


class Client:
    """A connection to the daemon."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = connection.makefile("rb")
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def ask(self, verb: str, args: Mapping[str, Any] | None = None, *, timeout: float | None = ANSWER_MAX) -> Any:
        """The daemon's answer. CommandError with what it said if it refused, or if it does not answer."""
        self._number += 1
        request = {"v": PROTOCOL, "id": self._number, "verb": verb, "args": dict(args or {})}
        self._connection.settimeout(timeout)
        try:
            self._connection.sendall(json.dumps(request).encode() + b"\n")
            line = self._reader.readline(ANSWER_BYTES_MAX)
        except TimeoutError:
            raise _silent(f"the daemon did not answer `{verb}` within {timeout:g} s") from None
        except OSError as error:
            raise _silent(f"the daemon went away: {error.strerror or error}") from None
        if not line.endswith(b"\n"):
            raise _silent("the daemon went away without an answer")
        reply = json.loads(line)
        if not reply["ok"]:
            wrong = reply["error"]
            raise CommandError(wrong["code"], wrong["text"], remedy=wrong.get("remedy", ""))
        return reply["data"]

    def close(self) -> None:
        """Let go."""
        self._reader.close()
        self._connection.close()


def connect(state_dir: Path) -> Client | None:
    """A connection to the daemon of that state folder; None if nobody listens there."""
    path = state_dir / SOCKET
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | getattr(socket, "SOCK_CLOEXEC", 0))
    connection.settimeout(ANSWER_MAX)
    try:
        _connect(connection, path)
    except OSError as error:
        connection.close()
        if error.errno in NOBODY:
            return None
        if isinstance(error, TimeoutError):
            raise _silent(f"nobody answers on {path}") from None
        raise CommandError(
            "no_answer",
            f"{path}: {error.strerror or error}",
            remedy="Only the daemon's own user and root may ask it: check who you are, and FLYBALL_STATE_DIR.",
        ) from None
    return Client(connection)


def _connect(connection: socket.socket, path: Path) -> None:
    """The address of a socket may be short (108 bytes, on macOS 104). A longer one is reached through its folder."""
    if len(os.fsencode(path)) < ADDRESS_MAX:
        connection.connect(str(path))
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection.connect(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def _silent(text: str) -> CommandError:
    return CommandError("no_answer", text, remedy="Look at its log; `flyball down` and `flyball up -d` start it anew.")
