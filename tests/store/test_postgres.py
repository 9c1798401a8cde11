"""The store of a fleet: what is special about it. What every store has to do is in the conformance kit."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest

from flyball.control.tables import postgres_failures_view
from flyball.core.event import Cause, Exited, Start
from flyball.core.policy import Key
from flyball.errors import StoreClosed, StoreError
from flyball.governor import Governor
from flyball.policies.quarantine import Quarantine
from flyball.store import Draft, Entry, Line, Snapshot, callers
from flyball.store.cache import Cache
from flyball.store.postgres import PostgresStore, check
from flyball.store.postgres.book import ALONE_AFTER, CHUNK_MAX, Record
from flyball.store.postgres.clock import AHEAD_MAX, DatabaseClock, steady
from flyball.testing.conformance import ALL_MAX, KILLS, DurableStoreConformance, count, key, put, replay
from tests.store.databases import ask, open_named

PATIENCE = 60
"""Seconds after which a test fails instead of hanging."""


class TestPostgresStore(DurableStoreConformance):
    """It is a store like any other, and a durable one."""

    opener = staticmethod(open_named)
    kills = max(1, KILLS // 4)

    @pytest.fixture(autouse=True)
    def _database(self, dsn: str, tmp_path: Path) -> None:
        (tmp_path / "store").write_text(dsn)


@pytest.fixture
def store(dsn: str) -> Iterator[PostgresStore]:
    with PostgresStore(dsn) as store:
        yield store


@pytest.fixture
def other(store: PostgresStore, dsn: str) -> Iterator[PostgresStore]:
    """Another host."""
    with PostgresStore(dsn) as other:
        yield other


@contextmanager
def busy_writer(store: PostgresStore) -> Iterator[None]:
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


def versions(dsn: str) -> int:
    """How many commits there were."""
    ((number,),) = ask(dsn, "SELECT version FROM flyball.head")
    assert isinstance(number, int)
    return number


class TestGroups:
    """Callers that wait are committed together."""

    def test_one_commit(self, store: PostgresStore, dsn: str) -> None:
        """Whoever waits while the writer is busy is committed in one transaction, in the order of arrival."""
        before = versions(dsn)
        with busy_writer(store):
            futures = [store.transact_soon([key("a")], count("a")) for _ in range(20)]
        assert [future.result(PATIENCE) for future in futures] == list(store.entries())
        assert versions(dsn) == before + 1

    def test_one_that_raises(self, store: PostgresStore) -> None:
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
        ("keys", "draft"),
        [
            ([], Draft(1, {}, Line("lone \ud800 surrogate", "e", "v", b"{}"))),
            ([], Draft(1, {Key("lone \ud800 surrogate", "unit", "a"): b"{}"}, None)),
            ([Key("lone \ud800 surrogate", "unit", "a")], Draft(1, {}, Line("u", "e", "v", b"{}"))),
            ([], Draft(2**70, {}, Line("u", "e", "v", b"{}"))),
            ([], Draft(1, {key("x"): b"\xff"}, None)),
            ([], Draft(1, {key("x"): b"nul \0"}, None)),
            ([], Draft(1, {}, Line("u", "e", "v", b"\xff"))),
            ([], Draft(1, {Key(None, "unit", "a"): b"{}"}, None)),  # type: ignore[arg-type]  # a caller without a type checker
            ([], Draft(1, {Key("p" * 9000, "unit", os.urandom(9000).hex()): b"{}"}, None)),
        ],
        ids=["unit", "key", "read", "instant", "record", "nul", "body", "null", "too long for an index"],
    )
    def test_one_that_cannot_be_written(self, store: PostgresStore, keys: list[Key], draft: Draft) -> None:
        """Of a group only the one that wants what PostgreSQL cannot hold fails, with what was wrong."""
        with busy_writer(store):
            before = store.transact_soon([key("a")], count("a"), sync=False)
            bad = store.transact_soon(keys, lambda _: draft)
            after = store.transact_soon([key("a")], count("a"))
        assert isinstance(bad.exception(PATIENCE), ValueError | OverflowError | TypeError | StoreError)
        assert [future.result(PATIENCE) for future in (before, after)] == list(store.entries())
        assert store.states() == {key("a"): b"2"}

    def test_too_many_futures(self, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """When too many futures are waiting, the next caller waits for room, and then is served."""
        monkeypatch.setattr(callers, "SOON_MAX", 3)
        futures: list[Future[Entry | None]] = []
        with PostgresStore(dsn) as store:
            with busy_writer(store):
                futures += [store.transact_soon([key("a")], count("a")) for _ in range(3)]
                late = threading.Thread(target=lambda: futures.append(store.transact_soon([key("a")], count("a"))))
                late.start()
                late.join(0.05)
                assert late.is_alive()
            late.join(PATIENCE)
            assert [entry.seq for future in futures if (entry := future.result(PATIENCE))] == [1, 2, 3, 4]

    def test_cancelled(self, store: PostgresStore) -> None:
        """A future that is cancelled before its turn comes is not committed."""
        with busy_writer(store):
            doomed = store.transact_soon([key("a")], count("a"))
            assert doomed.cancel()
        store.transact([key("b")], count("b"))
        assert store.states() == {key("b"): b"1"}

    def test_waiting_too_long(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whoever waited too long gets an error, and nothing of it is written later."""
        monkeypatch.setattr(callers, "WAIT_MAX", 0.05)
        with busy_writer(store), pytest.raises(StoreError, match=r"waited 0\.05 s .* nothing was written"):
            store.transact([key("a")], count("a"))
        monkeypatch.setattr(callers, "WAIT_MAX", PATIENCE)
        store.transact([key("b")], count("b"))
        assert store.states() == {key("b"): b"1"}

    def test_readers_do_not_wait(self, store: PostgresStore) -> None:
        """Reads are answered while the writer is busy."""
        store.transact([key("a")], count("a"))
        with busy_writer(store):
            assert store.read([key("a")]).records == {key("a"): b"1"}
            assert len(store.entries()) == len(store.states()) == 1

    def test_cache_is_bounded(self, store: PostgresStore) -> None:
        """With more records than may be remembered, nothing is lost and memory stays within the limit."""
        cache: Cache[Record] = Cache(records_max=8)
        store._book.cache = cache
        for n in range(60):
            store.transact([key(str(n % 20))], count(str(n % 20)), sync=False)
        assert len(cache.young) + len(cache.old) <= 10
        assert store.states() == {key(str(n)): b"3" for n in range(20)}

    def test_checkpoints_are_not_remembered(self, store: PostgresStore) -> None:
        """They are large: neither who writes them nor who reads them keeps them in memory."""
        checkpoint = key("u/000001", "checkpoint", "session")

        def add(seen: Snapshot) -> Draft:
            return Draft(seen.at + 1, {checkpoint: seen.records.get(checkpoint, b"") + b"x"}, None)

        for _ in range(3):
            store.transact([checkpoint], add)
        assert store.read([checkpoint]).records == store.states("checkpoint") == {checkpoint: b"xxx"}
        assert checkpoint not in {**store._book.cache.young, **store._book.cache.old}
        assert checkpoint not in {**store._seen.young, **store._seen.old}


class TestHosts:
    """What one host remembers, another one may have changed."""

    def calls(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Every call of the server that may write, from here on."""
        made: list[int] = []
        commit = store._book._commit

        def counted(*arguments: object) -> object:
            made.append(1)
            return commit(*arguments)  # type: ignore[arg-type]  # passed on as they are

        monkeypatch.setattr(store._book, "_commit", counted)
        return made

    def test_one_call(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """A decision is one call, also on keys that were never asked for, as those of a new unit."""
        made = self.calls(store, monkeypatch)
        for subject in ("a", "b", "a"):
            store.transact([key(subject), key(subject, "other")], count(subject))
        assert len(made) == 3

    def test_one_call_beside_others(
        self, store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It stays one call while others write what it did not look at."""
        store.transact([key("a")], put("a", 1))
        made = self.calls(store, monkeypatch)
        for n in range(5):
            other.transact([key("b")], put("b", n, after=0))
            store.transact([key("a")], put("a", n, after=0))
        assert len(made) == 5

    def test_overtaken(self, store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """Who was overtaken drafts again on what is true, and costs one more call."""
        store.transact([key("a")], count("a"))
        other.transact([key("a")], count("a"))
        made = self.calls(store, monkeypatch)
        entry = store.transact([key("a")], count("a"))
        assert entry is not None
        assert (entry.seq, len(made)) == (3, 2)
        assert other.read([key("a")]).records == {key("a"): b"3"}

    @pytest.mark.parametrize("subject", ["a", "b"], ids=["the same key", "another key"])
    def test_alone_for_a_while(
        self, store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch, subject: str
    ) -> None:
        """Who has been alone does not say what it saw, and is not fooled when it is alone no more."""
        for _ in range(ALONE_AFTER + 2):
            store.transact([key("a")], count("a"))
        made = self.calls(store, monkeypatch)
        store.transact([key("a")], count("a"))
        assert len(made) == 1
        other.transact([key(subject)], count(subject))
        entry = store.transact([key("a")], count("a"))
        assert entry is not None
        assert entry.seq == ALONE_AFTER + 5
        assert len(made) <= 4
        assert store.read([key("a")]).records == {key("a"): str(ALONE_AFTER + 4 + (subject == "a")).encode()}

    def test_overtaken_again_and_again(self, store: PostgresStore, other: PostgresStore) -> None:
        """Who was overtaken twice takes the lock first: nobody comes before it a third time."""
        drafted: list[bytes | None] = []
        done: list[Future[Entry | None]] = []

        def draft(seen: Snapshot) -> Draft | None:
            drafted.append(seen.records.get(key("a")))
            if len(drafted) <= 2:
                other.transact([key("a")], count("a"))
            else:
                done.append(other.transact_soon([key("a")], count("a")))  # it waits for our commit
            return count("a")(seen)

        store.transact([key("a")], put("a", 0))
        entry = store.transact([key("a")], draft)
        assert entry is not None
        assert drafted == [b"0", b"1", b"2"]
        later = done[0].result(PATIENCE)
        assert later is not None
        assert (entry.seq, later.seq) == (4, 5)
        assert store.read([key("a")]).records == {key("a"): b"4"}

    def test_what_wants_nothing_is_seen_again(self, store: PostgresStore, other: PostgresStore) -> None:
        """A draft that wants nothing has to follow from what is true, too."""
        store.transact([key("a")], put("a", 1))
        other.transact([key("a")], put("a", 2))
        seen: list[bytes] = []
        store.transact([key("a")], lambda snapshot: seen.append(snapshot.records[key("a")]))
        assert seen == [b"1", b"2"]

    def test_what_raises_is_seen_again(self, store: PostgresStore, other: PostgresStore) -> None:
        """So has one that raises."""

        def only_two(seen: Snapshot) -> Draft:
            if seen.records[key("a")] != b"2":
                raise LookupError
            return Draft(seen.at, {}, None)

        store.transact([key("a")], put("a", 1))
        other.transact([key("a")], put("a", 2))
        assert store.transact([key("a")], only_two) is None

    def test_who_looks_at_the_number(self, store: PostgresStore, other: PostgresStore) -> None:
        """A draft that looks at the number of the last entry sees the true one, whoever wrote it."""

        def numbered(seen: Snapshot) -> Draft:
            return Draft(seen.at, {key("n"): str(seen.seq).encode()}, None)

        store.transact([], put("a", 1))
        other.transact([], put("b", 1))
        store.transact([], numbered)
        assert store.read([key("n")]).records == {key("n"): b"2"}

    def test_time_of_others(self, store: PostgresStore, other: PostgresStore) -> None:
        """An instant before what another host wrote meanwhile is not refused: it is drafted again, later."""
        instants = iter([10, 30])
        store.transact([], put("a", 1))
        other.transact([], put("b", 1, after=20))

        def draft(seen: Snapshot) -> Draft:
            return Draft(max(seen.at, next(instants)), {}, Line("u", "e", "v", b"{}"))

        entry = store.transact([], draft)
        assert entry is not None
        assert (entry.seq, entry.at) == (3, 30)

    def test_a_clock_an_hour_off(self, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The host's own clock is not looked at: entries have the database's time."""
        monkeypatch.setattr(time, "time_ns", lambda: 0)
        with PostgresStore(dsn) as store:
            Governor([], store, store.clock).submit(Start(unit="u", run="r"))
            ((now,),) = ask(dsn, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
            assert isinstance(now, int)
            assert abs(store.entries()[0].at - now) < PATIENCE * 1_000_000

    def test_frozen_in_its_turn(
        self, store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever is frozen with the lock in its hand loses it, and drafts again when it is thawed."""
        from flyball.store.postgres import link

        monkeypatch.setattr(link, "IDLE_MAX", 100)
        store._book._let_go()
        drafted: list[int] = []

        def draft(seen: Snapshot) -> Draft | None:
            drafted.append(int(seen.records.get(key("a"), b"0")))
            if len(drafted) <= 2:
                other.transact([key("a")], count("a"))
            elif len(drafted) == 3:
                other.transact([key("a")], count("a"))  # this waits until the server has given us up
            return count("a")(seen)

        store.transact([key("a")], draft)
        assert drafted == [0, 1, 2, 3]
        assert [int(entry.seq) for entry in store.entries()] == [1, 2, 3, 4]
        assert store.read([key("a")]).records == {key("a"): b"4"}


class TestWoken:
    """Commits ring on every host that listens."""

    def test_rings(self, store: PostgresStore, other: PostgresStore) -> None:
        """A commit rings for others, and for oneself; one that nobody waits for does not; and it ends."""
        rung, heard = threading.Event(), threading.Semaphore(0)
        end, end_own = other.listen(rung.set), store.listen(heard.release)
        store.transact([key("a")], count("a"), sync=False)
        store.transact([key("a")], count("a"))
        assert rung.wait(PATIENCE)
        assert heard.acquire(timeout=PATIENCE)
        assert not heard.acquire(blocking=False)
        end()
        end_own()
        rung.clear()
        ears = "SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN flyball'"
        give_up = time.monotonic() + PATIENCE
        while ask(other._dsn, ears) != [(0,)]:
            assert time.monotonic() < give_up
            time.sleep(0.01)
        store.transact([key("a")], count("a"))
        assert not rung.is_set()

    def test_connection_lost(self, store: PostgresStore, dsn: str) -> None:
        """When its connection is cut and is back, it rings once, since something may have been missed."""
        rung = threading.Event()
        end = store.listen(rung.set)
        ask(dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN flyball'")
        assert rung.wait(PATIENCE)
        rung.clear()
        store.transact([key("a")], count("a"))
        assert rung.wait(PATIENCE)
        end()

    def test_close_ends_it(self, dsn: str) -> None:
        """Closing the store ends whatever listens, and leaves no thread and no connection."""
        before = set(threading.enumerate())
        store = PostgresStore(dsn)
        store.listen(lambda: None)
        store.read([])
        store.close()
        assert set(threading.enumerate()) == before
        left = (
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'flyball' AND datname = current_database()"
        )
        give_up = time.monotonic() + PATIENCE
        while ask(dsn, left) != [(0,)]:
            assert time.monotonic() < give_up
            time.sleep(0.01)

    def test_a_ring_that_fails(self, store: PostgresStore, caplog: pytest.LogCaptureFixture) -> None:
        """Whoever is woken and fails is woken again next time."""
        rung = threading.Semaphore(0)

        def fail() -> None:
            rung.release()
            raise LookupError

        end = store.listen(fail)
        for _ in range(2):
            store.transact([key("a")], count("a"))
            assert rung.acquire(timeout=PATIENCE)
        end()


class TestClock:
    """The database's time."""

    def test_between_answers(self) -> None:
        """It is the database's time, and goes on by the machine's steady clock."""
        clock = DatabaseClock()
        here = steady()
        clock.measured(5_000_000_000, here, here)
        first = clock.now()
        assert 5_000_000_000 <= first <= 5_000_000_000 + steady() - here
        assert clock.now() >= first

    def test_never_ahead(self) -> None:
        """A slow answer does not put it ahead: it is what the database said at the latest."""
        clock = DatabaseClock()
        here = steady()
        clock.measured(5_000_000_000, here - 3_000_000, here)
        assert clock.now() <= 5_000_000_000 + steady() - here

    def test_narrower(self) -> None:
        """A slow answer after a quick one does not put it back."""
        clock = DatabaseClock()
        here = steady()
        clock.measured(5_000_000_000, here, here)
        clock.measured(5_000_000_000, here, here + 800_000)
        assert clock.now() >= 5_000_000_000 - 1000

    @pytest.mark.parametrize("set_back", [1_000, AHEAD_MAX * 3600], ids=["a little", "an hour"])
    def test_never_runs_back(self, set_back: int) -> None:
        """A database's clock that was set back does not run this one back, nor stop it."""
        clock = DatabaseClock()
        here = steady()
        clock.measured(10**15, here, here)
        before = clock.now()
        here = steady()
        clock.measured(10**15 - set_back, here, here)
        readings = [clock.now() for _ in range(50)]
        assert readings == sorted(readings)
        assert readings[0] >= before
        until = time.monotonic() + PATIENCE
        while clock.now() <= before + 100:
            assert time.monotonic() < until

    def test_set_ahead(self) -> None:
        """One that was set ahead is followed."""
        clock = DatabaseClock()
        here = steady()
        clock.measured(10**15, here, here)
        clock.measured(2 * 10**15, steady(), steady())
        assert clock.now() >= 2 * 10**15

    def test_catch_up(self) -> None:
        """Where the journal is ahead, it goes on from there."""
        clock = DatabaseClock()
        here = steady()
        clock.measured(10**15, here, here)
        assert clock.catch_up(10**15 + 500_000) == 10**15 + 500_000
        assert clock.now() >= 10**15 + 500_000


class TestRetention:
    """The journal stays within its limit, in pieces that nobody has to wait for."""

    def test_bounded(self, dsn: str) -> None:
        """However much is written, and by whomever, the journal keeps to its limit, and can be replayed."""
        with PostgresStore(dsn, journal_max=40) as one, PostgresStore(dsn, journal_max=40) as other:
            for n in range(240):
                writer = one if n % 3 else other
                subject = "abcde"[n * 7 % 5]
                writer.transact([key(subject)], put(subject, None if n % 11 == 0 else n), sync=False)
                if n % 20 == 0:
                    assert replay(one.base(), one.entries(limit=ALL_MAX)) == other.states()
            kept = one.entries(limit=ALL_MAX)
            assert 20 <= len(kept) <= 41
            assert kept[-1].seq == 240
            assert replay(one.base(), kept) == one.states()
            assert list(one.integrity()) == []
            self.wait_for_sweep(dsn, one)

    def wait_for_sweep(self, dsn: str, store: PostgresStore) -> None:
        give_up = time.monotonic() + PATIENCE
        old = (
            "SELECT (SELECT count(*) FROM flyball.journal WHERE seq <= base) "
            "+ (SELECT count(*) FROM flyball.undo WHERE mark < base) FROM flyball.head"
        )
        while ask(dsn, old) != [(0,)]:
            assert time.monotonic() < give_up
            store.transact([], lambda _: None)

    def test_in_chunks(self, dsn: str) -> None:
        """Much that was forgotten is deleted piece by piece; it is out of sight at once."""
        with PostgresStore(dsn) as store:
            ask(
                dsn,
                "INSERT INTO flyball.journal SELECT n, n, 'u', 'e', 'v', '{}' FROM generate_series(1, 3000) n; "
                "UPDATE flyball.head SET seq = 3000, at = 3000",
            )
            swept: list[int] = []
            sweep = store._book.sweep

            def counted() -> None:
                ((before,),) = ask(dsn, "SELECT count(*) FROM flyball.journal")
                sweep()
                ((after,),) = ask(dsn, "SELECT count(*) FROM flyball.journal")
                assert isinstance(before, int)
                assert isinstance(after, int)
                swept.append(before - after)

            store._book.sweep = counted  # type: ignore[method-assign]  # counted
            assert store.trim(0) == 3000
            assert list(store.entries()) == []
            self.wait_for_sweep(dsn, store)
        assert max(swept) <= CHUNK_MAX
        assert sum(swept) == 3000

    def test_undo_of_what_changed_only(self, dsn: str) -> None:
        """After a mark a record is kept when it is first changed, and only then."""
        with PostgresStore(dsn) as store:
            for subject in "abc":
                store.transact([key(subject)], put(subject, 1))
            store.trim(0)
            for value in (2, 3, None):
                store.transact([key("a")], put("a", value))
            store.transact([key("new")], put("new", 1))
            rows = ask(dsn, "SELECT subject, data FROM flyball.undo ORDER BY subject")
            assert rows == [("a", "1"), ("new", None)]
            assert store.base().records == {key(subject): b"1" for subject in "abc"}


class TestIntegrity:
    """What is wrong is found and told."""

    @pytest.mark.parametrize(
        ("damage", "said"),
        [
            ("DELETE FROM flyball.journal WHERE seq = 2", "the journal has a gap: after entry 1 comes 3"),
            (
                "UPDATE flyball.journal SET at = 0 WHERE seq = 2",
                "the journal's time runs back: entry 1 is of 1, entry 2 of 0",
            ),
            ("DELETE FROM flyball.journal WHERE seq = 3", "the journal ends at entry 2, and should at entry 3"),
            (
                "DELETE FROM flyball.journal WHERE seq = 1",
                "the journal has a gap: it begins after entry 0, and its first entry is 2",
            ),
            ("DELETE FROM flyball.mark", "nothing says where the journal begins"),
            ("DELETE FROM flyball.head", "nothing says where the journal ends"),
            ("UPDATE flyball.state SET data = 'no'", "the state of counter for unit a is not JSON"),
            ("UPDATE flyball.journal SET body = '{' WHERE seq = 1", "the body of entry 1 is not JSON"),
            (
                "UPDATE flyball.state SET version = 99",
                "the state of counter for unit a is of a commit that is not there",
            ),
            (
                "INSERT INTO flyball.undo VALUES (2, 'p', 'unit', 'a', '1')",
                "states are kept for entry 2, which is no mark",
            ),
        ],
        ids=["gap", "time", "end", "first", "marks", "head", "state", "body", "version", "undo"],
    )
    def test_damage(self, store: PostgresStore, dsn: str, damage: str, said: str) -> None:
        """Each kind of damage by its name."""
        for _ in range(3):
            store.transact([key("a")], count("a"))
        assert list(store.integrity()) == []
        ask(dsn, damage)
        assert said in store.integrity()

    def test_bounded(self, store: PostgresStore, dsn: str) -> None:
        """Of one kind only so many are told."""
        ask(dsn, "INSERT INTO flyball.state SELECT 'p', 'unit', n, 0, 'no' FROM generate_series(1, 50) n")
        assert len(store.integrity()) == check.PROBLEMS_MAX


class TestPeople:
    """What people see with any PostgreSQL tool."""

    def test_readable(self, store: PostgresStore, dsn: str) -> None:
        """States and journal are plain text."""
        store.transact([key("a")], put("a", 7, after=5))
        assert ask(dsn, "SELECT policy, by, subject, data FROM flyball.state") == [("counter", "unit", "a", "7")]
        assert ask(dsn, "SELECT seq, at, unit, event, verb, body::json ->> 'value' FROM flyball.journal") == [
            (1, 5, "a", "put", "PROCEED", "7")
        ]

    def test_views(self, dsn: str) -> None:
        """A view is made when it is missing, made anew when its text differs, and left alone when it is the same."""
        for number, select in ((1, "SELECT 1 AS n, subject FROM state"), (2, "SELECT 2 AS n, E'it\\'s' FROM state")):
            made = []
            for _ in range(2):
                with PostgresStore(dsn, views={"failures": select}) as store:
                    store.transact([key("a")], count("a"))
                made += ask(dsn, "SELECT oid FROM pg_class WHERE relname = 'failures'")
            assert made[0] == made[1]
            assert ask(dsn, "SELECT n FROM flyball.failures") == [(number,)]

    @pytest.mark.parametrize("select", ["SELECT * FROM nowhere", "nonsense"])
    def test_wrong_view(self, dsn: str, select: str) -> None:
        """A view that cannot be read is refused when the store is opened, and the view before it stays."""
        PostgresStore(dsn, views={"failures": "SELECT 1 AS n"}).close()
        with pytest.raises(StoreError):
            PostgresStore(dsn, views={"failures": select})
        assert ask(dsn, "SELECT n FROM flyball.failures") == [(1,)]

    def test_failures(self, dsn: str) -> None:
        """The table of failures says the same as on one machine."""
        with PostgresStore(dsn, views={"failures": postgres_failures_view(2)}) as store:
            governor = Governor([Quarantine(failures_max=2)], store, store.clock)
            for run in ("1", "2"):
                governor.submit(Start(unit="u", run=run))
                governor.submit(Exited(unit="u", run=run, cause=Cause.ERROR, fingerprint="f", error="Oops"))
            last = store.entries()[-1].at
        rows = ask(dsn, "SELECT fingerprint, task_id, error_type, count, last_seen, quarantined FROM flyball.failures")
        assert rows == [("f", "u", "Oops", 2, pytest.approx(last / 1e6), True)]


class TestForks:
    """Connections belong to the process that made them."""

    def test_forked_child(self, store: PostgresStore) -> None:
        """A forked child is refused, leaves the parent's connections alone, and may open a store of its own."""
        store.transact([key("a")], count("a"))
        child = os.fork()
        if not child:
            code = 1
            try:
                try:
                    store.transact([key("a")], count("a"))
                except StoreClosed:
                    with PostgresStore(store._dsn) as own:
                        own.transact([key("a")], count("a"))
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        store.transact([key("a")], count("a"))
        assert store.read([key("a")]).records == {key("a"): b"3"}
