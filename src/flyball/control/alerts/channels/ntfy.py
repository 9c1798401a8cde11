"""ntfy: a message to everybody who follows a topic, changed in place by later ones about the same thing.

A message has a sequence id of ours, so that a second attempt whose first one did arrive changes it instead of being one
more, and an update replaces it. Servers before 2.16 do not know of it, and show each as a new one.
"""

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flyball.config.alerts import Ntfy
from flyball.control.alerts.channel import Action, Message
from flyball.control.alerts.channels.posting import post, refused
from flyball.http_client import secrets_of

ACTIONS_MAX: Final = 3
"""Buttons that ntfy allows."""
TEXT_BYTES_MAX: Final = 4_000
"""ntfy makes a file of what has more than 4,096, and a file is not read on a locked screen."""
TAGS_MAX: Final = 5
"""They stand under the message, or are little pictures before its title."""
PRIORITIES: Final = {"info": 3, "warning": 4, "critical": 5}
RESOLVED_PRIORITY: Final = 2
"""It makes no sound."""
PICTURES: Final = {"info": "information_source", "warning": "warning", "critical": "rotating_light"}


class NtfyChannel:
    """A topic of a server."""

    def __init__(self, settings: Ntfy) -> None:
        self.name = settings.name
        self._settings = settings
        self._secrets = [settings.token, settings.topic, *secrets_of(settings.url)]

    async def send(self, message: Message, previous: str | None) -> str:
        sequence = previous or sequence_of(message)
        headers = {"authorization": f"Bearer {self._settings.token}"} if self._settings.token else {}
        body = msgspec.json.encode(published(message, self._settings.topic, sequence))
        answer = await post(f"{self._settings.url}/", body, headers, self._settings.timeout)
        if not answer.is_good:
            raise refused(answer, self._secrets, str(answer.json.get("error", "")))
        return sequence

    async def close(self) -> None:
        pass


def published(message: Message, topic: str, sequence: str) -> dict[str, Any]:
    """What is sent to the server: a message as JSON, to its root."""
    picture = "white_check_mark" if message.resolved else PICTURES.get(message.severity, "warning")
    said: dict[str, Any] = {
        "topic": topic,
        "title": message.title,
        # Without a text, the server would say `triggered`.
        "message": _cut(message.text or message.title),
        "priority": RESOLVED_PRIORITY if message.resolved else PRIORITIES.get(message.severity, 4),
        "tags": [picture, *message.tags][:TAGS_MAX],
        "sequence_id": sequence,
    }
    if message.url:
        said["click"] = message.url
    if buttons := [_button(action) for action in message.actions if action.url][:ACTIONS_MAX]:
        said["actions"] = buttons
    return said


def _button(action: Action) -> Mapping[str, Any]:
    """One touch does it; what cannot be undone opens the page that asks first."""
    if action.destructive:
        return {"action": "view", "label": action.label, "url": action.url}
    return {"action": "http", "label": action.label, "url": action.url, "method": "POST", "clear": True}


def sequence_of(message: Message) -> str:
    """The same for each attempt to send it; of the letters that ntfy allows."""
    known = message.id or secrets.token_hex(16)
    return f"flyball-{hashlib.blake2b(known.encode(), digest_size=12).hexdigest()}"


def _cut(text: str) -> str:
    data = text.encode()
    if len(data) <= TEXT_BYTES_MAX:
        return text
    return data[: TEXT_BYTES_MAX - 3].decode("utf-8", "ignore") + "…"
