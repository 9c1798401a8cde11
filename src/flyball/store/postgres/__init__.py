"""The store of a fleet: one PostgreSQL, which many processes on many hosts use at once.

One thread writes, for all callers of the process: what they want is one transaction, and one round trip (`book`). Every
commit is on the database's disk before anybody is answered, also those that need not be: what a reader on another host
saw must never vanish. `sync=False` says only that nobody has to be woken.

Readers have their own connections. They never wait for the writer, and see one commit, whole.
"""

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from flyball.core.policy import Key
from flyball.errors import StoreCorrupt, StoreError
from flyball.store import Entry, Snapshot, callers
from flyball.store.cache import NOT_REMEMBERED, Cache
from flyball.store.callers import JOURNAL_MAX, Gather, GroupCommit, nothing
from flyball.store.postgres import check, schema, trouble
from flyball.store.postgres.bell import Bell
from flyball.store.postgres.book import Book
from flyball.store.postgres.clock import DatabaseClock, steady
from flyball.store.postgres.link import Link, number, texts, to_number
from flyball.store.postgres.names import name, to_name
from flyball.store.postgres.trouble import Lost, Refused

READERS_MAX: Final = 4
"""Idle read connections that are kept. A fifth thread that reads at the same time opens its own, and closes it."""

_READ = b"""
    SELECT head.seq, head.at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, key.place, state.data
    FROM flyball.head LEFT JOIN (
        unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS key (policy, by, subject, place)
        JOIN flyball.state ON state.subject = key.subject AND state.by = key.by AND state.policy = key.policy
    ) ON true
"""
_ENTRIES = """
    SELECT seq, at, unit, event, verb, body FROM flyball.journal
    WHERE seq > greatest($1::bigint, (SELECT base FROM flyball.head)) {of_unit} {of_events}
    ORDER BY seq {order} LIMIT $2::bigint
"""
_STATES = b"SELECT policy, by, subject, data FROM flyball.state"
_STATES_OF = _STATES + b" WHERE policy = $1::text"
# At a mark a record was what was kept first at it or after it; else it has not changed since.
_BASE = b"""
    SELECT base.seq, base.at, record.policy, record.by, record.subject, record.data
    FROM (SELECT seq, at FROM flyball.mark ORDER BY seq LIMIT 1) AS base LEFT JOIN LATERAL (
        SELECT DISTINCT ON (subject, by, policy) policy, by, subject, data FROM (
            SELECT mark, policy, by, subject, data FROM flyball.undo WHERE mark >= base.seq
            UNION ALL SELECT 9223372036854775807, policy, by, subject, data FROM flyball.state
        ) AS every WHERE base.seq > 0 ORDER BY subject, by, policy, mark
    ) AS record ON record.data IS NOT NULL
"""


class PostgresStore(GroupCommit):
    """States and journal in the schema `flyball` of a PostgreSQL. `views` are SQL views (name to SELECT) for people to
    look at."""

    def __init__(self, dsn: str, *, views: Mapping[str, str] | None = None, journal_max: int = JOURNAL_MAX) -> None:
        place = trouble.place(dsn)
        super().__init__(place, place)
        self._dsn = dsn
        self.clock = DatabaseClock()
        """The database's time, for the governor."""
        self._writing = threading.Lock()
        """Held to use the book."""
        self._readers: list[Link] = []
        self._bells: set[Bell] = set()
        self._seen: Cache[bytes] = Cache()
        self._book = Book(dsn, views or {}, journal_max, self.clock)
        self._writer.start()
        _stores.add(self)

    # Writing.

    def trim(self, keep: int) -> int:
        """Forget old entries of the journal, but keep at least the newest `keep`."""
        with self._writing:
            self._refuse_if_shut()
            forgotten = self._book.trim(keep)
        if forgotten:
            self.transact_soon([], nothing, sync=False)  # wakes the writer, which then deletes them
        return forgotten

    def _write(self, gather: Gather) -> None:
        with self._writing:
            group = gather()
            if group:
                self._book.write(group)

    def _between(self) -> None:
        self._sweep()
        while self._book.littered and self._waiting.empty():
            self._sweep()

    def _sweep(self) -> None:
        """Delete some of what was forgotten, if anything was. In a transaction of its own: so nobody waits long."""
        if self._book.littered:
            with self._writing:
                self._book.sweep()

    def _explain(self, error: BaseException) -> StoreError:
        return trouble.explain(error, self._where)

    def _late(self) -> StoreError:
        return StoreError(
            f"{self._where}: waited {callers.WAIT_MAX:g} s for the turn to write; nothing was written",
            remedy="See whether the database is there and how busy it is; then try again.",
        )

    # Reading.

    def read(self, keys: Sequence[Key]) -> Snapshot:
        """The records of these keys, as last committed."""
        columns = (
            [name(key.policy) for key in keys],
            [name(key.by) for key in keys],
            [name(key.subject) for key in keys],
        )
        before = steady()
        rows = self._rows(_READ, [texts(column) for column in columns])
        if not rows:
            raise StoreCorrupt(f"{self._where} does not say where its journal ends")
        seq, at, now = (to_number(value) for value in rows[0][:3])
        self.clock.measured(now, before, steady())
        self._seen.age()
        found = [(keys[to_number(row[3]) - 1], row[4]) for row in rows if row[3] is not None]
        return Snapshot(seq, at, {key: self._same(key, data) for key, data in found})

    def entries(
        self, *, after: int = 0, limit: int = 1000, unit: str | None = None, events: Sequence[str] = ()
    ) -> Sequence[Entry]:
        """Journal entries with a number above `after`, in order."""
        return self._entries("ASC", after, limit, unit, events)

    def last_entries(
        self, *, limit: int = 1000, unit: str | None = None, events: Sequence[str] = ()
    ) -> Sequence[Entry]:
        """The newest entries, in order."""
        return self._entries("DESC", 0, limit, unit, events)[::-1]

    def states(self, policy: str | None = None) -> Mapping[Key, bytes]:
        """All records, or those of one policy."""
        rows = self._rows(_STATES) if policy is None else self._rows(_STATES_OF, (name(policy),))
        self._seen.age()
        found = ((Key(to_name(row[0]), to_name(row[1]), to_name(row[2])), row[3]) for row in rows)
        return {key: self._same(key, data) for key, data in found}

    def base(self) -> Snapshot:
        """Where the journal begins: the states before its first kept entry."""
        rows = self._rows(_BASE)
        if not rows:
            raise StoreCorrupt(f"{self._where} does not say where its journal begins")
        found = [row for row in rows if row[2] is not None]
        records = {Key(to_name(row[2]), to_name(row[3]), to_name(row[4])): row[5] for row in found}
        return Snapshot(to_number(rows[0][0]), to_number(rows[0][1]), records)

    def integrity(self) -> Sequence[str]:
        """What is wrong with the store; empty if it is sound."""
        self._drop_readers()  # what is looked at for long is looked at through a new connection
        try:
            with self._reading() as link:
                return check.problems(link)
        except StoreCorrupt as error:
            return [str(error)]

    def _entries(self, order: str, after: int, limit: int, unit: str | None, events: Sequence[str]) -> list[Entry]:
        values = [number(after), number(limit)]
        of_unit = of_events = ""
        if unit is not None:
            values.append(name(unit))
            of_unit = f"AND unit = ${len(values)}::text"
        if events:
            values.append(texts([name(event) for event in events]))
            of_events = f"AND event = ANY(${len(values)}::text[])"
        sql = _ENTRIES.format(order=order, of_unit=of_unit, of_events=of_events).encode()
        return [
            Entry(to_number(seq), to_number(at), to_name(of), to_name(event), to_name(verb), body)
            for seq, at, of, event, verb, body in self._rows(sql, values)
        ]

    def _rows(self, sql: bytes, values: Sequence[bytes] = ()) -> list[list[Any]]:
        """The rows of one statement: of one instant."""
        try:
            with self._reading() as link:
                result = link.ask(sql, values)
        except Lost:
            # A connection that was idle while the server restarted. A new one says how things are.
            self._drop_readers()
            with self._reading() as link:
                result = link.ask(sql, values)
        value, fields = result.get_value, range(result.nfields)
        return [[value(row, field) for field in fields] for row in range(result.ntuples)]

    @contextmanager
    def _reading(self) -> Iterator[Link]:
        """A connection that reads, for as long as the block lasts. Lost if it was an old one, and broken."""
        with self._gate:
            self._refuse_if_shut()
            link = self._readers.pop() if self._readers else None
        old, whole = link is not None, False
        link = link or Link(self._dsn, reads=True)
        try:
            yield link
            whole = True
        except Refused as error:
            whole = True
            raise schema.explain(error, link, self._where, self._book.knows) from error
        except Lost as error:
            if old:
                raise
            raise trouble.explain(error, self._where) from error
        finally:
            self._hand_back(link, whole)

    def _drop_readers(self) -> None:
        with self._gate:
            readers, self._readers = self._readers, []
        for link in readers:
            link.close()

    def _hand_back(self, link: Link, whole: bool) -> None:
        with self._gate:
            keep = whole and not self._shut and len(self._readers) < READERS_MAX
            if keep:
                self._readers.append(link)
        if not keep:
            link.close()

    def _same(self, key: Key, data: bytes) -> bytes:
        """The object that stands for this record already, if there is one: then nobody has to decode it again."""
        for written in (self._book.cache.young, self._book.cache.old):
            record = written.get(key)
            if record is not None and record.data == data:
                return record.data
        for known in (self._seen.young, self._seen.old):
            there = known.get(key)
            if there == data:
                return there
        if key.policy not in NOT_REMEMBERED:
            self._seen.young[key] = data
        return data

    # Being woken.

    def listen(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Call `ring`, in a thread of the store, when anybody in the fleet has committed what somebody may wait for.
        Returns what ends that."""
        self._refuse_if_shut()
        try:
            bell = Bell(self._dsn, ring, self._where)
        except (Lost, Refused) as error:
            raise trouble.explain(error, self._where) from error
        self._bells.add(bell)

        def end() -> None:
            self._bells.discard(bell)
            bell.end()

        return end

    # Ending.

    def close(self) -> None:
        """Finish what is waiting, and let go."""
        if not self._end_line():
            return
        for bell in list(self._bells):
            bell.end()
            bell.join()
        self._drop_readers()
        with self._writing:
            self._book.close()
        _stores.discard(self)

    def _disown(self) -> None:
        """We are in a forked child. The connections and the threads belong to the parent: touch nothing."""
        self._gate = threading.Lock()
        self._writing = threading.Lock()
        self._shut = f"{self._where} was opened before this process was forked off, and belongs to its parent"


_stores: "weakref.WeakSet[PostgresStore]" = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_stores):
        store._disown()
    _stores.clear()


os.register_at_fork(after_in_child=_after_fork)
