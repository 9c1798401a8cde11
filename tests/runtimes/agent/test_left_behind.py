"""What a run leaves behind when it ends: tasks, threads, steps that are still at work. They get no leave any more; what
they did counts."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import flyball
from flyball.core.codec import decode_state
from flyball.core.event import Step, Stepped
from flyball.core.policy import Key
from flyball.errors import StoreError
from flyball.policies.budget import State as BudgetState
from flyball.runtimes.agent.context import Context
from flyball.runtimes.agent.memory import Memory, MemoryRefused
from flyball.runtimes.refusal import Refused
from tests.runtimes.agent.scene import Scene


async def steps_on(ctx: Context, scene: Scene) -> None:
    async with ctx.step("late", cost="0.40"):
        pass


async def steps_on_in_a_thread(ctx: Context, scene: Scene) -> None:
    def work() -> None:
        with ctx.step("late", cost="0.40"):
            pass

    await asyncio.to_thread(work)


async def reserves(ctx: Context, scene: Scene) -> None:
    async with ctx.reserve_soon("0.40"):
        pass


async def reserves_of_the_guard(ctx: Context, scene: Scene) -> None:
    scene.guard.reserve("0.40")


async def calls(ctx: Context, scene: Scene) -> None:
    @scene.guard.call("fetch", cost="0.40")
    def fetch() -> None:
        raise AssertionError("it was called")

    fetch()


async def asks(ctx: Context, scene: Scene) -> None:
    await ctx.ask_human("may I?")


async def saves(ctx: Context, scene: Scene) -> None:
    ctx.memory["late"] = 1
    ctx.save()


@pytest.mark.parametrize(
    "acts",
    [steps_on, steps_on_in_a_thread, reserves, reserves_of_the_guard, calls, asks, saves],
    ids=lambda f: f.__name__,
)
def test_a_task_that_outlives_its_run_is_refused(acts: Callable[[Context, Scene], Awaitable[None]]) -> None:
    """The limits of a run end with it: what it left at work would have them all over again, so it gets nothing."""
    scene = Scene()
    refusals: list[Refused] = []
    left: list[asyncio.Task[None]] = []

    @scene.guard.agent("a", budget="0.50", budget_by="run")
    async def agent(ctx: Context) -> None:
        ended = asyncio.Event()

        async def late() -> None:
            await ended.wait()
            with pytest.raises(Refused) as caught:
                await acts(ctx, scene)
            refusals.append(caught.value)

        left.append(asyncio.ensure_future(late()))
        async with ctx.step("model", cost="0.40"):
            pass
        asyncio.get_running_loop().call_later(60, ended.set)

    @scene.guard.agent("keeps-the-loop")
    async def keeper(ctx: Context) -> None:
        await ctx.sleep(120)

    scene.run()
    assert left[0].done()
    assert left[0].exception() is None
    assert [refused.code for refused in refusals] == ["run_not_live"]
    assert len(scene.events("a", Step)) == 1
    assert Memory.key("a") not in scene.store.states()


def test_a_step_that_ends_after_its_run_counts() -> None:
    """What was begun inside the run is reported when it is made, with what it cost; the memory that it leaves is not
    written over that of the next run."""
    scene = Scene()
    reached = asyncio.Event()

    @scene.guard.agent("a", budget="5.00")
    async def agent(ctx: Context) -> None:
        inside = asyncio.Event()

        async def slow() -> None:
            async with ctx.step("slow", cost="0.40") as step:
                inside.set()
                await reached.wait()
                ctx.memory["who"] = "the first"
                step.spent("0.03")

        if ctx.again:
            async with ctx.step("quick"):
                ctx.memory["who"] = "the second"
            reached.set()
            await left[0]
            return
        left.append(asyncio.ensure_future(slow()))
        await inside.wait()
        raise ValueError("it does not wait for what it began")

    left: list[asyncio.Task[None]] = []
    scene.run()
    key = Key("budget", "unit", "a")
    assert decode_state(BudgetState, scene.store.states()[key]) == BudgetState(spent=30_000)
    assert scene.store.states()[Memory.key("a")] == b'{"who":"the second"}'


def test_leave_that_comes_after_the_end_is_given_back() -> None:
    """A step that is asked for while its run ends is granted too late: it is not made, and its money is free again."""
    scene = Scene()
    answers: list[BaseException | None] = []

    @scene.guard.agent("a", budget="5.00")
    async def agent(ctx: Context) -> None:
        async def ask() -> None:
            with pytest.raises(Refused) as caught:
                async with ctx.step("late", cost="0.40"):
                    raise AssertionError("it was made")
            answers.append(caught.value)

        left.append(asyncio.ensure_future(ask()))
        await asyncio.sleep(0)  # it asks, and the answer is not there yet
        ctx.steps.end()

    @scene.guard.agent("keeps-the-loop")
    async def keeper(ctx: Context) -> None:
        await ctx.sleep(120)

    left: list[asyncio.Task[None]] = []
    scene.run()
    assert left[0].done()
    assert len(answers) == 1
    assert Key("budget", "unit", "a") not in scene.store.states()


def test_a_block_that_was_left_is_over() -> None:
    """A thread that outlives `guard.watch` is refused, too."""
    go_on = threading.Event()
    refusals: list[Refused] = []
    with flyball.open("program", scratch=True) as guard:
        with guard.watch("work") as ctx:

            def work() -> None:
                assert go_on.wait(30)
                with pytest.raises(Refused) as caught, ctx.step("late"):
                    pass
                refusals.append(caught.value)

            thread = threading.Thread(target=work)
            thread.start()
        go_on.set()
        thread.join(30)
    assert [refused.code for refused in refusals] == ["run_not_live"]


@pytest.mark.parametrize("value", [object(), "x" * (1024 * 1024 + 1)], ids=["no data", "too long"])
def test_a_step_whose_memory_is_refused_is_reported(value: object) -> None:
    """A memory that cannot be kept fails the step; the step was made all the same, and cost what it cost."""
    scene = Scene()

    async def remember(ctx: Context) -> None:
        async with ctx.step("model", cost="0.40") as step:
            step.spent("0.01")
            ctx.memory["value"] = value

    @scene.guard.agent("a", budget="5.00")
    async def agent(ctx: Context) -> None:
        for _ in range(3):
            with pytest.raises(MemoryRefused):
                await remember(ctx)

    scene.run()
    made = [work for event in scene.events("a") if isinstance(event, Stepped) for work in event.done]
    assert [(work.pattern, work.error) for work in made] == [("model", True)] * 3
    key = Key("budget", "unit", "a")
    assert decode_state(BudgetState, scene.store.states()[key]) == BudgetState(spent=30_000)


def test_memory_that_could_not_be_written_is_written_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk loses no memory: what one step could not write, the next one does, though it changed nothing."""
    scene = Scene()
    submit: Any = scene.governor.submit_soon

    def fails(event: Any, *rest: Any) -> Any:
        if isinstance(event, Stepped):
            raise StoreError("the disk is full")
        return submit(event, *rest)

    @scene.guard.agent("a")
    async def agent(ctx: Context) -> None:
        monkeypatch.setattr(scene.governor, "submit_soon", fails)
        with pytest.raises(StoreError):
            async with ctx.step("one"):
                ctx.memory["one"] = 1
        monkeypatch.setattr(scene.governor, "submit_soon", submit)
        async with ctx.step("two"):
            pass
        assert scene.store.states()[Memory.key("a")] == b'{"one":1}'

    scene.run()
    assert scene.causes("a") == ["done"]
