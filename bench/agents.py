"""Agents by the thousand in one loop: how many steps a second are held, each durable, on one core.

Each agent makes one step a second and remembers something with it, so every step is a commit of its own that survives
a kill -9; commits of many are made together. The rate held is the highest at which no step comes late.
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
    parser.add_argument("--agents", type=int, nargs="*", default=[1_000, 3_000, 10_000], help="how many at once")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each is measured")
    given = parser.parse_args()
    logging.disable(logging.INFO)
    for agents in given.agents:
        print(measure(agents, given.seconds))


def measure(agents: int, length: float) -> str:
    """So many agents, one step a second each, for that long; what came of it, as one line."""
    settings = Settings.model_validate({"safety": {"max_loop_iterations": 1_000}})
    with (
        tempfile.TemporaryDirectory() as folder,
        flyball.open("bench", settings=settings, state_dir=folder) as guard,
    ):
        late: list[float] = []
        steps = [0]
        began = time.monotonic()
        ends = [began + length]

        def define(number: int) -> None:
            @guard.agent(f"agent-{number}")
            async def agent(ctx: flyball.Context) -> None:
                # All are up before anybody counts, and each has its own moment of the second.
                due = ends[0] - length + number / agents
                while due < ends[0]:
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
                    async with ctx.step("work", call=steps[0]) as step:
                        ctx.memory["steps"] = ctx.memory.get("steps", 0) + 1
                        step.result(steps[0])
                    steps[0] += 1
                    late.append(time.monotonic() - due)
                    due += 1.0

        for number in range(agents):
            define(number)
        # The starts take their time: what is measured begins when they are over.
        ends[0] = time.monotonic() + length + 2 + agents / 1_000
        cpu = time.process_time()
        guard.run()
        cpu = time.process_time() - cpu
        journal = guard.governor.store.read(()).seq
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    late.sort()
    held = "held" if late[int(len(late) * 0.99)] <= LATE_MAX else "not held"
    return (
        f"{agents:>6} agents: {steps[0] / length:>6.0f} steps/s ({held}; half within {late[len(late) // 2] * 1000:.0f} "
        f"ms, 99 % within {late[int(len(late) * 0.99)] * 1000:.0f} ms), {cpu:.1f} s of CPU in all, "
        f"{journal} entries, {peak} MiB"
    )


if __name__ == "__main__":
    main()
