"""The time that an attempt of an action has. What takes longer is cancelled, and is a failure like any other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from flyball.runtimes.rule.deed import TIMED_OUT, ActionFailed


@asynccontextmanager
async def within(seconds: float, target: str = "") -> AsyncIterator[None]:
    """ActionFailed if it takes longer than so many seconds."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise timed_out(seconds, target) from None


def timed_out(seconds: float, target: str = "", detail: str = "") -> ActionFailed:
    """What an action is told whose time is over."""
    return ActionFailed(TIMED_OUT, f"it took longer than {seconds:g} s", target=target, detail=detail)
