"""One connection to PostgreSQL: a question and its answer, and an end to every wait. No tables, no threads.

It speaks to libpq itself, through psycopg's own wrapper, for two reasons: what is stored is bytes and goes through as
it is, and a wait for an answer has to end also where the server is frozen and its kernel still says that all is well.
"""

import select
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from flyball.store.postgres import trouble
from flyball.store.postgres.trouble import Lost, Refused

CONNECT_MAX: Final = 3
"""Seconds to connect to one address. Another host of the same fleet answers in milliseconds."""

FIRST_MAX: Final = 10
"""Seconds to connect for the first time: who fails then fails for good, and the database may only be busy."""

LOCK_MAX: Final = 5_000
"""Milliseconds that a statement waits for others that write. Who waits longer is told that the store is busy."""

IDLE_MAX: Final = 2_000
"""Milliseconds for which a transaction may do nothing. Whoever is frozen in one holds up all hosts for so long."""

STATEMENT_MAX: Final = 8_000
"""Milliseconds for one statement of the writer, which takes one of them."""

READ_MAX: Final = 60_000
"""Milliseconds for one statement of a reader: all states of a large fleet are many."""

ANSWER_MORE: Final = 2.0
"""Seconds beyond a statement's own time, after which no answer will come: the server is frozen, or the link is cut."""

_SOCKET: Final = {
    # What was sent and not acknowledged for so long (ms) will not be: the link is cut.
    "tcp_user_timeout": 5_000,
    # Nothing was sent, and the other side is gone all the same: after 2 + 2 * 2 seconds.
    "keepalives_idle": 2,
    "keepalives_interval": 2,
    "keepalives_count": 2,
}
_SESSION: Final = """
    SET search_path = flyball;
    SET client_encoding = 'UTF8';
    SET synchronous_commit = on;
    SET default_transaction_isolation = 'read committed';
    SET idle_in_transaction_session_timeout = {idle};
    SET lock_timeout = {lock};
    SET statement_timeout = {statement};
    -- Plans are made once, for tables of any size: always by index, never by what statistics said of an empty table.
    SET plan_cache_mode = force_generic_plan;
    SET enable_seqscan = {scan};
    SET enable_hashjoin = {scan};
    SET enable_mergejoin = {scan};
    SET jit = off
"""
_BINARY: Final = pq.Format.BINARY
_FORMATS: Final = [_BINARY] * 64
_TEXT_ARRAY: Final = struct.Struct(">iiIii")
_LENGTH: Final = struct.Struct(">i")
_NUMBER: Final = struct.Struct(">q")
_NULL: Final = _LENGTH.pack(-1)
_TEXT: Final = 25
_BIGINT: Final = 20
_ONE_TEXT: Final = _TEXT_ARRAY.pack(1, 0, _TEXT, 1, 1)
_EMPTY: Final = {oid: struct.pack(">iiI", 0, 0, oid) for oid in (_TEXT, _BIGINT)}

Question = tuple[bytes, Sequence[bytes | None]]
"""A statement, and its parameters in PostgreSQL's binary format."""


class Link:
    """One connection. For one thread at a time. Raises Refused for what the server said no to: nothing of it was done;
    Lost where the connection broke: nobody knows; StoreError where there was none to be had."""

    def __init__(self, dsn: str, *, reads: bool = False, within: int = CONNECT_MAX) -> None:
        self._where = trouble.place(dsn)
        self._answer_max = (READ_MAX if reads else STATEMENT_MAX) / 1000 + ANSWER_MORE
        self._prepared: dict[bytes, bytes] = {}
        try:
            given = conninfo_to_dict(dsn)
            ours: dict[str, str | int] = {"application_name": "flyball", "connect_timeout": within, **_SOCKET}
            settings = make_conninfo("", **{**ours, **given})
            # Not psycopg.connect with an open cursor in mind: from here on libpq is spoken to directly.
            self._connection = psycopg.connect(settings, autocommit=True)
        except (psycopg.Error, OSError, ValueError) as error:
            raise trouble.not_connected(error, dsn) from None
        self._libpq = self._connection.pgconn
        self._poll = select.poll()
        self._poll.register(self._libpq.socket, select.POLLIN)
        statement = READ_MAX if reads else STATEMENT_MAX
        session = _SESSION.format(idle=IDLE_MAX, lock=LOCK_MAX, statement=statement, scan="on" if reads else "off")
        try:
            self.run(session)
        except BaseException as error:
            self.close()
            raise trouble.explain(error, self._where) from error

    @property
    def server_version(self) -> int:
        """170002 is 17.2."""
        return self._libpq.server_version

    def run(self, sql: str) -> list[Any]:
        """Carry out plain statements, all in one transaction unless they say otherwise; the last one's answer."""
        self._send(lambda: self._libpq.send_query(sql.encode()))
        return self._results()

    def ask(self, statement: bytes, values: Sequence[bytes | None] = ()) -> Any:
        """The answer to one statement, which is a transaction of its own."""
        name = self._prepared.get(statement) or self._prepare(statement)
        self._send(lambda: self._libpq.send_query_prepared(name, values, _binary(values), result_format=_BINARY))
        return self._results()[-1]

    def ask_all(self, *questions: Question) -> list[Any]:
        """The answers to several statements in one round trip. Only within a transaction that they begin and end: so an
        error of the commit is the answer to COMMIT."""
        named = [(self._prepared.get(statement) or self._prepare(statement), values) for statement, values in questions]

        def send() -> None:
            self._libpq.enter_pipeline_mode()
            for name, values in named:
                self._libpq.send_query_prepared(name, values, _binary(values), result_format=_BINARY)
            self._libpq.pipeline_sync()

        self._send(send)
        return self._results(pipeline=True)

    def notices(self, wait: float, or_until: int) -> int:
        """How many notifications came, waiting so long for the first one, or until that file can be read."""
        try:
            found = self._told()
            if not found:
                self._poll.register(or_until, select.POLLIN)
                try:
                    self._poll.poll(wait * 1000)
                finally:
                    self._poll.unregister(or_until)
                self._libpq.consume_input()
                found = self._told()
        except psycopg.Error as error:
            raise self._lost(error) from error
        return found

    def _told(self) -> int:
        found = 0
        while self._libpq.notifies() is not None:
            found += 1
        return found

    def close(self) -> None:
        """Let go. What was asked and not answered goes on in the server, or not."""
        with suppress(psycopg.Error):
            self._connection.close()

    def _prepare(self, statement: bytes) -> bytes:
        name = b"flyball_%d" % len(self._prepared)
        self._send(lambda: self._libpq.send_prepare(name, statement))
        self._results()
        self._prepared[statement] = name
        return name

    def _send(self, send: Any) -> None:
        try:
            send()
            until = time.monotonic() + self._answer_max
            while self._libpq.flush():
                self._poll.modify(self._libpq.socket, select.POLLIN | select.POLLOUT)
                try:
                    self._wait(until)
                finally:
                    self._poll.modify(self._libpq.socket, select.POLLIN)
                self._libpq.consume_input()
        except psycopg.Error as error:
            raise self._lost(error) from error

    def _results(self, *, pipeline: bool = False) -> list[Any]:
        """All answers. In a pipeline each statement has one, and the end of it another; else they end by themselves."""
        libpq = self._libpq
        found: list[Any] = []
        refused: Refused | None = None
        until = time.monotonic() + self._answer_max
        try:
            while True:
                while libpq.is_busy():
                    self._wait(until)
                    libpq.consume_input()
                result = libpq.get_result()
                if result is None:
                    if pipeline:
                        continue
                    break
                status = result.status
                if status == pq.ExecStatus.PIPELINE_SYNC:
                    libpq.exit_pipeline_mode()
                    break
                if status == pq.ExecStatus.FATAL_ERROR and refused is None:
                    refused = trouble.refusal(result)
                found.append(result)
        except psycopg.Error as error:
            raise self._lost(error) from error
        if libpq.status != pq.ConnStatus.OK:
            raise self._lost(refused)
        if refused is not None:
            raise refused
        return found

    def _wait(self, until: float) -> None:
        left = until - time.monotonic()
        if left <= 0 or not self._poll.poll(left * 1000):
            raise self._lost(None)

    def _lost(self, error: BaseException | None) -> Lost:
        self.close()
        return Lost(" ".join(str(error).split()) if error is not None else "no answer")


def _binary(values: Sequence[bytes | None]) -> Sequence[int] | None:
    return _FORMATS[: len(values)] if values else None


def texts(items: Sequence[bytes | None]) -> bytes:
    """A text[] as PostgreSQL reads it."""
    if not items:
        return _EMPTY[_TEXT]
    pack = _LENGTH.pack
    if len(items) == 1 and items[0] is not None:
        return _ONE_TEXT + pack(len(items[0])) + items[0]
    parts = [_TEXT_ARRAY.pack(1, 1, _TEXT, len(items), 1)]
    for item in items:
        if item is None:
            parts.append(_NULL)
        else:
            parts.append(pack(len(item)))
            parts.append(item)
    return b"".join(parts)


def numbers(items: Sequence[int]) -> bytes:
    """A bigint[] as PostgreSQL reads it."""
    if not items:
        return _EMPTY[_BIGINT]
    head = _TEXT_ARRAY.pack(1, 0, _BIGINT, len(items), 1)
    return head + b"".join([b"\0\0\0\x08" + _NUMBER.pack(item) for item in items])


number = _NUMBER.pack
"""A bigint as PostgreSQL reads it."""


def flag(value: bool) -> bytes:
    """A boolean as PostgreSQL reads it."""
    return b"\1" if value else b"\0"


def to_number(data: bytes) -> int:
    """A bigint or an integer that PostgreSQL wrote."""
    return int.from_bytes(data, "big", signed=True)


def to_items(data: bytes | None) -> list[bytes | None]:
    """The elements of an array that PostgreSQL wrote."""
    if data is None or len(data) <= 12:
        return []
    place, end = 20, len(data)
    found: list[bytes | None] = []
    while place < end:
        (length,) = _LENGTH.unpack_from(data, place)
        place += 4
        if length < 0:
            found.append(None)
        else:
            found.append(data[place : place + length])
            place += length
    return found
