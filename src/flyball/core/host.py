"""What the store has of a host: one record, which the host renews and another one may fence. Only values and what
follows from them; who writes them is elsewhere."""

from collections.abc import Mapping
from typing import Final

import msgspec

from flyball.core.policy import Key
from flyball.core.time import Instant, Span

HOSTS: Final = "host"
"""The name of these records among those of the policies."""
MOVES: Final = "move"
"""The name of records that say where a unit is to run next."""


class HostRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A host. While there is such a record, what its holder runs is alive; when it is gone, so is the holder: a holder
    never comes back, a host does under another."""

    name: str
    holder: str
    """The daemon on it, as the holder of runs. A new daemon is another one."""
    since: Instant
    until: Instant
    """The end of its lease, by the store's clock."""
    lease: Span
    labels: Mapping[str, str] = {}
    units_max: int = 0
    draining: bool = False
    """It is to take no units, and to leave those that it has to others."""
    page: str = ""
    """Where its page is, if it has one."""
    version: str = ""
    """Of flyball."""
    settings: str = ""
    """A hash of the units and rules that it knows: hosts of one fleet should know the same."""
    machine: str = ""
    """Where its process numbers mean what they mean there. Nothing: nowhere else."""

    def ran_out(self, now: Instant) -> bool:
        """Whether others may take over."""
        return self.until <= now

    def suits(self, host: str, labels: Mapping[str, str]) -> bool:
        """Whether it may run what asks for that host (nothing: any) and for what it must have."""
        return host in ("", self.name) and all(self.labels.get(name) == value for name, value in labels.items())


class Move(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person wants a unit to run on another host. Whoever runs it leaves it to that one, and the record goes."""

    to: str
    by: str = ""
    at: Instant = 0


def host_key(name: str) -> Key:
    """Where the record of a host is."""
    return Key(HOSTS, "host", name)


def move_key(unit: str) -> Key:
    """Where it is kept that a unit is to move."""
    return Key(MOVES, "unit", unit)


def host_of(holder: str) -> str:
    """The host of a holder of runs."""
    return holder.partition("/")[0]


def holds(holder: str, run_holder: str) -> bool:
    """Whether a run is held by that holder: what is kept is held under a name below its own."""
    return run_holder == holder or run_holder.startswith(f"{holder}/")


def encode(record: HostRecord | Move) -> bytes:
    """For the store."""
    return msgspec.json.encode(record)


def decode(data: bytes) -> HostRecord:
    """A host. msgspec.MsgspecError if the bytes are none."""
    return msgspec.json.decode(data, type=HostRecord)


def decode_move(data: bytes) -> Move:
    """Where to. msgspec.MsgspecError if the bytes do not say."""
    return msgspec.json.decode(data, type=Move)
