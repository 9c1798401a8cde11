"""One DBOS for the tests of a module, on SQLite, with a queue that is looked at often; and for each test a guard of its
own, on a clock that stands still."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from dbos import DBOS, DBOSConfig

from flyball.config import Settings
from flyball.governor import Governor
from flyball.guard import Guard
from flyball.integrations.dbos import Guarded, guarded
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock
from tests.integrations.dbos.scene import EXECUTOR, QUEUE, Scene


@pytest.fixture(scope="module")
def dbos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder: Path = tmp_path_factory.mktemp("dbos")
    config: DBOSConfig = {
        "name": "tests",
        "system_database_url": f"sqlite:///{folder / 'dbos.sqlite'}",
        "executor_id": EXECUTOR,
        "application_version": "1",
        "log_level": "CRITICAL",
        "notification_listener_polling_interval_sec": 0.05,
    }
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(QUEUE, polling_interval_sec=0.02)
    yield
    DBOS.destroy(destroy_registry=True)


@pytest.fixture
def scene(dbos: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(guarded, "ASKS_EVERY", 0.01)
    clock = FakeClock()
    settings = Settings.model_validate({"budget": {"kept_back": 0}})
    guard = Guard(settings, Governor(settings.policies(), MemoryStore(), clock), name="program")
    scene = Scene(guard, Guarded(guard), clock)
    yield scene
    scene.guarded.close()
    scene.wait_for_waiters()
    guard.close()
