"""A real server on a free port of this machine that answers as a test says, byte for byte, and keeps what it was
asked."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Final

ASKED_MAX: Final = 4 * 1024 * 1024

TLS: Final = 0x16
"""The first byte of somebody who wants TLS, which is not to be had here."""


class Server:
    """Answers one request on each connection."""

    def __init__(self, answer: Callable[[socket.socket], None]) -> None:
        self.asked: list[bytes] = []
        self._answer = answer
        self._listens = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self._listens.getsockname()[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.place}"

    def head(self, place: int = -1) -> str:
        """What was asked, without the body, in lower case."""
        return self.asked[place].partition(b"\r\n\r\n")[0].decode().lower()

    def body(self, place: int = -1) -> bytes:
        return self.asked[place].partition(b"\r\n\r\n")[2]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listens.shutdown(socket.SHUT_RDWR)
        self._listens.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listens.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(10.0)
                self.asked.append(_request(connection))
                self._answer(connection)


def _request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65_536)
        data += part
        if not part or data[0] == TLS:
            return data
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    while len(body) < length < ASKED_MAX:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


@contextlib.contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[Server]:
    server = Server(answer)
    try:
        yield server
    finally:
        server.close()


def says(status: str = "200 OK", body: bytes = b"", *headers: str) -> Callable[[socket.socket], None]:
    """An answer as servers give it."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    data = "\r\n".join(lines).encode() + body
    return lambda connection: connection.sendall(data)


def raw(data: bytes) -> Callable[[socket.socket], None]:
    """Whatever."""
    return lambda connection: connection.sendall(data)
