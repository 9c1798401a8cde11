"""Databases for the tests of the store of a fleet: one for all tests of a worker, whose schema goes before each."""

from pathlib import Path

import psycopg

from flyball.store.postgres import PostgresStore


def clear(dsn: str) -> None:
    """Nothing of ours is left in it. That takes a tenth of the time of making a database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS flyball CASCADE")


def ask(dsn: str, sql: str) -> list[tuple[object, ...]]:
    """What any PostgreSQL tool would see, or do."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        done = connection.execute(sql.encode())
        return list(done.fetchall()) if done.description else []


def open_named(path: Path) -> PostgresStore:
    """Open the store whose URL is in the file. Other processes call this, too."""
    return PostgresStore(path.read_text())
