"""What every request of ours to somebody else has in common: whom it trusts, what of an address may be said, and why
there was no answer. No request is made here.

What is said of a failure names the host alone: the rest of an address may be a secret.
"""

import asyncio
import base64
import email.utils
import errno
import functools
import logging
import re
import socket
import ssl
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import httpx

from flyball.core.time import Span, span

CONNECT_MAX: Final = 10.0
"""Seconds to connect. Who is there takes less than one; who is not would take all the time that there is."""
ASK_AGAIN: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
"""Refusals that another attempt may not meet. To all others below 500 the request itself is wrong."""

# Its log has every address in full.
logging.getLogger("httpx").setLevel(logging.WARNING)


async def trust() -> ssl.SSLContext:
    """Whom to trust. To read all certificates takes as long as twenty requests: it is done once, and in a thread.
    OSError if they cannot be read."""
    return certificates() if certificates.cache_info().currsize else await asyncio.to_thread(certificates)


@functools.cache
def certificates() -> ssl.SSLContext:
    """The trusted ones."""
    return httpx.create_ssl_context()


# Addresses.


def shown(url: str) -> tuple[str, str]:
    """An address without what may be secret; and its host. Both are empty if it is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "", ""
    place = f"{host}:{port}" if port else host
    return f"{parts.scheme}://{place}{parts.path}", place


def secrets_of(url: str) -> list[str]:
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


# Answers, and none.


def asks_to_wait(header: str) -> Span:
    """What `Retry-After` says: seconds, or a date."""
    said = header.strip()
    if re.fullmatch(r"\d{1,9}", said):
        return span(int(said))
    try:
        return max(0, span(email.utils.parsedate_to_datetime(said).timestamp() - time.time()))
    except (ValueError, TypeError, OverflowError):
        return 0


class Unanswered(NamedTuple):
    """Why there is no answer: a name that is the same each time, what to tell people, and the system's number."""

    name: str
    text: str
    errno: int | None


def unanswered(error: Exception, host: str) -> Unanswered:
    """Why there is no answer."""
    causes = list(_causes(error))
    number = next(
        (cause.errno for cause in causes if isinstance(cause, OSError) and isinstance(cause.errno, int)), None
    )
    name, text = _named(error, causes, number)
    return Unanswered(name, text.format(host=host or "the host"), number)


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
