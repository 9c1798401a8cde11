"""A hundred sessions at once, in threads and coroutines, on one store: all end, their money is exact to the millionth,
and none sees another's work."""

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pytest

import flyball
from flyball.config import Settings
from flyball.core.codec import decode_state
from flyball.core.policy import Key
from flyball.guard import Guard
from flyball.policies.budget import State as Spent
from flyball.runtimes.session.context import SessionContext
from flyball.store import checkpoints

MANY = 100
STAGES = 4
PATIENCE = 120.0
"""Seconds for what takes a few, on a machine with much else to do."""


def costs_of(name: str) -> list[int]:
    """What each stage of a session really costs, in millionths."""
    dice = random.Random(name)
    return [dice.randint(1, 20_000) for _ in range(STAGES)]


def _made(session: SessionContext, stage: Any, number: int) -> None:
    stage.spent(f"0.{costs_of(session.id)[number]:06}")
    session.checkpoint["made"] = [*session.checkpoint.get("made", []), f"{session.id} {number}"]


def plain(session: SessionContext) -> list[str]:
    """Makes stages that cost, and pauses in the middle."""
    assert session.input == {"name": session.id}
    for number in range(len(session.checkpoint.get("made", [])), STAGES):
        with session.stage(f"stage {number}", cost="0.02") as stage:
            _made(session, stage, number)
        if number == 1:
            session.pause("rate_limit", resume_after=0)
    return list(session.checkpoint["made"])


async def coroutine(session: SessionContext) -> list[str]:
    """The same."""
    assert session.input == {"name": session.id}
    for number in range(len(session.checkpoint.get("made", [])), STAGES):
        async with session.stage(f"stage {number}", cost="0.02") as stage:
            _made(session, stage, number)
        if number == 1:
            session.pause("rate_limit", resume_after=0)
    return list(session.checkpoint["made"])


def spent(guard: Guard, by: str, subject: str) -> tuple[int, int]:
    key = Key("budget", by, subject)
    state = decode_state(Spent, guard.governor.store.read([key]).records[key])
    return state.spent, state.reserved


@pytest.mark.parametrize("budget", ["1.00", "0.03"], ids=["all of them done", "some out of money"])
def test_a_hundred_at_once(budget: str, tmp_path: Path) -> None:
    """Each ends done, or, where its own money does not suffice, before the stage that would go over it."""
    settings = Settings.model_validate({"budget": {"per_tree": 1_000}})
    names = [f"s{number}" for number in range(MANY)]
    came: dict[str, Any] = {}

    with flyball.open("program", settings=settings, state_dir=tmp_path) as guard:

        def session(name: str, function: Any) -> flyball.Session:
            return guard.session(name, function, input={"name": name}, budget=budget, tree="all")

        def in_thread(name: str) -> None:
            try:
                came[name] = session(name, plain).run(wait=True)
            except flyball.OutOfBudget as error:
                came[name] = error

        async def in_loop() -> None:
            runs = {name: session(name, coroutine).run_soon(wait=True) for name in names[1::2]}
            results = await asyncio.gather(*runs.values(), return_exceptions=True)
            came.update(zip(runs, results, strict=True))

        threads = [threading.Thread(target=in_thread, args=(name,), daemon=True) for name in names[::2]]
        for thread in threads:
            thread.start()
        asyncio.run(asyncio.wait_for(in_loop(), PATIENCE))
        for thread in threads:
            thread.join(PATIENCE)

        assert set(came) == set(names)
        total = 0
        for name in names:
            made, held = spent(guard, "unit", name)
            kept = checkpoints.load(guard.governor.store, name)
            assert kept is not None
            done = kept.values["made"]
            assert done == [f"{name} {number}" for number in range(len(done))]
            assert (made, held) == (sum(costs_of(name)[: len(done)]), 0)
            assert made <= (1_000_000 if budget == "1.00" else 30_000)
            if isinstance(came[name], flyball.OutOfBudget):
                assert made + 20_000 > 30_000
            else:
                assert came[name] == done
                assert len(done) == STAGES
            total += made
        assert spent(guard, "tree", "all") == (total, 0)
        refused = sum(isinstance(result, flyball.OutOfBudget) for result in came.values())
        assert refused == 0 if budget == "1.00" else 0 < refused <= MANY
