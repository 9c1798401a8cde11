"""People and a fleet on real hosts: what any host shows of all of them, and orders that find a unit where it runs."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from flyball.control.context import CommandError
from tests.control.alerts.test_daemon import Phone, settings
from tests.fleet.cluster import Cluster, Host, unit, until
from tests.fleet.net import Proxies
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.slow

NAMES = ("a", "b")
JOBS = ("job-a", "job-b")
"""Units that are done at once, one on each host."""
UNITS = {
    "free": unit(),
    "other": unit(),
    "pinned": unit(host="b"),
    **{job: {"command": ["true"], "restart": "never", "host": job[-1]} for job in JOBS},
}
RULES = {"go": {"triggers": [{"command": True}], "actions": [{"start": job} for job in JOBS]}}
LEASE = 6.0
"""Seconds. Nobody is to be lost here because the machine is busy; an outage is told after a fifth of it."""


@pytest.fixture(scope="module")
def phone() -> Iterator[Phone]:
    found = Phone()
    yield found
    found.close()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, phone: Phone) -> Iterator[Cluster]:
    """Two hosts whose alerts reach a phone: so they are on the loopback, and not in networks of their own."""
    with contextlib.ExitStack() as stack:
        network = Proxies(NAMES)
        stack.callback(network.close)
        server = PostgresServer()
        stack.callback(server.clean)
        made = Cluster(tmp_path_factory.mktemp("people"), network, server, NAMES, lease=LEASE)
        stack.callback(made.clean)
        made.write(UNITS, rules=RULES, alerts=settings(phone, group_wait_seconds=0.05))
        made.up()
        made.run_all(60, but=JOBS)
        yield made


def _hosts(host: Host) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in host.ask("hosts")["hosts"]}


def _where(fleet: Cluster, name: str) -> str:
    return fleet.alive()[name][0]


def _elsewhere(fleet: Cluster, name: str) -> Host:
    """A host that does not run that unit."""
    return next(host for place, host in fleet.hosts.items() if place != _where(fleet, name))


def _starts(fleet: Cluster, name: str) -> int:
    """How often that unit was started."""
    lines = [line for line in fleet.journal() if (line["unit"], line["event"]) == (name, "start")]
    return len([line for line in lines if line["verb"] == "proceed"])


def _until_started(fleet: Cluster, before: dict[str, int]) -> None:
    until(lambda: all(_starts(fleet, job) == count + 1 for job, count in before.items()), "another run of each")


def _until_another(fleet: Cluster, name: str, before: tuple[str, int]) -> None:
    until(lambda: fleet.alive().get(name, before) != before, "another process")


def test_every_host_shows_all(fleet: Cluster) -> None:
    """Whichever host is asked, it shows all hosts, and which of them runs each unit: as their processes do."""
    alive = fleet.alive()
    for host in fleet.hosts.values():
        shown = _hosts(host)
        assert {name: one["state"] for name, one in shown.items()} == dict.fromkeys(NAMES, "up")
        assert [name for name, one in shown.items() if one["here"]] == [host.name]
        assert not [name for name, one in shown.items() if one["differs"]]
        assert host.ask("hosts")["problems"] == []
        units = {one["name"]: one["host"] for one in host.ask("status")["units"]}
        assert {name: place for name, place in units.items() if place} == {
            name: place for name, (place, _) in alive.items()
        }


def test_a_restart_from_another_host(fleet: Cluster) -> None:
    """A restart that is ordered elsewhere is done, and once; one that is ordered where it runs too."""
    for host in (_elsewhere(fleet, "free"), fleet.hosts[_where(fleet, "free")]):
        before = fleet.alive()["free"]
        starts = _starts(fleet, "free")
        host.order("restart", "free")
        _until_another(fleet, "free", before)
        host.order("pause", "other")  # whatever is still to be obeyed of the restart comes before this
        until(lambda: "other" not in fleet.alive(), "the end of another")
        host.order("resume", "other")
        until(lambda: "other" in fleet.alive(), "its next run")
        assert _starts(fleet, "free") == starts + 1


def test_a_rule_starts_what_others_run(fleet: Cluster) -> None:
    """The rules are run by one host, and may be fired on any; what they start runs where it is placed."""
    until(lambda: all(_starts(fleet, job) for job in JOBS), "the first run of each")
    for host in fleet.hosts.values():
        before = {job: _starts(fleet, job) for job in JOBS}
        host.ask("trigger", rule="go")
        _until_started(fleet, before)


def test_logs_are_where_it_runs(fleet: Cluster) -> None:
    """A host that does not run a unit says which one has its log, with the address of its page."""
    where = _where(fleet, "free")
    said = _elsewhere(fleet, "free").ask("logs", unit="free", lines=0)
    assert said["host"] == where
    assert said["page"] == _hosts(fleet.hosts["a"])[where]["page"]
    assert fleet.hosts[where].ask("logs", unit="free", lines=0)["host"] == ""


def test_move_and_drain(fleet: Cluster) -> None:
    """A unit is moved by an order on any host; a host that drains keeps nothing but takes again when that is undone;
    what only it may run waits until then."""
    asked = fleet.hosts["a"]
    target = _elsewhere(fleet, "free").name
    asked.ask("move", unit="free", host=target)
    until(lambda: fleet.alive().get("free", ("", 0))[0] == target, "the move")
    with pytest.raises(CommandError, match="does not fit: pinned asks for the host b"):
        asked.ask("move", unit="pinned", host="a")
    asked.ask("drain", host="b")
    until(lambda: not [name for name, (place, _) in fleet.alive().items() if place == "b"], "that b is empty")
    until(lambda: {"free", "other"} <= fleet.alive().keys(), "the others")
    assert _hosts(fleet.hosts["b"])["b"]["state"] == "draining"
    assert [one["code"] for one in asked.ask("problems")["problems"]] == ["no_host"]
    fleet.hosts["b"].ask("undrain", host="b")
    until(lambda: fleet.alive().get("pinned", ("", 0))[0] == "b", "what waited")
    assert asked.ask("problems")["problems"] == []


def test_a_host_is_lost_and_comes_back(fleet: Cluster, phone: Phone) -> None:
    """People are told once that it is lost, and that it is back; meanwhile every other host shows it."""
    victim = fleet.hosts[_where(fleet, "free")]
    asked = next(host for host in fleet.hosts.values() if host is not victim)
    victim.kill("all")
    title = f"host {victim.name} lost"
    until(lambda: _hosts(asked)[victim.name]["state"] == "lost", "that it is shown")
    until(lambda: title in phone.titles, "that people are told")
    fleet.mend()
    until(lambda: _hosts(asked)[victim.name]["state"] == "up", "that it is back")
    until(lambda: f"Resolved: {title}" in phone.titles, "that people are told so")
    fleet.run_all(60, but=JOBS)
    assert phone.titles.count(title) == 1


def test_the_store_is_away(fleet: Cluster, phone: Phone) -> None:
    """PostgreSQL is away for longer than the lease: one host tells people, before it ends; and that it is over, though
    its daemon is another one by then, and perhaps another host speaks."""
    fleet.kill_store()
    until(lambda: any(title.endswith("the store cannot be used") for title in phone.titles), "that people are told")
    until(lambda: not fleet.alive(), "the end of every unit")
    fleet.start_store()
    fleet.mend()
    fleet.run_all(60, but=JOBS)
    told = [title for title in phone.titles if title.endswith("the store cannot be used")]
    until(lambda: any(f"Resolved: {title}" in phone.titles for title in told), "that it is over")
    assert len([title for title in told if not title.startswith("Resolved")]) == 1
