"""The gate: every request passes here first. It is let in with a known token, or a login of ours from a page of ours.

What a page of somebody else can make a browser do is refused, whatever the browser sends along: its Host is not ours
(a name that was made to point here), its origin is another, or it does not know what only our page can read. There are
no CORS headers at all: no other page reads an answer.
"""

import hmac
import ipaddress
import logging
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flyball.control.context import Caller, CommandError
from flyball.control.web import form
from flyball.control.web.attempts import Attempts
from flyball.control.web.logins import Logins, csrf_of
from flyball.control.web.replies import error_reply
from flyball.control.web.service import Visitor
from flyball.control.web.tokens import Token, Tokens, TokensRefused
from flyball.errors import FlyballError

log = logging.getLogger(__name__)

OPEN: Final = ("/health", "/health/ready", "/login")
"""Paths that need no token."""
OWN_WAY: Final = re.compile(r"/login/[^/]+|/act/.*", re.DOTALL)
"""Paths where the address itself says who comes."""
SAFE: Final = ("GET", "HEAD")
CSRF: Final = "x-flyball-csrf"
TOKEN_MAX: Final = 512
"""Characters of a token that are looked at: ours have 51."""

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        f"style-src 'self' '{form.STYLE_HASH}'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""What a page of ours may load: only what comes from here."""
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no referrer at all, browsers hide the origin of forms: nobody could log in
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
"""Of every answer that does not say otherwise."""
_RAW: Final = tuple((name.encode(), value.encode()) for name, value in HEADERS.items())


class Hosts:
    """Names under which this address may be asked for. A name that is not known could be made to point here by
    anybody; a number cannot."""

    def __init__(self, listen_host: str, more: Sequence[str]) -> None:
        self._more = {name.lower() for name in more}
        self._local = _is_local(listen_host)
        self.port = 0
        """Where it really listens."""

    def knows(self, host: str) -> bool:
        try:
            parts = urlsplit(f"//{host}")
            name, port = (parts.hostname or "").lower(), parts.port
        except ValueError:
            return False
        if not name or parts.path or parts.query or parts.username is not None:
            return False
        if name in self._more:
            return True  # through a proxy, which may have a port of its own
        if port is not None and port != self.port:
            return False
        if name == "localhost":
            return True
        try:
            number = ipaddress.ip_address(name)
        except ValueError:
            return False
        return number.is_loopback or not self._local


class Gate:
    """Lets in who may come in, and tells the app who it is."""

    def __init__(self, app: ASGIApp, tokens: Tokens, logins: Logins, attempts: Attempts, hosts: Hosts) -> None:
        self._app = app
        self._tokens = tokens
        self._logins = logins
        self._attempts = attempts
        self._hosts = hosts
        self._told = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        safely = _with_headers(send)
        try:
            self._check_host(headers)
            path: str = scope["path"]
            if path not in OPEN and not OWN_WAY.fullmatch(path):
                scope["flyball.visitor"] = self._visitor(scope, headers)
        except TokensRefused as error:
            self._tell(error)
            text = "the file of tokens cannot be used, so nobody can come in"
            unusable = CommandError("tokens_refused", text, remedy="The daemon's log says what is wrong with it.")
            await error_reply(unusable)(scope, receive, safely)
        except CommandError as error:
            await self._refused(scope, headers, error)(scope, receive, safely)
        else:
            await self._app(scope, receive, safely)

    def _check_host(self, headers: Headers) -> None:
        given = headers.getlist("host")
        if len(given) != 1 or not self._hosts.knows(given[0]):
            text = "this address is not known under that name"
            remedy = "Use 127.0.0.1 or localhost; other names have to be in the setting `http.hosts`."
            raise CommandError("bad_host", text, remedy=remedy)

    def _visitor(self, scope: Scope, headers: Headers) -> Visitor:
        given = headers.get("authorization")
        if given is not None:
            token = self._by_token(given, address_of(scope))
            return Visitor(Caller(token.name, "http", token.right), lambda: self._tokens.has(token))
        cookie = cookie_of(headers, self._hosts.port)
        by_cookie = self._logins.of(cookie) if cookie else None
        if by_cookie is None:
            raise CommandError("unauthorized", "who are you?", remedy=_LOG_IN)
        check_page(scope, headers)
        if scope["method"] not in SAFE and not _same(headers.get(CSRF, ""), csrf_of(cookie)):
            text = "a change needs the header X-Flyball-CSRF of this login"
            raise CommandError("bad_origin", text, remedy="Load the page anew.")
        caller = Caller(by_cookie.name, "page", by_cookie.right)
        return Visitor(caller, lambda: self._logins.of(cookie) == by_cookie, cookie)

    def _by_token(self, given: str, address: str) -> Token:
        scheme, _, text = given.partition(" ")
        token = self._tokens.of(text.strip()) if scheme.lower() == "bearer" and len(given) <= TOKEN_MAX else None
        if token is None:
            fail(self._attempts, address)
            raise CommandError("unauthorized", "no such token", remedy=_LOG_IN)
        return token

    def _refused(self, scope: Scope, headers: Headers, error: CommandError) -> Response:
        if error.code != "unauthorized":
            return error_reply(error, getattr(error, "headers", None))
        challenge = {"www-authenticate": 'Bearer realm="flyball"'}
        if scope["method"] in SAFE and "text/html" in headers.get("accept", ""):
            return form.page(headers=challenge)
        return error_reply(error, challenge)

    def _tell(self, error: FlyballError) -> None:
        """In the log, once."""
        if str(error) != self._told:
            log.error("nobody can come in over HTTP: %s. %s", error, error.remedy)
        self._told = str(error)


_LOG_IN: Final = "Send `Authorization: Bearer TOKEN` (`flyball token show admin`), or log in by a link: `flyball page`."


class TooManyFailures(CommandError):
    """Somebody has to wait."""

    def __init__(self, wait: float) -> None:
        super().__init__("too_many_failures", "too many attempts to come in failed", remedy="Wait, then try again.")
        self.headers = {"retry-after": str(max(1, round(wait + 0.5)))}


def fail(attempts: Attempts, address: str) -> None:
    """An attempt failed: count it, or say that there were too many."""
    wait = attempts.wait(address)
    if wait > 0:
        raise TooManyFailures(wait)
    attempts.failed(address)


def check_page(scope: Scope, headers: Headers) -> None:
    """What a browser sent by itself counts only if a page of ours made it do so. CommandError if not, or if a change
    does not say so."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    is_safe = scope["method"] in SAFE
    # Who follows a link to the page comes from anywhere, and sees nothing but the page.
    follows = is_safe and headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    wrong = (
        (origin is not None and not _is_own(origin, headers))
        or (site not in (None, "same-origin", "none") and not follows)
        or (not is_safe and origin is None and site is None)
    )
    if wrong:
        raise CommandError("bad_origin", "this comes from another page", remedy="Use the page of this daemon.")


def _is_own(origin: str, headers: Headers) -> bool:
    scheme, _, host = origin.partition("://")
    return scheme in ("http", "https") and host.lower() == headers.get("host", "").lower()


def cookie_name(port: int) -> str:
    """Cookies do not know ports, and there may be two daemons on one host."""
    return f"flyball_{port}"


def cookie_of(headers: Headers, port: int) -> str:
    """What is in our cookie; nothing if there is none."""
    found = cookie_parser("; ".join(headers.getlist("cookie"))).get(cookie_name(port), "")
    return found if len(found) <= TOKEN_MAX else ""


def address_of(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted.encode())


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = message.get("headers", [])
            said = {name for name, _ in given}
            message["headers"] = [*given, *(header for header in _RAW if header[0] not in said)]
        await send(message)

    return sending
