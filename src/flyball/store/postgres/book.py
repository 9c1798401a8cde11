"""The book: what is written to the database, by one thread. No line of callers here, and no waiting but for answers.

Drafts run on records that are remembered, without a lock. One call then has the server write what they made, if all
that they saw is still so; if not, it says what is, and they run again. Who was overtaken twice takes the lock first.

When a connection breaks in mid-call nobody knows whether it was written. Each call leaves a token in the row of its
connection, in the same transaction. So another connection takes that row away: if the token was in it, all was written;
if not, nothing was, and nothing ever will be, because a call that finds its row gone writes nothing.
"""

import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final, NamedTuple

from flyball.core.policy import Key
from flyball.core.time import Instant
from flyball.errors import StoreAway, StoreError, StoreUnsure
from flyball.store import Draft, Entry, Line, Snapshot
from flyball.store.cache import Cache
from flyball.store.callers import Wish
from flyball.store.postgres import schema, trouble
from flyball.store.postgres.clock import DatabaseClock, steady
from flyball.store.postgres.link import FIRST_MAX, Link, flag, number, numbers, texts, to_items, to_number
from flyball.store.postgres.names import name, text
from flyball.store.postgres.trouble import Lost, Refused

AWAY_MAX: Final = 10.0
"""Seconds to get through to the database again before callers are told. It restarts in less after a kill."""

PAUSE_MIN: Final = 0.05
PAUSE_MAX: Final = 1.0
"""Seconds between attempts to connect: twice as long each time."""

OVERTAKEN_MAX: Final = 2
"""How often drafts run on what is remembered. Then the lock is taken first: others are busy with the same keys."""

CROWDED: Final = 16
"""Groups that take the lock first after one that found its records changed. Those who want the same keys then come in
turn: else whoever is quick, and remembers, is served again and again."""

CHUNK_MAX: Final = 512
"""Old rows that are deleted in one go: more than can come in with one group, and a matter of a millisecond or two."""

WRITERS_KEPT: Final = b"1 day"
"""How long the row of a connection is kept after its last commit, should its process be gone without a word."""

ANY: Final = -1
"""Drafts did not look at the number of the last entry."""

ALONE_AFTER: Final = 16
"""Commits without another's in between, after which the server is not told what drafts saw: it will not have to look.
Where it has to after all, that costs one more round trip."""

UNSURE: Final = -1
"""Somebody else may have changed what drafts saw: the server has to look."""

_COMMIT = (
    b"SELECT result, seq, at, version, now, base, versions, datas FROM flyball.commit_drafts("
    b"$1::int, $2::bigint, $3::bigint, "
    b"$4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint, $9::bigint, $10::bigint, "
    b"$11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], $17::text[], "
    b"$18::int, $19::bigint[], $20::text[], $21::text[], $22::text[], $23::text[], $24::bigint, $25::boolean)"
)
_LOOK = (
    b"SELECT 'look', seq, at, version, now, base, versions, datas "
    b"FROM flyball.look($1::text[], $2::text[], $3::text[], $4::bigint[])"
)
_TRIM = b"SELECT flyball.trim_journal($1::int, $2::bigint)"
_SWEEP = b"SELECT flyball.sweep($1::bigint)"
_JOIN = b"INSERT INTO flyball.writer (id) VALUES ($1::bigint)"
_GIVE_UP = b"DELETE FROM flyball.writer WHERE id = $1::bigint RETURNING token, seq"
_FORGET = b"DELETE FROM flyball.writer WHERE at < now() - $1::text::interval"
_LATEST: Final = (1 << 63) - 1
_UNTOLD: Final = (None, None, None, None)


class Record(NamedTuple):
    """What is remembered of a key: its version (0: there is no record), its bytes, and as of which commit of all."""

    version: int
    data: bytes | None
    known: int


_UNKNOWN: Final = Record(0, None, -1)
"""Most keys that were never asked for have no record. If this one has, the server says so."""


class _Seen(Snapshot):
    """A snapshot that knows whether the draft looked at the number of the last entry: then that must not change."""

    looked = False

    @property
    def seq(self) -> int:
        self.looked = True
        return self[0]


class _Group:
    """What a group of wishes comes to, on the records that are remembered."""

    __slots__ = ("ats", "changes", "entries", "lines", "not_before", "reads", "seq", "sure", "untold")

    def __init__(self) -> None:
        self.reads: dict[Key, int] = {}
        self.changes: dict[Key, bytes | None] = {}
        self.ats: list[Instant] = []
        self.lines: list[tuple[bytes, bytes, bytes, bytes]] = []
        self.entries: list[tuple[Wish, Instant, Line]] = []
        self.not_before = _LATEST
        self.seq = ANY
        self.sure = True
        """Nobody else has changed what was read, up to the last answer."""
        self.untold = False
        """The server does not know what was read."""


class Book:
    """The one write connection of a store, and what is remembered of it."""

    def __init__(self, dsn: str, views: Mapping[str, str], journal_max: int, clock: DatabaseClock) -> None:
        self._dsn = dsn
        self._where = trouble.place(dsn)
        self._journal_max = journal_max
        self.knows = schema.VERSION
        """The version of the tables that this one knows."""
        self._clock = clock
        self.cache: Cache[Record] = Cache()
        self._seq, self._at, self._version = 0, 0, 0
        """The end of the journal, and the number of commits, when the server last answered."""
        self._alone = 0
        """All commits after this one, up to that answer, were our own."""
        self._base = -1
        self._crowded = 0
        """For so many groups the lock is taken first at once: others are busy with the same keys."""
        self.littered = True
        """There may be rows that nobody needs any more."""
        self._me = 0
        self._tokens = count(1)
        self._link: Link | None = None
        link = Link(dsn, within=FIRST_MAX)
        try:
            schema.prepare(link, self._where, views)
            self._join(link)
        except BaseException as error:
            link.close()
            raise trouble.explain(error, self._where) from error

    # Writing.

    def write(self, wishes: Sequence[Wish]) -> None:
        """Commit what these wishes come to, together. Never raises: each wish gets its entry or its error."""
        try:
            self._write(wishes)
        except BaseException as error:  # noqa: BLE001 - whatever it was, it belongs to the callers, and the writer goes on
            if len(wishes) > 1 and not _of_the_database(error):
                # One of them asked for what cannot be written. Alone, it fails alone.
                for wish in wishes:
                    self.write((wish,))
                return
            for wish in wishes:
                wish.entry = None
                wish.error = wish.error or self._explain(error)

    def _explain(self, error: BaseException) -> BaseException:
        """What an error means, if it is the database's."""
        if isinstance(error, Refused) and self._link is not None:
            return schema.explain(error, self._link, self._where, self.knows)
        return trouble.explain(error, self._where) if isinstance(error, StoreError | Lost | Refused) else error

    def _write(self, wishes: Sequence[Wish]) -> None:
        wake = any(wish.sync for wish in wishes)
        give_up = time.monotonic() + AWAY_MAX
        overtaken = OVERTAKEN_MAX if self._crowded else 0
        while True:
            link = self._connected(give_up)
            patient = overtaken >= OVERTAKEN_MAX
            token = 0
            try:
                if patient:
                    self._take_turn(link, wishes)
                group = self._draft(wishes)
                token = next(self._tokens)
                answer = self._commit(link, group, token, wake, patient)
            except Lost as error:
                self._let_go()
                if token:
                    give_up = max(give_up, time.monotonic() + AWAY_MAX)
                    written = self._what_came_of(token, give_up)
                    if written is not None:
                        _give(group, written)
                        return
                if time.monotonic() > give_up:
                    raise trouble.explain(error, self._where) from error
                continue
            except BaseException:
                if patient:
                    self._roll_back(link)
                raise
            if self._heard(answer, group):
                return
            overtaken += 1

    def _draft(self, wishes: Sequence[Wish]) -> _Group:
        """Run the drafts, each on what those before it made."""
        group = _Group()
        seq, at, alone = self._seq, self._at, self._alone
        reads, changes = group.reads, group.changes
        young, old = self.cache.young, self.cache.old
        for wish in wishes:
            wish.entry = wish.error = None
            try:
                records: dict[Key, bytes] = {}
                for key in wish.keys:
                    if key in changes:
                        data = changes[key]
                    else:
                        known = young.get(key)
                        if known is None:
                            known = young[key] = old.get(key, _UNKNOWN)
                        if known.known < alone:
                            group.sure = False
                        reads[key] = known.version
                        data = known.data
                    if data is not None:
                        records[key] = data
                seen = _Seen(seq, at, records)
                try:
                    made = wish.draft(seen)
                finally:
                    if seen.looked:
                        group.seq = self._seq
                if made is None:
                    continue
                if made.at < at:
                    raise ValueError("the journal's time never runs back")
                self._add(group, wish, made)
                if made.line is not None:
                    seq += 1
                    at = made.at
            except BaseException as error:  # noqa: BLE001 - it belongs to this caller, and the others go on
                wish.error = error
        return group

    def _add(self, group: _Group, wish: Wish, made: Draft) -> None:
        for data in made.changes.values():
            if data is not None:
                text(data)
        if not -_LATEST <= made.at <= _LATEST:
            raise OverflowError(f"{made.at} is no instant")
        if made.line is not None:
            unit, event, verb, body = made.line
            group.lines.append((name(unit), name(event), name(verb), text(body)))
            group.ats.append(made.at)
            group.entries.append((wish, made.at, made.line))
        for key in made.changes:
            for part in key:
                name(part)
        group.changes.update(made.changes)
        if made.line is not None or made.changes:
            group.not_before = min(group.not_before, made.at)

    def _commit(self, link: Link, group: _Group, token: int, wake: bool, patient: bool) -> "_Answer":
        writes = bool(group.changes or group.ats)
        if writes and group.sure and self._version - self._alone >= ALONE_AFTER:
            group.untold = True
            reads: tuple[bytes | None, ...] = _UNTOLD
        else:
            reads = (*_columns(list(group.reads)), numbers(list(group.reads.values())))
        before = steady()
        if not writes:
            # Nothing is to be written; but what was decided has to follow from what is true.
            result = link.ask_all((_LOOK, reads), (b"COMMIT", ()))[0] if patient else link.ask(_LOOK, reads)
            return _answer(result, before)
        puts = [(key, data) for key, data in group.changes.items() if data is not None]
        gone = [key for key, data in group.changes.items() if data is None]
        values = (
            self.knows.to_bytes(4, "big"),
            number(self._me),
            number(token),
            *reads,
            number(self._version if group.sure else UNSURE),
            number(group.seq),
            number(group.not_before),
            *_columns([key for key, _ in puts]),
            texts([data for _, data in puts]),
            *_columns(gone),
            len(group.ats).to_bytes(4, "big"),
            numbers(group.ats),
            *(texts([line[place] for line in group.lines]) for place in range(4)),
            number(self._journal_max),
            flag(wake),
        )
        result = link.ask_all((_COMMIT, values), (b"COMMIT", ()))[0] if patient else link.ask(_COMMIT, values)
        return _answer(result, before)

    def _heard(self, answer: "_Answer", group: _Group) -> bool:
        """Remember what the answer says. Whether all was written; if not, the drafts have to run again."""
        if answer.result == b"new":
            raise schema.too_new(self._where)
        if answer.result == b"fenced":  # its row was forgotten, because it was idle for very long
            self._let_go()
            return False
        self._clock.measured(answer.now, answer.before, answer.after)
        if answer.result == b"ok" or self._still(answer, group):
            self._remember(answer, group)
            return True
        self._learn(answer, answer.version)
        if group.untold:
            self._alone = answer.version  # the next time it is told
            return False
        known = zip(group.reads.items(), answer.versions, answer.datas, strict=True)
        for (key, seen), version, data in known:
            self.cache.young[key] = Record(version, data if version != seen else self._data(key), answer.version)
        return False

    def _still(self, answer: "_Answer", group: _Group) -> bool:
        """Whether what was seen by drafts that want nothing is still so."""
        return (
            answer.result == b"look"
            and group.seq in (ANY, answer.seq)
            and all(seen == version for seen, version in zip(group.reads.values(), answer.versions, strict=True))
        )

    def _learn(self, answer: "_Answer", before: int) -> None:
        """What the end of the journal is; and, by what it was before this call, whether others have written."""
        if before != self._version:
            self._alone = before
        self._seq, self._at, self._version = answer.seq, answer.at, answer.version
        if answer.base > self._base:
            self._base = answer.base
            self.littered = True

    def _remember(self, answer: "_Answer", group: _Group) -> None:
        """All was written: remember it, and give the callers their entries."""
        young, version = self.cache.young, answer.version
        before = version - bool(group.changes or group.ats)
        self._learn(answer, before)
        if not group.sure or before == self._alone:
            for key, seen in group.reads.items():
                young[key] = Record(seen, self._data(key), before)
        for key, data in group.changes.items():
            young[key] = Record(0 if data is None else version, data, version)
        _give(group, answer.seq)
        self.cache.drop(group.reads)
        self.cache.drop(group.changes)
        self.cache.age()

    def _data(self, key: Key) -> bytes | None:
        return (self.cache.young.get(key) or self.cache.old.get(key, _UNKNOWN)).data

    def _take_turn(self, link: Link, wishes: Sequence[Wish]) -> None:
        """Begin a transaction that nobody can overtake, and learn what is true now."""
        young, old = self.cache.young, self.cache.old
        reads = {key: (young.get(key) or old.get(key, _UNKNOWN)).version for wish in wishes for key in wish.keys}
        values = (*_columns(list(reads)), numbers(list(reads.values())))
        before = steady()
        try:
            result = link.ask_all((b"BEGIN", ()), (schema.TAKE_TURN, ()), (_LOOK, values))[2]
        except Refused:
            self._roll_back(link)
            raise
        group = _Group()
        group.reads = reads
        answer = _answer(result, before)
        self._crowded = CROWDED if list(reads.values()) != answer.versions else max(0, self._crowded - 1)
        self._heard(answer._replace(result=b"stale"), group)

    def _roll_back(self, link: Link) -> None:
        try:
            link.run("ROLLBACK")
        except (Lost, Refused):
            self._let_go()

    # Retention.

    def trim(self, keep: int) -> int:
        """Begin the journal at the last mark that leaves `keep` entries; `sweep` deletes what is before."""
        give_up = time.monotonic() + AWAY_MAX
        while True:
            link = self._connected(give_up)
            try:
                forgotten = to_number(
                    link.ask(_TRIM, (self.knows.to_bytes(4, "big"), number(min(keep, _LATEST)))).get_value(0, 0)
                )
            except Lost:  # to trim twice does no harm
                self._let_go()
                continue
            except Refused as error:
                raise self._explain(error) from error
            if forgotten < 0:
                raise schema.too_new(self._where)
            self.littered = self.littered or forgotten > 0
            return forgotten

    def sweep(self) -> None:
        """Delete some of what was forgotten."""
        self.littered = False  # if it cannot be done now, the next one to open the store will find it
        try:
            if self._link is not None:
                self.littered = self._link.ask(_SWEEP, (number(CHUNK_MAX),)).get_value(0, 0) == b"\1"
        except Lost:
            self._let_go()
        except Refused:
            pass

    # The connection.

    def close(self) -> None:
        """Let go of the connection, and of its row."""
        if self._link is not None:
            with suppress(Lost, Refused):  # then it is forgotten after a day
                self._link.ask(_GIVE_UP, (number(self._me),))
            self._let_go()

    def _connected(self, give_up: float) -> Link:
        """The connection, a new one if the last one broke. StoreAway if there is none to be had."""
        pause = PAUSE_MIN
        while self._link is None:
            try:
                self._join(Link(self._dsn))
            except StoreError as error:
                if not isinstance(error, StoreAway) or time.monotonic() + pause > give_up:
                    raise
            except Lost as error:
                if time.monotonic() + pause > give_up:
                    raise trouble.explain(error, self._where) from error
            if self._link is None:
                time.sleep(pause)
                pause = min(pause * 2, PAUSE_MAX)
        return self._link

    def _join(self, link: Link) -> None:
        """Begin to write by this connection. What was remembered was another server's, perhaps: it is forgotten."""
        me = secrets.randbits(63)
        try:
            link.ask(_FORGET, (WRITERS_KEPT,))
            link.ask(_JOIN, (number(me),))
        except BaseException as error:
            link.close()
            if isinstance(error, Refused):
                raise trouble.explain(error, self._where) from error
            raise
        self.cache.clear()
        self._me, self._link = me, link
        before = steady()
        empty = (texts(()), texts(()), texts(()), numbers(()))
        answer = _answer(link.ask(_LOOK, empty), before)
        self._clock.measured(answer.now, answer.before, answer.after)
        self._learn(answer, answer.version)
        self._alone = answer.version

    def _let_go(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _what_came_of(self, token: int, give_up: float) -> int | None:
        """A connection broke in mid-call. The number of the last entry that it wrote; None if it wrote nothing."""
        old = self._me
        while True:
            try:
                found = self._connected(give_up).ask(_GIVE_UP, (number(old),))
                break
            except (StoreError, Lost, Refused) as error:
                self._let_go()
                if isinstance(error, StoreError) or time.monotonic() > give_up:
                    raise StoreUnsure(
                        f"{self._where}: the connection was lost in mid-commit, and the database is not back: "
                        "it is not known whether this was written"
                    ) from error
        written = found.ntuples and to_number(found.get_value(0, 0)) == token
        return to_number(found.get_value(0, 1)) if written else None


class _Answer(NamedTuple):
    """What the server said to a commit, and between which moments of the steady clock."""

    result: bytes
    seq: int = 0
    at: Instant = 0
    version: int = 0
    now: Instant = 0
    base: int = 0
    versions: Sequence[int] = ()
    datas: Sequence[bytes | None] = ()
    before: int = 0
    after: int = 0


def _answer(result: Any, before: int) -> _Answer:
    after = steady()
    value = result.get_value
    said: bytes | None = value(0, 0)
    if said in (b"new", None):
        return _Answer(said or b"fenced")
    seq, at, version, now, base = (to_number(value(0, place)) for place in range(1, 6))
    if said == b"ok":
        return _Answer(said, seq, at, version, now, base, (), (), before, after)
    versions = [to_number(item or b"") for item in to_items(value(0, 6))]
    return _Answer(said, seq, at, version, now, base, versions, to_items(value(0, 7)), before, after)


def _give(group: _Group, last: int) -> None:
    """Give the callers their entries, of which this is the last one's number."""
    for seq, (wish, at, line) in enumerate(group.entries, last - len(group.entries) + 1):
        wish.entry = Entry(seq, at, *line)


def _columns(keys: Sequence[Key]) -> tuple[bytes, bytes, bytes]:
    return (
        texts([name(key.policy) for key in keys]),
        texts([name(key.by) for key in keys]),
        texts([name(key.subject) for key in keys]),
    )


def _of_the_database(error: BaseException) -> bool:
    """Whether it is the database that failed, and not what one caller wanted written."""
    return isinstance(error, StoreError | Lost) or (isinstance(error, Refused) and not error.of_a_wish)
