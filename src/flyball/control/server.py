"""The daemon's socket: who may connect, and one request a line. What a request means is not known here.

Only the same user, or root, is heard: the socket's mode says so, and the kernel is asked once more who connected. Each
connection is served by itself, so a slow one keeps nobody waiting. Everything that a stranger could make long or many
has its limit.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

from flyball.control.client import ADDRESS_MAX
from flyball.control.commands import LINE_MAX, not_ok
from flyball.control.context import CommandError
from flyball.errors import FlyballError

CLIENTS_MAX: Final = 128
"""Connections at a time: a person has a few. The next one is told so."""
READ_MAX: Final = 10.0
"""Seconds for a client to take an answer. One that does not read is let go."""
REFUSED_MAX: Final = 1.0
"""Seconds for one that is not heard to go away."""
UMASK: Final = 0o177
"""For the socket: read and write for its owner, nothing for anybody else."""
ROOT: Final = 0

Serve = Callable[[int, bytes], Awaitable[bytes]]
"""Answers a line of a user."""


class Server:
    """Listens on a socket in the state folder."""

    def __init__(self, path: Path, serve: Serve) -> None:
        self.path = path
        self._serve = serve
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen. A socket that was left behind is replaced; FlyballError if somebody listens on it."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            with _address(self.path) as address:
                _remove_stale(self.path, address)
                before = os.umask(UMASK)
                try:
                    listening.bind(address)
                finally:
                    os.umask(before)
        except OSError as error:
            listening.close()
            raise FlyballError(
                f"{self.path}: cannot listen there: {error.strerror or error}",
                remedy="Check the owner and mode of the folder, or use another FLYBALL_STATE_DIR.",
            ) from None
        self._server = await asyncio.start_unix_server(self._connected, sock=listening, limit=LINE_MAX)

    async def close(self) -> None:
        """Listen no more. Whoever waits for an answer gets it, if it comes soon."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(OSError):
                self.path.unlink()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio calls this in a task
        self._clients.add(task)
        try:
            await self._talk(reader, writer)
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass
        finally:
            self._clients.discard(task)
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = peer_uid(writer.get_extra_info("socket"))
        if uid not in (None, ROOT, os.geteuid()):
            text, remedy = f"this daemon does not listen to user {uid}", "Ask as its own user, or as root."
            await _refuse(reader, writer, CommandError("forbidden", text, remedy=remedy))
            return
        if len(self._clients) > CLIENTS_MAX:
            text, remedy = f"{CLIENTS_MAX} others are connected", "Try again, and look who asks so much."
            await _refuse(reader, writer, CommandError("busy", text, remedy=remedy))
            return
        while True:
            try:
                line = await reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return
            except asyncio.LimitOverrunError:
                text = f"a request is one line of at most {LINE_MAX} bytes"
                error = CommandError("bad_request", text, remedy="Name fewer units in one request.")
                await _refuse(reader, writer, error)
                return
            await _send(writer, await self._serve(os.geteuid() if uid is None else uid, line))


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    try:
        await asyncio.wait_for(writer.drain(), READ_MAX)
    except TimeoutError:
        writer.transport.abort()
        raise


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, error: CommandError) -> None:
    """Answer, and hear no more. What was said is taken first: closing before that would take the answer away."""
    await _send(writer, not_ok(0, error))
    writer.write_eof()
    async with asyncio.timeout(REFUSED_MAX):
        while await reader.read(LINE_MAX):
            pass


def peer_uid(connection: socket.socket) -> int | None:
    """Whose process is at the other end, by the kernel's word; None where it has none: then the mode alone decides."""
    if hasattr(socket, "SO_PEERCRED"):
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[1])
    if hasattr(socket, "LOCAL_PEERCRED"):
        credentials = connection.getsockopt(0, socket.LOCAL_PEERCRED, struct.calcsize("2I"))
        return int(struct.unpack("2I", credentials)[1])
    return None


def _remove_stale(path: Path, address: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trying:
        try:
            trying.connect(address)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            path.unlink()
            return
    raise FlyballError(f"{path}: a daemon listens there already", remedy="End it first: `flyball down`.")


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """A socket's address may be short (108 bytes, on macOS 104). A longer one is reached through its folder."""
    if len(os.fsencode(path)) < ADDRESS_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
