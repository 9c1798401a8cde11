"""Hosts that share items, as real processes with the real engine on a real PostgreSQL: each item is had by exactly one
of them, whatever becomes of the others."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.placing.crew import Crew, Process
from tests.servers.postgres import PostgresServer, postgres

pytestmark = pytest.mark.slow  # real servers, and workers that are killed

TAKEOVER_MAX: Final = 5.0
"""Seconds on a machine that does much else at the same time; half of one on a quiet one."""
NAMES = [f"u{number}" for number in range(6)]


def items(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, "units": [name], **more} for name in names]


@pytest.fixture(scope="module")
def spares() -> Iterator[list[Process]]:
    """Processes that are used again: to begin one takes longer than what is tried with it."""
    processes = [Process() for _ in range(3)]
    yield processes
    for process in processes:
        assert process.end() == 0


@pytest.fixture
def crew(dsn: str, tmp_path: Path, spares: list[Process]) -> Iterator[Crew]:
    """A fleet of its own."""
    crew = Crew(dsn, tmp_path, spares)
    yield crew
    crew.close()


def test_the_dead_hosts_items_are_taken_over_once_and_soon(crew: Crew) -> None:
    """Hosts that begin together share the items; when one is killed, the others have its items soon, each once, and
    the rest stays where it is. If nobody hands over what a dead host had, because whoever was to is dead too, any host
    finds it by itself."""
    crew.begin("abc", items(*NAMES), stuck_max=60.0, spread_wait=2.0, tend_every=0.5)
    before = crew.all_have(NAMES)
    assert {name: len(has) for name, has in before.items()} == {"a": 2, "b": 2, "c": 2}
    crew.hosts["b"].kill()
    holder, began = crew.fence("b"), time.monotonic()
    crew.hosts["c"].ask("handed_over", holder=holder)()
    after = crew.all_have(NAMES)
    took = time.monotonic() - began
    assert {name: has & before[name] for name, has in after.items()} == {"a": before["a"], "c": before["c"]}
    assert {name: len(has) for name, has in after.items()} == {"a": 3, "c": 3}
    assert took < TAKEOVER_MAX, took
    crew.hosts["c"].kill()
    crew.fence("c")
    assert crew.all_have(NAMES) == {"a": set(NAMES)}


def test_a_frozen_host_finds_that_it_was_given_up(crew: Crew) -> None:
    """Others have its items when it goes on, and keep them: it leaves what is not its own any more, and puts nothing
    back."""
    crew.begin("ab", items(*NAMES), tend_every=0.5)
    crew.all_have(NAMES)
    a = crew.hosts["a"]
    a.freeze()
    crew.hosts["b"].ask("handed_over", holder=crew.fence("a"))()
    crew.all_have(NAMES)
    a.thaw()
    crew.hosts["a"] = a
    crew.until(lambda has: not has["a"])
    assert a.ask("held")() == []
    assert crew.all_have(NAMES)["b"] == set(NAMES)
    assert set(crew.hosts["b"].ask("placed")().values()) == {crew.holders["b"]}


def test_a_host_that_ends_leaves_its_items_at_once(crew: Crew) -> None:
    """Down in order: each item is ended here before another host has it, and waits for nothing else. Drained and back:
    it has nothing meanwhile, and takes again afterwards."""
    crew.begin("ab", items(*NAMES), ending=0.1)
    crew.all_have(NAMES)
    a, b = crew.hosts["a"], crew.hosts["b"]
    mine = a.has()
    began = time.monotonic()
    a.ask("drain")()
    assert a.has() == set()
    crew.until(lambda has: has["b"] == set(NAMES))
    assert time.monotonic() - began < 3.0
    left = {said["left"]: said["at"] for said in a.log if "left" in said}
    taken = {said["took"]: said["at"] for said in b.log if "took" in said}
    assert all(left[name] < taken[name] for name in mine)
    a.ask("undrain")()
    b.ask("drain")()
    crew.until(lambda has: has["a"] == set(NAMES))
    b.ask("undrain")()


def test_a_move_is_for_once(crew: Crew) -> None:
    """A moved item goes to that host, past its share. When that host is killed, another takes it."""
    crew.begin("ab", items(*NAMES))
    before = crew.all_have(NAMES)
    moved = min(before["a"])
    assert crew.hosts["a"].ask("release", item=moved, why="moved:b")() is True
    assert crew.hosts["a"].ask("release", item=moved, why="moved:b")() is False, "it has it no more"
    after = crew.all_have(NAMES)
    assert after == {"a": before["a"] - {moved}, "b": before["b"] | {moved}}
    assert crew.hosts["a"].ask("placed")() == {name: crew.holders[host] for host, has in after.items() for name in has}
    crew.hosts["b"].kill()
    crew.hosts["a"].ask("handed_over", holder=crew.fence("b"))()
    assert crew.all_have(NAMES) == {"a": set(NAMES)}


def test_an_item_waits_for_a_host_that_may_run_it(crew: Crew) -> None:
    """What is pinned to a host or needs a label waits for one that fits, and comes back to none other when that one
    dies."""
    wanted = [*items("free"), *items("pinned", host="b"), *items("gpu", labels={"gpu": "yes"})]
    crew.begin("a", wanted)
    crew.all_have(["free"])
    crew.begin("b", wanted, labels={"gpu": "yes", "zone": "x"})
    assert crew.all_have(["free", "gpu", "pinned"]) == {"a": {"free"}, "b": {"gpu", "pinned"}}
    crew.hosts["b"].kill()
    assert crew.hosts["a"].ask("handed_over", holder=crew.fence("b"))() == 2
    assert crew.hosts["a"].ask("placed")() == {"free": crew.holders["a"], "gpu": "", "pinned": ""}
    crew.begin("b", wanted)
    assert crew.all_have(["free", "pinned"]) == {"a": {"free"}, "b": {"pinned"}}


def test_other_settings(crew: Crew) -> None:
    """What they have no more is left for good, what is new is taken, what is pinned now moves, what comes back is taken
    again. A host with the old settings does not keep it from that."""
    crew.begin("ab", items("one", "two", "three"))
    crew.all_have(["one", "two", "three"])
    after = [*items("two", host="a"), *items("three", host="b"), *items("four")]
    for host in crew.hosts.values():
        host.ask("change", items=after)()
    has = crew.all_have(["two", "three", "four"])
    assert "two" in has["a"]
    assert "three" in has["b"]
    for host in crew.hosts.values():
        host.ask("change", items=items("one"))()
    crew.all_have(["one"])


def test_a_full_host_leaves_the_rest_to_others(crew: Crew) -> None:
    """It takes no more units than it may; what has no host yet waits for one with room."""
    crew.begin("a", items(*NAMES), units_max=2)
    crew.until(lambda has: len(has["a"]) == 2)
    crew.begin("b", items(*NAMES))
    has = crew.all_have(NAMES)
    assert len(has["a"]) == 2


def test_many_items_need_few_threads(crew: Crew) -> None:
    """An item that a host has is a coroutine that waits, and no thread."""
    names = [f"u{number}" for number in range(100)]
    crew.begin("a", items(*names))
    crew.all_have(names)
    assert crew.hosts["a"].ask("threads")() < 30


def test_the_database_goes_away_and_comes_back(tmp_path: Path, spares: list[Process]) -> None:
    """Nobody leaves anything for that. What was left meanwhile is taken afterwards; a host that begins meanwhile is
    told, without the password, and can begin later. A host can end while it is away."""
    with postgres() as server:
        crew = Crew(server.database().replace("flyball@", "flyball:hidden@"), tmp_path, spares)
        crew.begin("ab", items(*NAMES), tend_every=0.5)
        before = crew.all_have(NAMES)
        server.kill()
        left = min(before["a"])
        released = crew.hosts["a"].ask("release", item=left, why="moved:b")
        with pytest.raises(AssertionError, match="where units run cannot be read or written") as refused:
            crew.begin("c", items(*NAMES), units_max=0)
        assert "hidden" not in str(refused.value)
        assert released() is True
        assert crew.has() == {"a": before["a"] - {left}, "b": before["b"], "c": set()}
        server.start()
        crew.all_have(NAMES)
        crew.begin("c", items(*NAMES))
        crew.hosts["a"].ask("drain")()
        assert crew.all_have(NAMES)["c"], "it takes part"
        server.kill()
        for host in crew.hosts.values():
            host.ask("change", items=items(NAMES[0]))()
        assert all(host.has() <= {NAMES[0]} for host in crew.hosts.values())
        crew.close()
        assert not any(host.has() for host in spares)
        assert [host.end() for host in spares] == [0, 0, 0], "nothing in them waits for the database"
        spares.clear()


def test_no_rights(postgres_server: PostgresServer, tmp_path: Path, spares: list[Process]) -> None:
    """Who may make nothing in the database is told so, and nothing has begun."""
    database = postgres_server.database().rpartition("/")[2]
    postgres_server.sql(f"CREATE ROLE poor_{database} LOGIN", f"REVOKE ALL ON DATABASE {database} FROM PUBLIC")
    crew = Crew(postgres_server.dsn(database, f"poor_{database}"), tmp_path, spares)
    with pytest.raises(AssertionError, match="permission denied"):
        crew.begin("a", items(*NAMES))
    crew.close()
