"""An agent that is written as one iteration, as the loop that it means."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from flyball.core.time import later, span
from flyball.runtimes.agent.context import Context
from flyball.runtimes.agent.inline import Function


def repeated(function: Callable[..., Any], every: float | None) -> Function:
    """The function again and again, so many seconds apart; None: it is a loop itself. Each iteration that is made is a
    step: it ends a backoff."""
    if every is None:
        return function
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def loop(context: Context) -> None:
            while True:
                async with context.step("iteration"):
                    await function(context)
                await context.sleep(every)

        return loop

    @functools.wraps(function)
    def threaded(context: Context) -> None:
        while True:
            with context.step("iteration"):
                function(context)
            context.wait_until(later(context.now(), span(every)))

    return threaded
