"""Agents by the thousand in one loop: how many steps a second are held, each durable, on one core.

Each agent makes one step a second, counted in the store before it is made. With `--memory` it also remembers something
with each step, so that every step is a commit of its own. Commits of many are made together. A rate is held if of a
hundred steps ninety-nine come no later than a second.
"""

import argparse
import asyncio
import logging
import resource
import tempfile
import time
from typing import Final

import flyball
from flyball.config import Settings

LATE_MAX: Final = 1.0
"""Seconds by which a step may be late before the rate is not held."""


def main() -> None:
    """Measure, and print one line for each number of agents."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, nargs="*", default=[1_000, 2_000, 5_000], help="how many at once")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each is measured")
    parser.add_argument("--warm-up", type=float, default=5.0, help="seconds before anything is measured")
    parser.add_argument("--memory", action="store_true", help="each step changes the agent's memory")
    given = parser.parse_args()
    logging.disable(logging.INFO)
    for agents in given.agents:
        print(measure(agents, given.seconds, given.warm_up, memory=given.memory))


def measure(agents: int, length: float, warm_up: float, *, memory: bool = False) -> str:
    """So many agents, one step a second each, for that long; what came of it, as one line."""
    settings = Settings.model_validate({"safety": {"max_loop_iterations": 1_000}})
    with (
        tempfile.TemporaryDirectory() as folder,
        flyball.open("bench", settings=settings, state_dir=folder) as guard,
    ):
        late: list[float] = []
        used = up = 0.0
        begun = asyncio.Event()
        waiting = 0

        def define(number: int) -> None:
            @guard.agent(f"agent-{number}")
            async def agent(ctx: flyball.Context) -> None:
                nonlocal used, up, waiting
                waiting += 1
                if waiting == agents:
                    up = time.monotonic()
                    begun.set()
                await begun.wait()
                # All are up. Each has its own moment of the second, and the first of them begins to count.
                due = up + number / agents
                while due < up + warm_up + length:
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    if not used and due >= up + warm_up:
                        used = time.process_time()
                    async with ctx.step("work", call=due) as step:
                        if memory:
                            ctx.memory["steps"] = ctx.memory.get("steps", 0) + 1
                        step.result(due)
                    if due >= up + warm_up:
                        late.append(time.monotonic() - due)
                    due += 1.0
                waiting -= 1
                if waiting == agents - 1:
                    used = time.process_time() - used

        for number in range(agents):
            define(number)
        began = time.monotonic()
        guard.run()
        journal = guard.governor.store.read(()).seq
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    late.sort()
    slowest = late[int(len(late) * 0.99)]
    return (
        f"{agents:>6} agents: {len(late) / length:>6.0f} steps/s {'held' if slowest <= LATE_MAX else 'not held'} "
        f"(half within {late[len(late) // 2] * 1000:.0f} ms, 99 % within {slowest * 1000:.0f} ms), "
        f"{used / len(late) * 1e6:.0f} us of CPU a step, all up in {up - began:.1f} s, {journal} entries, {peak} MiB"
    )


if __name__ == "__main__":
    main()
