"""The run of a graph in the program itself: nothing to pickle, nothing to fork, and nothing that could be killed.

A run that is to end is refused its next node, and its coroutine is cancelled. A node that blocks, or swallows that,
goes on: then there is an error in the log, with its stack. Who wants more than that gives the run a process.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Iterator
from typing import Any, Final

from flyball.core.decision import Decision, Verb
from flyball.integrations.langgraph.phases import GraphRun
from flyball.integrations.langgraph.where import where

log = logging.getLogger(__name__)

GRACE: Final = 5.0
"""Seconds that a run has to end by itself, once it is told to. After that somebody is told where it hangs."""


class InlineRun(GraphRun):
    """A run of which somebody is told when it does not end."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._ended = threading.Event()
        self._told_to_end = threading.Lock()
        """Taken by the first who tells it."""

    def tell(self, decision: Decision) -> None:
        """From outside, in any thread: the run is to finish or to stop."""
        super().tell(decision)
        if decision.verb >= Verb.STOP and self._told_to_end.acquire(blocking=False):
            name = f"flyball waits for {self.context.unit}"
            threading.Thread(target=self._wait_for_end, name=name, daemon=True).start()

    def stream(self, given: Any, config: Any, **kwargs: Any) -> Iterator[Any]:
        """The chunks."""
        try:
            yield from super().stream(given, config, **kwargs)
        finally:
            self._ended.set()
        self._check()

    async def astream(self, given: Any, config: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        """The same for coroutines."""
        self._loop, self._loop_thread = asyncio.get_running_loop(), threading.get_ident()
        stream = super().astream(given, config, **kwargs)
        try:
            async for chunk in stream:
                yield chunk
        finally:
            await stream.aclose()
            self._ended.set()
        self._check()

    def _check(self) -> None:
        """One that was to stop, and went on to its end, is late all the same."""
        if self.gate.verdict.verb >= Verb.STOP:
            raise self._refusal(self.gate.verdict)

    def _wait_for_end(self) -> None:
        if not self._ended.wait(GRACE):
            log.error(
                "%s was told to end and does not, and in the program itself it cannot be made to; "
                'with `isolation="process"` it could. It is here:\n%s',
                self.context.unit,
                where(self, self._loop, self._loop_thread),
            )
