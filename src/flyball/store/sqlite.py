"""The durable store: one SQLite file, which several threads and several processes may use at once.

One thread writes. It takes its turn among the processes, then all callers that are waiting, and commits what they want
together: one fsync serves them all. What is written, and how, is the business of `ledger`.

Readers have their own connections. They never wait for the writer, and see one commit, whole.
"""

import ctypes
import json
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, Self

import apsw

from flyball.core.policy import Key
from flyball.errors import StoreClosed, StoreCorrupt, StoreError
from flyball.store import Drafter, Entry, Snapshot, check, file
from flyball.store.cache import NOT_REMEMBERED, Cache
from flyball.store.ledger import Ledger, Wish
from flyball.store.turn import Turn

JOURNAL_MAX: Final = 1_000_000
"""Entries that are kept at most; at least the newest half of them stay. About 170 MB with bodies of 100 bytes."""

GROUP_MAX: Final = 256
"""Callers that are committed together. More would save little, and make the first of them wait."""

SOON_MAX: Final = 4096
"""Futures that may be waiting at once; then `transact_soon` waits for room. (A caller that blocks has only one.)"""

WAIT_MAX: Final = 30.0
"""Seconds that a caller waits for the turn to come, for example while another process is stopped in mid-commit."""

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


class _Ticket(Wish):
    """A caller's place in the line. Who waits on the spot waits for a bare lock, which costs far less than a future."""

    __slots__ = ("claimed", "done", "future", "given_up")

    def __init__(
        self, keys: Sequence[Key], draft: Drafter, sync: bool, future: "Future[Entry | None] | None" = None
    ) -> None:
        super().__init__(keys, draft, sync)
        self.future = future
        self.claimed = False
        self.given_up = False
        self.done = threading.Lock()
        self.done.acquire()

    def claim(self) -> bool:
        """From here on the caller gets what comes of it; False if he no longer wants it. Under the gate."""
        if self.future is not None:
            return self.future.set_running_or_notify_cancel()
        self.claimed = not self.given_up
        return self.claimed

    def settle(self) -> None:
        if self.future is None:
            self.done.release()
        elif self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.entry)


class SqliteStore:
    """States and journal in one SQLite file. `views` are SQL views (name to SELECT) for people to look at."""

    def __init__(
        self, path: str | os.PathLike[str], *, views: Mapping[str, str] | None = None, journal_max: int = JOURNAL_MAX
    ) -> None:
        file.check_library()
        self._path = Path(path).resolve()
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
        self._shut = ""
        """Why nothing more is taken, once that is so."""
        self._gate = threading.Lock()
        """Held to join the line, to leave it, and to close it."""
        self._writing = threading.Lock()
        """Held to use the ledger."""
        self._waiting: SimpleQueue[_Ticket | None] = SimpleQueue()
        self._room = threading.BoundedSemaphore(SOON_MAX)
        self._readers: list[apsw.Connection] = []
        self._seen = Cache()
        self._inode = _inode(self._path)
        self._writer = threading.Thread(target=self._run, name=f"flyball-store {self._path.name}", daemon=True)
        self._writer.start()
        _stores.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # Writing: the callers' side.

    def transact(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> Entry | None:
        ticket = _Ticket(keys, draft, sync)
        self._submit(ticket)
        if not ticket.done.acquire(timeout=WAIT_MAX):
            with self._gate:
                ticket.given_up = not ticket.claimed
            if ticket.given_up:
                raise StoreError(
                    f"{self._path}: waited {WAIT_MAX:g} s for the turn to write; nothing was written",
                    remedy="Look for a stopped process that uses the same file.",
                )
            ticket.done.acquire()
        if ticket.error is not None:
            raise ticket.error
        return ticket.entry

    def transact_soon(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> "Future[Entry | None]":
        future: Future[Entry | None] = Future()
        ticket = _Ticket(keys, draft, sync, future)
        self._room.acquire()
        try:
            self._submit(ticket)
        except BaseException:
            self._room.release()
            raise
        return future

    def trim(self, keep: int) -> int:
        with self._writing:
            self._refuse_if_shut()
            with self._turn:
                forgotten = self._ledger.trim(keep)
        if forgotten:
            self.transact_soon([], _nothing, sync=False)  # wakes the writer, which then deletes them
        return forgotten

    def _submit(self, ticket: _Ticket) -> None:
        if threading.get_ident() == self._writer.ident:
            raise RuntimeError("a draft must not use its own store: it would wait for itself")
        with self._gate:
            self._refuse_if_shut()
            self._waiting.put(ticket)

    def _refuse_if_shut(self) -> None:
        if self._shut:
            raise StoreClosed(self._shut)

    # Writing: the writer's side.

    def _run(self) -> None:
        waiting = self._waiting
        while (first := waiting.get()) is not None:
            more = self._serve(first)
            if not more:
                break
            self._sweep()
            while self._ledger.littered and waiting.empty():
                self._sweep()
            if self._ledger.cramped and waiting.empty():
                self._make_room()

    def _serve(self, first: _Ticket) -> bool:
        """Commit the first ticket together with all that wait behind it. False if the last one was among them."""
        group = [first]
        more = True
        try:
            with self._writing, self._turn:
                more = self._gather(group)
                if group:
                    self._ledger.write(group)
        except BaseException as error:  # noqa: BLE001 - without a turn nothing is written, and the writer goes on
            for ticket in group:
                ticket.error = ticket.error or file.explain(error, self._path)
        for ticket in group:
            ticket.settle()
        return more

    def _gather(self, group: list[_Ticket]) -> bool:
        """Add whoever waits to the group, and leave out whoever no longer does. False if nobody will come any more."""
        more = True
        for _ in range(min(self._waiting.qsize(), GROUP_MAX - len(group))):
            ticket = self._waiting.get()
            if ticket is None:
                more = False
                break
            group.append(ticket)
        futures = sum(ticket.future is not None for ticket in group)
        if futures:
            self._room.release(futures)
        with self._gate:
            group[:] = [ticket for ticket in group if ticket.claim()]
        return more

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
        if threading.get_ident() == self._writer.ident:
            raise RuntimeError("a store cannot be closed by its own writer: it would wait for itself")
        with self._gate:
            if self._shut:
                return
            self._shut = f"{self._path} is closed"
            self._waiting.put(None)
            readers, self._readers = self._readers, []
        self._writer.join()
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


def _nothing(_: Snapshot) -> None:
    """A draft that wants nothing."""


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
