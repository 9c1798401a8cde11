"""The network of the tests does what it says, so that what a fleet survives was really there."""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.net import STORE, Namespaces, Net, Proxies, has_rights

KINDS = [
    pytest.param(Namespaces, marks=pytest.mark.skipif(not has_rights(), reason="no rights to make network namespaces")),
    Proxies,
]
QUIET = 0.3
"""Seconds in which nothing comes, where something would come within a few milliseconds."""


class Echo:
    """A server at the place of the store that says back what it hears, and remembers it."""

    def __init__(self, net: Net) -> None:
        with net.at(STORE):
            self._listening = socket.create_server((net.address, 0))
        self.port: int = self._listening.getsockname()[1]
        self.heard = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                call, _ = self._listening.accept()
                threading.Thread(target=self._answer, args=[call], daemon=True).start()

    def _answer(self, call: socket.socket) -> None:
        with call, contextlib.suppress(OSError):
            while said := call.recv(1000):
                self.heard += said
                call.sendall(said)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest) -> Iterator[Net]:
    net: Net = request.param(["a", "b"])
    yield net
    net.close()


@pytest.fixture
def echo(made: Net) -> Iterator[Echo]:
    server = Echo(made)
    yield server
    server.close()


@contextlib.contextmanager
def call(net: Net, host: str, echo: Echo) -> Iterator[socket.socket]:
    """A connection from that host."""
    dsn = net.reach(host, f"postgresql://me@{net.address}:{echo.port}/x")
    where, _, port = dsn.partition("@")[2].partition("/")[0].partition(":")
    with net.at(host), socket.create_connection((where, int(port)), timeout=5) as connected:
        yield connected


def says(connected: socket.socket, text: bytes, patience: float = 5.0) -> bytes:
    """What comes back within that time."""
    connected.sendall(text)
    return hears(connected, patience)


def hears(connected: socket.socket, patience: float = 5.0) -> bytes:
    connected.settimeout(patience)
    try:
        return connected.recv(1000)
    except TimeoutError:
        return b""


def test_cut_and_healed(made: Net, echo: Echo) -> None:
    """Over a cut link nothing passes and nobody is told; what was said comes through when it is healed. The other
    host's link is another one."""
    with call(made, "a", echo) as ours, call(made, "b", echo) as others:
        assert says(ours, b"1") == b"1"
        made.cut("a")
        assert says(ours, b"2", QUIET) == b""
        assert b"2" not in echo.heard
        assert says(others, b"3") == b"3"
        made.heal("a")
        assert hears(ours, 15) == b"2"


def test_deaf(made: Net, echo: Echo) -> None:
    """A deaf host is heard and hears nothing; healed, it hears what it missed."""
    with call(made, "a", echo) as ours:
        assert says(ours, b"1") == b"1"
        made.deafen("a")
        assert says(ours, b"2", QUIET) == b""
        assert b"2" in echo.heard
        made.heal("a")
        assert hears(ours, 15) == b"2"


def test_slow(made: Net, echo: Echo) -> None:
    """A slow link is slow, and healed it is not."""
    piece = b"x" * 900

    def lasts() -> float:
        begun = time.monotonic()
        for _ in range(4):
            left = says(ours, piece)
            while len(left) < len(piece):
                left += hears(ours)
        return time.monotonic() - begun

    with call(made, "a", echo) as ours:
        quick = lasts()
        made.slow("a")
        assert lasts() > quick + 0.1
        made.heal("a")
        assert lasts() < 0.1 + quick


@pytest.mark.skipif(not has_rights(), reason="no rights to make network namespaces")
def test_nothing_of_the_machine_is_touched() -> None:
    """The machine has the links that it had, and namespaces are gone with whoever made them, even by kill -9."""
    before = Path("/proc/net/dev").read_text().count(":")
    script = "import os; from tests.fleet.net import Namespaces; n = Namespaces(['a']); os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=20)
    assert done.returncode == -9
    assert Path("/proc/net/dev").read_text().count(":") == before
    home = Path("/proc/self/ns/net").readlink()
    net = Namespaces(["a"])
    with net.at("a"):
        assert Path("/proc/thread-self/ns/net").readlink() != home
        assert Path("/proc/thread-self/net/dev").read_text().count(":") == 2
    assert Path("/proc/thread-self/ns/net").readlink() == home
    net.close()
