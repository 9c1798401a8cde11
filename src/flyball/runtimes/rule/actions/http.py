"""A request of a rule. Each has a connection and a client of its own: rules share no cookies, and no connection that
the other side closed meanwhile. To set one up takes a third of a millisecond, because the certificates are read once.

Redirects are answers, and not followed. Proxies are those of the environment. What is said of a failure names the host
alone: the rest of an address may be a secret, and so may headers.
"""

import contextlib
import ssl
import zlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import httpx
import msgspec

from flyball.config.rules import Http
from flyball.core.event import DETAIL_MAX
from flyball.core.hiding import hide
from flyball.core.time import Span
from flyball.http_client import ASK_AGAIN, CONNECT_MAX, asks_to_wait, secrets_of, shown, trust, unanswered
from flyball.runtimes.process.spawn import STARVED
from flyball.runtimes.rule.actions.within import within
from flyball.runtimes.rule.deed import ActionFailed, Scene

SENT_MAX: Final = 1024 * 1024
"""Bytes of a request's body: several times what a trigger may say."""
BODY_MAX: Final = 1024 * 1024
"""Bytes of an answer that are read, unpacked. The rest is dropped: later actions need a few values of it."""
SHOWN_MAX: Final = 2_000
"""Characters of a refusing answer that people are shown: where it says why."""
GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS


async def do(scene: Scene, deed: Http, seconds: float) -> Mapping[str, Any]:
    """Make the request. ActionFailed if there is no answer, or none that is a success."""
    target, host = shown(deed.url)
    headers, content = _prepared(deed, target)
    trusted = await _trust()
    timeout = httpx.Timeout(None, connect=CONNECT_MAX)
    try:
        async with (
            within(seconds, target),
            httpx.AsyncClient(verify=trusted, timeout=timeout) as client,
            client.stream(deed.method.upper(), deed.url, headers=headers, content=content) as answer,
        ):
            data, whole = await _read(answer)
    except ImportError as error:  # a proxy of a kind that needs more
        raise ActionFailed("NotInstalled", str(error), target=host, final=True) from None
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        text = "the URL is not one of the form https://host/path"
        raise ActionFailed("BadUrl", text, target=target, final=True) from None
    except (httpx.LocalProtocolError, ValueError):
        text = f"the request to {host} cannot be sent as it is: check its method and its headers"
        raise ActionFailed("BadRequest", text, target=target, final=True) from None
    except (httpx.TransportError, OSError) as error:
        raise _unanswered(error, target, host) from None
    text = _text(data, answer)
    status = answer.status_code
    if status not in deed.expect if deed.expect else status >= HTTPStatus.BAD_REQUEST:
        raise _refused(deed, answer, text, lasts_max=scene.rule.timeout)
    return {
        "status": status,
        "headers": dict(answer.headers.items()),
        "text": text,
        "json": _json(data) if whole else None,
    }


# Before.


def _prepared(deed: Http, target: str) -> tuple[httpx.Headers, bytes]:
    content, kind = b"", ""
    try:
        headers = httpx.Headers(deed.headers, encoding="utf-8")
        if deed.json is not None:
            content, kind = msgspec.json.encode(deed.json), "application/json"
        elif deed.text:
            content, kind = deed.text.encode(), "text/plain; charset=utf-8"
    except (TypeError, ValueError) as error:
        raise ActionFailed("BadRequest", f"the request cannot be sent: {type(error).__name__}", final=True) from None
    if len(content) > SENT_MAX:
        text = f"the request has {len(content)} bytes; allowed: {SENT_MAX}"
        raise ActionFailed("RequestTooLong", text, target=target, final=True)
    if kind:
        headers.setdefault("content-type", kind)
    # What is not packed cannot be unpacked to a thousand times its size.
    headers.setdefault("accept-encoding", "identity")
    headers.setdefault("user-agent", "flyball")
    return headers, content


async def _trust() -> ssl.SSLContext:
    """Whom to trust."""
    try:
        return await trust()
    except OSError as error:
        text = f"the trusted certificates cannot be read: {error.strerror}; check SSL_CERT_FILE and SSL_CERT_DIR"
        raise ActionFailed("NoCertificates", text, errno=error.errno, starved=error.errno in STARVED) from None


# After.


async def _read(answer: httpx.Response) -> tuple[bytes, bool]:
    """The body, unpacked, as far as it is taken; and whether that is all of it."""
    data = bytearray()
    async for part in answer.aiter_raw():
        data += part
        if len(data) > BODY_MAX:
            break
    if answer.headers.get("content-encoding", "").strip().lower() in ("gzip", "x-gzip", "deflate"):
        unpacking = zlib.decompressobj(GZIP_OR_ZLIB)
        with contextlib.suppress(zlib.error):  # then it is taken as it is: the status counts all the same
            data = bytearray(unpacking.decompress(data, BODY_MAX + 1))
    return bytes(data[:BODY_MAX]), len(data) <= BODY_MAX


def _text(data: bytes, answer: httpx.Response) -> str:
    try:
        return data.decode(answer.charset_encoding or "utf-8", "replace")
    except LookupError:
        return data.decode("utf-8", "replace")


def _json(data: bytes) -> Any:
    """None if it is no JSON."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _refused(deed: Http, answer: httpx.Response, said: str, *, lasts_max: Span) -> ActionFailed:
    status = answer.status_code
    target, host = shown(deed.url)
    wait = asks_to_wait(answer.headers.get("retry-after", ""))
    wrong = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in ASK_AGAIN
    # A wait that this run has no time for is left to the rule's cooldown.
    too_long = wait > lasts_max
    secrets = [word for value in deed.headers.values() for word in (value, *value.split())]
    secrets += secrets_of(deed.url)
    return ActionFailed(
        "HttpStatus",
        f"{host} answered {status} {answer.reason_phrase}".rstrip(),
        target=target,
        status=status,
        detail=hide(said[:SHOWN_MAX], secrets)[-DETAIL_MAX:],
        final=wrong or too_long,
        asks_to_wait=0 if too_long else wait,
    )


def _unanswered(error: Exception, target: str, host: str) -> ActionFailed:
    """Why there is no answer, under a name that is the same each time."""
    name, text, number = unanswered(error, host)
    # The number makes a fingerprint only where the name does not say it all: the resolver and TLS have other ones.
    tells = name in ("CannotConnect", "ConnectionLost")
    return ActionFailed(name, text, target=target, errno=number if tells else None, starved=number in STARVED)
