"""Where states and the journal are kept. A store knows keys, bytes and order; it knows nothing of policies.

The guarantees, which `flyball.testing.conformance` tests on every store:

- one transaction per call: all changes and the journal entry, or nothing;
- when `transact` returns, what it wrote survives kill -9 (and, with `sync=True`, power loss);
- journal order is commit order: numbers rise by one, without a gap, and instants never fall;
- a draft sees every earlier commit, also those of other processes on the same file.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol, runtime_checkable

from flyball.core.policy import Key
from flyball.core.time import Instant


class Snapshot(NamedTuple):
    """What a draft sees: the end of the journal, and the records of its keys (a key without a record is absent). While
    a record stays the same it is the very same object, so that whoever decodes it can remember what it was."""

    seq: int
    at: Instant
    records: Mapping[Key, bytes]


class Line(NamedTuple):
    """What a draft wants to add to the journal. The body is JSON; the rest of it is there to search by."""

    unit: str
    event: str
    verb: str
    body: bytes


class Draft(NamedTuple):
    """What a draft wants written, at an instant not before the snapshot's (an earlier one is refused with ValueError).
    A change to None deletes the record."""

    at: Instant
    changes: Mapping[Key, bytes | None]
    line: Line | None


class Entry(NamedTuple):
    """One line of the journal."""

    seq: int
    at: Instant
    unit: str
    event: str
    verb: str
    body: bytes


Drafter = Callable[[Snapshot], Draft | None]
"""Pure, quick, and may be called more than once. None, or a draft with neither changes nor line: nothing is written."""


class Clock(Protocol):
    """Where the present comes from."""

    def now(self) -> Instant:
        """The present."""
        ...

    def catch_up(self, instant: Instant) -> Instant:
        """The journal is ahead of this clock: go on from there. Returns the present, not before that instant."""
        ...


class Store(Protocol):
    """States and journal. Safe to use from several threads."""

    def read(self, keys: Sequence[Key]) -> Snapshot:
        """The records of these keys, as last committed."""
        ...

    def transact(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> Entry | None:
        """Write what the draft makes of the records of these keys, in one transaction; the entry, if it wrote one.
        What the draft raises is raised here, and nothing is written."""
        ...

    def transact_soon(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> "Future[Entry | None]":
        """The same for callers that must not block: the future is done when it is committed. What one caller asks for
        is written, and its futures are done, in the order in which it asked."""
        ...

    def entries(
        self, *, after: int = 0, limit: int = 1000, unit: str | None = None, events: Sequence[str] = ()
    ) -> Sequence[Entry]:
        """Journal entries with a number above `after`, in order; of that unit, or of those kinds of events, only."""
        ...

    def last_entries(
        self, *, limit: int = 1000, unit: str | None = None, events: Sequence[str] = ()
    ) -> Sequence[Entry]:
        """The newest entries, in order; of that unit, or of those kinds of events, only."""
        ...

    def states(self, policy: str | None = None) -> Mapping[Key, bytes]:
        """All records, or those of one policy."""
        ...

    def base(self) -> Snapshot:
        """Where the journal begins: the states before its first kept entry. Replay starts here."""
        ...

    def trim(self, keep: int) -> int:
        """Forget old journal entries, but keep at least the newest `keep`, and a base to replay them from. How many
        were forgotten. More than `keep` stay where the states at that entry are no longer known; trimming again and
        again keeps the journal bounded."""
        ...

    def integrity(self) -> Sequence[str]:
        """What is wrong with the store; empty if it is sound."""
        ...

    def close(self) -> None:
        """Finish what is waiting, and let go."""
        ...


@runtime_checkable
class SharedStore(Store, Protocol):
    """A store that many hosts share. Their clocks differ, so it has the time; and no file of theirs changes when
    another one commits, so it tells of that."""

    @property
    def clock(self) -> Clock:
        """The one clock that counts."""
        ...

    def listen(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Have `ring` called, in a thread of the store's, whenever somebody committed something that others may wait
        for (`sync=True`), and when that may have been missed. What this returns ends it."""
        ...
