"""The pages of action links. To open one shows what it orders and a button, and does nothing: chats, mail filters and
browsers open links that nobody touched. Only the button, or a phone that sends the same, gives the order.

Nobody logs in here: what a link carries is signed. Whatever is wrong with one is answered with 401 and a plain page.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from html import escape
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from flyball.control.context import Args, Caller, CommandError, Right
from flyball.control.links import PATH, Deed, LinkRefused, Links, bad_link
from flyball.control.trail import effect_of
from flyball.control.web.crossing import ANSWER_MAX, cross
from flyball.control.web.form import STYLE
from flyball.errors import FlyballError, StoreError

SHOWS: Final = ("GET", "HEAD")
DOES: Final = "POST"
METHODS: Final = [*SHOWS, DOES, "PUT", "PATCH", "DELETE", "OPTIONS"]
"""All of them: what is wrong with a method is wrong with the link, too."""
VALUE_MAX: Final = 200
"""Characters of one argument that are shown."""

Ask = Callable[[Caller, str, Args], Awaitable[Any]]

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>flyball: {title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""


def routes(links: Links | None, ask: Ask, home: asyncio.AbstractEventLoop) -> Sequence[BaseRoute]:
    """Where links lead to; None: there are no links, so every one is wrong. `ask` asks the daemon, whose loop is
    `home`."""

    async def answer(request: Request) -> Response:
        try:
            if links is None or request.method not in (*SHOWS, DOES):
                raise bad_link()
            if request.method == DOES:
                return await do(await run_in_threadpool(links.use, request.path_params["token"]))
            deed = await run_in_threadpool(links.read, request.path_params["token"])
        except LinkRefused as error:
            return _refused(error)
        except StoreError:
            return _trouble()
        return _page(deed.label or deed.verb, _told(deed))

    async def do(deed: Deed) -> Response:
        caller = Caller(f"link:{deed.channel}", "link", Right.OPERATE)
        try:
            data = await _asked(lambda: ask(caller, deed.verb, deed.args), home)
        except FlyballError as error:
            said = f"<p>{escape(str(error))}</p><p>{escape(error.remedy)}</p><p>The link is used up all the same.</p>"
            return _page("Not done", said, 409)
        return _page("Done", f"<p>{escape(effect_of(data) or deed.label or deed.verb)}</p>")

    return [Route(PATH + "{token:path}", answer, methods=METHODS)]


async def _asked(ask: Callable[[], Awaitable[Any]], home: asyncio.AbstractEventLoop) -> Any:
    """The answer of the daemon, which lives in another loop."""

    async def asked() -> Any:
        return await ask()

    late = f"The daemon did not answer within {ANSWER_MAX:g} s; it may still be done."
    return await cross(
        asked(),
        home,
        ANSWER_MAX,
        late=CommandError("no_answer", late, remedy="Look at the page."),
        ending=CommandError("ending", "The daemon is ending.", remedy="Start it anew: `flyball up -d`."),
    )


def _told(deed: Deed) -> str:
    """What it orders, and the button."""
    args = [
        f"<dt>{escape(name)}</dt><dd><code>{escape(_shown(value))}</code></dd>"
        for name, value in deed.args.items()
        if value not in (None, "", [])
    ]
    about = f"<dt>problem</dt><dd><code>{escape(deed.problem)}</code></dd>" if deed.problem else ""
    return (
        f"<dl><dt>order</dt><dd><code>{escape(deed.verb)}</code></dd>{''.join(args)}{about}</dl>\n"
        f'<form method="post"><button type="submit">{escape(deed.label or deed.verb)}</button></form>\n'
        "<p>Nothing is done before you press it. It can be pressed once.</p>"
    )


def _shown(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= VALUE_MAX else text[: VALUE_MAX - 1] + "…"


def _refused(error: LinkRefused) -> Response:
    return _page("Not done", f"<p>{escape(str(error))}</p><p>{escape(error.remedy)}</p>", 401)


def _trouble() -> Response:
    said = "<p>The store cannot be used right now, so nothing was done.</p><p>Try again in a moment.</p>"
    return _page("Not done", said, 503)


def _page(title: str, body: str, status: int = 200) -> HTMLResponse:
    page = _PAGE.format(title=escape(title), style=STYLE, body=body)
    return HTMLResponse(page, status, {"cache-control": "no-store", "referrer-policy": "no-referrer"})
