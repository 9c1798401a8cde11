"""A database of its own for each test of the store of a fleet, without making one each time."""

import pytest

from tests.servers.postgres import PostgresServer
from tests.store import databases


@pytest.fixture(scope="session")
def _one_database(postgres_server: PostgresServer) -> str:
    return postgres_server.database()


@pytest.fixture
def dsn(_one_database: str) -> str:
    """An empty database."""
    databases.clear(_one_database)
    return _one_database
