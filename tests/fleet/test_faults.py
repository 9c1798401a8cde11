"""One misfortune at a time. Whatever befalls a host: its units run again elsewhere, never at the same instant as
before."""

import time
from collections.abc import Callable, Collection, Iterator

import pytest
from bench import fleet as bench
from dbos import DBOSClient

from flyball.placing.engine import SCHEMA
from flyball.placing.items import pinned_to
from tests.fleet import judge
from tests.fleet.cluster import PATIENCE, Cluster, Host, until
from tests.fleet.judge import Thaw
from tests.fleet.net import STORE
from tests.fleet.witness import Life, now

pytestmark = pytest.mark.slow

FORGIVEN = 0.5
"""Seconds that a unit of a machine that was frozen as a whole lives, at most, after it is thawed."""


@pytest.fixture
def calm(fleet: Cluster) -> Iterator[Cluster]:
    """All hosts up and all units running, before; all laws kept, after."""
    fleet.mend()
    fleet.run_all(PATIENCE)
    yield fleet
    fleet.mend()
    journal = fleet.journal()
    breaches = judge.all_of(
        judge.doubles(fleet.lives(), fleet.thaws),
        judge.free_starts(fleet.lives(), journal, several=["child"]),
        judge.gaps(journal),
        judge.granted_twice(journal),
        judge.names_used_twice(journal),
    )
    assert not breaches, "\n".join([*breaches, fleet.says()])


def busiest(fleet: Cluster) -> tuple[Host, dict[str, int]]:
    """The host with the most units, and these with their processes."""
    there = fleet.alive()
    names = [where for where, _ in there.values()]
    name = max(fleet.hosts, key=names.count)
    return fleet.hosts[name], {unit: pid for unit, (where, pid) in there.items() if where == name}


def taken_over(fleet: Cluster, units: dict[str, int]) -> None:
    """Wait until all these have other processes: on other hosts, or on one that has begun anew meanwhile, and is a host
    like any other. How soon that is the bench measures."""
    give_up = time.monotonic() + PATIENCE
    while True:
        there = fleet.alive()
        if all(unit in there and there[unit][1] != pid for unit, pid in units.items()):
            return
        left = {unit: there.get(unit) for unit in units}
        assert time.monotonic() < give_up, f"not taken over: {left}\n{fleet.says()}"
        time.sleep(0.02)


def last_lives(fleet: Cluster, units: Collection[str], before: int) -> list[Life]:
    """The last process of each of these units that began before that instant."""
    found = {(life.unit, life.pid): life for life in fleet.lives() if life.unit in units and life.first < before}
    newest = {life.unit: life for life in found.values()}
    return list(newest.values())


HARMS: dict[str, Callable[[Cluster, Host], None]] = {
    "power lost": lambda _, host: host.kill("all"),
    "daemon frozen": lambda _, host: host.freeze("daemon"),
    "daemon and guardian frozen": lambda _, host: host.freeze("group"),
    "cut off": lambda fleet, host: fleet.network.cut(host.name),
    "deaf": lambda fleet, host: fleet.network.deafen(host.name),
}


@pytest.mark.parametrize("harm", HARMS)
def test_taken_over(harm: str, calm: Cluster) -> None:
    """A host that is dead, frozen or cut off: its units are over before its lease is, others take them over, and it
    comes back as a host that harms nobody."""
    host, units = busiest(calm)
    begun = now()
    HARMS[harm](calm, host)
    taken_over(calm, units)
    over = [(life.last - begun) / 1e9 for life in last_lives(calm, units, begun)]
    assert max(over) < calm.lease, "they lived longer than the lease"
    calm.mend()
    until(host.answers, "the host is back")


def test_frozen_as_a_whole(calm: Cluster) -> None:
    """A machine that stops, units and all, and goes on after others took over: its units are ended at once."""
    host, units = busiest(calm)
    host.freeze("all")
    pids = frozenset(host.pids("units"))
    taken_over(calm, units)
    calm.thaws.append(Thaw(now(), pids, FORGIVEN))
    host.thaw()
    until(lambda: not pids & set(host.pids("units")), "the end of what it ran")
    until(host.answers, "the host is back")


@pytest.mark.parametrize("part", ["daemon", "guardian", "deadman"])
def test_one_process_killed(part: str, calm: Cluster) -> None:
    """kill -9 of one of the three processes of a host: no unit goes on without them, and all run again."""
    host, _ = busiest(calm)
    assert host.pids(part)  # type: ignore[arg-type]  # one of those above
    host.kill(part)  # type: ignore[arg-type]  # the same
    until(lambda: not host.is_up or host.answers(), "it ended, or goes on whole")
    calm.mend()
    calm.run_all(PATIENCE)


def test_store_away_for_long(calm: Cluster) -> None:
    """PostgreSQL is away for longer than the lease: every unit ends in time, nothing is started, and all is back when
    it is."""
    begun = now()
    calm.kill_store()
    until(lambda: not calm.alive(), "the end of every unit")
    last = max(life.last for life in calm.lives())
    assert (last - begun) / 1e9 < calm.lease
    time.sleep(0.5 * calm.lease)
    assert calm.alive() == {}
    calm.start_store()
    calm.mend()
    calm.run_all(PATIENCE)


def test_hold_from_another_host(calm: Cluster) -> None:
    """A hold that is ordered on one host ends the unit on another, and it stays so until it is released on a third."""
    where = calm.alive()["w0"][0]
    others = [host for name, host in calm.hosts.items() if name != where]
    others[0].order("pause", "w0")
    until(lambda: "w0" not in calm.alive(), "its end")
    others[1].order("resume", "w0")
    calm.run_all(PATIENCE)


def test_given_to_another_while_it_runs(calm: Cluster) -> None:
    """The placement gives a unit to a second host by mistake: it begins anew as soon as the first one has left it, and
    not before."""
    before = calm.alive()["w1"]
    other = next(name for name in calm.hosts if name != before[0])
    with calm.network.at(STORE):
        client = DBOSClient(system_database_url=calm.dsn, dbos_system_schema=SCHEMA)
        [workflow] = [one.workflow_id for one in client.list_workflows() if one.workflow_id.startswith("w1#")]
        client.resume_workflows(workflow_ids=[workflow], queue_name=pinned_to(other))
        client.destroy()
    until(lambda: calm.alive().get("w1", before) != before, "another process of it")


def test_the_bench_measures_what_it_says(calm: Cluster) -> None:
    """A hold is timed from the order to the end of the process, a takeover from the loss to the last first instant."""
    hold = bench.hold_row(calm, 2, unit="w0")
    assert 0 < hold.ours < 1000 * PATIENCE
    takeover = bench.takeover_row(calm, 1)
    assert takeover.ours > 0.5 * calm.lease, "nobody takes over before a lease has run out"
