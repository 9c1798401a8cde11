"""A store in memory: for tests, simulation and replay. It forgets everything when the process ends."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import islice

from flyball.core.policy import Key
from flyball.errors import StoreClosed
from flyball.store import Drafter, Entry, Snapshot


class MemoryStore:
    """States and journal in this process's memory."""

    def __init__(self, base: Snapshot | None = None) -> None:
        base = base or Snapshot(0, 0, {})
        self._marks = [base]
        """Places in the journal at which the states are known. The first of them is where the journal begins."""
        self._records: dict[Key, bytes] = dict(base.records)
        self._entries: list[Entry] = []
        self._seq = base.seq
        self._at = base.at
        self._closed = False
        self._lock = threading.Lock()

    def read(self, keys: Sequence[Key]) -> Snapshot:
        with self._lock:
            return self._snapshot(keys)

    def _snapshot(self, keys: Sequence[Key]) -> Snapshot:
        if self._closed:
            raise StoreClosed("the store is closed")
        recall = self._records.get
        found = {key: data for key in keys if (data := recall(key)) is not None}
        return Snapshot(self._seq, self._at, found)

    def transact(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> Entry | None:
        with self._lock:
            made = draft(self._snapshot(keys))
            if made is None:
                return None
            at, changes, line = made
            if at < self._at:
                raise ValueError("the journal's time never runs back")
            entry = None
            if line is not None:
                entry = Entry(self._seq + 1, at, *line)
                self._entries.append(entry)
                self._seq += 1
                self._at = at
            for key, data in changes.items():
                if data is None:
                    self._records.pop(key, None)
                else:
                    self._records[key] = data
            return entry

    def transact_soon(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> "Future[Entry | None]":
        if self._closed:
            raise StoreClosed("the store is closed")
        future: Future[Entry | None] = Future()
        try:
            future.set_result(self.transact(keys, draft, sync=sync))
        except Exception as error:  # noqa: BLE001 - the future carries it to whoever asks
            future.set_exception(error)
        return future

    def entries(
        self, *, after: int = 0, limit: int = 1000, unit: str | None = None, events: Sequence[str] = ()
    ) -> Sequence[Entry]:
        with self._lock:
            start = max(0, after - self._marks[0].seq)
            if unit is None and not events:
                return self._entries[start : start + limit]
            wanted = (
                entry
                for entry in self._entries[start:]
                if unit in (None, entry.unit) and (not events or entry.event in events)
            )
            return list(islice(wanted, limit))

    def last_entries(
        self, *, limit: int = 1000, unit: str | None = None, events: Sequence[str] = ()
    ) -> Sequence[Entry]:
        with self._lock:
            if unit is None and not events:
                return self._entries[max(0, len(self._entries) - limit) :]
            wanted = (
                entry
                for entry in reversed(self._entries)
                if unit in (None, entry.unit) and (not events or entry.event in events)
            )
            return list(islice(wanted, limit))[::-1]

    def states(self, policy: str | None = None) -> Mapping[Key, bytes]:
        with self._lock:
            return {key: data for key, data in self._records.items() if policy in (None, key.policy)}

    def base(self) -> Snapshot:
        with self._lock:
            return self._marks[0]

    def trim(self, keep: int) -> int:
        """The journal can be cut off only where the states are known, so each trim also remembers them for a later one:
        a copy of them all, which the process can afford where it can afford this store."""
        with self._lock:
            if self._seq - self._marks[-1].seq >= max(1, keep // 4):
                self._marks.append(Snapshot(self._seq, self._at, dict(self._records)))
            before = self._marks[0].seq
            while len(self._marks) > 1 and self._seq - self._marks[1].seq >= keep:
                del self._marks[0]
            forgotten = self._marks[0].seq - before
            del self._entries[:forgotten]
            return forgotten

    def integrity(self) -> Sequence[str]:
        with self._lock:
            first = self._marks[0].seq + 1
            return [
                f"the journal has a gap: entry {entry.seq} stands where {number} should"
                for number, entry in enumerate(self._entries, first)
                if entry.seq != number
            ][:1]

    def close(self) -> None:
        self._closed = True
