"""The durable store: one SQLite file, which several threads and several processes may use at once.

One thread writes. It takes its turn among the processes, then all callers that are waiting, and commits what they want
together: one fsync serves them all. How callers wait is the business of `callers`; what is written, and how, that of
`ledger`.

Readers have their own connections. They never wait for the writer, and see one commit, whole.
"""

import ctypes
import json
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import apsw

from flyball.core.policy import Key
from flyball.errors import StoreClosed, StoreCorrupt, StoreError
from flyball.store import Entry, Snapshot, callers, check, file
from flyball.store.cache import NOT_REMEMBERED, Cache
from flyball.store.callers import JOURNAL_MAX, Gather, GroupCommit, nothing
from flyball.store.ledger import Ledger
from flyball.store.turn import Turn

READERS_MAX: Final = 4
"""Idle read connections that are kept. A fifth thread that reads at the same time opens its own, and closes it."""

_KEY = 'policy, "by", subject'
_READ = 'SELECT CAST(data AS BLOB) FROM state WHERE policy = ? AND "by" = ? AND subject = ?'
_HEAD = (
    "SELECT seq, at FROM (SELECT seq, at FROM journal ORDER BY seq DESC LIMIT 1) "
    "UNION ALL SELECT max(seq), at FROM mark ORDER BY seq DESC LIMIT 1"
)
_STATES = f"SELECT {_KEY}, CAST(data AS BLOB) FROM state"  # noqa: S608 - no outside text
_UNDONE = f"SELECT {_KEY}, CAST(data AS BLOB) FROM undo WHERE mark >= ? ORDER BY mark DESC"  # noqa: S608 - no outside text
_BASE = "SELECT seq, at FROM mark ORDER BY seq LIMIT 1"
# What lies before the first mark is forgotten, though it may not be deleted yet.
_ENTRIES = (
    "SELECT seq, at, unit, event, verb, CAST(body AS BLOB) FROM journal "
    "WHERE seq > max(:after, (SELECT min(seq) FROM mark))"
)


class SqliteStore(GroupCommit):
    """States and journal in one SQLite file. `views` are SQL views (name to SELECT) for people to look at."""

    def __init__(
        self, path: str | os.PathLike[str], *, views: Mapping[str, str] | None = None, journal_max: int = JOURNAL_MAX
    ) -> None:
        file.check_library()
        self._path = Path(path).resolve()
        super().__init__(str(self._path), self._path.name)
        _refuse_inherited(self._path)
        file.prepare(self._path)
        try:
            self._turn = Turn(self._path)
        except OSError as error:
            raise file.explain(error, self._path) from error
        try:
            with self._turn:
                self._ledger = Ledger(self._path, views or {}, journal_max)
        except (apsw.Error, OSError) as error:
            self._turn.close()
            raise file.explain(error, self._path) from error
        except BaseException:
            self._turn.close()
            raise
        self._writing = threading.Lock()
        """Held to use the ledger."""
        self._readers: list[apsw.Connection] = []
        self._seen: Cache[bytes] = Cache()
        self._inode = _inode(self._path)
        self._writer.start()
        _stores.add(self)

    # Writing.

    def trim(self, keep: int) -> int:
        with self._writing:
            self._refuse_if_shut()
            with self._turn:
                forgotten = self._ledger.trim(keep)
        if forgotten:
            self.transact_soon([], nothing, sync=False)  # wakes the writer, which then deletes them
        return forgotten

    def _write(self, gather: Gather) -> None:
        with self._writing, self._turn:
            group = gather()
            if group:
                self._ledger.write(group)

    def _between(self) -> None:
        self._sweep()
        while self._ledger.littered and self._waiting.empty():
            self._sweep()
        if self._ledger.cramped and self._waiting.empty():
            self._make_room()

    def _explain(self, error: BaseException) -> StoreError:
        return file.explain(error, self._path)

    def _late(self) -> StoreError:
        return StoreError(
            f"{self._path}: waited {callers.WAIT_MAX:g} s for the turn to write; nothing was written",
            remedy="Look for a stopped process that uses the same file.",
        )

    def _sweep(self) -> None:
        """Delete some of what was forgotten, if anything was. In a turn of its own, so that nobody waits long."""
        if self._ledger.littered:
            try:
                with self._writing, self._turn:
                    self._ledger.sweep()
            except OSError:
                self._ledger.littered = False  # no turn to be had; the next one to open the file will find it

    def _make_room(self) -> None:
        with suppress(OSError), self._writing, self._turn:  # no turn to be had: then later
            self._ledger.make_room()

    # Reading.

    def read(self, keys: Sequence[Key]) -> Snapshot:
        with self._reading() as cursor:
            seq, at = cursor.execute(_HEAD).get
            found = [(key, cursor.execute(_READ, key).get) for key in keys]
        self._seen.age()
        return Snapshot(seq, at, {key: self._same(key, data) for key, data in found if data is not None})

    def entries(
        self, *, after: int = 0, limit: int = 1000, unit: str | None = None, events: Sequence[str] = ()
    ) -> Sequence[Entry]:
        with self._reading() as cursor:
            return _entries(cursor, "ASC", after=after, limit=limit, unit=unit, events=events)

    def last_entries(
        self, *, limit: int = 1000, unit: str | None = None, events: Sequence[str] = ()
    ) -> Sequence[Entry]:
        with self._reading() as cursor:
            return _entries(cursor, "DESC", after=0, limit=limit, unit=unit, events=events)[::-1]

    def states(self, policy: str | None = None) -> Mapping[Key, bytes]:
        with self._reading() as cursor:
            where, wanted = ("", ()) if policy is None else (" WHERE policy = ?", (policy,))
            rows: Iterator[Any] = cursor.execute(_STATES + where, wanted)
            records = {Key(*key): data for *key, data in rows}
        self._seen.age()
        return {key: self._same(key, data) for key, data in records.items()}

    def base(self) -> Snapshot:
        with self._reading() as cursor:
            seq, at = cursor.execute(_BASE).get
            if not seq:
                return Snapshot(0, 0, {})
            records = {Key(*row[:3]): row[3] for row in cursor.execute(_STATES)}
            for *key, data in cursor.execute(_UNDONE, (seq,)):
                records[Key(*key)] = data
        return Snapshot(seq, at, {key: data for key, data in records.items() if data is not None})

    def integrity(self) -> Sequence[str]:
        try:
            with self._reading() as cursor:
                return check.problems(cursor.connection)
        except StoreCorrupt as error:
            return [str(error)]

    @contextmanager
    def _reading(self) -> Iterator[apsw.Cursor]:
        """One snapshot of the file, for as long as the block lasts."""
        with self._gate:
            self._refuse_if_shut()
            connection = self._readers.pop() if self._readers else None
        try:
            connection = connection or file.connect_reader(self._path)
            cursor = connection.cursor()
            cursor.execute("BEGIN")
            yield cursor
            cursor.execute("COMMIT")
        except apsw.Error as error:
            raise file.explain(error, self._path, connection) from error
        finally:
            if connection is not None:
                self._let_go(connection)

    def _let_go(self, connection: apsw.Connection) -> None:
        with self._gate:
            keep = not (self._shut or connection.in_transaction or len(self._readers) >= READERS_MAX)
            if keep:
                self._readers.append(connection)
        if not keep:
            connection.close()

    def _same(self, key: Key, data: bytes) -> bytes:
        """The object that stands for this record already, if there is one: then nobody has to decode it again."""
        for known in (self._ledger.cache.young, self._ledger.cache.old, self._seen.young, self._seen.old):
            there = known.get(key)
            if there == data:
                return there
        if key.policy not in NOT_REMEMBERED:
            self._seen.young[key] = data
        return data

    # Ending.

    def close(self) -> None:
        if not self._end_line():
            return
        with self._gate:
            readers, self._readers = self._readers, []
        for connection in readers:
            connection.close()
        with self._writing:
            with self._turn:
                self._ledger.close()
            self._turn.close()
        _stores.discard(self)

    def _disown(self) -> None:
        """We are in a forked child. The file, its locks and the writer thread belong to the parent: touch nothing."""
        self._gate = threading.Lock()
        self._writing = threading.Lock()
        self._shut = f"{self._path} was opened before this process was forked off, and belongs to its parent"
        for connection in (self._ledger.connection, *self._readers):
            # Never freed: closing it here could move a WAL that the parent is still writing.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self._turn.close()
        _inherited.add(self._inode)


def _entries(
    cursor: apsw.Cursor, order: str, *, after: int, limit: int, unit: str | None, events: Sequence[str] = ()
) -> list[Entry]:
    of_unit = "" if unit is None else " AND unit = :unit"
    of_events = "" if not events else " AND event IN (SELECT value FROM json_each(:events))"
    sql = f"{_ENTRIES}{of_unit}{of_events} ORDER BY seq {order} LIMIT :limit"
    wanted = {"after": after, "unit": unit, "events": json.dumps(list(events)), "limit": limit}
    return [Entry(*row) for row in cursor.execute(sql, wanted)]


_stores: "weakref.WeakSet[SqliteStore]" = weakref.WeakSet()
_inherited: set[tuple[int, int]] = set()
"""Files that the parent had open when this process was forked off. SQLite believes that it holds their locks."""


def _inode(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _refuse_inherited(path: Path) -> None:
    if _inherited and path.exists() and _inode(path) in _inherited:
        raise StoreClosed(
            f"{path} was open when this process was forked off, and SQLite cannot open it a second time here",
            remedy="Start the process by spawn, or fork before the store is opened.",
        )


def _after_fork() -> None:
    for store in list(_stores):
        store._disown()
    # It is done: in a fork of this fork the numbers of its files are somebody else's.
    _stores.clear()


os.register_at_fork(after_in_child=_after_fork)
