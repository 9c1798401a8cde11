"""The server of the page and its API, in a thread with a loop of its own: a slow reader, or a thousand, take no time
from the units.

It is opened before the units are begun, so that an address that is taken, or tokens that cannot be trusted, end `up`
with a word; until all units are begun, `/health/ready` says so.
"""

import asyncio
import contextlib
import logging
import resource
import sys
import threading
from pathlib import Path
from typing import Final

import msgspec
from starlette.types import ASGIApp

from flyball.config.plan import HttpPlan
from flyball.control.web import ADDRESS, app
from flyball.control.web.attempts import Attempts
from flyball.control.web.gate import Hosts
from flyball.control.web.logins import Logins
from flyball.control.web.service import Service
from flyball.control.web.streams import Streams
from flyball.control.web.tokens import Tokens, unknown, write_private
from flyball.http_server import CannotListen, HttpServer, is_loopback, parts

log = logging.getLogger(__name__)

DEFAULT: Final = "127.0.0.1:8910"
CONNECTIONS_MAX: Final = 2_000
"""Streams and room for others. A connection takes some ten kilobytes."""
FILES_SHARE: Final = 4
"""Of the files that the process may have open, one in so many is left to units: each takes a few."""
TURN: Final = 0.001
"""Seconds that one thread of Python keeps the processor while another wants it. With its own five milliseconds each
event of a unit would wait that long behind the streams."""
END_WITHIN: Final = 5.0
"""Seconds for the thread to end."""


class Web:
    """Serves a daemon over HTTP, from `start` to `stop`. All of it may be called from the daemon's loop only."""

    def __init__(self, service: Service, plan: HttpPlan, folder: Path) -> None:
        self._service = service
        self._plan = plan
        self._folder = folder
        self._tokens = Tokens(folder)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ending: asyncio.Event | None = None
        self._opened: asyncio.Future[None] | None = None
        self._streams: Streams | None = None
        self._attempts = Attempts()
        self._ready = False
        self.address = ""
        """Where it listens, as a browser wants it; nothing: nowhere."""

    async def start(self) -> None:
        """Listen. FlyballError says why that cannot be."""
        if self._tokens.make_first():
            log.info("made %s with a token of an admin: `flyball token show admin`", self._tokens.path)
        self._tokens.all()
        self._logins = Logins(self._folder, self._tokens)
        sys.setswitchinterval(TURN)
        home = asyncio.get_running_loop()
        self._opened = home.create_future()
        self._thread = threading.Thread(target=self._serve, args=(home,), name="flyball-http", daemon=True)
        self._thread.start()
        await self._opened
        try:
            write_private(self._folder / ADDRESS, msgspec.json.encode({"address": self.address}))
        except OSError as error:  # a full disk: the page is there all the same
            log.warning("%s cannot be written: %s", self._folder / ADDRESS, error)
        log.info("the page is at %s; `flyball page` logs in", self.address)
        if not is_loopback(self._plan.listen or DEFAULT):
            log.warning("the page is open to other machines, in plain text: a proxy in front of it can encrypt it")

    def ready(self) -> None:
        """All units are begun."""
        self._ready = True

    @property
    def streams(self) -> int:
        """How many watch."""
        return len(self._streams) if self._streams is not None else 0

    @property
    def failed_logins(self) -> int:
        """How many tokens and codes were wrong."""
        return self._attempts.total

    def link(self, name: str = "") -> tuple[str, str]:
        """An address that logs in once, as the token of that name; not given: as the first admin. And that name.
        CommandError if there is none."""
        tokens = self._tokens.all()
        found = next((one for one in tokens if (one.name == name if name else one.role == "admin")), None)
        if found is None:
            raise unknown(name or "admin", tokens)
        return f"{self.address}/login/{self._logins.link(found)}", found.name

    async def stop(self) -> None:
        """Listen no more, and end what is open, within bounds."""
        thread, loop = self._thread, self._loop
        self._thread = None
        if thread is None:
            return
        if loop is not None and self._ending is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._ending.set)
        await asyncio.to_thread(thread.join, END_WITHIN)
        with contextlib.suppress(OSError):
            (self._folder / ADDRESS).unlink()
        self.address = ""

    # In its own thread.

    def _serve(self, home: asyncio.AbstractEventLoop) -> None:
        try:
            asyncio.run(self._run(home))
        except Exception as error:
            log.exception("the page ended")
            home.call_soon_threadsafe(self._answer, error)

    async def _run(self, home: asyncio.AbstractEventLoop) -> None:
        self._ending = asyncio.Event()
        streams = Streams(self._service)
        listen = self._plan.listen or DEFAULT
        hosts = Hosts(parts(listen)[0], self._plan.hosts)
        house = app.House(
            service=self._service,
            home=home,
            tokens=self._tokens,
            logins=self._logins,
            attempts=self._attempts,
            hosts=hosts,
            streams=streams,
            is_ready=lambda: self._ready,
        )
        made = app.make(house)
        try:
            server = await self._open(listen, made)
        except CannotListen as error:
            home.call_soon_threadsafe(self._answer, error)
            return
        hosts.port = server.port
        self.address = f"http://{_shown(parts(listen)[0])}:{server.port}"
        self._loop, self._streams = asyncio.get_running_loop(), streams
        home.call_soon_threadsafe(self._answer, None)
        await self._ending.wait()
        self._streams = None
        streams.end()
        await server.close()

    async def _open(self, listen: str, made: ASGIApp) -> HttpServer:
        most = min(CONNECTIONS_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0] * (FILES_SHARE - 1) // FILES_SHARE)

        def server(where: str) -> HttpServer:
            return HttpServer(where, made, lambda _: None, setting="http.listen", connections_max=most)

        first = server(listen)
        try:
            await first.open()
        except CannotListen as error:
            if self._plan.listen is not None:
                raise
            log.warning("%s; any free port is taken instead", error)
            first = server(f"{parts(listen)[0]}:0")
            await first.open()
        return first

    def _answer(self, error: Exception | None) -> None:
        if self._opened is None or self._opened.done():
            return
        if error is None:
            self._opened.set_result(None)
        else:
            self._opened.set_exception(error)


def _shown(host: str) -> str:
    """As a browser on this machine wants it."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104 - none is opened here
    return f"[{host}]" if ":" in host else host
