"""What ends an inline agent may be answered in any thread: its own, the loop's, or one that it started."""

import asyncio

import flyball
from flyball.config import Settings
from flyball.core.codec import decode_body
from flyball.core.event import Exited
from flyball.runtimes.agent.context import Context

WAIT_MAX = 30.0
"""Seconds for what takes milliseconds."""


def test_an_answer_in_another_thread_ends_a_coroutine() -> None:
    """A loop in debug mode raises whatever is done to it from another thread without care; nothing is."""
    trouble: list[RuntimeError] = []
    with flyball.open("program", settings=Settings(), scratch=True) as guard:

        @guard.agent("spender", budget="0.01", grace=0.05)
        async def spender(ctx: Context) -> None:
            for _ in range(10):  # whoever waits for its end does so by then
                await asyncio.sleep(0)
            try:
                await asyncio.to_thread(ctx.spend, "0.02")
            except RuntimeError as error:
                trouble.append(error)
            await asyncio.Event().wait()

        asyncio.run(asyncio.wait_for(guard.supervise("spender"), WAIT_MAX), debug=True)
        journal = [decode_body(entry.body).event for entry in guard.governor.store.entries()]
        assert [event.error for event in journal if isinstance(event, Exited)] == ["cost_budget_exceeded"]
        assert trouble == []
