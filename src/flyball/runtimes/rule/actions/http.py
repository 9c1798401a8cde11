"""A request of a rule. Each has a connection and a client of its own: rules share no cookies, and no connection that
the other side closed meanwhile. To set one up takes a third of a millisecond, because the certificates are read once.

Redirects are answers, and not followed. Proxies are those of the environment. What is said of a failure names the host
alone: the rest of an address may be a secret, and so may headers.
"""

import asyncio
import base64
import contextlib
import email.utils
import errno
import functools
import logging
import re
import socket
import ssl
import time
import zlib
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import httpx
import msgspec

from flyball.config.rules import Http
from flyball.core.event import DETAIL_MAX
from flyball.core.time import Span, span
from flyball.runtimes.process.failure import hide
from flyball.runtimes.process.spawn import STARVED
from flyball.runtimes.rule.actions.within import within
from flyball.runtimes.rule.deed import ActionFailed, Scene

SENT_MAX: Final = 1024 * 1024
"""Bytes of a request's body: several times what a trigger may say."""
BODY_MAX: Final = 1024 * 1024
"""Bytes of an answer that are read, unpacked. The rest is dropped: later actions need a few values of it."""
CONNECT_MAX: Final = 10.0
"""Seconds to connect. Who is there takes less than one; who is not would take all the time that the action has."""
SHOWN_MAX: Final = 2_000
"""Characters of a refusing answer that people are shown: where it says why."""
ASK_AGAIN: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
"""Refusals that another attempt may not meet. To all others below 500 the request itself is wrong."""
GZIP_OR_ZLIB: Final = 32 + zlib.MAX_WBITS

# Its log has every address in full.
logging.getLogger("httpx").setLevel(logging.WARNING)


async def do(scene: Scene, deed: Http, seconds: float) -> Mapping[str, Any]:
    """Make the request. ActionFailed if there is no answer, or none that is a success."""
    target, host = _shown(deed.url)
    headers, content = _prepared(deed, target)
    trust = await _trust()
    timeout = httpx.Timeout(None, connect=CONNECT_MAX)
    try:
        async with (
            within(seconds, target),
            httpx.AsyncClient(verify=trust, timeout=timeout) as client,
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
    """Whom to trust. To read all certificates takes as long as twenty requests: it is done once, and in a thread."""
    try:
        return _certificates() if _certificates.cache_info().currsize else await asyncio.to_thread(_certificates)
    except OSError as error:
        text = f"the trusted certificates cannot be read: {error.strerror}; check SSL_CERT_FILE and SSL_CERT_DIR"
        raise ActionFailed("NoCertificates", text, errno=error.errno, starved=error.errno in STARVED) from None


@functools.cache
def _certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _shown(url: str) -> tuple[str, str]:
    """An address without what may be secret; and its host. Both are empty if it is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "", ""
    place = f"{host}:{port}" if port else host
    return f"{parts.scheme}://{place}{parts.path}", place


def _secrets_of(url: str) -> list[str]:
    """What may be secret in an address, in all the forms in which the other side hears it, and may say it again."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return [url]
    found = [parts.query, *(value for pair in parse_qsl(parts.query) for value in (pair[1], quote(pair[1])))]
    if parts.password:
        plain = unquote(parts.password)
        both = f"{unquote(parts.username or '')}:{plain}"
        found += [parts.password, plain, base64.b64encode(both.encode()).decode()]
    return found


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
    target, host = _shown(deed.url)
    wait = _asks_to_wait(answer.headers.get("retry-after", ""))
    wrong = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in ASK_AGAIN
    # A wait that this run has no time for is left to the rule's cooldown.
    too_long = wait > lasts_max
    secrets = [word for value in deed.headers.values() for word in (value, *value.split())]
    secrets += _secrets_of(deed.url)
    return ActionFailed(
        "HttpStatus",
        f"{host} answered {status} {answer.reason_phrase}".rstrip(),
        target=target,
        status=status,
        detail=hide(said[:SHOWN_MAX], secrets)[-DETAIL_MAX:],
        final=wrong or too_long,
        asks_to_wait=0 if too_long else wait,
    )


def _asks_to_wait(header: str) -> Span:
    """What `Retry-After` says: seconds, or a date."""
    said = header.strip()
    if re.fullmatch(r"\d{1,9}", said):
        return span(int(said))
    try:
        return max(0, span(email.utils.parsedate_to_datetime(said).timestamp() - time.time()))
    except (ValueError, TypeError, OverflowError):
        return 0


def _unanswered(error: Exception, target: str, host: str) -> ActionFailed:
    """Why there is no answer, under a name that is the same each time."""
    causes = list(_causes(error))
    number = next(
        (cause.errno for cause in causes if isinstance(cause, OSError) and isinstance(cause.errno, int)), None
    )
    name, text = _named(error, causes, number)
    # The number makes a fingerprint only where the name does not say it all: the resolver and TLS have other ones.
    tells = name in ("CannotConnect", "ConnectionLost")
    text = text.format(host=host or "the host")
    return ActionFailed(name, text, target=target, errno=number if tells else None, starved=number in STARVED)


def _named(error: Exception, causes: list[BaseException], number: int | None) -> tuple[str, str]:
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "CertificateNotTrusted", "the certificate of {host} is not trusted: " + _plain(cause.verify_message)
        if isinstance(cause, ssl.SSLError):
            return "TlsFailed", "{host} and we do not agree on TLS: " + _plain(cause.reason or "no reason given")
        if isinstance(cause, socket.gaierror):
            return "UnknownHost", "{host} is not known; check the name, and the network"
    if isinstance(error, httpx.ConnectTimeout):
        return "ConnectTimeout", f"{{host}} did not accept a connection within {CONNECT_MAX:g} s"
    if isinstance(error, httpx.ProxyError):
        return "ProxyFailed", "the proxy did not pass the request on to {host}"
    if isinstance(error, httpx.ConnectError):
        if number == errno.ECONNREFUSED:
            return "ConnectionRefused", "{host} refused the connection; is it up?"
        if number in (errno.ENETUNREACH, errno.EHOSTUNREACH):
            return "Unreachable", "{host} cannot be reached from here"
        return "CannotConnect", "no connection to {host}"
    if isinstance(error, httpx.RemoteProtocolError) and not re.search("disconnected|closed", str(error)):
        return "BadAnswer", "what {host} answered is not HTTP"
    return "ConnectionLost", "{host} closed the connection before it had answered"


def _plain(text: str) -> str:
    return text.replace("{", "(").replace("}", ")")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what it came from; several that came together likewise."""
    seen: set[int] = set()
    look = [error]
    while look:
        found = look.pop(0)
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        look += [found.__cause__, found.__context__]
        if isinstance(found, BaseExceptionGroup):
            look += found.exceptions
