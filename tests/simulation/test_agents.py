"""A hundred agents with random faults, for simulated days: crashes are recovered, ends respected, nobody thrashes."""

import asyncio
import os
import random
from collections import Counter

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Cause, Exited, Start
from flyball.core.time import HOUR
from flyball.runtimes.agent.context import Context
from flyball.runtimes.agent.ending import Starved
from tests.runtimes.agent.scene import Scene

DAYS = 2


class Fleet:
    """Agents of every temper, on one seed."""

    def __init__(self, seed: int, agents: int) -> None:
        self.scene = Scene()
        self.dice = random.Random(seed)
        self.starts: Counter[str] = Counter()
        self.late: list[float] = []
        self.gave_up: set[str] = set()
        for number in range(agents):
            self._add(number)

    def _add(self, number: int) -> None:
        temper = self.dice.choice(["honest", "flaky", "crasher", "leaver", "hanger", "starver", "spender"])

        @self.scene.guard.agent(f"{temper}-{number}", deadline=6 * 3600, budget="2.00", user=f"user{number % 5}")
        async def agent(ctx: Context) -> None:
            self.starts[ctx.unit] += 1
            # What is remembered is never less than what was made before.
            assert ctx.memory.get("steps", 0) >= (1 if ctx.memory else 0)
            ends = DAYS * 86_400
            while self.scene.loop.time() < ends:
                await self._step(ctx, temper)
                asleep = self.scene.loop.time()
                length = self.dice.uniform(60, 1800)
                await ctx.sleep(length)
                self.late.append(self.scene.loop.time() - asleep - length)

    async def _step(self, ctx: Context, temper: str) -> None:
        chance = self.dice.random()
        cost = "0.10" if temper == "spender" else "0.0001"
        async with ctx.step("work", call=f"{ctx.unit} {self.scene.loop.time()}", cost=cost) as step:
            ctx.memory["steps"] = ctx.memory.get("steps", 0) + 1
            if temper == "crasher" or (temper == "flaky" and chance < 0.02):
                raise ValueError(f"fault {self.dice.randrange(3)}")
            step.result(self.scene.loop.time())
        if temper == "leaver" and chance < 0.05:
            self.gave_up.add(ctx.unit)
            ctx.give_up("done with it")
        if temper == "hanger" and chance < 0.02:
            await asyncio.Event().wait()
        if temper == "starver" and chance < 0.02:
            raise Starved("no quota")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [int(os.environ.get("FLYBALL_SEED", "1"))])
def test_hundred_agents(seed: int) -> None:
    """S3-46: what crashes comes back, what ends by itself does not, nobody is restarted more often than the settings
    allow, every failure and its reason is on record, and the sleep of one never delays another."""
    fleet = Fleet(seed, 100)
    decisions = fleet.scene.run()
    scene = fleet.scene
    assert scene.loop.time() >= DAYS * 86_400
    for name, decision in decisions.items():
        temper = name.partition("-")[0]
        causes = scene.causes(name)
        starts = [event for event in scene.events(name, Start) if isinstance(event, Start)]
        assert len(starts) == fleet.starts[name] == len(causes)
        if name in fleet.gave_up:
            assert causes[-1] == Cause.STOPPED
            assert causes.count("stopped") == 1
        if temper == "honest":
            # Its run lasts longer than its deadline, so it is started again: it is alive to the end.
            assert set(causes) <= {"timeout", "done"}
        if temper == "crasher":
            assert decision.verb is Verb.HOLD
            assert len(causes) <= 6
        if temper == "spender":
            assert causes[-1] == "starved"
            assert "ended_by_policy" in decision.codes
        for event in scene.events(name, Exited):
            assert isinstance(event, Exited)
            assert event.cause is not Cause.ERROR or "ValueError: fault" in event.detail
    _no_thrashing(fleet)
    assert max(fleet.late) < 0.001


def _no_thrashing(fleet: Fleet) -> None:
    """No agent has more than ten restarts within any hour."""
    entries = [entry for entry in fleet.scene.store.entries(limit=10_000_000) if entry.event == "start"]
    granted: dict[str, list[int]] = {}
    for entry in entries:
        if entry.verb == "proceed":
            granted.setdefault(entry.unit, []).append(entry.at)
    for starts in granted.values():
        for place, at in enumerate(starts):
            assert sum(at <= other < at + HOUR for other in starts[place:]) <= 11
