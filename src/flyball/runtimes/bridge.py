"""Answers of the governor, brought into an event loop.

They come from the store's thread, many at a time, because many are committed together. A loop is woken once for all of
them: waking it for each costs more than weighing it.
"""

import asyncio
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from flyball.core.decision import Decision
from flyball.core.event import Event
from flyball.governor import NO_ROWS, Governor, Rows
from flyball.store import Draft, Entry, Snapshot

T = TypeVar("T")


def submit(governor: Governor, event: Event, rows: Rows = NO_ROWS) -> "asyncio.Future[Decision]":
    """Put an event to the governor, from within a loop. If nobody waits for the answer any more, it counts all the
    same."""
    return bring(governor.submit_soon(event, rows))


def write(governor: Governor, rows: Rows, *, sync: bool = True) -> "asyncio.Future[Entry | None]":
    """Write records that no event comes with, from within a loop."""

    def draft(snapshot: Snapshot) -> Draft:
        return Draft(max(governor.clock.now(), snapshot.at), dict(rows), None)

    return bring(governor.store.transact_soon(list(rows), draft, sync=sync))


def bring(said: "Future[T]") -> "asyncio.Future[T]":
    """What the store's thread will say, for the loop that this is called in."""
    loop = asyncio.get_running_loop()
    bridge = _bridges.get(loop)
    if bridge is None:
        bridge = _bridges[loop] = _Bridge(loop)
    answer: asyncio.Future[T] = loop.create_future()
    said.add_done_callback(partial(bridge.arrived, answer))
    return answer


class _Bridge:
    """The way into one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wake = loop.call_soon_threadsafe
        self._arrived: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()
        self._woken = False

    def arrived(self, answer: "asyncio.Future[Any]", said: "Future[Any]") -> None:
        """In the store's thread: an answer is there."""
        self._arrived.append((answer, said))
        if not self._woken:
            self._woken = True
            try:
                self._wake(self._deliver)
            except RuntimeError:  # the loop is closed: nobody waits
                self._arrived.clear()

    def _deliver(self) -> None:
        self._woken = False  # before the look: what comes after it wakes the loop again
        while self._arrived:
            answer, said = self._arrived.popleft()
            if answer.done():
                continue
            error = said.exception()
            if error is None:
                answer.set_result(said.result())
            else:
                answer.set_exception(error)


_bridges: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Bridge]" = WeakKeyDictionary()
