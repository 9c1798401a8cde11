"""What happens at the same moment: many that fire, a queue that is cleared, a rule that goes, an end, a full disk."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from flyball.config.rules import Rule
from flyball.core.decision import Verb
from flyball.core.event import Cause, Held, Step
from flyball.core.policy import Key
from flyball.errors import StoreFull
from flyball.runtimes.rule.deed import ActionFailed, Scene
from flyball.runtimes.rule.firing import FIRING, Fate, Spark
from flyball.store import Draft, Entry, Snapshot
from flyball.store.memory import MemoryStore
from tests.runtimes.rule.stage import Stage, act, rule

STEPS = range(12)
"""Turns of the loop between what a test begins and what comes in between: each is another moment."""


def waiting(stage: Stage) -> int:
    return len(stage.store.states(FIRING))


async def lasts(scene: Scene, deed: Any) -> Mapping[str, Any]:
    await asyncio.sleep(10)
    return {}


async def fails(scene: Scene, deed: Any) -> Mapping[str, Any]:
    raise ActionFailed("SelectorNotFound", "there is no #buy", target="#buy")


async def turns(number: int) -> None:
    """Let the loop turn so often."""
    for _ in range(number):
        await asyncio.sleep(0)


def test_many_fire_at_once() -> None:
    """A queue holds no more than it may, however many fire while others are being written down."""
    stage = Stage()

    async def work() -> None:
        stage.does = lasts
        await stage.up(rule(queue_max=3))
        fates = await asyncio.gather(*(stage.fire() for _ in range(50)))
        assert sorted(fates) == [Fate.FULL] * 47 + [Fate.QUEUED] * 3
        assert waiting(stage) == 3
        assert sum(fired.dropped == Fate.FULL for fired in stage.fired()) == 1, "said once"
        await stage.pass_by(60)
        assert waiting(stage) == 0
        assert await stage.fire() is Fate.QUEUED

    stage.run(work)


def test_queue_of_a_rule_that_cools_down_is_cleared() -> None:
    """What waits for another attempt is forgotten like all that waits; what runs is not."""
    stage = Stage()

    async def work() -> None:
        stage.does = fails
        engine = await stage.up(rule(), rule("busy"))
        await stage.fire()
        await stage.pass_by(0.5)
        stage.does = lasts
        await stage.fire("busy")
        await stage.fire("busy")
        await stage.pass_by(0.1)
        assert (await engine.forget("rule", "ann"), await engine.forget("busy", "ann")) == (1, 1)
        await stage.pass_by(4_000)
        assert waiting(stage) == 0

    stage.run(work)
    assert len(stage.starts()) == 1
    assert [exited.cause for exited in stage.exits("busy")] == [Cause.DONE]


@pytest.mark.parametrize("step", STEPS)
def test_fired_while_the_queue_is_cleared(step: int) -> None:
    """What is forgotten is not run, and nothing joins it: whatever is accepted is run."""
    stage = Stage()

    async def work() -> None:
        stage.does = lasts
        engine = await stage.up(rule())
        spark = Spark(rule="rule", trigger="every 1s", data={"kind": "every"}, joins=True)
        await engine.ring(spark)
        await stage.pass_by(1)
        assert await engine.ring(spark) is Fate.QUEUED  # waits behind the one that runs
        clearing = asyncio.ensure_future(engine.forget("rule", "ann"))
        await turns(step)
        fate = await engine.ring(spark)
        forgotten = await clearing
        await stage.pass_by(60)
        assert waiting(stage) == 0
        assert len(stage.starts()) == 3 - forgotten - (fate is Fate.JOINED)

    stage.run(work)


@pytest.mark.parametrize("step", STEPS)
def test_rule_goes_while_it_is_fired(step: int) -> None:
    """Nothing waits for a rule that is gone."""
    stage = Stage()

    async def work() -> None:
        stage.does = lasts
        engine = await stage.up(rule(), rule("other"))
        firing = asyncio.ensure_future(stage.fire())
        await turns(step)
        await engine.change([rule("other")])
        assert await firing in (Fate.QUEUED, Fate.UNKNOWN)
        assert waiting(stage) == 0

    stage.run(work)


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
@pytest.mark.parametrize("step", STEPS)
def test_end_at_any_moment(step: int, held: bool) -> None:
    """The engine ends, whatever is on its way: nothing is lost, and what was granted is accounted for."""
    stage = Stage()

    async def work() -> None:
        stage.does = lasts
        await stage.up(rule())
        if held:
            stage.governor.submit(Held(unit="rule", verb=Verb.HOLD, by="ann"))
        firing = asyncio.ensure_future(stage.fire())
        await turns(step)
        async with asyncio.timeout(60):
            await stage.engine.end()
        await firing
        assert waiting(stage) == 1

    stage.run(work)
    assert len(stage.starts()) == len(stage.exits()) == len({exited.run for exited in stage.exits()})


@pytest.mark.parametrize("step", range(20))
def test_changed_while_it_ends(step: int) -> None:
    """What becomes of a firing is decided once: what is written and what is known do not differ."""
    stage = Stage()

    async def work() -> None:
        stage.does = fails
        engine = await stage.up(rule())
        await stage.fire()
        await turns(step)
        await engine.change([rule(runs_again=False)])
        await stage.pass_by(0.5)
        assert len(engine.queue.of("rule")) == waiting(stage)

    stage.run(work)


class Disk(MemoryStore):
    """A store with a disk that may be full."""

    full = False

    def transact_soon(
        self, keys: Sequence[Key], draft: Callable[[Snapshot], Draft | None], *, sync: bool = True
    ) -> "Future[Entry | None]":
        if self.full:
            refused: Future[Entry | None] = Future()
            refused.set_exception(StoreFull("no room left on the disk"))
            return refused
        return super().transact_soon(keys, draft, sync=sync)


def _two() -> Rule:
    return rule(actions=(act("one"), act("two")))


@pytest.mark.parametrize("fills_in", ["one", "two"])
def test_disk_is_full_during_a_run(fills_in: str) -> None:
    """What was done is written down when there is room again, and nothing more is done until then. That is no failure
    of the rule, and nothing is done twice."""
    disk = Disk()
    stage = Stage(store=disk)

    async def fills(scene: Scene, deed: Any) -> Mapping[str, Any]:
        disk.full = deed.command[0] == fills_in
        return {}

    async def work() -> None:
        stage.does = fills
        await stage.up(_two())
        await stage.fire()
        await stage.pass_by(60)
        assert [command for command, _ in stage.done][-1] == fills_in
        disk.full = False
        await stage.pass_by(60)
        assert waiting(stage) == 0

    stage.run(work)
    assert [command for command, _ in stage.done] == ["one", "two"]
    assert [exited.cause for exited in stage.exits()] == [Cause.DONE]
    assert len(stage.journal(Step)) == 2


def test_disk_is_full_when_it_is_fired() -> None:
    """Whoever fires it hears that; nothing is half there."""
    disk = Disk()
    stage = Stage(store=disk)

    async def work() -> None:
        await stage.up(rule(queue_max=1))
        disk.full = True
        with pytest.raises(StoreFull):
            await stage.fire()
        disk.full = False
        assert await stage.fire() is Fate.QUEUED, "its room is free again"
        await stage.pass_by(1)
        assert len(stage.done) == 1

    stage.run(work)


@pytest.mark.parametrize("lasts_for", [0, 0.01, 0.3])
def test_loop_of_a_rule_with_several_runs_at_a_time(lasts_for: float) -> None:
    """What a safeguard ended waits for a person, also where other runs of the rule were under way and are done after
    that; and what waits in the queue still does."""
    stage = Stage({"rule": {"max_runs_per_minute": 100_000}})

    async def takes(scene: Scene, deed: Any) -> Mapping[str, Any]:
        await asyncio.sleep(lasts_for)
        return {}

    async def work() -> None:
        stage.does = takes
        await stage.up(rule(runs_max=3, queue_max=1_000))
        for _ in range(300):
            await stage.fire()
        await stage.pass_by(600)
        stopped = [exited for exited in stage.exits() if exited.error == "loop_detected"]
        assert 1 <= len(stopped) <= 3
        assert len(stage.done) == 99
        assert waiting(stage) == 300 - 99 - len(stopped)

    stage.run(work)


def test_loop_outlives_the_daemon() -> None:
    """A rule that was stopped as a loop waits for a person also after a restart, and when the loop is long over."""
    stage = Stage()

    async def work() -> None:
        await stage.up(rule())
        for _ in range(110):
            await stage.fire()
        await stage.pass_by(1)
        assert len(stage.done) == 99
        await stage.down()
        await stage.up(rule())
        await stage.fire()
        await stage.pass_by(3_600)
        assert len(stage.done) == 99
        await stage.fire(by_person=True)
        await stage.pass_by(10)
        assert waiting(stage) == 0

    stage.run(work)


def test_disk_is_full_when_rules_change() -> None:
    """The other rules are in force; what waits for one that is gone is not run, and forgotten as soon as it can be."""
    disk = Disk()
    stage = Stage(store=disk)

    async def work() -> None:
        stage.does = fails
        engine = await stage.up(rule("a"), rule("b"))
        for name in "ab":
            await stage.fire(name)
        await stage.pass_by(0.5)
        disk.full = True
        made = rule("c")
        added, removed, _ = await engine.change([made])
        assert (added, removed) == (("c",), ("a", "b"))
        disk.full = False
        await stage.fire("c")
        await stage.pass_by(0.5)
        assert [command for command, _ in stage.done] == ["act", "act", "act"]
        await stage.down()
        await stage.up(made)
        assert [key.subject for key in stage.store.states(FIRING)] == [f"c/{stage.fired('c')[0].id}"]

    stage.run(work)
