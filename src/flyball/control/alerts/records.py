"""Where alerts keep what they know: the names of their records in the store."""

from typing import Final

import msgspec

from flyball.core.policy import Key
from flyball.governor import Governor
from flyball.store import Draft, Snapshot

RECORDS: Final = "alerts"
"""The name of all of them."""
GROUP: Final = "group:"
CHANNEL: Final = "channel:"
TEST: Final = "test-"
"""What the group of a test message begins with."""


def record(subject: str) -> Key:
    """The key of a record."""
    return Key(RECORDS, "fleet", subject)


CURSOR: Final = record("cursor")
CHANNELS: Final = record("channels")
"""Which channels there are, and of which type: for whoever looks and does not have the settings."""
INBOX: Final = record("inbox")


class Cursor(msgspec.Struct, frozen=True):
    """How far the journal was read."""

    seq: int


def forget(governor: Governor) -> None:
    """Nobody is told anything any more, so nothing is known of it: whoever is later, is told of what happens then."""
    known = governor.store.states(RECORDS)

    def draft(snapshot: Snapshot) -> Draft:
        return Draft(max(governor.clock.now(), snapshot.at), dict.fromkeys(known), None)

    if known:
        governor.store.transact([*known], draft)
