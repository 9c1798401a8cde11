"""A server that speaks ntfy's protocol, as far as publishing goes: messages as JSON to its root, checked as the real
one checks them, and shown as a phone shows them: one with a sequence id takes the place of the one before.

It follows ntfy 2.16. `knows_sequences=False` is an older one, which shows each as a new message.
"""

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tests.servers.http import Asked, OnSite, Reply

TOPIC: Final = re.compile(r"[-_A-Za-z0-9]{1,64}")
SEQUENCE: Final = re.compile(r"[-_A-Za-z0-9]{1,64}")
MESSAGE_MAX: Final = 4096
"""Bytes. A longer one becomes a file."""
ACTIONS_MAX: Final = 3
KINDS: Final = ("view", "broadcast", "http")


class NtfyServer(OnSite):
    """Topics, and what is shown in them."""

    def __init__(self, *, token: str = "", knows_sequences: bool = True) -> None:
        self._token, self._knows = token, knows_sequences
        super().__init__()
        self.shown: dict[str, dict[str, dict[str, Any]]] = {}
        """By topic, then by sequence id, the message as it is shown now."""
        self.published: list[dict[str, Any]] = []

    def _answer(self, asked: Asked) -> Reply:
        if asked.path != "/" or asked.method not in ("POST", "PUT"):
            return _error(404, 40401, "page not found")
        try:
            said = msgspec.json.decode(asked.body, type=dict[str, Any])
        except msgspec.MsgspecError:
            return _error(400, 40017, "invalid request: request body must be message JSON")
        wrong = self._wrong(said)
        if wrong is not None:
            return wrong
        if self._token and asked.headers.get("authorization") != f"Bearer {self._token}":
            if "authorization" in asked.headers:
                return _error(401, 40101, "unauthorized")
            return _error(403, 40301, "forbidden")
        message = {"id": secrets.token_hex(6), "time": 1, "event": "message", **said}
        if not self._knows:
            message.pop("sequence_id", None)
        self.published.append(message)
        self.shown.setdefault(said["topic"], {})[message.get("sequence_id", message["id"])] = message
        return Reply(200, msgspec.json.encode(message))

    def _wrong(self, said: Mapping[str, Any]) -> Reply | None:
        if not TOPIC.fullmatch(str(said.get("topic", ""))):
            return _error(400, 40009, "invalid request: topic invalid")
        if said.get("priority", 3) not in (1, 2, 3, 4, 5):
            return _error(400, 40007, "invalid priority parameter")
        if len(str(said.get("message", "")).encode()) > MESSAGE_MAX:
            return _error(400, 40014, "invalid request: attachments not allowed")
        if self._knows and not SEQUENCE.fullmatch(str(said.get("sequence_id", "x"))):
            return _error(400, 40049, "invalid request: sequence ID invalid")
        actions = said.get("actions") or []
        good = len(actions) <= ACTIONS_MAX and all(
            one.get("action") in KINDS and one.get("label") and one.get("url") for one in actions
        )
        return None if good else _error(400, 40018, "invalid request: actions invalid")


def _error(status: int, code: int, text: str) -> Reply:
    return Reply(status, msgspec.json.encode({"code": code, "http": status, "error": text}))
