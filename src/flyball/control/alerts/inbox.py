"""The inbox: what people are to be told that is in no entry of the journal: the texts of rules, and tests of channels.

It is a record, so nothing of it is lost; and whoever puts something into it need not know whether anybody sends alerts.
"""

import secrets
from concurrent.futures import Future
from typing import Final

import msgspec

from flyball.control.alerts.records import INBOX
from flyball.core.time import Instant
from flyball.governor import Governor
from flyball.store import Draft, Entry, Snapshot

LETTERS_MAX: Final = 200
"""Texts that wait. They are taken out within a second; more than this at once is a rule that went wild."""
LETTER_MAX: Final = 2_000
"""Characters of each."""


class Letter(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing to tell."""

    id: str
    at: Instant
    unit: str = ""
    text: str = ""
    test: bool = False
    channel: str = ""
    """Of a test: which one; nothing: all."""


def read(data: bytes | None) -> tuple[Letter, ...]:
    """The letters in a record."""
    if data is None:
        return ()
    try:
        return msgspec.json.decode(data, type=tuple[Letter, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()


def without(data: bytes | None, taken: frozenset[str]) -> bytes | None:
    """The record without those that were taken."""
    left = [letter for letter in read(data) if letter.id not in taken]
    return msgspec.json.encode(left) if left else None


def put(governor: Governor, *, unit: str = "", text: str = "", test: bool = False, channel: str = "") -> "Sent":
    """Put a letter into it; its id, and when that is written. The first of two that are put by one caller is written
    first, and what that caller submits afterwards is written after both."""
    id_ = secrets.token_hex(6)

    def draft(snapshot: Snapshot) -> Draft:
        now = max(governor.clock.now(), snapshot.at)
        letters = (*read(snapshot.records.get(INBOX)), Letter(id_, now, unit, text[:LETTER_MAX], test, channel))
        return Draft(now, {INBOX: msgspec.json.encode(letters[-LETTERS_MAX:])}, None)

    return Sent(id_, governor.store.transact_soon([INBOX], draft))


class Sent:
    """A letter that was put in."""

    def __init__(self, id_: str, written: "Future[Entry | None]") -> None:
        self.id = id_
        self.written = written
