"""A webhook: the message as JSON, signed as the Standard Webhooks specification says.

The id is the same for each attempt, so that whoever got it before an answer was lost can tell; the time and so the
signature are new each time, because receivers refuse old ones.
"""

import hashlib
import secrets
import time
from typing import Any, Final

import msgspec

from flyball.config.alerts import WebhookChannel
from flyball.control.alerts.channel import Message
from flyball.control.alerts.channels.posting import post, refused
from flyball.core.time import SECOND
from flyball.http_client import secrets_of
from flyball.signing import sign

RAISED: Final = "alert.raised"
UPDATED: Final = "alert.updated"
RESOLVED: Final = "alert.resolved"


class SignedWebhook:
    """A request to one address."""

    def __init__(self, settings: WebhookChannel) -> None:
        self.name = settings.name
        self._settings = settings

    async def send(self, message: Message, previous: str | None) -> str:
        id_ = id_of(message)
        body = msgspec.json.encode(told(message, id_, previous))
        at = str(int(time.time()))
        headers = {"webhook-id": id_, "webhook-timestamp": at}
        if self._settings.secret:
            headers["webhook-signature"] = sign(self._settings.secret, id_, at, body)
        answer = await post(self._settings.url, body, headers, self._settings.timeout)
        if not answer.is_good:
            # What is in the body may be anything, also the secret path of the address: the status has to do.
            raise refused(answer, secrets_of(self._settings.url))
        return id_

    async def close(self) -> None:
        pass


def told(message: Message, id_: str, previous: str | None) -> dict[str, Any]:
    """The body: what happened, when, and everything about it. Instants are Unix seconds."""
    return {
        "type": RESOLVED if message.resolved else UPDATED if previous else RAISED,
        "timestamp": message.at / SECOND,
        "data": {
            "id": id_,
            "replaces": previous or "",
            "group": message.group,
            "problem": message.problem,
            "title": message.title,
            "text": message.text,
            "severity": message.severity,
            "kind": message.kind,
            "unit": message.unit,
            "count": message.count,
            "resolved": message.resolved,
            "tags": message.tags,
            "url": message.url,
            "actions": [
                {"label": one.label, "verb": one.verb, "url": one.url, "destructive": one.destructive}
                for one in message.actions
                if one.url
            ],
        },
    }


def id_of(message: Message) -> str:
    """Without a full stop: it stands between id, time and body in what is signed."""
    known = message.id or secrets.token_hex(16)
    return f"msg_{hashlib.blake2b(known.encode(), digest_size=16).hexdigest()}"
