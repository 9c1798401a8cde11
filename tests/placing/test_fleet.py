"""A fleet that many hosts share: a host starts what it takes, ends what it leaves, and begins nothing else."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from flyball.config.plan import Plan
from flyball.config.planning import read_plan
from flyball.core.codec import decode_body
from flyball.core.event import Start
from flyball.fleet import Fleet, pids
from flyball.governor import Governor
from flyball.placing.items import Item, items
from flyball.runtimes import kept
from flyball.runtimes.holder import start_of
from flyball.runtimes.kept import Record
from flyball.store.memory import MemoryStore

PATIENCE = 20.0
"""Seconds for what takes a fraction of one: this machine may be busy."""


def planned(folder: Path, **units: str) -> Plan:
    """A plan of units that run for ever; what is given is said of them too."""
    lines = [f"  {name}: {{command: [sleep, '1000'], grace: 1s{more and ', '}{more}}}" for name, more in units.items()]
    file = folder / "flyball.yaml"
    file.write_text("\n".join(["units:", *lines, ""]))
    return read_plan(file, {})[0]


class Scene:
    """One host's fleet."""

    def __init__(self, folder: Path, plan: Plan, may_begin: Callable[[], bool] = lambda: True) -> None:
        self.store = MemoryStore()
        self.fleet = Fleet(plan, Governor(plan.policies, self.store), folder, None, placed=True, may_begin=may_begin)
        self.takes: dict[str, asyncio.Task[None]] = {}

    def item(self, name: str) -> Item:
        return next(item for item in items(self.fleet.plan) if item.name == name)

    def take(self, name: str) -> None:
        self.takes[name] = asyncio.create_task(self.fleet.take(self.item(name)))

    async def leave(self, name: str) -> None:
        await self.fleet.leave(self.item(name))
        await asyncio.wait_for(self.takes.pop(name), PATIENCE)

    async def runs(self, *names: str) -> dict[str, int]:
        """Wait until exactly these run; their processes."""
        async with asyncio.timeout(PATIENCE):
            while set(found := pids(self.fleet.posts)) != set(names):
                await asyncio.sleep(0.01)
        return found

    def events(self, unit: str) -> list[str]:
        return [entry.event for entry in self.store.entries(limit=1000) if entry.unit == unit]


@asynccontextmanager
async def scene(*args: Any) -> AsyncIterator[Scene]:
    one = Scene(*args)
    try:
        await one.fleet.begin()
        yield one
    finally:
        for task in one.takes.values():
            task.cancel()
        await one.fleet.end()
        one.store.close()


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_only_what_is_taken_is_started_and_what_is_left_is_gone(tmp_path: Path) -> None:
    """Nothing runs before it is taken; when `leave` returns, its processes are gone and `take` returned; and it can be
    taken again."""

    async def main() -> None:
        plan = planned(tmp_path, a="", b="after: [a]", c="")
        async with scene(tmp_path, plan) as one:
            assert await one.runs() == {}
            one.take("a")
            first = await one.runs("a", "b")
            one.take("c")
            await one.runs("a", "b", "c")
            await one.leave("a")
            assert not any(is_there(pid) for pid in first.values())
            await one.runs("c")
            one.take("a")
            again = await one.runs("a", "b", "c")
            assert set(again.values()).isdisjoint(first.values())
            events = [decode_body(entry.body).event for entry in one.store.entries(limit=1000)]
            starts = [event.run for event in events if isinstance(event, Start) and event.unit == "a"]
            assert len(starts) == 2
            assert len(set(starts)) == 2, "no two runs are called alike"

    run(main())


def test_what_was_taken_is_ended_after_those_that_need_it(tmp_path: Path) -> None:
    """As when the whole fleet ends."""

    async def main() -> None:
        async with scene(tmp_path, planned(tmp_path, a="", b="after: [a]", c="after: [b]")) as one:
            one.take("a")
            await one.runs("a", "b", "c")
            await one.leave("a")
            ended = [entry.unit for entry in one.store.entries(limit=1000) if entry.event == "exited"]
            assert ended == ["c", "b", "a"]

    run(main())


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param({"a": "", "b": "after: [a]", "c": "", "d": "after: [b]"}, "abd", id="one joins what is taken"),
        pytest.param({"a": "", "b": "", "c": ""}, "a", id="one is another item now"),
        pytest.param({"a": "", "c": "after: [a]"}, "ac", id="one is removed, one joins"),
        pytest.param({"a": "", "b": "after: [a]", "c": "nice: 1"}, "ab", id="one changed that is not here"),
        pytest.param({"a": "", "b": "after: [a], nice: 1", "c": ""}, "ab", id="one changed that is here"),
    ],
)
def test_other_settings_start_and_end_what_is_here(after: dict[str, str], expected: str, tmp_path: Path) -> None:
    """Units that belong to a taken item run here, others do not; what did not change is not touched."""

    async def main() -> None:
        async with scene(tmp_path, planned(tmp_path, a="", b="after: [a]", c="")) as one:
            one.take("a")
            before = await one.runs("a", "b")
            await one.fleet.change(planned(tmp_path, **after))
            now = await one.runs(*expected)
            assert now["a"] == before["a"]

    run(main())


def test_a_host_whose_lease_is_over_begins_nothing(tmp_path: Path) -> None:
    """It is asked right before each start; the run that was granted is not begun, and said to be so."""

    async def main() -> None:
        async with scene(tmp_path, planned(tmp_path, a=""), lambda: False) as one:
            one.take("a")
            async with asyncio.timeout(PATIENCE):
                while "exited" not in one.events("a"):
                    await asyncio.sleep(0.01)
            assert await one.runs() == {}

    run(main())


def test_orders_concern_what_is_here(tmp_path: Path) -> None:
    """An order to a unit that is another host's changes nothing here, also not later."""

    async def main() -> None:
        async with scene(tmp_path, planned(tmp_path, a="", b="")) as one:
            one.take("a")
            before = await one.runs("a")
            await one.fleet.ordered("b", "start")
            await one.fleet.ordered("", "start")
            assert await one.runs("a") == before
            one.take("b")
            await one.runs("a", "b")

    run(main())


def outlived(one: Scene, folder: Path, unit: str) -> "subprocess.Popen[bytes]":
    """A process of an earlier supervisor on this host, with its note and its run."""
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    holder = f"{one.fleet.holder.rpartition('/')[0]}/earlier/{unit}"
    run_id = f"{holder}.1"
    assert one.fleet.governor.submit(Start(unit=unit, run=run_id, holder=holder)).proceeds
    started = start_of(process.pid)
    assert started is not None
    kept.write(folder / kept.FOLDER, Record(unit, process.pid, started, run_id, holder))
    return process


def test_what_outlived_a_supervisor_is_ended(tmp_path: Path) -> None:
    """It lived on under a lease that is over, and another host may have the unit: it is ended and said to be so before
    this host takes anything."""

    async def main() -> None:
        one = Scene(tmp_path, planned(tmp_path, a="on_supervisor_death: keep"))
        process = outlived(one, tmp_path, "a")
        await one.fleet.begin()
        process.wait(PATIENCE)
        assert "exited" in one.events("a")
        one.take("a")
        assert (await one.runs("a"))["a"] != process.pid
        await one.leave("a")
        await one.fleet.end()

    run(main())
