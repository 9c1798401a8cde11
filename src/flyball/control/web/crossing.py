"""From the server's loop to the daemon's, and back with an answer: bounded in time, and also when the daemon ends."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from flyball.control.context import CommandError

ANSWER_MAX: Final = 30.0
"""Seconds for an answer, as on the socket. Longer than this a phone does not wait either."""


async def cross(
    work: Coroutine[Any, Any, Any],
    home: asyncio.AbstractEventLoop,
    within: float,
    *,
    late: CommandError,
    ending: CommandError,
) -> Any:
    """Have the daemon's loop do it; its answer. `late` is raised if there is none in time, `ending` if it ends."""
    try:
        answer = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, home))
    except RuntimeError:
        work.close()
        raise ending from None
    done, _ = await asyncio.wait((answer,), timeout=within)
    if not done:
        # What was begun is not taken back because its answer comes late.
        answer.add_done_callback(lambda missed: missed.cancelled() or missed.exception())
        raise late
    if answer.cancelled():
        raise ending
    return answer.result()
