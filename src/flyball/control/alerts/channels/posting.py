"""One request of a channel: bounded in time and in size, to the host that was named and to no other, over TLS that is
checked. Each has a connection of its own: alerts are few, and an old connection would be dead when one comes.

No error says more of an address than its host, and none repeats a secret that the other side said again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import httpx
import msgspec

from flyball.control.alerts.channel import ChannelError
from flyball.core.hiding import hide
from flyball.core.time import SECOND, Span
from flyball.http_client import ASK_AGAIN, CONNECT_MAX, asks_to_wait, shown, trust, unanswered

ANSWER_MAX: Final = 64 * 1024
"""Bytes of an answer that are read: it says an id, or what was wrong."""
SAID_MAX: Final = 200
"""Characters of what the other side says was wrong."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    host: str
    status: int
    phrase: str
    wait: Span
    """What it asks for before the next attempt."""
    data: bytes

    @property
    def is_good(self) -> bool:
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def json(self) -> Mapping[str, Any]:
        """Empty if it is no object of JSON."""
        try:
            return msgspec.json.decode(self.data, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {}


async def post(url: str, body: bytes, headers: Mapping[str, str], timeout: Span) -> Answer:
    """Send it. ChannelError if there is no answer."""
    host = shown(url)[1]
    if not host:
        raise ChannelError("its address is none", retry=False)
    seconds = timeout / SECOND
    sent = {"content-type": "application/json", "accept-encoding": "identity", "user-agent": "flyball", **headers}
    try:
        trusted = await trust()
        async with (
            asyncio.timeout(seconds),
            httpx.AsyncClient(verify=trusted, timeout=httpx.Timeout(None, connect=CONNECT_MAX)) as client,
            client.stream("POST", url, headers=sent, content=body) as answer,
        ):
            data = await _read(answer)
    except TimeoutError:
        raise ChannelError(f"{host} did not answer within {seconds:g} s", retry=True) from None
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, ValueError):
        raise ChannelError("its address or a header cannot be sent as it is set", retry=False) from None
    except ImportError:  # a proxy of a kind that needs more
        raise ChannelError("the proxy of the environment is of a kind that is not supported", retry=False) from None
    except (httpx.TransportError, OSError) as error:
        raise ChannelError(unanswered(error, host).text, retry=True) from None
    wait = asks_to_wait(answer.headers.get("retry-after", ""))
    return Answer(host, answer.status_code, answer.reason_phrase, wait, data)


async def _read(answer: httpx.Response) -> bytes:
    data = bytearray()
    async for part in answer.aiter_raw():
        data += part
        if len(data) >= ANSWER_MAX:
            break
    return bytes(data[:ANSWER_MAX])


def refused(answer: Answer, secrets: Sequence[str], said: str = "") -> ChannelError:
    """It was not taken. `said` is what the other side says was wrong, if it is known where that stands."""
    text = f"{answer.host} answered {answer.status} {answer.phrase}".rstrip()
    if answer.status < HTTPStatus.BAD_REQUEST:
        return ChannelError(f"{text}: it has moved, and is not followed; set the address it has now", retry=False)
    if said:
        text = f"{text}: {hide(' '.join(said.split()), secrets)[:SAID_MAX]}"
    again = answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.status in ASK_AGAIN
    return ChannelError(text, retry=again, after=answer.wait / SECOND)
