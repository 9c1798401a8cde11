"""The store of a fleet beside bare PostgreSQL, whose disk is synced at every commit: what does safety among hosts cost?
`python -m bench.postgres`

Bare is what a decision comes to at least: one statement that puts a state and adds a line to a journal, numbered by the
database, with gaps and in no particular order. It checks nothing and asks no policy.
"""

import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import psycopg
from tests.servers.postgres import PostgresServer, postgres

from bench.measure import Row, best_of_each
from bench.store import BODY, STATE, drafter, in_threads, key
from flyball.config import load
from flyball.core.event import Cause, Exited, Start
from flyball.core.policy import Key
from flyball.governor import Governor
from flyball.store import Draft, Line, Snapshot
from flyball.store.postgres import PostgresStore

CALLERS = 8
POLICIES = 8
TIMES = 200
FEW = 50
"""Decisions in a measurement of one caller: some of them fall between the machine's interruptions."""
_TABLES = """
    CREATE SCHEMA bare;
    CREATE TABLE bare.state (
        policy text COLLATE "C", by text COLLATE "C", subject text COLLATE "C", data text NOT NULL,
        PRIMARY KEY (subject, by, policy)
    );
    CREATE TABLE bare.journal (
        seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at bigint NOT NULL,
        unit text COLLATE "C" NOT NULL, event text NOT NULL, verb text NOT NULL, body text NOT NULL
    );
    CREATE INDEX ON bare.journal (unit, seq);
"""
_DECISION = """
    WITH put AS (
        INSERT INTO bare.state VALUES (%s, %s, %s, %s)
        ON CONFLICT (subject, by, policy) DO UPDATE SET data = excluded.data
    ) INSERT INTO bare.journal (at, unit, event, verb, body) VALUES (%s, %s, %s, %s, %s) RETURNING seq
"""


class Bare:
    """PostgreSQL alone: rows of the same size into tables of the same shape, in one statement."""

    def __init__(self, dsn: str, place: int) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True, prepare_threshold=0)
        self._record, self._unit, self._at = key(place), f"unit-{place:05}", count()

    def decide(self) -> None:
        values = (*self._record, STATE, next(self._at), self._unit, "start", "PROCEED", BODY)
        self._connection.execute(_DECISION, values).fetchone()

    def close(self) -> None:
        self._connection.close()


class Ours:
    """The store, with a draft that writes the same two rows, and sees eight records."""

    def __init__(self, store: PostgresStore, place: int) -> None:
        self._store = store
        self._keys, self._draft = [key(place, policy) for policy in range(POLICIES)], drafter(place)

    def decide(self) -> None:
        self._store.transact(self._keys, self._draft)


class Governed:
    """The governor with the policies of a plain process: starts and exits of a healthy unit, each a decision."""

    def __init__(self, governor: Governor, place: int) -> None:
        self._governor, self._unit, self._numbers = governor, f"unit-{place:05}", count()
        self._run = ""

    def decide(self) -> None:
        if self._run:
            self._governor.submit(Exited(unit=self._unit, run=self._run, cause=Cause.DONE))
            self._run = ""
        else:
            self._run = str(next(self._numbers))
            self._governor.submit(Start(unit=self._unit, run=self._run))


def governor_of(store: PostgresStore) -> Governor:
    return Governor(load(env={}).policies("process"), store, store.clock)


@contextmanager
def database() -> Iterator[tuple[PostgresServer, str]]:
    with postgres(fsync=True) as server:
        dsn = server.database()
        server.sql(_TABLES, database=dsn.rpartition("/")[2])
        yield server, dsn


def repeated(work: Callable[[], None], times: int = TIMES) -> Callable[[], None]:
    def many() -> None:
        for _ in range(times):
            work()

    return many


def one_caller(dsn: str) -> list[Row]:
    with PostgresStore(dsn) as store:
        bare, ours, governed = Bare(dsn, 0), Ours(store, 0), Governed(governor_of(store), 1)
        took = best_of_each([repeated(each.decide, FEW) for each in (ours, governed, bare)], 40)
        bare.close()
    mine, real, peer = (each / FEW * 1e6 for each in took)
    statement, goal = "bare, one statement", "at most 1.5 x"
    return [
        Row("PostgreSQL: transact, one caller (2 rows)", mine, statement, peer, "us", goal, mine <= 1.5 * peer),
        Row("PostgreSQL: a decision, one caller", real, statement, peer, "us", goal, real <= 1.5 * peer),
    ]


def threads(dsn: str) -> list[Row]:
    """Callers in one process, on one store; bare, each has a connection of its own."""
    with PostgresStore(dsn) as store:
        governor = governor_of(store)
        bare = [Bare(dsn, place) for place in range(CALLERS)]
        ours = [Ours(store, place) for place in range(CALLERS)]
        governed = [Governed(governor, place) for place in range(CALLERS)]

        def all_of(those: list[Any]) -> Callable[[], None]:
            return lambda: in_threads(lambda place: repeated(those[place].decide)(), CALLERS)

        took = best_of_each([all_of(ours), all_of(governed), all_of(bare)], 5)
        for each in bare:
            each.close()
    return _rows("threads", [CALLERS * TIMES / each for each in took])


def processes(dsn: str) -> list[Row]:
    """Callers in processes of their own, as on hosts of their own. The kinds take turns."""
    rates = [0.0, 0.0, 0.0]
    for _ in range(3):
        for place, kind in enumerate(("ours", "governed", "bare")):
            rates[place] = max(rates[place], _processes(dsn, kind))
    return _rows("processes", rates)


def _rows(kind: str, rates: list[float]) -> list[Row]:
    mine, real, peer = rates
    name, statement, goal = f"PostgreSQL: {{}}, {CALLERS} {kind}", f"bare, {CALLERS} connections", "at least 0.5 x"
    return [
        Row(name.format("transact"), mine, statement, peer, "/s", goal, mine >= peer / 2),
        Row(name.format("decisions"), real, statement, peer, "/s", goal, real >= peer / 2),
    ]


def _processes(dsn: str, kind: str) -> float:
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(CALLERS), context.Queue()
    children = [context.Process(target=_child, args=(dsn, kind, place, start, results)) for place in range(CALLERS)]
    for child in children:
        child.start()
    spans: list[tuple[float, float]] = [results.get(timeout=120) for _ in children]
    for child in children:
        child.join()
    took = max(end for _, end in spans) - min(begin for begin, _ in spans)
    return CALLERS * TIMES / took


def _child(dsn: str, kind: str, place: int, start: Any, results: Any) -> None:
    store = None if kind == "bare" else PostgresStore(dsn)
    caller: Bare | Ours | Governed
    if store is None:
        caller = Bare(dsn, place)
    else:
        caller = Ours(store, place) if kind == "ours" else Governed(governor_of(store), place)
    caller.decide()
    start.wait()
    begin = time.monotonic()
    repeated(caller.decide)()
    results.put((begin, time.monotonic()))
    if store is not None:
        store.close()


def woken(dsn: str, times: int = 100) -> Row:
    """From before a commit on one store until another one that listens is woken."""
    rung = threading.Event()
    spans = []
    with PostgresStore(dsn) as writer, PostgresStore(dsn) as hearer:
        end = hearer.listen(rung.set)
        alone = []
        for _ in range(times):
            rung.clear()
            begin = time.perf_counter()
            writer.transact([], _line)
            alone.append(time.perf_counter() - begin)
            assert rung.wait(10)
            spans.append(time.perf_counter() - begin)
        end()
    mine, peer = (statistics.median(each) * 1e3 for each in (spans, alone))
    return Row(
        "PostgreSQL: commit until another host is woken", mine, "the commit alone", peer, "ms", "below 20 ms", mine < 20
    )


def _line(seen: Snapshot) -> Draft:
    return Draft(seen.at + 1, {Key("bench", "unit", "woken"): b"1"}, Line("woken", "held", "HOLD", b"{}"))


def run() -> list[Row]:
    """All comparisons of the store of a fleet."""
    with database() as (_, dsn):
        return [*one_caller(dsn), *threads(dsn), *processes(dsn), woken(dsn)]


if __name__ == "__main__":
    for row in run():
        print(row)
