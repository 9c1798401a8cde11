"""The app: every route, behind the gate. Nothing is answered in another shape than JSON, but for the page itself."""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from flyball.control.context import CommandError
from flyball.control.web import openapi, verbs
from flyball.control.web.asking import Asking
from flyball.control.web.attempts import Attempts
from flyball.control.web.files import Files
from flyball.control.web.gate import Gate, Hosts
from flyball.control.web.login import Door
from flyball.control.web.logins import Logins, csrf_of
from flyball.control.web.replies import data_reply, error_reply
from flyball.control.web.service import Service, visitor_of
from flyball.control.web.streams import Streams
from flyball.control.web.tokens import Tokens
from flyball.errors import FlyballError


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What the app is made of."""

    service: Service
    home: asyncio.AbstractEventLoop
    """The daemon's loop."""
    tokens: Tokens
    logins: Logins
    attempts: Attempts
    hosts: Hosts
    streams: Streams
    is_ready: Callable[[], bool]


def make(house: House) -> ASGIApp:
    """The app, with its gate."""
    app = Starlette(routes=routes(house), exception_handlers={FlyballError: _wrong, HTTPException: _odd})
    app.router.redirect_slashes = False
    return Gate(app, house.tokens, house.logins, house.attempts, house.hosts)


def routes(house: House) -> list[BaseRoute]:
    """All of them."""
    own = _Own(house)
    door = Door(house.tokens, house.logins, house.attempts, house.hosts)
    return [
        Route("/health", own.health, methods=["GET"]),
        Route("/health/ready", own.ready, methods=["GET"]),
        Route("/openapi.json", own.document, methods=["GET"]),
        Route("/metrics", own.metrics, methods=["GET"]),
        Route("/api/v1/me", own.me, methods=["GET"]),
        *house.streams.routes(),
        *verbs.routes(Asking(house.service, house.home)),
        *door.routes(),
        *Files().routes(),
        *house.service.act,
    ]


class _Own:
    """Routes that are no verbs."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._started = time.time()
        self._version = version("flyball-governor")

    async def health(self, _: Request) -> Response:
        return data_reply({"ok": True})

    async def ready(self, _: Request) -> Response:
        ready = self._house.is_ready()
        return data_reply({"ready": ready}, 200 if ready else 503)

    async def document(self, _: Request) -> Response:
        return data_reply(openapi.document())

    async def metrics(self, _: Request) -> Response:
        render = self._house.service.metrics
        if render is None:
            return error_reply(CommandError("not_found", "there are no metrics", remedy="They are switched off."))
        text = await asyncio.to_thread(render)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def me(self, request: Request) -> Response:
        visitor = visitor_of(request)
        said = {
            "who": visitor.caller.who,
            "role": visitor.caller.right.name.lower(),
            "csrf": csrf_of(visitor.cookie) if visitor.cookie else "",
            "host": socket.gethostname(),
            "version": self._version,
            "pid": os.getpid(),
            "started": self._started,
        }
        return data_reply(said)


async def _wrong(_: Request, error: Exception) -> Response:
    assert isinstance(error, FlyballError)  # noqa: S101 - it is what this is called for
    return error_reply(error, getattr(error, "headers", None))


async def _odd(request: Request, error: Exception) -> Response:
    """What Starlette itself refuses."""
    assert isinstance(error, HTTPException)  # noqa: S101 - as above
    if error.status_code == 405:
        text = f"{request.method} is not for {request.url.path}"
        remedy = "Looks are asked for by GET, everything else by POST."
        return error_reply(CommandError("bad_method", text, remedy=remedy), dict(error.headers or {}))
    text = f"there is nothing at {request.url.path}"
    return error_reply(CommandError("not_found", text, remedy="GET /openapi.json describes what there is."))
