"""Action links: an order that was made out beforehand, for a person who reads an alert on a phone. Whoever has the link
can give that one order, once, until it is too old; so it is signed, and it may never be an order of an admin.

The link itself says what it orders. Only those that were used are kept, as long as they would be good. A link counts
as used before its order is carried out: no crash gives it a second time.
"""

import base64
import binascii
import contextlib
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from flyball.control.alerts.channel import Message
from flyball.control.commands import find
from flyball.control.context import CommandError, Right
from flyball.control.web.tokens import not_written, read_private, write_private
from flyball.core.policy import Key
from flyball.core.time import HOUR, Instant, Span
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.store import Draft, Snapshot

FILE: Final = "links.key"
"""The name of the key in the state folder. Without it all links that are out are worth nothing: that is how to take
them back."""
KEY_BYTES: Final = 32
LASTS: Final[Span] = 24 * HOUR
"""How long a link is good: a night, and the morning after."""
TOKEN_MAX: Final = 1_500
"""Characters of a link's token. Chats and phones cut longer addresses; what needs more gets no link."""
LABEL_MAX: Final = 80
USED: Final = "link"
"""The name of records of used links, where policies have theirs."""
USED_MAX: Final = 10_000
"""Used links that are remembered: one every ten seconds, all day. With more than this none can be used until some are
too old."""
FORGOTTEN_MAX: Final = 100
"""Old ones that are forgotten with each new one."""
PATH: Final = "/act/"
_CONTEXT: Final = b"flyball action link 1\0"
"""So that nothing else that this key may ever sign is a link."""


class LinkRefused(FlyballError):
    """A link that cannot be used. `code` is for machines."""

    def __init__(self, code: str, text: str, *, remedy: str) -> None:
        super().__init__(text, remedy=remedy)
        self.code = code


class Deed(msgspec.Struct, frozen=True, array_like=True):
    """What a link orders."""

    nonce: str
    until: Instant
    channel: str
    """By which it was sent."""
    verb: str
    args: Mapping[str, Any]
    problem: str
    label: str


class Links:
    """Makes links, and takes them back once each. Safe to use from several threads."""

    def __init__(self, governor: Governor, key: bytes, base: str, *, lasts: Span = LASTS) -> None:
        self._governor = governor
        self._key = key
        self._base = base.rstrip("/")
        self._lasts = lasts

    def __repr__(self) -> str:
        return f"Links({self._base!r})"

    def on(self, message: Message, channel: str) -> Message:
        """The message with a link at each action that can have one, for the channel that it goes to."""
        actions = tuple(
            replace(one, url=self.url(one.verb, one.args, problem=message.problem, channel=channel, label=one.label))
            for one in message.actions
        )
        return replace(message, actions=actions)

    def url(self, verb: str, args: Mapping[str, Any], *, problem: str, channel: str, label: str) -> str:
        """A new link. Nothing if there is no address to link to, or the order is none for a link."""
        if not self._base or not _may_be_linked(verb):
            return ""
        until = self._governor.clock.now() + self._lasts
        deed = Deed(secrets.token_urlsafe(16), until, channel, verb, args, problem, label[:LABEL_MAX])
        payload = _text_of(msgspec.json.encode(deed))
        token = f"{payload}.{_text_of(self._sign(payload))}"
        return f"{self._base}{PATH}{token}" if len(token) <= TOKEN_MAX else ""

    def read(self, token: str) -> Deed:
        """What it orders; nothing is done, and nothing is written. LinkRefused if it cannot be used."""
        payload, _, signature = token.partition(".")
        given = _bytes_of(signature)
        if len(token) > TOKEN_MAX or not hmac.compare_digest(given, self._sign(payload)):
            raise bad_link()
        try:
            deed = msgspec.json.decode(_bytes_of(payload), type=Deed)
        except (msgspec.MsgspecError, UnicodeDecodeError):  # signed by another version of ours
            raise bad_link() from None
        if self._governor.clock.now() >= deed.until:
            raise LinkRefused("expired", "This link is too old.", remedy="Look at the page for what can be done now.")
        if self._governor.store.read([_record(deed)]).records:
            raise _used()
        return deed

    def use(self, token: str) -> Deed:
        """The same, and from now on it is used. LinkRefused if it was before, or cannot be; StoreError if that cannot
        be written down."""
        deed = self.read(token)
        own, store = _record(deed), self._governor.store
        known = store.states(USED)
        now = self._governor.clock.now()
        old = [key for key, data in known.items() if _until(data) < now][:FORGOTTEN_MAX]
        if len(known) - len(old) >= USED_MAX:
            remedy = "Use the page, or try again later."
            raise LinkRefused("full", "More links were used than can be remembered.", remedy=remedy)

        def draft(snapshot: Snapshot) -> Draft:
            if own in snapshot.records:
                raise _used()
            changes: dict[Key, bytes | None] = {own: msgspec.json.encode(deed.until), **dict.fromkeys(old)}
            return Draft(max(now, snapshot.at), changes, None)

        store.transact([own, *old], draft)
        return deed

    def _sign(self, payload: str) -> bytes:
        return hmac.digest(self._key, _CONTEXT + payload.encode("utf-8", "surrogateescape"), "sha256")


def key_of(folder: Path) -> bytes:
    """The key of a state folder, made if there is none. FlyballError if others could know it."""
    path = folder / FILE
    if not path.exists():
        try:
            write_private(path, secrets.token_bytes(KEY_BYTES))
        except OSError as error:
            raise not_written(path, error) from None
    key = read_private(path)
    if len(key) != KEY_BYTES:
        raise FlyballError(f"{path}: it is no key", remedy="Remove it: a new one is made. Links that are out end then.")
    return key


def _may_be_linked(verb: str) -> bool:
    with contextlib.suppress(CommandError):
        return find(verb).right is Right.OPERATE
    return False


def _record(deed: Deed) -> Key:
    return Key(USED, "fleet", hashlib.blake2b(deed.nonce.encode(), digest_size=16).hexdigest())


def _until(data: bytes) -> Instant:
    """Until when it would be good; of a record that cannot be read, not any more."""
    try:
        return msgspec.json.decode(data, type=int)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return 0


def bad_link() -> LinkRefused:
    """What to say of one that nobody here made."""
    return LinkRefused("bad", "This is no link of ours, or not all of it.", remedy="Open it from the message itself.")


def _used() -> LinkRefused:
    return LinkRefused("used", "This link was used already.", remedy="Look at the page for what came of it.")


def _text_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes_of(text: str) -> bytes:
    """Empty if it is none of what the other makes."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
