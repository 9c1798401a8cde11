"""Every verb of the registry as a route: looks by GET, everything else by POST."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from flyball.control.commands import COMMANDS
from flyball.control.context import Command, Right
from flyball.control.web.asking import Asking
from flyball.control.web.bodies import json_of, query_of
from flyball.control.web.replies import json_reply
from flyball.control.web.service import visitor_of

PREFIX: Final = "/api/v1/"


def method_of(command: Command) -> str:
    return "GET" if command.right is Right.LOOK else "POST"


def served() -> Mapping[str, Command]:
    """The verbs that are asked for over HTTP: all but those for whoever is on the machine itself."""
    return {name: command for name, command in COMMANDS.items() if not command.local}


def routes(asking: Asking) -> list[Route]:
    """One for each verb."""
    return [
        Route(f"{PREFIX}{name}", _endpoint(asking, command), methods=[method_of(command)], name=name)
        for name, command in served().items()
    ]


def _endpoint(asking: Asking, command: Command) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def answer(request: Request) -> Response:
        args = query_of(request, command) if command.right is Right.LOOK else await json_of(request)
        return json_reply(await asking.ask(visitor_of(request).caller, command, args))

    return answer
