"""The ledger: what is written to the file, by one thread, in its turn. No threads, no locks, no waiting here.

A group of wishes is one transaction. Its drafts run first, on the records in the cache; then all that they made is
written at once, each record only once. If anything of that fails, nothing is written and the cache is forgotten.

The journal can be cut off only where the states are known, or what is left of it could not be replayed. Such a place is
a mark. Setting one costs nothing: from then on, whatever a record was at the mark is kept when it is first changed. So
the states at a mark are those of today with the kept ones put back, and no copy of them all is ever made.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from flyball.core.policy import Key
from flyball.core.time import Instant
from flyball.errors import StoreCorrupt, StoreError
from flyball.store import Entry, Snapshot, file, schema
from flyball.store.cache import Cache
from flyball.store.callers import Wish

CHUNK_MAX: Final = 512
"""Old rows that are deleted in one go: more than can come in with one group, and a matter of a millisecond or two."""

ROOM_AFTER: Final = 8
"""Commits with a sync after which room is made for many more. Who writes only a line or two does not pay for it."""

ROOM: Final = 1_100 * (4096 + 24)
"""Bytes of WAL that are made ready: SQLite writes it anew from its beginning after 1,000 pages."""

_UNKNOWN: Final = b"\0"
"""Stands for "not in the cache", where None says that there is no such record. Compared by identity."""

_AT_KEY = 'policy = ?2 AND "by" = ?3 AND subject = ?4'
_READ = 'SELECT CAST(data AS BLOB) FROM state WHERE policy = ? AND "by" = ? AND subject = ?'
_PUT = 'INSERT INTO state VALUES (?, ?, ?, ?) ON CONFLICT (subject, "by", policy) DO UPDATE SET data = excluded.data'
_DELETE = 'DELETE FROM state WHERE policy = ? AND "by" = ? AND subject = ?'
_APPEND = "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?)"
_UNDO = f"INSERT OR IGNORE INTO undo VALUES (?1, ?2, ?3, ?4, (SELECT data FROM state WHERE {_AT_KEY}))"  # noqa: S608 - no outside text
_LAST = "SELECT seq, at FROM journal ORDER BY seq DESC LIMIT 1"
_MARKS = "SELECT seq, at FROM mark ORDER BY seq"
_LITTERED = """
    SELECT EXISTS (SELECT 1 FROM journal WHERE seq <= (SELECT min(seq) FROM mark))
    OR EXISTS (SELECT 1 FROM undo WHERE mark < (SELECT min(seq) FROM mark))
"""
_SWEEP_UNDO = (
    'DELETE FROM undo WHERE (mark, subject, "by", policy) IN '
    '(SELECT mark, subject, "by", policy FROM undo WHERE mark < ? LIMIT ?)'
)


class Mark(NamedTuple):
    """A place in the journal: after the entry with this number."""

    seq: int
    at: Instant


class Ledger:
    """The one write connection of a store. To be opened, written and closed only in this process's turn."""

    def __init__(self, path: Path, views: Mapping[str, str], journal_max: int) -> None:
        self._path = path
        self._journal_max = journal_max
        self.cache: Cache[bytes | None] = Cache()
        """None is a record that is known to be absent."""
        self.connection = file.connect(path)
        self._cursor = self.connection.cursor()
        self._version = -1
        self._full: bool | None = None
        self._marks: list[Mark] = []
        self._head = Mark(0, 0)
        self._kept: set[Key] = set()
        """Keys whose record at the newest mark is kept already."""
        self.littered = False
        """There may be rows that nobody needs any more."""
        self._synced = 0
        """Commits with a sync since this was opened or room was made."""
        self._roomy = False
        try:
            schema.migrate(self.connection)
            schema.make_views(self.connection, views)
            self.littered = bool(self._cursor.execute(_LITTERED).get)
        except BaseException:
            self.connection.close()
            raise

    def write(self, wishes: Sequence[Wish]) -> None:
        """Commit what these wishes come to, together. Never raises: each wish gets its entry or its error."""
        try:
            self._write(wishes)
        except BaseException as error:  # noqa: BLE001 - whatever it was, it belongs to the callers, and the writer goes on
            self._abandon()
            if len(wishes) > 1 and not _of_the_file(error):
                # One of them asked for what cannot be written. Alone, it fails alone.
                for wish in wishes:
                    wish.entry = wish.error = None
                    self.write((wish,))
                return
            for wish in wishes:
                wish.entry = None
                if wish.error is None:
                    of_file = _of_the_file(error)
                    wish.error = file.explain(error, self._path, self.connection) if of_file else error

    def trim(self, keep: int) -> int:
        """Set a mark if there is none near the end, and begin the journal at the last one that leaves `keep` entries.
        How many entries are forgotten by that; `sweep` deletes them."""
        try:
            self._begin(full=False)
            if self._head.seq - self._marks[-1].seq >= max(1, keep // 4):
                self._mark(self._head)
            forgotten = self._forget(keep)
            self._commit()
        except BaseException as error:
            self._abandon()
            if _of_the_file(error):
                raise file.explain(error, self._path, self.connection) from error
            raise
        return forgotten

    def sweep(self) -> None:
        """Delete some of what was forgotten."""
        try:
            self._begin(full=False)
            base = self._marks[0].seq
            first: int | None = self._cursor.execute("SELECT min(seq) FROM journal").get
            if first is not None and first <= base:
                self._cursor.execute("DELETE FROM journal WHERE seq <= ?", (min(base, first + CHUNK_MAX - 1),))
            else:
                self._cursor.execute(_SWEEP_UNDO, (base, CHUNK_MAX))
                self.littered = self.connection.changes() == CHUNK_MAX
            self._commit()
        except BaseException:  # noqa: BLE001 - tidying up can wait until the disk is well again
            self._abandon()
            self.littered = False

    @property
    def cramped(self) -> bool:
        """Room for what is to be written should be made."""
        return not self._roomy and self._synced >= ROOM_AFTER

    def make_room(self) -> None:
        """Fill the WAL with zeros as far as SQLite will write it. To sync what is written over what is there takes half
        as long as to sync a file that grows. A frame of zeros is no frame: SQLite reads up to the first of them."""
        self._roomy = True
        try:
            self._begin(full=False)  # from here on nobody else writes to the WAL
            with Path(f"{self._path}-wal").open("ab") as wal:
                missing = ROOM - wal.tell()
                if missing > 0:
                    wal.write(bytes(missing))
                    wal.flush()
                    os.fsync(wal.fileno())
            self._commit()
        except (apsw.Error, OSError):  # it is a matter of speed alone
            self._abandon()

    def close(self) -> None:
        """Move the WAL into the file and let go of it."""
        with suppress(apsw.Error):  # what stays in the WAL is safe there; the next one to open the file moves it
            self.connection.wal_checkpoint()
        self.connection.close()

    def _write(self, wishes: Sequence[Wish]) -> None:
        self._begin(any(wish.sync for wish in wishes))
        seq, at = self._head
        remembered = self.cache.young
        recall = self._recall
        lines: list[tuple[int, Instant, str, str, str, str]] = []
        changed: dict[Key, str | None] = {}
        for wish in wishes:
            try:
                records: dict[Key, bytes] = {}
                for key in wish.keys:
                    data = remembered.get(key, _UNKNOWN)
                    if data is _UNKNOWN:
                        data = recall(key)
                    if data is not None:
                        records[key] = data
                made = wish.draft(Snapshot(seq, at, records))
                if made is None:
                    continue
                if made.at < at:
                    raise ValueError("the journal's time never runs back")
                texts = {key: None if data is None else data.decode() for key, data in made.changes.items()}
                if made.line is not None:
                    unit, event, verb, body = made.line
                    lines.append((seq + 1, made.at, unit, event, verb, body.decode()))
                    seq += 1
                    at = made.at
                    wish.entry = Entry(seq, at, unit, event, verb, body)
                if texts:
                    changed.update(texts)
                    remembered.update(made.changes)
            except apsw.Error:
                raise
            except BaseException as error:  # noqa: BLE001 - it belongs to this caller, and the others go on
                wish.error = error
        self._put(changed)
        if lines:
            self._cursor.executemany(_APPEND, lines)
            self._bound(Mark(seq, at))
        self._commit()
        self._synced += bool(self._full)
        self._head = Mark(seq, at)
        self.cache.drop(changed)
        self.cache.age()

    def _put(self, changed: Mapping[Key, str | None]) -> None:
        if not changed:
            return
        newest = self._marks[-1].seq
        if newest:  # before the first entry there was nothing to keep
            self._cursor.executemany(_UNDO, [(newest, *key) for key in changed if key not in self._kept])
            self._kept.update(changed)
        puts = [(*key, text) for key, text in changed.items() if text is not None]
        if puts:
            self._cursor.executemany(_PUT, puts)
        if len(puts) < len(changed):
            self._cursor.executemany(_DELETE, [key for key, text in changed.items() if text is None])

    def _bound(self, head: Mark) -> None:
        """Keep the journal within its limit: a mark every quarter of it, and when it is full, the older half goes."""
        if head.seq - self._marks[-1].seq >= max(1, self._journal_max // 4):
            self._mark(head)
        if head.seq - self._marks[0].seq > self._journal_max:
            self._head = head
            self._forget(self._journal_max // 2)

    def _mark(self, head: Mark) -> None:
        self._cursor.execute("INSERT INTO mark VALUES (?, ?)", head)
        self._marks.append(head)
        self._kept.clear()

    def _forget(self, keep: int) -> int:
        """Begin the journal at the newest mark that leaves so many entries."""
        before = self._marks[0]
        base = max((mark for mark in self._marks if self._head.seq - mark.seq >= keep), default=before)
        if base == before:
            return 0
        self._cursor.execute("DELETE FROM mark WHERE seq < ?", (base.seq,))
        self._marks = [mark for mark in self._marks if mark.seq >= base.seq]
        self.littered = True
        return base.seq - before.seq

    def _begin(self, full: bool) -> None:
        if full is not self._full:
            # Outside a transaction: inside one the pragma does nothing.
            self._cursor.execute("PRAGMA synchronous = FULL" if full else "PRAGMA synchronous = NORMAL")
            self._full = full
        self._cursor.execute("BEGIN IMMEDIATE")
        version = self.connection.data_version()
        if version != self._version:
            self._learn()
            self._version = version

    def _commit(self) -> None:
        self._cursor.execute("COMMIT")
        self._version = self.connection.data_version()

    def _abandon(self) -> None:
        """Nothing of this is written, and nothing that was remembered can be trusted: the next one learns it anew."""
        self._version = -1
        self._full = None
        self._kept.clear()
        if self.connection.in_transaction:
            with suppress(apsw.Error):  # SQLite may have rolled back by itself
                self._cursor.execute("ROLLBACK")

    def _learn(self) -> None:
        """Another process has written, or we have just begun: what is true now?"""
        self.cache.clear()
        newest = self._marks[-1] if self._marks else None
        self._marks = [Mark(*row) for row in self._cursor.execute(_MARKS)]
        if not self._marks:
            raise StoreCorrupt(f"{self._path} does not say where its journal begins")
        if self._marks[-1] != newest:
            self._kept.clear()
        last = self._cursor.execute(_LAST).fetchone()
        self._head = Mark(*last) if last else self._marks[-1]

    def _recall(self, key: Key) -> bytes | None:
        """A record that was not asked for lately: from the older half of the cache, or from the file."""
        data = self.cache.old.get(key, _UNKNOWN)
        if data is _UNKNOWN:
            data = self._cursor.execute(_READ, key).get
        self.cache.young[key] = data
        return data


def _of_the_file(error: BaseException) -> bool:
    """Whether it is the file or the disk that failed, and not what one caller wanted written."""
    if isinstance(error, apsw.TooBigError | apsw.ConstraintError):
        return False
    return isinstance(error, apsw.Error | OSError | StoreError)
