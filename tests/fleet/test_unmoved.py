"""What is no misfortune, and moves nothing: a wrong clock, and a database that is away for less than a lease. With a
lease that a busy machine does not lose by itself."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.fleet import judge
from tests.fleet.cluster import PATIENCE, Cluster, cluster, unit, until
from tests.fleet.net import STORE

pytestmark = pytest.mark.slow

LEASE = 10.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two hosts: each could give up the other."""
    with cluster(tmp_path_factory.mktemp("unmoved"), ("a", "b"), lease=LEASE) as made:
        made.write({f"w{number}": unit() for number in range(4)})
        made.up()
        made.run_all(PATIENCE)
        yield made


def ends(fleet: Cluster) -> dict[str, int]:
    """The end of each host's lease, as the store has it."""
    with fleet.network.at(STORE):
        select = "SELECT data FROM flyball.state WHERE policy = 'host'"
        rows = fleet.server.sql(select, database=fleet.dsn.rpartition("/")[2])
    records = [json.loads(str(row[0])) for row in rows]
    return {record["name"]: record["until"] for record in records}


def renewed(fleet: Cluster) -> None:
    """Wait until every host has renewed its lease."""
    before = ends(fleet)
    until(lambda: (now := ends(fleet)).keys() == before.keys() and all(now[name] > before[name] for name in now), "all")


@pytest.mark.parametrize("hours", [-1, 1, 24])
def test_wrong_clock(hours: int, fleet: Cluster) -> None:
    """A clock hours off, from one moment to the next: nothing is started, ended or given up, and the journal's time is
    the database's."""
    before = fleet.alive()
    host = fleet.hosts[before["w0"][0]]
    host.clock(hours)
    for _ in range(2):
        renewed(fleet)
    assert fleet.alive() == before
    assert abs(max(ends(fleet).values()) / 1e6 - time.time() - LEASE) < 60
    host.clock(0)
    assert judge.gaps(fleet.journal()) == []


def test_store_away_for_a_moment(fleet: Cluster) -> None:
    """PostgreSQL is killed and back within the lease: every unit goes on as if nothing had been."""
    before = fleet.alive()
    fleet.kill_store()
    fleet.start_store()
    renewed(fleet)
    assert fleet.alive() == before
    assert judge.gaps(fleet.journal()) == []
