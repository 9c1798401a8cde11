"""The durable store beside bare SQLite: what does safety among callers and processes cost? `python -m bench.store`"""

import json
import multiprocessing
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import apsw

from bench.measure import Row, best_of, best_of_each
from flyball.core.policy import Key
from flyball.store import Draft, Drafter, Entry, Line, Snapshot
from flyball.store.sqlite import SqliteStore

UNITS = 10_000
POLICIES = 8
ENTRIES = 1_000_000
CALLERS = 64
BODY = json.dumps({"event": {"event": "start", "unit": "u0000", "run": "r1"}, "decision": {"until": 1_700_000_000}})
STATE = json.dumps({"failures": 3, "since": 1_700_000_000_000_000, "last": "abcdef0123456789"})


def key(unit: int, policy: int = 0) -> Key:
    return Key(f"policy{policy}", "unit", f"unit-{unit:05}")


def drafter(unit: int) -> Drafter:
    """One line and one changed state: two rows, and one more in the index by unit."""
    body, state, name, record = BODY.encode(), STATE.encode(), f"unit-{unit:05}", key(unit)

    def draft(seen: Snapshot) -> Draft:
        return Draft(seen.at + 1, {record: state}, Line(name, "start", "PROCEED", body))

    return draft


class Bare:
    """SQLite alone: rows of the same size into a table of the same shape, and nothing else."""

    def __init__(self, path: Path, *, indexed: bool = False) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.pragma("journal_mode", "wal")
        self._connection.pragma("synchronous", "full")
        self._cursor = self._connection.cursor()
        self._cursor.execute("CREATE TABLE row (seq INTEGER PRIMARY KEY, at, unit, event, verb, body)")
        if indexed:
            self._cursor.execute("CREATE INDEX row_unit ON row (unit, seq)")
        self._seq = 0

    def commit(self, rows: int) -> None:
        values = []
        for place in range(rows):
            self._seq += 1
            values.append((self._seq, self._seq, f"unit-{place:05}", "start", "PROCEED", BODY))
        self._cursor.execute("BEGIN IMMEDIATE")
        self._cursor.executemany("INSERT INTO row VALUES (?, ?, ?, ?, ?, ?)", values)
        self._cursor.execute("COMMIT")

    def commits(self, times: int, rows: int) -> None:
        for _ in range(times):
            self.commit(rows)

    def close(self) -> None:
        self._connection.close()


def one_caller(folder: Path) -> Row:
    times = 300
    bare, store = Bare(folder / "bare"), SqliteStore(folder / "store")
    keys, draft = [key(0, policy) for policy in range(POLICIES)], drafter(0)

    def ours() -> None:
        for _ in range(times):
            store.transact(keys, draft)

    mine, peer = (took / times * 1e6 for took in best_of_each([ours, lambda: bare.commits(times, 1)], 7))
    bare.close()
    store.close()
    return Row(
        "durable transact, one caller (2 rows)", mine, "bare 1-row commit", peer, "us", "at most 2 x", mine <= 2 * peer
    )


def many_callers(folder: Path) -> list[Row]:
    """Threads that each wait for their own commit, and a single thread that keeps as many futures in flight."""
    times = 100
    rows = CALLERS * times
    bare, indexed = Bare(folder / "bare64"), Bare(folder / "indexed64", indexed=True)
    store = SqliteStore(folder / "store64")
    wants = [([key(place, policy) for policy in range(POLICIES)], drafter(place)) for place in range(CALLERS)]

    def call(place: int) -> None:
        for _ in range(times):
            store.transact(*wants[place])

    def flight() -> None:
        waiting: deque[Future[Entry | None]] = deque()
        for number in range(rows):
            if len(waiting) == CALLERS:
                waiting.popleft().result()
            waiting.append(store.transact_soon(*wants[number % CALLERS]))
        while waiting:
            waiting.popleft().result()

    took = best_of_each(
        [
            lambda: in_threads(call),
            flight,
            lambda: bare.commits(times, CALLERS),
            lambda: indexed.commits(times, CALLERS),
            lambda: hand_over(times),
        ]
    )
    threads, futures, peer, peer_indexed, alone = (rows / each for each in took)
    for each in (bare, indexed, store):
        each.close()
    name = f"{CALLERS} {{}} at once, 2 rows each ({{:,.0f}} decisions/s)"
    half, plain = "at least 0.5 x", f"bare {CALLERS}-row commits"
    return [
        Row(name.format("threads", threads), 2 * threads, plain, peer, "rows/s", half, 4 * threads >= peer),
        Row(name.format("futures", futures), 2 * futures, plain, peer, "rows/s", half, 4 * futures >= peer),
        Row("the same", 2 * futures, "bare, with our index", peer_indexed, "rows/s", half, 4 * futures >= peer_indexed),
        Row(f"{CALLERS} threads at once", threads, "handing over, no store", alone, "calls/s", "for scale", True),
    ]


def in_threads(call: Callable[[int], None], callers: int = CALLERS) -> None:
    threads = [threading.Thread(target=call, args=(place,)) for place in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def hand_over(times: int) -> None:
    """What it costs that threads wait for another one, which does nothing but let them go on."""
    line: SimpleQueue[threading.Lock | None] = SimpleQueue()

    def serve() -> None:
        while (waiting := line.get()) is not None:
            waiting.release()

    def call(_: int) -> None:
        for _ in range(times):
            done = threading.Lock()
            done.acquire()
            line.put(done)
            done.acquire()

    server = threading.Thread(target=serve)
    server.start()
    in_threads(call)
    line.put(None)
    server.join()


def large(folder: Path) -> list[Row]:
    """The cost in a store that has grown, and of opening it."""
    path, times = folder / "large", 700  # so many that every round has its checkpoints
    fill(path)
    took = best_of(lambda: SqliteStore(path, journal_max=2 * ENTRIES).close(), 3)
    grown, empty = SqliteStore(path, journal_max=2 * ENTRIES), SqliteStore(folder / "empty")
    rounds = {"n": 0}

    def calls(store: SqliteStore) -> Callable[[], None]:
        def run() -> None:
            for _ in range(times):
                rounds["n"] += 1
                unit = rounds["n"] * 7919 % UNITS
                store.transact([key(unit, policy) for policy in range(POLICIES)], drafter(unit))

        return run

    mine, peer = (took / times * 1e6 for took in best_of_each([calls(grown), calls(empty)]))
    grown.close()
    empty.close()
    name = f"transact at {UNITS:,} x {POLICIES} states, {ENTRIES:,} entries"
    return [
        Row(name, mine, "empty store", peer, "us", "at most 1.2 x", mine <= 1.2 * peer),
        Row("opening it", took, "limit", 0.5, "s", "below 0.5 s", took < 0.5),
    ]


def fill(path: Path) -> None:
    """A store that has been in use for long, made quickly by SQL."""
    SqliteStore(path).close()
    connection = apsw.Connection(str(path))
    with connection:
        for policy in range(POLICIES):
            connection.executemany(
                "INSERT INTO state VALUES (?, ?, ?, ?)", ((*key(unit, policy), STATE) for unit in range(UNITS))
            )
        connection.executemany(
            "INSERT INTO journal VALUES (?, ?, ?, 'start', 'PROCEED', ?)",
            ((seq, seq, f"unit-{seq * 7919 % UNITS:05}", BODY) for seq in range(1, ENTRIES + 1)),
        )
    connection.close()


def fairness(folder: Path) -> tuple[Row, list[int]]:
    """Four busy processes on one file, for two seconds."""
    context = multiprocessing.get_context("spawn")
    path, count, lasts = folder / "fair", 4, 2.0
    SqliteStore(path).close()
    start, results = context.Barrier(count), context.Queue()
    processes = [context.Process(target=_busy, args=(path, place, lasts, start, results)) for place in range(count)]
    for process in processes:
        process.start()
    commits = sorted(results.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    fewest, most = commits[0], commits[-1]
    met = fewest >= most / 2
    return Row("4 busy processes: fewest commits", fewest, "most commits", most, "", "at least 0.5 x", met), commits


def _busy(path: Path, place: int, lasts: float, start: Any, results: Any) -> None:
    store = SqliteStore(path)
    keys, draft, made = [key(place)], drafter(place), 0
    start.wait()
    end = time.monotonic() + lasts
    while time.monotonic() < end:
        store.transact(keys, draft)
        made += 1
    results.put(made)
    store.close()


def run() -> list[Row]:
    """All comparisons of the store."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fair, _ = fairness(folder)
        return [one_caller(folder), *many_callers(folder), *large(folder), fair]


if __name__ == "__main__":
    for row in run():
        print(row)
    with tempfile.TemporaryDirectory() as name:
        print("commits of 4 busy processes:", *fairness(Path(name))[1])
