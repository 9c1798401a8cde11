"""Orders that another process wrote into the store are heard, and nothing else is."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flyball.config import Settings
from flyball.core.event import Answered, Beat, Event, Held, Released, Start
from flyball.errors import StoreError
from flyball.governor import Governor
from flyball.runtimes import doorbell
from flyball.runtimes.doorbell import Doorbell
from flyball.store import Entry
from flyball.store.sqlite import SqliteStore

WAIT_MAX = 10.0


@pytest.fixture(params=["told", "looks"])
def _by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "looks":
        monkeypatch.setattr(doorbell, "_watched", lambda _: None)
        monkeypatch.setattr(doorbell, "LOOK_EVERY", 0.05)


def listen(folder: Path, *events: Event) -> int:
    """How often it rang, by what another one wrote, until it first did."""
    own, other = SqliteStore(folder / "state.db"), SqliteStore(folder / "state.db")
    governor = Governor(Settings().policies(), other)

    async def run() -> int:
        rang = asyncio.Event()
        count = 0

        def ring() -> None:
            nonlocal count
            count += 1
            rang.set()

        bell = Doorbell(own, folder / "state.db-wal", ring)
        try:
            for event in events:
                await asyncio.to_thread(governor.submit, event)
            await asyncio.wait_for(rang.wait(), WAIT_MAX)
        finally:
            bell.close()
        return count

    try:
        governor.submit(Held(unit="before"))
        return asyncio.run(run())
    finally:
        own.close()
        other.close()


@pytest.mark.usefixtures("_by")
@pytest.mark.parametrize("order", [Held(unit="x"), Released(unit="x"), Held(scope="fleet"), Answered(unit="x")])
def test_order_rings(tmp_path: Path, order: Event) -> None:
    """Each kind of order rings, and so does an answer."""
    assert listen(tmp_path, order) == 1


@pytest.mark.usefixtures("_by")
def test_nothing_else_rings(tmp_path: Path) -> None:
    """Starts and beats of others do not ring; many changes at once are one look."""
    others: list[Event] = [Start(unit=f"u{number}", run="1", holder="h") for number in range(20)]
    assert listen(tmp_path, *others, Beat(unit="u1", run="1"), Held(unit="x")) == 1


def test_more_than_one_look_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An order behind more entries than one look reads is heard too."""
    monkeypatch.setattr(doorbell, "ENTRIES_MAX", 2)
    others: list[Event] = [Start(unit=f"u{number}", run="1", holder="h") for number in range(9)]
    assert listen(tmp_path, *others, Held(unit="x")) == 1


def test_no_such_file(tmp_path: Path) -> None:
    """A file that cannot be watched is looked at."""
    assert doorbell._watched(tmp_path / "nothing") is None


def test_a_store_that_fails_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that the store does not answer is made again: the order is heard all the same."""
    entries = SqliteStore.entries
    failed: list[int] = []

    def fails_once(self: SqliteStore, **wanted: Any) -> Sequence[Entry]:
        if not failed:
            failed.append(1)
            raise StoreError("the disk is away for a moment", remedy="Wait.")
        return entries(self, **wanted)

    monkeypatch.setattr(SqliteStore, "entries", fails_once)
    assert listen(tmp_path, Held(unit="x")) == 1
    assert failed


def test_change_is_not_kept_waiting_by_a_late_look(tmp_path: Path) -> None:
    """The looks at a change come later and later. Another change in between is looked at soon, all the same."""
    own, other = SqliteStore(tmp_path / "state.db"), SqliteStore(tmp_path / "state.db")
    governor = Governor(Settings().policies(), other)

    async def run() -> None:
        rang = asyncio.Event()
        bell = Doorbell(own, tmp_path / "state.db-wal", rang.set)
        bell._timer = asyncio.get_running_loop().call_later(1_000 * WAIT_MAX, bell._look)
        try:
            await asyncio.to_thread(governor.submit, Held(unit="x"))
            await asyncio.wait_for(rang.wait(), WAIT_MAX)
        finally:
            bell.close()

    try:
        governor.submit(Held(unit="before"))
        asyncio.run(run())
    finally:
        own.close()
        other.close()
