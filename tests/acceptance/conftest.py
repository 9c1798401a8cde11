"""Each acceptance test runs on a store in memory, on a real file and on a real PostgreSQL. All of them outlive the
supervisors that use them."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from flyball.core.policy import AnyPolicy
from flyball.store import Store
from flyball.store.memory import MemoryStore
from flyball.store.postgres import PostgresStore
from flyball.store.sqlite import SqliteStore
from tests.acceptance.harness import Nested, Supervisor, policies_of


class Supervise(Protocol):
    """Makes a supervisor for a kind of unit, with settings other than the defaults, or with policies added."""

    def __call__(
        self,
        kind: str = "process",
        settings: Nested | None = None,
        *,
        tier: str | None = None,
        more: Iterable[AnyPolicy] = (),
        only: Callable[[AnyPolicy], bool] = lambda _: True,
    ) -> Supervisor: ...


class LastingMemory(MemoryStore):
    """Memory that outlives the supervisors that use it, as a file does."""

    def close(self) -> None:
        """It stays open for the next one."""


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """How to open the store of this test: the same memory, the same file, or the same database, each time."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "state.db")
    if request.param == "postgres":
        dsn: str = request.getfixturevalue("dsn")
        return lambda: PostgresStore(dsn)
    memory = LastingMemory()
    return lambda: memory


@pytest.fixture
def supervise(store: Callable[[], Store]) -> Iterator[Supervise]:
    """Supervisors on that store, closed at the end."""
    made: list[Supervisor] = []

    def make(
        kind: str = "process",
        settings: Nested | None = None,
        *,
        tier: str | None = None,
        more: Iterable[AnyPolicy] = (),
        only: Callable[[AnyPolicy], bool] = lambda _: True,
    ) -> Supervisor:
        policies = [policy for policy in policies_of(kind, settings, tier=tier, more=more) if only(policy)]
        made.append(Supervisor(store, policies))
        return made[-1]

    yield make
    for supervisor in made:
        supervisor.close()
