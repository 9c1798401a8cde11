"""The durable store: what is special about it. What every store has to do is in the conformance kit."""

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from flyball.core.policy import Key
from flyball.errors import (
    FlyballError,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreTooNew,
    StoreUnsafe,
)
from flyball.store import Draft, Entry, Line, Snapshot, callers, schema
from flyball.store.cache import Cache
from flyball.store.ledger import CHUNK_MAX, ROOM, ROOM_AFTER
from flyball.store.sqlite import SqliteStore
from flyball.store.turn import Turn
from flyball.testing.conformance import ALL_MAX, DurableStoreConformance, count, key, put, replay

PATIENCE = 60
"""Seconds after which a test fails instead of hanging."""


class TestSqliteStore(DurableStoreConformance):
    """It is a store like any other, and a durable one."""

    opener = SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "flyball.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path) as store:
        yield store


def ask(path: Path, sql: str, *values: str | int) -> list[Any]:
    """What any SQLite tool would see."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(PATIENCE * 1000)
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


@contextmanager
def busy_writer(store: SqliteStore) -> Iterator[None]:
    """The writer is inside a draft for as long as the block lasts; whoever comes meanwhile is the next group."""
    begun, go_on = threading.Event(), threading.Event()

    def draft(_: Snapshot) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    future = store.transact_soon([], draft)
    assert begun.wait(PATIENCE)
    try:
        yield
    finally:
        go_on.set()
        future.result(PATIENCE)


def commits_of(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every commit from here on, with its synchronous level."""
    levels: list[int] = []
    commit = store._ledger._commit

    def counted() -> None:
        levels.append(store._ledger.connection.pragma("synchronous"))
        commit()

    monkeypatch.setattr(store._ledger, "_commit", counted)
    return levels


def python(script: str, *arguments: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run it in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, **options)


class TestGroups:
    """Callers that wait are committed together."""

    def test_one_commit(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whoever waits while the writer is busy is committed in one transaction, in the order of arrival."""
        levels = commits_of(store, monkeypatch)
        with busy_writer(store):
            futures = [store.transact_soon([key("a")], count("a")) for _ in range(20)]
        assert [future.result(PATIENCE) for future in futures] == list(store.entries())
        assert len(levels) == 2  # the busy one, and all the others

    @pytest.mark.parametrize(
        ("syncs", "level"),
        [((True,), 2), ((False,), 1), ((False, True, False), 2), ((False, False), 1)],
        ids=str,
    )
    def test_sync_level(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch, syncs: tuple[bool, ...], level: int
    ) -> None:
        """A group is synced to the disk (FULL, 2) if one of its callers needs that; else it need not be (NORMAL, 1)."""
        levels = commits_of(store, monkeypatch)
        with busy_writer(store):
            futures = [store.transact_soon([key("a")], count("a"), sync=sync) for sync in syncs]
        for future in futures:
            future.result(PATIENCE)
        assert levels[1:] == [level]

    def test_one_that_raises(self, store: SqliteStore) -> None:
        """Of a group only the one whose draft raises fails; those after it do not see what it would have made."""

        def raise_it(seen: Snapshot) -> Draft:
            raise LookupError(seen.records[key("a")])

        with busy_writer(store):
            good = [store.transact_soon([key("a")], count("a"))]
            bad = store.transact_soon([key("a")], raise_it)
            good.append(store.transact_soon([key("a")], count("a")))
        assert [entry.seq for future in good if (entry := future.result(PATIENCE))] == [1, 2]
        assert bad.exception(PATIENCE).args == (b"1",)  # type: ignore[union-attr]  # it did raise
        assert store.states() == {key("a"): b"2"}

    @pytest.mark.parametrize(
        "draft",
        [
            Draft(1, {}, Line("lone \ud800 surrogate", "e", "v", b"{}")),
            Draft(1, {Key("lone \ud800 surrogate", "unit", "a"): b"{}"}, None),
            Draft(2**70, {}, Line("u", "e", "v", b"{}")),
            Draft(1, {key("x"): b"\xff"}, None),
            Draft(1, {}, Line("u", "e", "v", b"\xff")),
            Draft(1, {Key(None, "unit", "a"): b"{}"}, None),  # type: ignore[arg-type]  # a caller without a type checker
        ],
        ids=["unit", "key", "instant", "record", "body", "null"],
    )
    def test_one_that_cannot_be_written(self, store: SqliteStore, draft: Draft) -> None:
        """Of a group only the one that wants what SQLite cannot hold fails, with what was wrong."""
        with busy_writer(store):
            before = store.transact_soon([key("a")], count("a"), sync=False)
            bad = store.transact_soon([key("x")], lambda _: draft)
            after = store.transact_soon([key("a")], count("a"))
        assert isinstance(bad.exception(PATIENCE), ValueError | OverflowError | StoreError | apsw.Error)
        assert [future.result(PATIENCE) for future in (before, after)] == list(store.entries())
        assert store.states() == {key("a"): b"2"}

    def test_too_many_futures(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """When too many futures are waiting, the next caller waits for room, and then is served."""
        monkeypatch.setattr(callers, "SOON_MAX", 3)
        futures: list[Future[Entry | None]] = []
        with SqliteStore(path) as store:
            with busy_writer(store):
                futures += [store.transact_soon([key("a")], count("a")) for _ in range(3)]
                late = threading.Thread(target=lambda: futures.append(store.transact_soon([key("a")], count("a"))))
                late.start()
                late.join(0.05)
                assert late.is_alive()
            late.join(PATIENCE)
            assert [entry.seq for future in futures if (entry := future.result(PATIENCE))] == [1, 2, 3, 4]

    def test_cancelled(self, store: SqliteStore) -> None:
        """A future that is cancelled before its turn comes is not committed."""
        with busy_writer(store):
            doomed = store.transact_soon([key("a")], count("a"))
            assert doomed.cancel()
        store.transact([key("b")], count("b"))
        assert store.states() == {key("b"): b"1"}

    def test_draft_that_uses_its_own_store(self, store: SqliteStore) -> None:
        """A draft that writes to its own store would wait for itself; it is told so instead."""

        def draft(_: Snapshot) -> None:
            store.transact([], lambda _: None)

        with pytest.raises(RuntimeError, match="own store"):
            store.transact([], draft)

    def test_readers_do_not_wait(self, store: SqliteStore) -> None:
        """Reads are answered while the writer is in the middle of a transaction, also by several threads at once."""
        store.transact([key("a")], count("a"))
        with busy_writer(store):
            assert store.read([key("a")]).records == {key("a"): b"1"}
            assert len(store.entries()) == len(store.states()) == 1

    def test_cache_is_bounded(self, store: SqliteStore) -> None:
        """With more records than may be remembered, nothing is lost and memory stays within the limit."""
        cache: Cache[bytes | None] = Cache(records_max=8)
        store._ledger.cache = cache
        for n in range(60):
            store.transact([key(str(n % 20))], count(str(n % 20)), sync=False)
        assert len(cache.young) + len(cache.old) <= 10
        assert store.states() == {key(str(n)): b"3" for n in range(20)}

    def test_checkpoints_are_not_remembered(self, store: SqliteStore) -> None:
        """They are large: neither who writes them nor who reads them keeps them in memory. Those that are committed
        together see each other's all the same."""
        checkpoint = key("u/000001", "checkpoint", "session")

        def add(seen: Snapshot) -> Draft:
            return Draft(seen.at + 1, {checkpoint: seen.records.get(checkpoint, b"") + b"x"}, None)

        with busy_writer(store):
            waiting = [store.transact_soon([checkpoint], add) for _ in range(3)]
        for future in waiting:
            future.result(PATIENCE)
        store.transact([checkpoint], add)
        assert store.read([checkpoint]).records == store.states("checkpoint") == {checkpoint: b"xxxx"}
        for cache in (store._ledger.cache, store._seen):
            assert checkpoint not in {**cache.young, **cache.old}


class TestTurns:
    """Processes take turns."""

    def test_waiting_too_long(self, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whoever waited too long for another process gets an error, and nothing of it is written later."""
        monkeypatch.setattr(callers, "WAIT_MAX", 0.05)
        turn = Turn(path)
        with turn, pytest.raises(StoreError, match="waited"):
            store.transact([key("a")], count("a"))
        turn.close()
        monkeypatch.setattr(callers, "WAIT_MAX", PATIENCE)
        assert store.transact([key("b")], count("b")) == Entry(
            1, 1, "b", "put", "PROCEED", b'{"subject": "b", "value": 1}'
        )
        assert store.states() == {key("b"): b"1"}

    def test_whoever_lets_go_joins_the_line(self, path: Path) -> None:
        """The one that waits gets the turn next, however eager the one that had it is to have it again."""
        order: list[str] = []
        eager, patient = Turn(path), Turn(path)
        waiting = threading.Event()

        def wait_in_line() -> None:
            waiting.set()
            with patient:
                order.append("patient")

        thread = threading.Thread(target=wait_in_line)
        with eager:
            thread.start()
            assert waiting.wait(PATIENCE)
            _wait_until_locked(f"{path}-next")
        with eager:
            order.append("eager")
        thread.join(PATIENCE)
        assert order == ["patient", "eager"]
        eager.close()
        patient.close()

    def test_a_person_in_a_shell(self, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Somebody who holds SQLite's own lock without taking turns is named, and then it goes on."""
        store._ledger.connection.set_busy_timeout(10)
        shell = apsw.Connection(str(path))
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked by another program"):
            store.transact([key("a")], count("a"))
        shell.execute("ROLLBACK")
        shell.close()
        assert store.transact([key("a")], count("a")) is not None

    def test_two_make_the_same_file(self, path: Path) -> None:
        """Several that open a new file at once make one store of it."""
        stores: list[SqliteStore] = []
        start = threading.Barrier(6)

        def make() -> None:
            start.wait()
            stores.append(SqliteStore(path))

        threads = [threading.Thread(target=make) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        for store in stores:
            store.transact([key("a")], count("a"))
        assert stores[0].read([key("a")]) == Snapshot(6, 6, {key("a"): b"6"})
        for store in stores:
            store.close()


def _wait_until_locked(name: str) -> None:
    """Until somebody is at the head of the line."""
    deadline = time.monotonic() + PATIENCE
    with Path(name).open("rb+") as file:
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            fcntl.flock(file, fcntl.LOCK_UN)
    pytest.fail("nobody joined the line")


class TestFile:
    """The file, its mode, its text, its version."""

    def test_private(self, tmp_path: Path) -> None:
        """Files and folders that the store makes are for nobody else to read."""
        old = os.umask(0o022)
        try:
            path = tmp_path / "state" / "deep" / "flyball.db"
            with SqliteStore(path) as store:
                store.transact([key("a")], count("a"))
                modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        finally:
            os.umask(old)
        assert modes == {f"flyball.db{end}": 0o600 for end in ("", "-wal", "-shm", "-turn", "-next")}
        assert [stat.S_IMODE(folder.stat().st_mode) for folder in (path.parent, path.parent.parent)] == [0o700, 0o700]

    def test_close_leaves_one_file(self, path: Path) -> None:
        """After a clean close everything is in the one file: it can be copied."""
        with SqliteStore(path) as store:
            store.transact([key("a")], count("a"))
        assert sorted(file.name for file in path.parent.iterdir()) == [
            path.name,
            f"{path.name}-next",
            f"{path.name}-turn",
        ]
        copy = path.rename(path.with_name("copy.db"))
        with SqliteStore(copy) as store:
            assert store.states() == {key("a"): b"1"}

    def test_readable_for_people(self, store: SqliteStore, path: Path) -> None:
        """Any SQLite tool shows states and journal as text."""
        store.transact([key("a")], put("a", 7, after=5))
        assert ask(path, "SELECT policy, by, subject, data, typeof(data) FROM state") == [
            ("counter", "unit", "a", "7", "text")
        ]
        assert ask(path, "SELECT seq, at, unit, event, verb, body ->> 'value', typeof(body) FROM journal") == [
            (1, 5, "a", "put", "PROCEED", 7, "text")
        ]

    def test_views(self, path: Path) -> None:
        """A view is made when it is missing, made anew when its text differs, and left alone when it is the same."""
        for number, select in ((1, "SELECT 1 AS n, subject FROM state"), (2, "SELECT 2 AS n, subject FROM state")):
            with SqliteStore(path, views={"failures": select}) as store:
                store.transact([key("a")], count("a"))
                before = ask(path, "PRAGMA schema_version")
            assert ask(path, "SELECT n, subject FROM failures") == [(number, "a")]
            with SqliteStore(path, views={"failures": select}):
                assert ask(path, "PRAGMA schema_version") == before

    @pytest.mark.parametrize("select", ["SELECT * FROM nowhere", "nonsense"])
    def test_wrong_view(self, path: Path, select: str) -> None:
        """A view that cannot be read is refused when the store is opened, and the view before it stays."""
        SqliteStore(path, views={"failures": "SELECT 1 AS n"}).close()
        with pytest.raises(StoreError):
            SqliteStore(path, views={"failures": select})
        assert ask(path, "SELECT n FROM failures") == [(1,)]

    def test_old_sqlite(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A SQLite that can corrupt a WAL file is refused, and nothing is made."""
        monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
        with pytest.raises(StoreUnsafe, match=r"3\.51\.2"):
            SqliteStore(path)
        assert not path.exists()

    def test_version_1(self, path: Path) -> None:
        """A file of the first version opens for ever, with all that is in it."""
        connection = apsw.Connection(str(path))
        connection.execute((Path(__file__).parent / "version_1.sql").read_text()).fetchall()
        connection.close()
        with SqliteStore(path) as store:
            assert store.read([key("a")]) == Snapshot(4, 40, {key("a"): b"4"})
            assert store.base() == Snapshot(2, 20, {key("a"): b"2", key("b"): b"1"})
            assert [entry.seq for entry in store.entries()] == [3, 4]
            assert list(store.integrity()) == []
            store.transact([key("a")], count("a"))
            assert store.states() == {key("a"): b"5"}
        assert ask(path, "PRAGMA user_version") == [(schema.VERSION,)]

    def test_too_new(self, path: Path) -> None:
        """A file of a newer version is refused and not changed by a byte."""
        SqliteStore(path).close()
        ask(path, f"PRAGMA user_version = {schema.VERSION + 1}")
        before = path.read_bytes()
        with pytest.raises(StoreTooNew, match=f"version {schema.VERSION + 1}"):
            SqliteStore(path)
        assert path.read_bytes() == before

    @pytest.mark.parametrize("kind", ["text", "tables", "application", "header", "short"])
    def test_not_ours(self, path: Path, kind: str) -> None:
        """A file that is damaged, or of another program, is refused and not changed by a byte."""
        if kind == "text":
            path.write_text("unit,failures\n" * 1000)
        elif kind == "tables":
            ask(path, "CREATE TABLE theirs (a)")
        elif kind == "application":
            ask(path, "PRAGMA application_id = 1234")
        else:
            SqliteStore(path).close()
            whole = path.read_bytes()
            path.write_bytes(whole[:100] + b"\xff" * 3996 + whole[4096:] if kind == "header" else whole[:5000])
        before = path.read_bytes()
        with pytest.raises(StoreCorrupt):
            SqliteStore(path)
        assert path.read_bytes() == before

    def test_empty_file(self, path: Path) -> None:
        """An empty file is as good as none."""
        path.touch()
        with SqliteStore(path) as store:
            assert store.transact([key("a")], count("a")) is not None

    def test_a_folder(self, path: Path) -> None:
        """A folder in its place is an error that names it."""
        path.mkdir()
        with pytest.raises(StoreError, match=path.name):
            SqliteStore(path)

    @pytest.mark.parametrize("kind", ["file", "folder", "new file", "new folder"])
    def test_read_only(self, kind: str) -> None:
        """A file or folder that cannot be written is refused as that."""
        script = """
            import os, sys
            from flyball.errors import StoreReadOnly
            from flyball.store.sqlite import SqliteStore
            if os.getuid() == 0:  # who may write everything cannot be refused
                os.setgid(65534)
                os.setuid(65534)
            try:
                SqliteStore(sys.argv[1])
            except StoreReadOnly as error:
                print("refused:", error)
        """
        with tempfile.TemporaryDirectory() as name:  # not tmp_path: another user has to get there
            folder = Path(name)
            path = folder / "flyball.db"
            if not kind.startswith("new"):
                SqliteStore(path).close()
                for file in folder.iterdir():
                    file.chmod(0o666)
            if kind == "file":
                path.chmod(0o444)
            elif kind == "new folder":
                path = folder / "deep" / "flyball.db"
            folder.chmod(0o777 if kind == "file" else 0o555)
            done = python(script, path)
            folder.chmod(0o755)
        assert done.stdout.startswith("refused:"), done.stderr

    def test_outlives_interpreter(self, path: Path) -> None:
        """A program that ends without closing its store ends at once, and what was acknowledged is there."""
        script = """
            import sys
            from flyball.store.sqlite import SqliteStore
            from flyball.testing.conformance import count, key
            store = SqliteStore(sys.argv[1])
            for n in range(5):
                store.transact([key("a")], count("a"), sync=False)
        """
        done = python(script, path)
        assert (done.returncode, done.stderr) == (0, "")
        with SqliteStore(path) as store:
            assert store.states() == {key("a"): b"5"}

    def test_fork(self, path: Path) -> None:
        """A forked child can neither use the parent's store nor open its file; the parent goes on undisturbed."""
        script = """
            import os, sys, warnings
            from flyball.errors import StoreClosed
            from flyball.store.sqlite import SqliteStore
            from flyball.testing.conformance import count, key
            warnings.simplefilter("ignore")  # that forking with threads is unsafe is what this is about
            store = SqliteStore(sys.argv[1])
            store.transact([key("a")], count("a"))
            store.read([])
            child = os.fork()
            if child == 0:
                refused = 0
                for use in (
                    lambda: store.transact([key("a")], count("a")),
                    lambda: store.transact_soon([key("a")], count("a")),
                    lambda: store.read([key("a")]),
                    lambda: store.trim(0),
                    lambda: SqliteStore(sys.argv[1]),
                ):
                    try:
                        use()
                    except StoreClosed:
                        refused += 1
                store.close()
                sys.exit(refused)
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status))
            store.transact([key("a")], count("a"))
            print(store.states()[key("a")], store.integrity())
            store.close()
        """
        done = python(script, path)
        assert (done.stdout, done.stderr) == ("5\nb'2' []\n", "")

    def test_fork_of_a_fork(self, path: Path) -> None:
        """What a forked child opens is its own: a fork of it closes none of that, though the numbers were ours."""
        script = """
            import os, sys, warnings
            from flyball.store.sqlite import SqliteStore
            warnings.simplefilter("ignore")  # that forking with threads is unsafe is what this is about
            store = SqliteStore(sys.argv[1])
            child = os.fork()
            if child == 0:
                own = [os.open(os.devnull, os.O_RDONLY) for _ in range(64)]
                grandchild = os.fork()
                if grandchild == 0:
                    for number in own:
                        os.fstat(number)
                    os._exit(7)
                os._exit(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            store.close()
        """
        done = python(script, path)
        assert (done.stdout, done.stderr) == ("7\n", "")

    def test_closed_while_reading(self, path: Path) -> None:
        """Whoever is late is told that the store is closed."""
        store = SqliteStore(path)
        store.close()
        for use in (store.states, store.entries, store.base, store.integrity, lambda: store.trim(0)):
            with pytest.raises(StoreClosed):
                use()


class TestFull:
    """A full disk."""

    def test_group(self, store: SqliteStore) -> None:
        """When there is no room, every caller of the group is told, nothing is written, and it works again later."""
        store.transact([key("a")], count("a"))
        before = (store.states(), store.entries())
        connection = store._ledger.connection
        with busy_writer(store):
            large = Draft(9, {key("large"): b'"' + b"x" * 1_000_000 + b'"'}, Line("u", "e", "v", b"{}"))
            drafts = (count("a"), lambda _: large, count("a"))
            futures = [store.transact_soon([key("a")], draft) for draft in drafts]
            connection.pragma("max_page_count", 20)
        errors = [future.exception(PATIENCE) for future in futures]
        assert [type(error) for error in errors] == [StoreFull] * 3
        assert len({id(error) for error in errors}) == 3
        assert (store.states(), store.entries()) == before
        connection.pragma("max_page_count", 1_000_000_000)
        assert store.transact([key("a")], count("a")) is not None
        assert store.states() == {key("a"): b"2"}
        assert list(store.integrity()) == []

    def test_real_limit(self, path: Path) -> None:
        """The same when the system itself refuses to let the file grow."""
        script = """
            import resource, sys
            from flyball.errors import StoreFull
            from flyball.store import Draft, Line
            from flyball.store.sqlite import SqliteStore
            from flyball.testing.conformance import count, key
            store = SqliteStore(sys.argv[1])
            store.transact([key("a")], count("a"))
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
            large = Draft(9, {key("large"): b'"' + b"x" * 1_000_000 + b'"'}, Line("u", "e", "v", b"{}"))
            try:
                store.transact([], lambda _: large)
            except StoreFull as error:
                print("full")
            print(len(store.states()), len(store.entries()))
            store.transact([key("a")], count("a"))
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            store.transact([], lambda _: large)
            print(len(store.states()), len(store.entries()), store.integrity())
            store.close()
        """
        done = python(script, path)
        assert (done.stdout, done.stderr) == ("full\n1 1\n2 3 []\n", "")


class TestRetention:
    """The journal is kept within its limit by itself."""

    def test_by_itself(self, path: Path) -> None:
        """Beyond its limit the older half of the journal goes, also from the disk; the rest can still be replayed."""
        with SqliteStore(path, journal_max=100) as store:
            for n in range(1000):
                subject = str(n % 7)
                store.transact([key(subject)], put(subject, None if n % 5 == 0 else n), sync=False)
                kept = store.read([]).seq - store.base().seq
                assert min(n + 1, 50) <= kept <= 100
            entries = store.entries(limit=ALL_MAX)
            assert replay(store.base(), entries) == store.states()
            assert list(store.integrity()) == []
        rows, undone, marks = ask(
            path, "SELECT (SELECT count(*) FROM journal), (SELECT count(*) FROM undo), (SELECT count(*) FROM mark)"
        )[0]
        assert rows <= 100
        assert undone <= 7 * marks
        assert marks <= 5

    def test_in_chunks(self, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is forgotten at once is deleted in pieces, each in a transaction of its own, so that none is long."""
        for future in [store.transact_soon([], put("a", n), sync=False) for n in range(3 * CHUNK_MAX)]:
            future.result(PATIENCE)
        ledger, left = store._ledger, [3 * CHUNK_MAX]
        sweep = ledger.sweep

        def counted() -> None:
            sweep()
            left.append(ask(path, "SELECT count(*) FROM journal")[0][0])

        monkeypatch.setattr(ledger, "sweep", counted)
        assert store.trim(0) == 3 * CHUNK_MAX
        assert list(store.entries()) == []
        while ledger.littered:
            store.transact([], lambda _: None)
        assert left[:4] == [3 * CHUNK_MAX, 2 * CHUNK_MAX, CHUNK_MAX, 0]
        assert list(store.integrity()) == []

    def test_others_trim(self, path: Path) -> None:
        """When another one sets a mark, what is changed after it is kept for that mark."""
        with SqliteStore(path) as one, SqliteStore(path) as other:
            for n in range(8):
                one.transact([key("a"), key("b")], put("ab"[n % 2], n), sync=False)
            other.trim(2)
            one.transact([key("a")], put("a", 100), sync=False)
            one.transact([key("a")], put("b", None), sync=False)
            assert other.trim(2) == 8
            assert one.base() == Snapshot(8, 8, {key("a"): b"6", key("b"): b"7"})
            assert replay(one.base(), one.entries()) == one.states() == other.states()
            one.transact([key("a")], put("a", 200), sync=False)
            one.transact([key("a")], put("a", 300), sync=False)
            assert other.trim(2) == 2
            assert one.base() == other.base() == Snapshot(10, 10, {key("a"): b"100"})


class TestIntegrity:
    """What is wrong is found."""

    @pytest.mark.parametrize(
        ("harm", "said"),
        [
            ("DELETE FROM journal WHERE seq = 7", "gap: after entry 6 comes 8"),
            ("DELETE FROM journal WHERE seq = 5", "gap: it begins after entry 4"),
            ("UPDATE journal SET at = 1 WHERE seq = 8", "time runs back"),
            ("UPDATE journal SET at = 1 WHERE seq = 5", "time runs back"),
            ("UPDATE state SET data = '{' WHERE subject = 'a'", "the state of counter for unit a is not JSON"),
            ("UPDATE undo SET data = '{'", "the kept state of counter for unit a is not JSON"),
            ("UPDATE journal SET body = 'no' WHERE seq = 6", "the body of entry 6 is not JSON"),
            ("DELETE FROM mark", "where the journal begins"),
            ("DELETE FROM journal WHERE seq > 5", "though there is a mark after entry 8"),
            ("UPDATE undo SET mark = mark + 1", "kept for entry"),
        ],
        ids=str,
    )
    def test_finds(self, path: Path, harm: str, said: str) -> None:
        """Whatever should never be is found and told."""
        with SqliteStore(path) as store:
            for n in range(10):
                store.transact([key("a")], put("a", n), sync=False)
                if n in (3, 7):
                    store.trim(4)
            assert store.base().seq == 4
            assert list(store.integrity()) == []
            ask(path, harm)
            assert any(said in problem for problem in store.integrity()), store.integrity()

    def test_no_beginning(self, path: Path) -> None:
        """Without a beginning of the journal nothing is written any more."""
        with SqliteStore(path) as store:
            store.transact([key("a")], count("a"))
            ask(path, "DELETE FROM mark")
            with pytest.raises(StoreCorrupt, match="begins"):
                store.transact([key("a")], count("a"))

    def test_damaged_page(self, path: Path) -> None:
        """Damage in the middle of the file is found, and reading there says so."""
        with SqliteStore(path) as store:
            futures = [store.transact_soon([], put("a", n), sync=False) for n in range(2000)]
            for future in futures:
                future.result(PATIENCE)
        with path.open("r+b") as file:
            file.seek(4096 * 8)
            file.write(b"\xa5" * 4096 * 8)
        with SqliteStore(path) as store:
            assert store.integrity()
            with pytest.raises(StoreCorrupt):
                store.entries(limit=ALL_MAX)


def test_errors_have_a_remedy(path: Path) -> None:
    """Every error says what to do."""
    path.write_text("no" * 1000)
    with pytest.raises(FlyballError) as caught:
        SqliteStore(path)
    assert caught.value.remedy
    assert str(path) in str(caught.value)


# Room in the WAL.


def wal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def wait_for_room(path: Path) -> None:
    until = time.monotonic() + PATIENCE
    while wal_of(path).stat().st_size < ROOM:
        assert time.monotonic() < until, "no room was made"
        time.sleep(0.001)


def test_who_writes_often_gets_room(tmp_path: Path) -> None:
    """After some commits the WAL is as long as it will be, so that a sync has no file to lengthen. What is written
    before that and after it is there, for readers, for another process, and after the file was opened anew."""
    path = tmp_path / "state.db"
    with SqliteStore(path) as store:
        for _ in range(ROOM_AFTER - 1):
            store.transact([key("a")], count("a"))
        assert wal_of(path).stat().st_size < ROOM
        store.transact([key("a")], count("a"))
        wait_for_room(path)
        for _ in range(5):
            store.transact([key("a")], count("a"))
        assert len(store.entries()) == ROOM_AFTER + 5
        with SqliteStore(path) as other:
            assert other.read([key("a")]) == store.read([key("a")])
        assert wal_of(path).stat().st_size >= ROOM
        assert not store.integrity()
    with SqliteStore(path) as store:
        assert len(store.entries()) == ROOM_AFTER + 5
        assert not store.integrity()


def test_room_survives_a_kill(tmp_path: Path) -> None:
    """Who comes after a kill -9 finds a WAL that ends in zeros, and every commit in it."""
    path = tmp_path / "state.db"
    script = f"""
        import os, signal
        from pathlib import Path
        from tests.store.test_sqlite import SqliteStore, count, key, wait_for_room
        path = Path({str(path)!r})
        store = SqliteStore(path)
        for number in range(40):
            store.transact([key("a")], count("a"))
            if number == {ROOM_AFTER}:
                wait_for_room(path)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False, timeout=PATIENCE)
    assert done.returncode == -9
    assert wal_of(path).stat().st_size >= ROOM
    with SqliteStore(path) as store:
        assert len(store.entries()) == 40
        assert not store.integrity()


def test_no_room_on_the_disk_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a matter of speed: where zeros cannot be written, what is to be written still can be."""
    path = tmp_path / "state.db"
    tried = threading.Event()

    def full(_: int) -> None:
        tried.set()
        raise OSError(28, "no room")

    with SqliteStore(path) as store:
        monkeypatch.setattr(os, "fsync", full)
        for _ in range(ROOM_AFTER):
            store.transact([key("a")], count("a"))
        assert tried.wait(PATIENCE)
        monkeypatch.undo()
        for _ in range(3):
            store.transact([key("a")], count("a"))
        assert len(store.entries()) == ROOM_AFTER + 3
        assert not store.integrity()
