"""A server of HTTP for one test, in threads of its own: what the other side of a channel is made of.

It answers what a function says. It can hang, close the line at once, speak TLS with a certificate that nobody trusts,
and tell what came in. Nothing of it outlives its `with`.
"""

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

import msgspec

WAIT_MAX: Final = 20.0
"""Seconds that a test waits for what has to come."""


@dataclass(frozen=True)
class Asked:
    """One request, as it came."""

    method: str
    path: str
    """With its query."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        return msgspec.json.decode(self.body, type=dict[str, object])


@dataclass(frozen=True)
class Reply:
    """What is answered."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


class Hang(Exception):
    """Raised by what answers: nothing is said, and the line stays open."""


class Drop(Exception):
    """Raised by what answers: nothing is said, and the line is closed."""


class HttpSite:
    """A server on loopback, at a port that was free."""

    def __init__(self, answer: Callable[[Asked], Reply], *, tls: ssl.SSLContext | None = None) -> None:
        self._answer, self._tls = answer, tls
        self.asked: list[Asked] = []
        self.ending = threading.Event()
        self.changed = threading.Condition()
        """Told of every request, after it was answered."""

    def __enter__(self) -> Self:
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
                pass

            def _any(self) -> None:
                site._serve(self)

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _any  # noqa: N815 - the names are the library's

        self._server = _Quiet(("127.0.0.1", 0), Handler)
        if self._tls is not None:
            # The handshake is made in the thread of the connection: one that never ends holds up nobody else.
            self._server.socket = self._tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        with self.changed:
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WAIT_MAX)

    @property
    def port(self) -> int:
        port: int = self._server.server_address[1]
        return port

    @property
    def url(self) -> str:
        return f"http{'s' * (self._tls is not None)}://127.0.0.1:{self.port}"

    def wait(self, until: Callable[[], bool]) -> bool:
        """Whether it came to be so, within the time that a test has."""
        with self.changed:
            return self.changed.wait_for(until, WAIT_MAX)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("content-length") or 0)
        headers = {name.lower(): value for name, value in handler.headers.items()}
        asked = Asked(handler.command, handler.path, headers, handler.rfile.read(length))
        with self.changed:
            self.asked.append(asked)
            self.changed.notify_all()
        try:
            reply = self._answer(asked)
        except Hang:
            self.ending.wait(WAIT_MAX)
            handler.close_connection = True
            return
        except Drop:
            handler.close_connection = True
            return
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(reply.body)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(reply.body)
        with self.changed:
            self.changed.notify_all()


class _Quiet(ThreadingHTTPServer):
    """Who goes away before the answer is no error of a test's."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass

    def finish_request(self, request: object, client_address: object) -> None:
        with contextlib.suppress(OSError):
            super().finish_request(request, client_address)  # type: ignore[arg-type]  # as it was given


def replies(*each: Reply | type[Exception]) -> Callable[[Asked], Reply]:
    """Answers these one after the other; the last of them for good."""
    left: Iterator[Reply | type[Exception]] = iter(each)
    last: list[Reply | type[Exception]] = []
    turn = threading.Lock()

    def answer(_: Asked) -> Reply:
        with turn:
            said = next(left, None)
            if said is not None:
                last[:] = [said]
            now = last[0]
        if isinstance(now, Reply):
            return now
        raise now

    return answer


class OnSite:
    """A server that speaks a protocol of its own on top of one: it answers by `_answer`."""

    def __init__(self) -> None:
        self._site = HttpSite(self._answer)

    def __enter__(self) -> Self:
        self._site.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._site.__exit__()

    @property
    def url(self) -> str:
        return self._site.url

    @property
    def asked(self) -> list[Asked]:
        return self._site.asked

    def _answer(self, asked: Asked) -> Reply:
        raise NotImplementedError
