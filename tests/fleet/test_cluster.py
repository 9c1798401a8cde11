"""What is done to a host in these tests really is done to it: else what it survives says nothing. Here each has a store
of its own, so that nobody takes over from anybody."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.store.sqlite import SqliteStore
from tests.daemon.site import has_ended, until
from tests.fleet.cluster import Host, unit
from tests.fleet.net import Proxies
from tests.fleet.witness import NOTES, lives


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A host with one unit, not up yet."""
    notes = tmp_path / "notes"
    notes.mkdir()
    network = Proxies([])
    made = Host(tmp_path / "a", "a", network, **{NOTES: str(notes)})
    made.write({"w": unit()})
    yield made
    made.clean()
    network.close()


def _up(host: Host) -> int:
    """The pid of its unit."""
    host.start()
    until(lambda: host.answers() and lives(host.folder.parent / "notes"), "its unit")
    [worker] = host.running()["w"]
    return worker


@pytest.mark.slow
def test_frozen_thawed_killed(host: Host, tmp_path: Path) -> None:
    """Who is frozen does nothing until it is thawed; who loses its power leaves nothing."""
    worker = _up(host)
    assert {*host.pids("daemon"), *host.pids("guardian")} == set(host.pids("group"))
    assert host.pids("units") == [worker]
    host.freeze("all")
    assert not host.answers(patience=0.2)
    [before] = lives(tmp_path / "notes")
    time.sleep(0.1)  # it is about what does not happen
    assert lives(tmp_path / "notes") == [before]
    host.thaw()
    until(lambda: lives(tmp_path / "notes")[0].last > before.last, "it goes on")
    assert host.answers()
    host.kill("all")
    assert has_ended(worker)
    assert host.pids("all") == []
    assert not host.is_up


@pytest.mark.slow
@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_wrong(hours: int, host: Host) -> None:
    """The daemon believes what its clock shows, also when that changes while it runs."""
    _up(host)
    host.clock(hours)
    host.order("pause", "w")
    until(lambda: not host.running(), "the end of its unit")
    host.down()
    store = SqliteStore(host.state / "state.db")
    [held] = store.last_entries(limit=1, events=["held"])
    store.close()
    # Time in a journal never runs back, so a clock that does is only not believed.
    assert abs(held.at / 1e6 - time.time() - max(0, hours) * 3600) < 60
