"""A store in memory: for tests, simulation and replay. It forgets everything when the process ends."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from flyball.core.policy import Key
from flyball.store import Draft, Drafter, Entry, Snapshot


class MemoryStore:
    """States and journal in this process's memory."""

    def __init__(self, base: Snapshot | None = None) -> None:
        self._base = base or Snapshot(0, 0, {})
        self._records: dict[Key, bytes] = dict(self._base.records)
        self._entries: list[Entry] = []
        self._seq = self._base.seq
        self._at = self._base.at
        self._lock = threading.Lock()

    def read(self, keys: Sequence[Key]) -> Snapshot:
        with self._lock:
            return self._snapshot(keys)

    def _snapshot(self, keys: Sequence[Key]) -> Snapshot:
        records = self._records
        return Snapshot(self._seq, self._at, {key: records[key] for key in keys if key in records})

    def transact(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> Entry | None:
        with self._lock:
            made = draft(self._snapshot(keys))
            return None if made is None else self._apply(made)

    def _apply(self, draft: Draft) -> Entry | None:
        if draft.at < self._at:
            raise ValueError("the journal's time never runs back")
        for key, data in draft.changes.items():
            if data is None:
                self._records.pop(key, None)
            else:
                self._records[key] = data
        if draft.line is None:
            return None
        self._seq += 1
        self._at = draft.at
        entry = Entry(self._seq, draft.at, *draft.line)
        self._entries.append(entry)
        return entry

    def transact_soon(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> "Future[Entry | None]":
        future: Future[Entry | None] = Future()
        try:
            future.set_result(self.transact(keys, draft, sync=sync))
        except Exception as error:  # noqa: BLE001 - the future carries it to whoever asks
            future.set_exception(error)
        return future

    def entries(self, *, after: int = 0, limit: int = 1000, unit: str | None = None) -> Sequence[Entry]:
        with self._lock:
            start = max(0, after - (self._entries[0].seq - 1)) if self._entries else 0
            if unit is None:
                return self._entries[start : start + limit]
            return [entry for entry in self._entries[start:] if entry.unit == unit][:limit]

    def last_entries(self, *, limit: int = 1000, unit: str | None = None) -> Sequence[Entry]:
        with self._lock:
            chosen = self._entries if unit is None else [e for e in self._entries if e.unit == unit]
            return chosen[max(0, len(chosen) - limit) :]

    def states(self, policy: str | None = None) -> Mapping[Key, bytes]:
        with self._lock:
            return {key: data for key, data in self._records.items() if policy in (None, key.policy)}

    def base(self) -> Snapshot:
        return self._base

    def trim(self, keep: int) -> int:
        """Nothing is forgotten: the states at an earlier entry are not known here, and the process is short-lived."""
        return 0

    def integrity(self) -> Sequence[str]:
        return []

    def close(self) -> None:
        """Nothing to let go."""
