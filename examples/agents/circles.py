"""An agent that goes round in circles: it is nudged, then refused the call that it repeats, then stopped; and flyball
names where the circle began.

    python examples/agents/circles.py
"""

import logging
import sys
import tempfile
from itertools import chain, cycle

import flyball

PAGES = {"/": "Welcome. See /docs.", "/docs": "Read /docs/start.", "/docs/start": "Go back to /docs."}
VISITS = ("/", "/docs", "/docs/start", "/guide", "/manual")


def main() -> None:
    """Some honest steps, two of them to pages that are not there; then the same two pages for ever."""
    logging.basicConfig(level=logging.INFO, format="flyball: %(message)s", stream=sys.stdout)
    with tempfile.TemporaryDirectory() as folder, flyball.open("circles", state_dir=folder) as guard:

        @guard.agent("reader")
        async def reader(ctx: flyball.Context) -> None:
            for number, path in enumerate(chain(VISITS, cycle(("/docs", "/docs/start"))), start=1):
                try:
                    async with ctx.step("fetch", call=path) as step:
                        print(f"step {number}: fetch {path}")
                        step.result(PAGES.get(path, "404 not found"), error=path not in PAGES)
                except flyball.Refused as refused:
                    print(f"step {number}: refused: {refused}")
                else:
                    if step.nudge:
                        print(f"        nudge: {step.nudge}")

        decision = guard.run()["reader"]
        stopped = next(e for e in guard.history("reader") if isinstance(e, flyball.Exited))
        print(f"\nended: {stopped.error}\n{stopped.detail.splitlines()[0]}")
        print(f"and now: {decision.primary.text if decision.primary else ''}")


if __name__ == "__main__":
    main()
