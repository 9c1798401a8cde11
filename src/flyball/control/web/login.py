"""Logging in and out with a browser: by a token in the form (or as JSON), or by a link that works once."""

from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from flyball.control.context import CommandError
from flyball.control.web import form
from flyball.control.web.attempts import Attempts
from flyball.control.web.bodies import JSON_TYPE, body_of, json_of
from flyball.control.web.gate import (
    Hosts,
    TooManyFailures,
    address_of,
    check_page,
    cookie_name,
    fail,
)
from flyball.control.web.logins import LASTS, Logins, csrf_of
from flyball.control.web.replies import data_reply, error_reply
from flyball.control.web.service import visitor_of
from flyball.control.web.tokens import Token, Tokens, TokensRefused

SEE_OTHER: Final = 303
WRONG: Final = "There is no such token."
STALE: Final = "This link was used already, or is too old. `flyball page` makes another one."
LATER: Final = "Too many attempts failed. Wait a minute, then try again."
UNUSABLE: Final = "The file of tokens cannot be used. The daemon's log says what is wrong with it."


class Door:
    """Logs in and out."""

    def __init__(self, tokens: Tokens, logins: Logins, attempts: Attempts, hosts: Hosts) -> None:
        self._tokens = tokens
        self._logins = logins
        self._attempts = attempts
        self._hosts = hosts

    def routes(self) -> list[Route]:
        return [
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/login/{code}", self._by_link, methods=["GET"]),
            Route("/logout", self._logout, methods=["POST"]),
        ]

    async def _login(self, request: Request) -> Response:
        if request.method != "POST":
            return form.page()
        as_json = bool(JSON_TYPE.fullmatch(request.headers.get("content-type", "")))
        try:
            token = await self._by_token(request, as_json=as_json)
        except TooManyFailures as error:
            return error_reply(error, error.headers) if as_json else form.page(LATER, status=429, headers=error.headers)
        except TokensRefused:
            unusable = CommandError("tokens_refused", UNUSABLE)
            return error_reply(unusable) if as_json else form.page(UNUSABLE, status=503)
        if token is None:
            wrong = CommandError("unauthorized", "no such token", remedy="`flyball token show admin` shows one.")
            return error_reply(wrong) if as_json else form.page(WRONG)
        cookie = self._logins.begin(token)
        said = {"who": token.name, "role": token.role, "csrf": csrf_of(cookie)}
        return self._in(request, cookie, data_reply(said) if as_json else _to_page())

    async def _by_token(self, request: Request, *, as_json: bool) -> Token | None:
        if "origin" in request.headers or "sec-fetch-site" in request.headers:
            check_page(request.scope, Headers(scope=request.scope))  # nobody logs somebody else in
        given = (await json_of(request)).get("token") if as_json else _field(await body_of(request))
        # One that is right lets in whatever others tried: all users of a machine, and all pages that its owner looks
        # at, come from one address, and must not be able to shut the owner out. None is ever guessed.
        token = self._tokens.of(given.strip()) if isinstance(given, str) else None
        if token is None:
            fail(self._attempts, address_of(request.scope))
        return token

    async def _by_link(self, request: Request) -> Response:
        if request.method != "GET":  # what only asks whether it is there does not use it up
            return form.page()
        check_page(request.scope, Headers(scope=request.scope))  # pictures in pages of others count for nothing
        token = self._logins.use(request.path_params["code"])
        if token is None:
            try:
                fail(self._attempts, address_of(request.scope))
            except TooManyFailures as error:
                return form.page(LATER, status=429, headers=error.headers)
            return form.page(STALE)
        elsewhere = request.headers.get("sec-fetch-site") not in (None, "none", "same-origin")
        return self._in(request, self._logins.begin(token), form.onward() if elsewhere else _to_page())

    async def _logout(self, request: Request) -> Response:
        cookie = visitor_of(request).cookie
        if cookie:
            self._logins.end(cookie)
        response = data_reply({})
        response.delete_cookie(cookie_name(self._hosts.port), httponly=True, samesite="strict")
        return response

    def _in(self, request: Request, cookie: str, response: Response) -> Response:
        response.set_cookie(
            cookie_name(self._hosts.port),
            cookie,
            max_age=int(LASTS),
            httponly=True,
            samesite="strict",
            # Through a proxy that encrypts, which is seen by the page's own address.
            secure=request.headers.get("origin", "").startswith("https://"),
        )
        return response


def _to_page() -> Response:
    return RedirectResponse("/", SEE_OTHER)


def _field(body: bytes) -> str:
    try:
        return parse_qs(body.decode(), max_num_fields=8).get("token", [""])[0]
    except ValueError:
        return ""
