"""The store of a fleet and what can be wrong with a database: a clear error, and nothing half-done."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.errors import StoreAway, StoreCorrupt, StoreError, StoreFull, StoreReadOnly, StoreTooNew
from flyball.store import Snapshot
from flyball.store.postgres import PostgresStore, book, schema
from flyball.store.postgres.schema import Step
from flyball.testing.conformance import count, key
from tests.servers.postgres import PostgresServer
from tests.store.databases import ask

SECRET = "s3cr3t-of-ours"  # noqa: S105 - of nobody


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody tries for long to connect again."""
    monkeypatch.setattr(book, "AWAY_MAX", 0.2)


@pytest.fixture
def guest(postgres_server: PostgresServer, dsn: str) -> Iterator[str]:
    """The database, for a user who has no rights in it but to connect."""
    postgres_server.sql(f"CREATE ROLE guest LOGIN PASSWORD '{SECRET}'")
    yield dsn.replace("flyball@", f"guest:{SECRET}@")
    ask(dsn, "DROP SCHEMA IF EXISTS flyball CASCADE; DROP OWNED BY guest; DROP ROLE guest")


def tables(dsn: str) -> list[tuple[object, ...]]:
    """All that is in the database, and when it was last changed."""
    return ask(dsn, "SELECT relname, relkind, oid FROM pg_class WHERE relnamespace >= 16384 ORDER BY 1")


class TestConnecting:
    """Where no connection is to be had."""

    @pytest.mark.parametrize(
        ("url", "kind", "said"),
        [
            (f"postgresql://u:{SECRET[:5]}/{SECRET[5:]}@host/db", StoreError, "not one that PostgreSQL understands"),
            (f"postgresql://u:{SECRET}@host:0/db?nonsense=1", StoreError, "not one that PostgreSQL understands"),
            (f"postgresql://u:{SECRET}@127.0.0.1:1/db", StoreAway, "postgresql://u@127.0.0.1:1/db cannot be reached"),
            (f"postgresql://u:{SECRET}@nowhere.invalid/db", StoreAway, "postgresql://u@nowhere.invalid/db cannot be"),
        ],
        ids=["password not encoded", "unknown option", "port closed", "no such host"],
    )
    def test_wrong_url(self, url: str, kind: type[StoreError], said: str) -> None:
        """It says which server, without the password, and what to do."""
        with pytest.raises(kind, match=said) as told:
            PostgresStore(url)
        assert told.value.remedy
        assert SECRET not in f"{told.value} {told.value.remedy}"
        assert SECRET[:5] not in str(told.value)
        assert SECRET[5:] not in str(told.value)

    def test_no_such_database(self, postgres_server: PostgresServer) -> None:
        """A database that is not there is named."""
        with pytest.raises(StoreError, match="/nothing: there is no such database") as told:
            PostgresStore(postgres_server.dsn("nothing"))
        assert "createdb" in told.value.remedy

    def test_no_such_user(self, postgres_server: PostgresServer) -> None:
        """A user that is not there is named."""
        with pytest.raises(StoreReadOnly, match='role "nobody" does not exist') as told:
            PostgresStore(postgres_server.dsn("postgres", user="nobody"))
        assert "user and password" in told.value.remedy

    def test_wrong_password(self, postgres_server: PostgresServer, guest: str) -> None:
        """A wrong password is not shown."""
        rules = postgres_server._data / "pg_hba.conf"
        before = rules.read_text()
        rules.write_text(f"host all guest all scram-sha-256\n{before}")
        postgres_server.sql("SELECT pg_reload_conf()")
        try:
            with pytest.raises(StoreReadOnly, match="password authentication failed") as told:
                PostgresStore(guest.replace(SECRET, "wrong-one"))
        finally:
            rules.write_text(before)
            postgres_server.sql("SELECT pg_reload_conf()")
        assert "wrong-one" not in f"{told.value}{told.value.remedy}"

    def test_too_many_connections(self, postgres_server: PostgresServer, guest: str) -> None:
        """A server that is full of connections says so; it may pass."""
        postgres_server.sql("ALTER ROLE guest CONNECTION LIMIT 0")
        with pytest.raises(StoreAway, match="too many connections") as told:
            PostgresStore(guest)
        assert told.value.passes
        assert "max_connections" in told.value.remedy

    def test_old_server(self, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A PostgreSQL that is too old is refused, and nothing is made."""
        monkeypatch.setattr(schema, "SERVER_MIN", 990_000)
        with pytest.raises(StoreError, match=r"PostgreSQL \d+ is too old") as told:
            PostgresStore(dsn)
        assert "99" in told.value.remedy
        assert tables(dsn) == []


class TestRights:
    """Where not all is allowed."""

    def test_no_right_to_make_tables(self, guest: str, dsn: str) -> None:
        """Who may not make the schema is told what to ask for, and nothing is made."""
        with pytest.raises(StoreReadOnly, match="permission denied for database") as told:
            PostgresStore(guest)
        assert "CREATE SCHEMA flyball AUTHORIZATION" in told.value.remedy
        assert SECRET not in f"{told.value}{told.value.remedy}"
        assert tables(dsn) == []

    def test_schema_made_for_it(self, guest: str, dsn: str) -> None:
        """A schema that was made for the user is enough."""
        ask(dsn, "CREATE SCHEMA flyball AUTHORIZATION guest")
        with PostgresStore(guest) as store:
            assert store.transact([key("a")], count("a")) is not None

    def test_rights_taken_away(self, guest: str, dsn: str) -> None:
        """A user who may no longer write is told so; nothing is written, and others go on."""
        ask(dsn, "CREATE SCHEMA flyball AUTHORIZATION guest")
        with PostgresStore(guest) as store:
            store.transact([key("a")], count("a"))
            ask(dsn, "REVOKE INSERT ON flyball.journal FROM guest")
            with pytest.raises(StoreReadOnly, match="permission denied for table journal"):
                store.transact([key("a")], count("a"))
            assert store.read([key("a")]) == Snapshot(1, 1, {key("a"): b"1"})
            ask(dsn, "GRANT INSERT ON flyball.journal TO guest")
            assert store.transact([key("a")], count("a")) is not None

    def test_standby(self, dsn: str) -> None:
        """A server that only reads, as a standby does, is refused, and nothing is made; what was open says so too."""
        name = dsn.rpartition("/")[2]
        with PostgresStore(dsn) as store:
            store.transact([key("a")], count("a"))
            ask(dsn, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            try:
                store._book._let_go()
                with pytest.raises(StoreReadOnly, match="only reads") as told:
                    store.transact([key("a")], count("a"))
                with pytest.raises(StoreReadOnly, match="only reads"):
                    PostgresStore(dsn)
            finally:
                ask(dsn, f"SET transaction_read_only = off; ALTER DATABASE {name} RESET default_transaction_read_only")
            assert "primary" in told.value.remedy
            assert store.transact([key("a")], count("a")) is not None

    def test_full(self, dsn: str) -> None:
        """A database whose disk is full says so; it may pass, and nothing was written. Reads go on; so does
        all when there is room."""
        with PostgresStore(dsn) as store:
            store.transact([key("a")], count("a"))
            ask(
                dsn,
                "CREATE FUNCTION flyball.full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                "RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$; "
                "CREATE TRIGGER full_disk BEFORE INSERT ON flyball.journal EXECUTE FUNCTION flyball.full_disk()",
            )
            with pytest.raises(StoreFull, match="no room left on the database's disk; nothing was written") as told:
                store.transact([key("a")], count("a"))
            assert told.value.passes
            assert store.read([key("a")]) == Snapshot(1, 1, {key("a"): b"1"})
            ask(dsn, "DROP TRIGGER full_disk ON flyball.journal")
            assert store.transact([key("a")], count("a")) is not None
            assert list(store.integrity()) == []

    def test_busy(self, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Somebody who holds the lock for long is no reason to wait for ever."""
        from flyball.store.postgres import link

        monkeypatch.setattr(link, "LOCK_MAX", 50)
        with PostgresStore(dsn) as store, PostgresStore(dsn) as shell:
            shell._book._connected(0).run(f"BEGIN; {schema.TAKE_TURN.decode()}")
            with pytest.raises(StoreError, match=r"is busy: .* nothing was written") as told:
                store.transact([key("a")], count("a"))
            assert "pg_stat_activity" in told.value.remedy
            shell._book._connected(0).run("ROLLBACK")
            assert store.transact([key("a")], count("a")) is not None


class TestVersions:
    """Tables of another version, or of another program."""

    def test_foreign(self, dsn: str) -> None:
        """A schema of our name with somebody else's tables is left as it is."""
        ask(dsn, "CREATE SCHEMA flyball; CREATE TABLE flyball.state (n integer)")
        before = tables(dsn)
        with pytest.raises(StoreCorrupt, match="tables of another program") as told:
            PostgresStore(dsn)
        assert "untouched" in told.value.remedy
        assert tables(dsn) == before

    def test_empty_schema(self, dsn: str) -> None:
        """An empty schema of our name is used."""
        ask(dsn, "CREATE SCHEMA flyball")
        PostgresStore(dsn).close()

    def test_somebody_dropped_a_table(self, dsn: str) -> None:
        """Tables that are not as they should be are named when they are used."""
        with PostgresStore(dsn) as store:
            ask(dsn, "ALTER TABLE flyball.journal RENAME TO diary")
            with pytest.raises(StoreCorrupt, match=r"not as they should be: .*journal"):
                store.transact([key("a")], count("a"))
            with pytest.raises(StoreCorrupt):
                store.entries()

    def test_version_1(self, dsn: str) -> None:
        """A database of the first version opens for ever, with all that is in it."""
        ask(dsn, (Path(__file__).parent / "postgres_version_1.sql").read_text())
        with PostgresStore(dsn) as store:
            assert store.read([key("a")]) == Snapshot(4, 40, {key("a"): b"4"})
            assert store.base() == Snapshot(2, 20, {key("a"): b"2", key("b"): b"1"})
            assert [entry.seq for entry in store.entries()] == [3, 4]
            assert list(store.integrity()) == []
            store.transact([key("a")], count("a"))
            assert store.states() == {key("a"): b"5"}
        assert ask(dsn, "SELECT version FROM flyball.version") == [(schema.VERSION,)]

    def test_functions_belong_to_a_version(self) -> None:
        """The functions of the newest version are those that its dump has: to change them takes a new step."""
        dump = (Path(__file__).parent / f"postgres_version_{schema.VERSION}.sql").read_text()
        assert schema.FUNCTIONS in dump

    def test_too_new(self, dsn: str) -> None:
        """Tables of a newer version, which says that we are too old for it, are refused and left as they are."""
        PostgresStore(dsn).close()
        newer = schema.VERSION + 1
        ask(dsn, f"UPDATE flyball.version SET version = {newer}; UPDATE flyball.head SET oldest = {newer}")  # noqa: S608 - our number
        before = tables(dsn)
        with pytest.raises(StoreTooNew, match=f"has version {newer}; this flyball knows versions up to"):
            PostgresStore(dsn)
        assert tables(dsn) == before

    def test_newer_and_friendly(self, dsn: str) -> None:
        """Tables of a newer version that says that we may still write are written, and not made older."""
        PostgresStore(dsn).close()
        ask(dsn, f"UPDATE flyball.version SET version = {schema.VERSION + 1}")  # noqa: S608 - our number
        with PostgresStore(dsn) as store:
            assert store.transact([key("a")], count("a")) is not None
        assert ask(dsn, "SELECT version FROM flyball.version") == [(schema.VERSION + 1,)]

    def test_many_make_the_same(self, dsn: str) -> None:
        """Several hosts that come to an empty database at once make one store of it."""
        stores: list[PostgresStore] = []
        start = threading.Barrier(5)

        def make() -> None:
            start.wait()
            stores.append(PostgresStore(dsn))

        threads = [threading.Thread(target=make) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for store in stores:
            store.transact([key("a")], count("a"))
        assert stores[0].read([key("a")]) == Snapshot(5, 5, {key("a"): b"5"})
        for store in stores:
            store.close()


class TestUpgrade:
    """A newer flyball comes to a fleet that runs."""

    @pytest.fixture
    def upgrade(self, monkeypatch: pytest.MonkeyPatch) -> "Upgrade":
        return Upgrade(monkeypatch)

    def test_old_may_go_on(self, dsn: str, upgrade: "Upgrade") -> None:
        """Hosts that are still of the old version go on where the new one can live with that."""
        with PostgresStore(dsn) as old:
            old.transact([key("a")], count("a"))
            upgrade(Step("ALTER TABLE state ADD COLUMN note text", oldest=1))
            with PostgresStore(dsn) as new:
                new.transact([key("a")], count("a"))
                entry = old.transact([key("a")], count("a"))
                assert entry is not None
                assert entry.seq == 3
                assert new.read([key("a")]).records == {key("a"): b"3"}
        assert ask(dsn, "SELECT version FROM flyball.version") == [(2,)]

    def test_old_is_refused(self, dsn: str, upgrade: "Upgrade") -> None:
        """Where it cannot, they are told at their next commit, which writes nothing; what they read they still read."""
        with PostgresStore(dsn) as old:
            old.transact([key("a")], count("a"))
            upgrade(Step("ALTER TABLE state ADD COLUMN note text", oldest=2))
            with PostgresStore(dsn) as new:
                with pytest.raises(StoreTooNew, match="was upgraded by a newer flyball") as told:
                    old.transact([key("a")], count("a"))
                assert not told.value.passes
                with pytest.raises(StoreTooNew):
                    old.trim(0)
                assert old.read([key("a")]) == new.read([key("a")]) == Snapshot(1, 1, {key("a"): b"1"})
                new.transact([key("a")], count("a"))
                assert list(new.integrity()) == []

    def test_old_functions_gone(self, dsn: str, upgrade: "Upgrade") -> None:
        """Also where what they called is not there any more."""
        with PostgresStore(dsn) as old:
            old.transact([key("a")], count("a"))
            upgrade(
                Step("DROP FUNCTION flyball.commit_drafts; ALTER TABLE journal RENAME COLUMN at TO moment", oldest=2)
            )
            upgrade.monkeypatch.setattr(schema, "FUNCTIONS", "")
            PostgresStore(dsn).close()
            with pytest.raises(StoreTooNew):
                old.transact([key("a")], count("a"))
            with pytest.raises(StoreTooNew):
                old.entries()

    def test_in_mid_commit(self, dsn: str, upgrade: "Upgrade") -> None:
        """Under writers that never pause: each of their commits is whole, before it or not at all."""
        stop = threading.Event()
        told: list[StoreTooNew] = []

        def write(place: int) -> None:
            with PostgresStore(dsn) as old:
                begun.wait()
                while not stop.is_set():
                    try:
                        old.transact([key(str(place))], count(str(place)))
                    except StoreTooNew as error:
                        told.append(error)
                        return

        begun = threading.Barrier(4)
        writers = [threading.Thread(target=write, args=(place,)) for place in range(3)]
        for writer in writers:
            writer.start()
        begun.wait()
        upgrade(Step("ALTER TABLE state ADD COLUMN note text", oldest=2))
        with PostgresStore(dsn) as new:
            for writer in writers:
                writer.join(60)
            stop.set()
            assert len(told) == 3
            assert list(new.integrity()) == []
            assert sum(int(data) for data in new.states().values()) == new.read([]).seq

    def test_a_step_that_fails(self, dsn: str, upgrade: "Upgrade") -> None:
        """A step that cannot be done leaves all as it was, and the fleet goes on."""
        with PostgresStore(dsn) as old:
            old.transact([key("a")], count("a"))
            before = tables(dsn)
            upgrade(Step("ALTER TABLE state ADD COLUMN note text; SELECT 1 / 0", oldest=2))
            with pytest.raises(StoreError, match="division by zero"):
                PostgresStore(dsn)
            assert tables(dsn) == before
            assert old.transact([key("a")], count("a")) is not None


class Upgrade:
    """Makes this flyball one of the next version; those that are open stay what they were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch

    def __call__(self, step: Step) -> None:
        """With this step."""
        self.monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, step))
        self.monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
