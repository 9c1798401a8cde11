"""The simulation of a large fleet, in the small: what it says of a million units follows from the same code."""

import pytest
from bench.million import Costs, Shard, watched

LEASE = 15.0
UNITS = 200


@pytest.fixture
def shard() -> Shard:
    """Ten hosts, on which all units run."""
    shard = Shard(10, UNITS, lease=LEASE, costs=Costs(), seed=1)
    shard.place()
    watched(shard, 60.0, lambda: shard.up == UNITS)
    assert shard.up == shard.begun == UNITS
    return shard


def test_dead_hosts(shard: Shard) -> None:
    """What ran on them runs elsewhere after a lease and what the policies have it wait; each such unit was started once
    more, and nothing else."""
    dead = shard.hosts[:2]
    gone = sum(len(host.units) for host in dead)
    for host in dead:
        shard.die(host)
    figures = watched(shard, 600.0, lambda: shard.up == UNITS)
    assert shard.up == UNITS
    assert LEASE * 3 / 5 < figures.lasted < LEASE + 5
    assert shard.begun == UNITS + gone
    assert not {unit for host in dead for unit in host.units}


@pytest.mark.parametrize(("away", "lost"), [(5.0, 0), (60.0, 10)])
def test_an_outage(shard: Shard, away: float, lost: int) -> None:
    """One that is shorter than three fifths of a lease ends nothing. After a longer one every host comes back and all
    units run again, once each."""
    shard.outage(away)
    shard.run(shard.now + away)
    watched(shard, 600.0, lambda: shard.up == UNITS)
    assert shard.up == UNITS
    assert sum(host.lost for host in shard.hosts) == lost
    assert shard.begun == (UNITS if not lost else 2 * UNITS)


@pytest.mark.parametrize(("commit", "falls_over"), [(0.001, False), (0.4, True)])
def test_a_database_that_is_too_slow_is_seen(commit: float, falls_over: bool) -> None:
    """Hosts lose their leases where renewals come too late: so the figures can be bad."""
    shard = Shard(20, 40, lease=LEASE, costs=Costs(commit=commit), seed=1)
    shard.place()
    assert (watched(shard, 60.0, lambda: False).lost > 0) is falls_over
