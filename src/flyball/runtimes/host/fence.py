"""Fencing: a host that does not renew its lease is taken out of the fleet, by exactly one of those who find that out.

The record goes and a note takes its place, in one transaction: what is left to do for that host, and who does it. So
nothing of it is forgotten if that one dies, too.

When a lease is at its end is judged twice: by the store's clock, as the record says, and by this host's own, from when
the record was first seen as it is. A store's clock that is set forward ends no lease.
"""

from typing import Final

import msgspec

from flyball.core.event import Left
from flyball.core.host import HostRecord, host_key, host_of
from flyball.core.policy import Key
from flyball.core.time import Instant
from flyball.governor import Governor, Rows
from flyball.runtimes.host.transactions import Records, readable, transact

FENCED: Final = "fenced"
"""The name of notes of hosts that were fenced, among the records of the policies."""

RENEWALS: Final = 5
"""A host renews its lease so often while it lasts: three times before it has to give up."""


class Fenced(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A host that was fenced, and what was done for it."""

    record: HostRecord
    by: str
    """The holder that has to see to it."""
    handed_over: Instant = 0
    """When what it ran was given up and handed over. What it had sent before it was fenced may be written later than
    that, so it is looked after once more."""


def fenced_key(holder: str) -> Key:
    """Where the note of a fenced holder is."""
    return Key(FENCED, "host", holder)


def read_note(data: bytes) -> Fenced | None:
    """The note; None if it cannot be read."""
    try:
        return msgspec.json.decode(data, type=Fenced)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


async def fence(governor: Governor, record: HostRecord, by: str, *, runs: int = 0, dead: bool = False) -> bool:
    """Take a host out of the fleet if it is still as it was seen and its lease is at its end, or if it is certainly
    `dead`. Whether this was the one to do it."""
    key, note = host_key(record.name), fenced_key(record.holder)

    def change(records: Records, now: Instant) -> Rows | None:
        found = readable(records.get(key))
        if found is None or found.holder != record.holder:
            return None
        if not dead and (found.until != record.until or not found.ran_out(now)):
            return None
        return {key: None, note: msgspec.json.encode(Fenced(record=found, by=by))}

    left = Left(host=record.name, holder=record.holder, lost=True, runs=runs, by=host_of(by))
    return await transact(governor, [key, note], change, left)


class Sightings:
    """When each host was first seen as its record is, and when, by that, its lease is at its end. All by the boot clock
    of this host."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, Instant, Instant]] = {}
        """Of each host its holder, the end by its record, and the end by this host's clock."""

    def end_of(self, record: HostRecord, store_now: Instant, now: Instant) -> Instant:
        """When it may be fenced, if it stays as it is."""
        seen = self._seen.get(record.name)
        if seen is not None and seen[:2] == (record.holder, record.until):
            return seen[2]
        left = record.until - store_now
        if left <= 0:
            # Nobody here saw it before. If it lives, and only the store's clock is ahead, it renews in that time.
            left = record.lease * 2 // RENEWALS
        end = now + min(left, record.lease)
        self._seen[record.name] = (record.holder, record.until, end)
        return end

    def forget_but(self, names: set[str]) -> None:
        """Those who are gone are not kept in mind."""
        for name in self._seen.keys() - names:
            del self._seen[name]
