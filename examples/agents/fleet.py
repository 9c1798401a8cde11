"""Many agents with random faults under one guard: who crashes comes back, who ends by itself does not, who cannot be
helped is held. Prints what happens, then what became of each, and ends by itself.

    python examples/agents/fleet.py [number of agents] [seed]
"""

import asyncio
import logging
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

import flyball

TEMPERS = ("honest", "flaky", "crasher", "leaver", "hanger", "starver", "spender", "circler")


def define(guard: flyball.Guard, temper: str, number: int, dice: random.Random) -> None:
    """One agent of that temper."""

    @guard.agent(f"{temper}-{number}", deadline=3, grace=0.5, budget="0.10", causes={ConnectionError: STARVED})
    async def agent(ctx: flyball.Context) -> None:
        pages = ctx.memory.setdefault("pages", [])
        while len(pages) < 8:
            page = f"page {len(pages)}" if temper != "circler" else "page 0"
            async with ctx.step("read", call=page, cost="0.03" if temper == "spender" else "0.001") as step:
                await asyncio.sleep(dice.uniform(0.01, 0.1))
                if temper == "crasher" or (temper == "flaky" and dice.random() < 0.1):
                    raise ValueError("the page has no title")
                if temper == "starver" and dice.random() < 0.1:
                    raise ConnectionError("quota used up")
                step.result(f"text of {page}")
                if temper != "circler":
                    pages.append(page)
            if temper == "leaver" and len(pages) == 3:
                ctx.give_up("nothing of interest here")
            if temper == "hanger" and len(pages) == 4 and not ctx.again:
                await asyncio.Event().wait()


STARVED = flyball.Cause.STARVED


def main() -> None:
    """Run them, and say what became of them."""
    count, seed = (int(given) for given in [*sys.argv[1:], "24", "1"][:2])
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    dice = random.Random(seed)
    here = Path(__file__).parent
    with (
        tempfile.TemporaryDirectory() as folder,
        flyball.open("fleet", config=here / "flyball.yaml", state_dir=folder) as guard,
    ):
        for number in range(count):
            define(guard, TEMPERS[number % len(TEMPERS)], number, dice)
        ended = guard.run()
        journal = guard.governor.store.entries(limit=1_000_000)
        starts = Counter(entry.unit for entry in journal if entry.event == "start" and entry.verb == "proceed")
        print(f"\n{'agent':<12}  starts  how it ended")
        for name, decision in sorted(ended.items()):
            reason = decision.primary
            print(f"{name:<12}  {starts[name]:>6}  {decision.verb.name.lower()}: {reason.text if reason else ''}")
        held = sum(decision.verb is flyball.Verb.HOLD for decision in ended.values())
        print(f"\n{count} agents, {sum(starts.values())} starts, {held} held for a person, {count - held} over.")


if __name__ == "__main__":
    main()
