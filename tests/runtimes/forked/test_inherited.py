"""What a forked run has of its program by the fork: it does not hang on it, and does not take it away."""

import builtins
import gc
import importlib
import io
import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from flyball.runtimes.forked import Link
from tests.runtimes.forked.stage import WITHIN, Begin, gone, take


class Slow(io.FileIO):
    """A file on which a thread of the program hangs, with the lock of the stream."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w")
        self.entered, self.release = threading.Event(), threading.Event()

    def write(self, data: object) -> int:
        self.entered.set()
        self.release.wait(WITHIN)
        return super().write(data)  # type: ignore[arg-type]  # as it came


def test_locked_stream(begin: Begin, tmp_path: Path) -> None:
    """A run logs, though a thread of its program was just writing to the same file when it was forked."""
    raw = Slow(tmp_path / "log")
    stream = io.TextIOWrapper(io.BufferedWriter(raw))
    logger = logging.getLogger("tests.locked_stream")
    logger.addHandler(handler := logging.StreamHandler(stream))

    def work(link: Link) -> None:
        logger.error("from the run")
        link.send("logged")

    writing = threading.Thread(target=logger.error, args=("from the program",))
    writing.start()
    try:
        assert raw.entered.wait(WITHIN)
        assert take(begin(work)) == "logged"
        assert (tmp_path / "log").read_text() == "from the run\n"
    finally:
        raw.release.set()
        writing.join(WITHIN)
        logger.removeHandler(handler)
        stream.close()
    assert (tmp_path / "log").read_text() == "from the run\nfrom the program\n"


def test_half_imported(begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run imports what a thread of its program was just importing when it was forked; for the program nothing
    changes."""
    name = f"slow_{os.getpid()}"
    (tmp_path / f"{name}.py").write_text("import builtins\nbuiltins.half_imported()\nready = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    program, entered, release = os.getpid(), threading.Event(), threading.Event()

    def half_imported() -> None:
        if os.getpid() == program:
            entered.set()
            release.wait(WITHIN)

    monkeypatch.setattr(builtins, "half_imported", half_imported, raising=False)
    importing = threading.Thread(target=importlib.import_module, args=(name,))
    importing.start()
    try:
        assert entered.wait(WITHIN)
        assert take(begin(lambda link: link.send(importlib.import_module(name).ready))) is True
    finally:
        release.set()
        importing.join(WITHIN)
        module = sys.modules.pop(name)
    assert module.ready is True


@pytest.mark.slow
def test_busy_program(begin: Begin, tmp_path: Path) -> None:
    """However busy the threads of a program are with printing, logging and collecting garbage, no run that is forked
    off between their instructions hangs."""
    over = threading.Event()
    logger = logging.getLogger("tests.busy_program")
    logger.addHandler(handler := logging.FileHandler(tmp_path / "log"))

    def log() -> None:
        while not over.wait(0.0002):
            logger.warning("busy")

    def collect() -> None:
        while not over.wait(0.001):
            gc.collect(0)

    def work(link: Link) -> None:
        logger.warning("from the run")
        print("from the run")
        link.send([link.call("double", number) for number in range(5)])

    def one(_: int) -> int | None:
        forked = begin(work, double=lambda number: 2 * number)
        assert take(forked) == [0, 2, 4, 6, 8]
        return gone(forked).code

    busy = [threading.Thread(target=target) for target in (log, log, collect)]
    for thread in busy:
        thread.start()
    try:
        with ThreadPoolExecutor(8) as threads:
            assert set(threads.map(one, range(100))) == {0}
    finally:
        over.set()
        for thread in busy:
            thread.join(WITHIN)
        logger.removeHandler(handler)
        handler.close()
    assert (tmp_path / "log").read_text().count("from the run\n") == 100


def test_streams(begin: Begin, capfd: pytest.CaptureFixture[str]) -> None:
    """What a run prints is written line by line, so that it is there when the run is killed in the next moment."""

    def work(link: Link) -> None:
        print("last words")
        link.send("printed")
        link.call("nothing")

    forked = begin(work, nothing=lambda: threading.Event().wait(WITHIN))
    assert take(forked) == "printed"
    forked.end(0)
    assert capfd.readouterr().out == "last words\n"


def test_input(begin: Begin) -> None:
    """The standard input is the program's: a run finds it empty."""

    def work(link: Link) -> None:
        try:
            link.send(input())
        except EOFError:
            link.send("empty")

    assert take(begin(work)) == "empty"


class Counting(BaseHTTPRequestHandler):
    """Answers which connection a request came over."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = f"{self.client_address[1]} {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - it is called so
        """Nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Counting) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(WITHIN)


def test_connections(begin: Begin, server: str) -> None:
    """A client that keeps its connections open has others in each run: no answer goes to the wrong process, and the
    program's own connection is as it was."""
    with httpx.Client() as client:

        def ask(path: str) -> list[str]:
            return client.get(f"{server}/{path}").text.split()

        def work(link: Link) -> None:
            link.send([ask(f"{os.getpid()}-{number}") for number in range(20)])

        [own, _] = ask("first")
        runs = [begin(work) for _ in range(3)]
        mine = [ask(f"program-{number}") for number in range(20)]
        answers = [take(forked) for forked in runs]
    assert {connection for connection, _ in mine} == {own}
    used = [{connection for connection, _ in found} for found in answers]
    assert [len(connections) for connections in used] == [1, 1, 1]
    assert len({own}.union(*used)) == 4
    for forked, found in zip(runs, answers, strict=True):
        assert [path for _, path in found] == [f"/{forked.pid}-{number}" for number in range(20)]


def test_listening(begin: Begin) -> None:
    """A run does not keep the program's port: when the program lets go of it, another can have it at once."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        go = threading.Event()

        def work(link: Link) -> None:
            link.send("up")
            link.call("go")

        forked = begin(work, go=lambda: go.wait(WITHIN))
        assert take(forked) == "up"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    go.set()
    assert gone(forked).code == 0


def test_own_pairs(begin: Begin) -> None:
    """What the program made for itself is left alone: a pair of sockets, a pipe."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert gone(begin(lambda _: theirs.sendall(b"hello"))).code == 0
        ours.settimeout(WITHIN)
        assert ours.recv(10) == b"hello"
