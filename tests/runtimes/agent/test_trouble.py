"""A store that fails under agents: what can be waited for is, and what cannot ends them in order."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import flyball
from flyball.core.codec import decode_state
from flyball.core.event import Stepped
from flyball.core.policy import Key
from flyball.errors import StoreClosed, StoreFull
from flyball.policies.budget import State as BudgetState
from flyball.runtimes.agent.context import Context
from tests.runtimes.agent.scene import Scene

WAIT_MAX = 30.0


@pytest.mark.parametrize("how", ["coroutine", "thread"])
def test_a_closed_store_ends_all(tmp_path: Path, how: str) -> None:
    """A store that was closed does not come back: nobody tries again for ever, and no agent is left running."""
    ended: list[str] = []
    guard = flyball.open("program", state_dir=tmp_path)

    async def steps(ctx: Context) -> None:
        try:
            for number in range(1_000_000):
                async with ctx.step("step", call=number):
                    await asyncio.sleep(0.01)
                if number == 3:
                    guard.close()
        finally:
            ended.append(ctx.unit)

    def steps_in_a_thread(ctx: Context) -> None:
        try:
            for number in range(1_000_000):
                with ctx.step("step", call=number):
                    ctx.wait_until(ctx.now() + 10_000)
                if number == 3:
                    guard.close()
        finally:
            ended.append(ctx.unit)

    guard.agent("steps", grace=1)(steps if how == "coroutine" else steps_in_a_thread)

    @guard.agent("sleeps", grace=1)
    async def sleeps(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(ctx.unit)

    with pytest.raises(StoreClosed):
        asyncio.run(asyncio.wait_for(guard.supervise(), WAIT_MAX))
    assert sorted(ended) == ["sleeps", "steps"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("flyball steps")]


@pytest.mark.parametrize("cost", [None, "0.10"], ids=["single", "allowance"])
def test_what_a_full_disk_kept_back_is_reported_later(monkeypatch: pytest.MonkeyPatch, cost: str | None) -> None:
    """A fact counts: steps that could not be reported while the disk was full are reported when it is not, each once,
    with all that it cost."""
    scene = Scene()
    submit: Any = scene.governor.submit_soon

    def fails(event: Any, *rest: Any) -> Any:
        if isinstance(event, Stepped):
            raise StoreFull("no room left")
        return submit(event, *rest)

    async def spend(ctx: Context, number: int) -> None:
        async with ctx.step("model", call=number, cost=cost) as step:
            step.spent("0.50")  # more than was reserved, so it is reported at once

    @scene.guard.agent("a", budget="5.00")
    async def agent(ctx: Context) -> None:
        async with ctx.step("first", call="first", cost=cost) as step:
            step.spent(0)
        monkeypatch.setattr(scene.governor, "submit_soon", fails)
        with pytest.raises(StoreFull):
            await spend(ctx, 1)
        monkeypatch.setattr(scene.governor, "submit_soon", submit)
        await spend(ctx, 2)

    scene.run()
    made = [work.pattern for event in scene.events("a") if isinstance(event, Stepped) for work in event.done]
    assert made == ["first", "model", "model"]
    key = Key("budget", "unit", "a")
    assert decode_state(BudgetState, scene.store.states()[key]) == BudgetState(spent=1_000_000)
    assert Key("reservations", "unit", "a") not in scene.store.states()
