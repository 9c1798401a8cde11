"""The store of a fleet when links and servers fail in mid-commit: what was answered is there, nothing is there twice,
and nobody is told that nothing was written where something was."""

import json
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from flyball.core.policy import Key
from flyball.errors import StoreAway, StoreUnsure
from flyball.store import Draft, Line, Snapshot
from flyball.store.postgres import PostgresStore, book, link
from flyball.testing.conformance import ALL_MAX, KILLS, count, key
from tests.servers.postgres import PostgresServer, postgres
from tests.store.databases import ask

PATIENCE = 60
"""Seconds after which a test fails instead of hanging."""


class Proxy:
    """Stands between a store and its server. What is to become of the next call of a prepared statement is `fate`:

    cut: the connection breaks, and the server never heard of it;
    answered: the server did it, and its answer is lost with the connection;
    late: the connection breaks, and the server hears of it only when `deliver` is called;
    dark: nothing passes any more on that connection, and nobody is told; deaf: the same for answers only.
    """

    def __init__(self, dsn: str) -> None:
        url = urlsplit(dsn)
        self._server = (str(url.hostname), int(url.port or 0))
        self.fate = ""
        self._late: list[tuple[socket.socket, bytes]] = []
        self._open: list[socket.socket] = []
        self._delivered = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.dsn = f"postgresql://flyball@127.0.0.1:{self.port}{url.path}"
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def refuse(self) -> None:
        """Let nobody in any more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def admit(self) -> None:
        """Let them in again."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def deliver(self) -> None:
        """What was late arrives, and the server has answered it."""
        for server, data in self._late:
            server.sendall(data)
            assert self._delivered.wait(PATIENCE)

    def close(self) -> None:
        with suppress(OSError):
            self.refuse()
        for each in self._open:
            each.close()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(self._server)
                self._open += [client, server]
                fates: list[str] = []
                threading.Thread(target=self._up, args=(client, server, fates), daemon=True).start()
                threading.Thread(target=self._down, args=(client, server, fates), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket, fates: list[str]) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self.fate and data[:1] == b"B":
                    fates.append(self.fate)
                    self.fate = ""
                fate = fates[0] if fates else ""
                if fate == "late":
                    self._late.append((server, data))
                    _break(client)
                    return
                if fate == "cut":
                    _break(client)
                    break
                if fate != "dark":
                    server.sendall(data)
        _break(server)

    def _down(self, client: socket.socket, server: socket.socket, fates: list[str]) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                fate = fates[0] if fates else ""
                if fate == "answered":
                    break
                if fate == "late":
                    self._delivered.set()
                elif fate not in ("dark", "deaf"):
                    client.sendall(data)
        if fates and fates[0] == "late":
            self._delivered.set()
        _break(client)


def _break(link: socket.socket) -> None:
    with suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    proxy = Proxy(dsn)
    yield proxy
    proxy.close()


def warm(store: PostgresStore) -> None:
    """One entry is written, and what is done between groups is done: the next call is that of the next commit."""
    store.transact([key("a")], count("a"))
    store.transact([], lambda _: None)


@pytest.fixture
def store(proxy: Proxy) -> Iterator[PostgresStore]:
    """A store behind the proxy, whose statements are known to the server."""
    with PostgresStore(proxy.dsn) as store:
        warm(store)
        yield store


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for an answer."""
    monkeypatch.setattr(link, "STATEMENT_MAX", 300)
    monkeypatch.setattr(link, "ANSWER_MORE", 0.1)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tries for long to connect again."""
    monkeypatch.setattr(book, "AWAY_MAX", 0.3)


class TestInMidCommit:
    """The connection breaks while a commit is on its way."""

    @pytest.mark.parametrize("fate", ["cut", "answered", "late"])
    def test_once(self, store: PostgresStore, proxy: Proxy, dsn: str, fate: str) -> None:
        """Wherever it breaks, the caller gets the one entry that there is."""
        proxy.fate = fate
        entry = store.transact([key("a")], count("a"))
        assert proxy.fate == ""
        proxy.deliver()
        assert entry is not None
        assert [entry] == list(store.entries(after=1))
        assert store.read([key("a")]).records == {key("a"): b"2"}
        third = store.transact([key("a")], count("a"))
        assert third is not None
        assert third.seq == 3
        assert list(store.integrity()) == []
        assert ask(dsn, "SELECT count(*) FROM flyball.writer") == [(1,)]

    @pytest.mark.parametrize("fate", ["cut", "answered"])
    def test_group(self, store: PostgresStore, proxy: Proxy, fate: str) -> None:
        """Of those who were committed together each gets its own, also beside another host."""
        with PostgresStore(proxy.dsn) as other:
            other.transact([key("b")], count("b"))
            proxy.fate = fate
            futures = [store.transact_soon([key("a")], count("a")) for _ in range(10)]
            entries = [future.result(PATIENCE) for future in futures]
            assert entries == list(other.entries(after=2))
            assert [entry.seq for entry in entries if entry] == list(range(3, 13))

    @pytest.mark.usefixtures("short")
    @pytest.mark.parametrize("fate", ["dark", "deaf"])
    def test_no_answer(self, proxy: Proxy, fate: str) -> None:
        """A link that is cut without a word, or a server that is frozen, is given up, and it is found out what was
        done."""
        with PostgresStore(proxy.dsn) as store:
            warm(store)
            proxy.fate = fate
            entry = store.transact([key("a")], count("a"))
            assert [entry] == list(store.entries(after=1))

    @pytest.mark.usefixtures("hasty")
    @pytest.mark.parametrize(("fate", "there"), [("cut", 1), ("answered", 2)])
    def test_unsure(self, store: PostgresStore, proxy: Proxy, dsn: str, fate: str, there: int) -> None:
        """If the database does not come back, the caller is told that nobody knows; both can be. Then it goes on."""
        proxy.refuse()
        proxy.fate = fate
        with pytest.raises(StoreUnsure, match="not known whether this was written") as told:
            store.transact([key("a")], count("a"))
        assert told.value.passes
        assert ask(dsn, "SELECT seq FROM flyball.head") == [(there,)]
        proxy.admit()
        entry = store.transact([key("a")], count("a"))
        assert entry is not None
        assert entry.seq == there + 1

    def test_late_after_unsure(self, store: PostgresStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
        """What arrives after the caller was told that nobody knows is written whole, or not at all."""
        monkeypatch.setattr(book, "AWAY_MAX", 0.3)
        proxy.refuse()
        proxy.fate = "late"
        with pytest.raises(StoreUnsure):
            store.transact([key("a")], count("a"))
        proxy.admit()
        proxy.deliver()
        store.transact([key("a")], count("a"))
        assert [entry.seq for entry in store.entries()] == [1, 2, 3]
        assert store.read([key("a")]).records == {key("a"): b"3"}

    def test_in_its_turn(self, store: PostgresStore, proxy: Proxy) -> None:
        """The same for one that was overtaken and took the lock first."""
        with PostgresStore(proxy.dsn) as other:
            drafted: list[int] = []

            def draft(seen: Snapshot) -> Draft | None:
                drafted.append(1)
                if len(drafted) <= 2:
                    other.transact([key("a")], count("a"))
                if len(drafted) == 3:
                    proxy.fate = "answered"
                return count("a")(seen)

            entry = store.transact([key("a")], draft)
            assert entry is not None
            assert (entry.seq, len(drafted)) == (4, 3)
            assert other.read([key("a")]).records == {key("a"): b"4"}


class TestAway:
    """The database is not there."""

    @pytest.mark.usefixtures("hasty")
    def test_away(self, store: PostgresStore, proxy: Proxy, dsn: str) -> None:
        """Whoever writes is told that nothing was, whoever reads that it cannot be reached; then it goes on."""
        proxy.refuse()
        ask(dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'flyball'")
        with pytest.raises(StoreAway, match="cannot be reached") as told:
            store.read([])
        assert told.value.passes
        with pytest.raises(StoreAway):
            store.transact([key("b")], count("b"))
        with pytest.raises(StoreAway):
            store.trim(0)
        assert store.transact_soon([key("b")], count("b")).exception(PATIENCE) is not None
        proxy.admit()
        assert store.transact([key("b")], count("b")) is not None
        assert store.states() == {key("a"): b"1", key("b"): b"1"}

    def test_back_in_time(self, store: PostgresStore, proxy: Proxy, dsn: str) -> None:
        """A short outage is an error for nobody: whoever waits is served when it is over, in the order of arrival."""
        proxy.refuse()
        ask(dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'flyball'")
        futures = [store.transact_soon([key("b")], count("b")) for _ in range(5)]
        proxy.admit()
        assert [entry.seq for future in futures if (entry := future.result(PATIENCE))] == [2, 3, 4, 5, 6]

    def test_idle_readers(self, store: PostgresStore, dsn: str) -> None:
        """Connections that were idle while the server restarted are no error for whoever reads next."""
        threads = [threading.Thread(target=store.read, args=([key("a")],)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ask(dsn, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'flyball'")
        assert store.read([key("a")]).records == {key("a"): b"1"}

    @pytest.mark.parametrize("marked", [False, True], ids=["plain", "after a mark"])
    def test_a_row_that_was_forgotten(self, store: PostgresStore, dsn: str, marked: bool) -> None:
        """A connection whose row is gone, because it was idle for very long, begins anew and writes."""
        if marked:
            store.trim(0)
        ask(dsn, "DELETE FROM flyball.writer")
        entry = store.transact([key("a")], count("a"))
        assert entry is not None
        assert entry.seq == 2
        assert list(store.integrity()) == []

    def test_rows_of_the_dead(self, dsn: str) -> None:
        """The row of a process that died is forgotten after a day; those of today stay."""
        PostgresStore(dsn).close()
        ask(dsn, "INSERT INTO flyball.writer (id, at) VALUES (1, now() - interval '25 hours'), (2, now())")
        PostgresStore(dsn).close()
        assert ask(dsn, "SELECT id FROM flyball.writer") == [(2,)]


class Writer(threading.Thread):
    """Adds to its own record and to that of all, until told to stop; notes what was acknowledged."""

    def __init__(self, dsn: str, place: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._dsn, self.place, self._stop_it = dsn, place, stop
        self.acknowledged: list[tuple[int, int]] = []
        self.unsure = 0
        self.failed: BaseException | None = None

    def _opened(self) -> PostgresStore:
        """The server may be killed before the first connection, too."""
        while True:
            try:
                return PostgresStore(self._dsn)
            except StoreAway:
                if self._stop_it.wait(0.01):
                    raise

    def run(self) -> None:
        own, everyone = key(str(self.place)), key("all")

        def draft(seen: Snapshot) -> Draft:
            mine, total = (int(seen.records.get(each, b"0")) + 1 for each in (own, everyone))
            body = json.dumps({"place": self.place, "own": mine, "all": total}).encode()
            changes: dict[Key, bytes | None] = {own: str(mine).encode(), everyone: str(total).encode()}
            return Draft(seen.at + 1, changes, Line(str(self.place), "counted", "PROCEED", body))

        try:
            with self._opened() as store:
                while not self._stop_it.is_set():
                    try:
                        entry = store.transact([own, everyone], draft)
                    except StoreUnsure:
                        self.unsure += 1
                        continue
                    except StoreAway:
                        continue
                    assert entry is not None
                    self.acknowledged.append((json.loads(entry.body)["own"], entry.seq))
        except BaseException as error:
            self.failed = error
            raise


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_server_killed(seed: int) -> None:
    """PostgreSQL is killed (kill -9) at any instant and started again, under writers of several hosts: nothing that was
    answered is missing, nothing is there twice, the journal has no gap."""
    dice = random.Random(seed)
    with postgres() as server:
        dsn = server.database()
        PostgresStore(dsn).close()
        stop = threading.Event()
        writers = [Writer(dsn, place, stop) for place in range(3)]
        for writer in writers:
            writer.start()
        for _ in range(max(1, KILLS // 10)):
            _wait_for(server, dsn, writers, dice.randrange(3, 60))
            server.kill()
            server.start()
        _wait_for(server, dsn, writers, 10)
        stop.set()
        for writer in writers:
            writer.join(PATIENCE)
        assert [writer.failed for writer in writers] == [None] * 3
        _check(dsn, writers)


def _wait_for(server: PostgresServer, dsn: str, writers: list[Writer], more: int) -> None:
    """Until so many more entries were acknowledged."""
    enough = sum(len(writer.acknowledged) for writer in writers) + more
    waited = threading.Event()
    for _ in range(PATIENCE * 200):
        if sum(len(writer.acknowledged) for writer in writers) >= enough:
            return
        assert all(writer.is_alive() for writer in writers)
        waited.wait(0.005)
    pytest.fail("the writers are stuck")


def _check(dsn: str, writers: list[Writer]) -> None:
    with PostgresStore(dsn) as store:
        assert list(store.integrity()) == []
        entries, states = store.entries(limit=ALL_MAX), store.states()
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    bodies = [json.loads(entry.body) for entry in entries]
    assert [body["all"] for body in bodies] == list(range(1, len(entries) + 1))
    for writer in writers:
        own = [body["own"] for body in bodies if body["place"] == writer.place]
        assert own == list(range(1, len(own) + 1))
        assert len(writer.acknowledged) <= len(own) <= len(writer.acknowledged) + writer.unsure
        for number, seq in writer.acknowledged:
            assert (bodies[seq - 1]["place"], bodies[seq - 1]["own"]) == (writer.place, number)
        assert states[key(str(writer.place))] == str(len(own)).encode()
