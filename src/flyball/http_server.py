"""One address for whatever comes in over HTTP, in the loop that opens it: webhooks in the daemon's own, the page and
its API in one of their own.

Requests are read by uvicorn's protocol and answered by Starlette's routes. uvicorn's server around them is left out: it
takes over the signals of the process, ends the process when a port is taken, wakes up ten times a second, and waits
without bounds for connections to close. What neither of them bounds is bounded here: how many connect, how long a
request may take to come in, how long an answer may wait to be taken, and how long the end may take. How long an answer
goes on is not: a stream of events has no end.
"""

import asyncio
import contextlib
import errno
import ipaddress
from collections.abc import Callable, Sequence
from email.utils import formatdate
from typing import Final

import h11
from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from flyball.errors import FlyballError

CONNECTIONS_MAX: Final = 256
"""At a time. Each may have a body in memory: together 64 MiB, if all of them are as long as they may be."""
HEAD_MAX: Final = 16 * 1024
"""Bytes of a request's line and headers. Senders have one or two thousand."""
HEAD_PART: Final = 1024
"""Bytes of a head that are read at a time: so much longer than allowed it may be."""
REQUEST_WITHIN: Final = 10.0
"""Seconds from a connection, or the first byte of its next request, to the last byte of that request. What is allowed
here comes in within milliseconds; who needs longer is broken, or wants to keep the others out."""
TAKEN_WITHIN: Final = 20.0
"""Seconds for a reader to take anything of what waits for it (64 KiB and more). One that does not is let go; until then
it keeps nobody waiting but itself."""
IDLE_MAX: Final = 5
"""Seconds that a connection may wait for its next request."""
END_WITHIN: Final = 2.0
"""Seconds that requests have to be answered when the server is closed."""
BACKLOG: Final = 128
"""Connections that wait to be accepted."""

NOT_HTTP: Final = "not_http"
TOO_SLOW: Final = "too_slow"
TOO_MANY: Final = "too_many_connections"
NOT_TAKEN: Final = "not_taken"

Refusing = Callable[[str], None]
"""Told of what was refused before it was a request, and of answers that nobody took."""


class CannotListen(FlyballError):
    """The address cannot be opened."""


def routed(routes: Sequence[BaseRoute]) -> ASGIApp:
    """An app of these routes, each of which may be an app of its own. A path is what it is: none leads to another."""
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    return app


class HttpServer:
    """Listens at one address while it is open. `setting` is where people set that address."""

    def __init__(
        self, listen: str, app: ASGIApp, refused: Refusing, *, setting: str, connections_max: int | None = None
    ) -> None:
        self._listen = listen
        self._refused = refused
        self._setting = setting
        self._connections_max = connections_max
        self._config = Config(
            app,
            http="h11",
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # what comes in from outside must not be able to fill the log
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=IDLE_MAX,
            h11_max_incomplete_event_size=HEAD_MAX,
        )
        self._config.load()
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen. CannotListen says why not."""
        host, port = parts(self._listen)
        loop = asyncio.get_running_loop()
        most = CONNECTIONS_MAX if self._connections_max is None else self._connections_max
        try:
            self._server = await loop.create_server(
                lambda: _Connection(self._config, self._state, self._refused, most),
                host,
                int(port),
                backlog=BACKLOG,
            )
        except (OSError, OverflowError, ValueError) as error:
            remedy = f"End what listens there, or set another address: `{self._setting}`."
            raise CannotListen(f"{self._listen} cannot be opened: {_why(error)}", remedy=remedy) from None

    @property
    def port(self) -> int:
        """Where it really listens: of port 0, the one that was free."""
        if self._server is None:
            return 0
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Listen no more, and end what is open: requests that are here are answered, within bounds."""
        if self._server is None:
            return
        self._server.close()
        connections: list[_Connection] = [one for one in self._state.connections if isinstance(one, _Connection)]
        for connection in connections:
            connection.finish()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=END_WITHIN)
        for connection in connections:
            connection.transport.abort()
        for task in self._state.tasks:
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._server.wait_closed(), END_WITHIN)
        self._server = None


class _Connection(H11Protocol):
    """A connection whose requests come in within bounds, or not at all; and whose answers are taken."""

    def __init__(self, config: Config, state: ServerState, refused: Refusing, most: int) -> None:
        super().__init__(config, state, {})
        self._refused = refused
        self._most = most
        self._late: asyncio.TimerHandle | None = None
        self._untaken: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if len(self.connections) > self._most:
            self._refused(TOO_MANY)
            self._say_no(b"503 Service Unavailable")
        else:
            self._expect()

    def data_received(self, data: bytes) -> None:
        self._expect()
        self.server_state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        while data and not self.transport.is_closing():
            # Only heads that are incomplete are bounded: those that came all at once are read in parts.
            size = HEAD_PART if self.conn.their_state is h11.IDLE else len(data)
            super().data_received(data[:size])
            data = data[size:]
        if self.conn.their_state is not h11.IDLE and self.conn.their_state is not h11.SEND_BODY:
            self._expect_nothing()

    def on_response_complete(self) -> None:
        if self.conn.their_state is h11.SEND_BODY:  # it was answered before it was read
            self.transport.close()
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:  # the next one came with it, and not yet to its end
            self._expect()

    def send_400_response(self, msg: str) -> None:
        self._refused(NOT_HTTP)
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # it was answered already, and goes on with nonsense
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._untaken is None:
            self._untaken = self.loop.call_later(TAKEN_WITHIN, self._let_go)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._taken()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self._taken()
        super().connection_lost(exc)

    def finish(self) -> None:
        """Close it; if a request is here, after its answer."""
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.abort()
        with contextlib.suppress(h11.LocalProtocolError):  # it is closing already
            self.shutdown()

    def _expect(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(REQUEST_WITHIN, self._cut)

    def _expect_nothing(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _taken(self) -> None:
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None

    def _let_go(self) -> None:
        """Time is up: what was written is still not taken. To close it in order would wait for that."""
        self._untaken = None
        self._refused(NOT_TAKEN)
        self.transport.abort()

    def _cut(self) -> None:
        """Time is up: a request is still not all here."""
        self._late = None
        self._refused(TOO_SLOW)
        self._say_no(b"408 Request Timeout")

    def _say_no(self, status: bytes) -> None:
        self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()


def is_loopback(listen: str) -> bool:
    """Whether only this machine can come in there."""
    host, _ = parts(listen)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parts(listen: str) -> tuple[str, str]:
    """The host and the port."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), port


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return "something else listens there"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
