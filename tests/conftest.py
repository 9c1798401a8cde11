"""What all tests share: hypothesis makes up the same cases each time, so that a failure is one for everybody; and one
PostgreSQL for all tests of a worker that want a database of their own in it."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.servers.postgres import PostgresServer, postgres

settings.register_profile("same", derandomize=True, database=None, deadline=None, print_blob=True)
settings.load_profile("same")

# A shell has what it runs in the background ignore Ctrl-C, and whatever that starts, too. Tests send it to themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL, to be left running. Who kills it has one of their own."""
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def _database(postgres_server: PostgresServer) -> str:
    return postgres_server.database()


@pytest.fixture
def dsn(postgres_server: PostgresServer, _database: str) -> str:
    """A database with nothing in it. It is the same one for all tests of a worker: to make one takes ten times as
    long."""
    postgres_server.empty(_database)
    return _database
