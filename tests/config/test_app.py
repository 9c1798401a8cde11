"""The composition root on a real file, and the table that people look at."""

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from flyball.app import open_governor, open_store, scratch_store, state_dir
from flyball.config import Settings, load
from flyball.core.event import Cause, Exited, Released, Start
from flyball.core.time import HOUR, SECOND
from flyball.governor import Governor
from flyball.store import Store
from flyball.testing.clock import START_OF_TIME, FakeClock

ROWS = """SELECT fingerprint, task_id, error_type, count, first_seen, last_seen, cooldown_until, quarantined
FROM failures ORDER BY task_id, fingerprint"""


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"FLYBALL_STATE_DIR": "/a/b", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/a/b"),
        ({"FLYBALL_STATE_DIR": "", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/flyball"),
        ({"XDG_STATE_HOME": "not/absolute", "HOME": "/h"}, "/h/.local/state/flyball"),
        ({"HOME": "/h"}, "/h/.local/state/flyball"),
    ],
)
def test_state_dir(env: dict[str, str], folder: str) -> None:
    """States are kept in FLYBALL_STATE_DIR, else where the system keeps them."""
    assert state_dir(env) == Path(folder)


def _fail(governor: Governor, clock: FakeClock, unit: str, times: int, *, fingerprint: str = "f1") -> None:
    for _ in range(times):
        clock.move(HOUR)
        assert governor.submit(Start(unit=unit, run="r")).proceeds
        clock.move(SECOND)
        governor.submit(
            Exited(unit=unit, run="r", cause=Cause.ERROR, fingerprint=fingerprint, error="SelectorNotFound")
        )


def _governor(store: Store, settings: Settings) -> tuple[Governor, FakeClock]:
    clock = FakeClock()
    return Governor(settings.policies(), store, clock), clock


def _rows(folder: Path) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(folder / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(connection.execute(ROWS))
    finally:
        connection.close()


def test_failures_view(tmp_path: Path) -> None:
    """S0-07: the view `failures` has one row per kind of failure; the sixth failure quarantines."""
    env = {"FLYBALL_STATE_DIR": str(tmp_path)}
    settings = Settings()
    with closing(open_store(settings, env)) as store:
        governor, clock = _governor(store, settings)
        _fail(governor, clock, "rule-1", 5)
        began = START_OF_TIME + HOUR + SECOND
        assert _rows(tmp_path) == [
            (
                "f1",
                "rule-1",
                "SelectorNotFound",
                5,
                began / SECOND,
                clock.now() / SECOND,
                (clock.now() + 1800 * SECOND) / SECOND,
                0,
            )
        ]
        _fail(governor, clock, "rule-1", 1)
        _fail(governor, clock, "rule-2", 1, fingerprint='odd " name')
        rows = _rows(tmp_path)
    assert [(row[0], row[1], row[3], row[7]) for row in rows] == [
        ("f1", "rule-1", 6, 1),
        ('odd " name', "rule-2", 1, 0),
    ]


def test_failures_view_forgets(tmp_path: Path) -> None:
    """A reset makes the row vanish, because the view is computed from the states."""
    env = {"FLYBALL_STATE_DIR": str(tmp_path)}
    settings = Settings()
    with closing(open_store(settings, env)) as store:
        governor, clock = _governor(store, settings)
        _fail(governor, clock, "rule-1", 6)
        governor.submit(Released(unit="rule-1", fingerprint="f1"))
    assert _rows(tmp_path) == []


def test_failures_view_after_the_wait_was_forgotten(tmp_path: Path) -> None:
    """A wait that was reset by itself ended when it began; the count stands."""
    env = {"FLYBALL_STATE_DIR": str(tmp_path)}
    settings = Settings()
    with closing(open_store(settings, env)) as store:
        governor, clock = _governor(store, settings)
        _fail(governor, clock, "rule-1", 2)
        governor.submit(Released(unit="rule-1", policies=("cooldown",)))
        (row,) = _rows(tmp_path)
    assert row[3] == 2
    assert row[6] == row[5] == clock.now() / SECOND


def test_failures_view_follows_the_settings(tmp_path: Path) -> None:
    """The threshold of the view is the one in force when the store is opened."""
    env = {"FLYBALL_STATE_DIR": str(tmp_path), "FLYBALL_QUARANTINE__MAX_FAILURES_BEFORE_QUARANTINE": "2"}
    with closing(open_store(Settings(), env)) as store:
        governor, clock = _governor(store, Settings())
        _fail(governor, clock, "rule-1", 2)
    assert [row[7] for row in _rows(tmp_path)] == [0]
    open_store(load(env=env, cwd=tmp_path), env).close()
    assert [row[7] for row in _rows(tmp_path)] == [1]


def test_open_governor(tmp_path: Path) -> None:
    """The governor of the state folder stands under the policies of the settings, on a store that lasts."""
    env = {"FLYBALL_STATE_DIR": str(tmp_path / "not" / "there")}
    governor = open_governor(Settings(), env)
    assert governor.submit(Start(unit="u", run="r")).proceeds
    governor.store.close()
    assert tuple(governor.panel.policies_of("u")) == Settings().policies()
    with closing(open_store(Settings(), env)) as store:
        assert [entry.event for entry in store.entries()] == ["start"]


def test_scratch_store_leaves_no_trace() -> None:
    """Each scratch store is empty and its own."""
    first, second = scratch_store(), scratch_store()
    governor, _ = _governor(first, Settings())
    governor.submit(Start(unit="u", run="r"))
    assert len(first.entries()) == 1
    assert not second.entries()
