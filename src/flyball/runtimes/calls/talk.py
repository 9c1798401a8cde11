"""A talk: what a call says to the governor, and what it waits for, written once for threads and for coroutines.

It is a generator of things to wait for, and is sent what came of each. A thread holds it by waiting, a coroutine by
awaiting; nothing else differs between the two.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from typing import Any, TypeVar

from flyball.runtimes.allowance import RunSteps

T = TypeVar("T")

Wish = Future[Any] | float | RunSteps
"""An answer that is on its way; so many seconds; or that a run's own steps are reported."""

Talk = Generator[Wish, Any, T]


class Holder:
    """Holds talks. Its two ways of sleeping can be replaced by ones that move a clock."""

    def __init__(
        self,
        sleep: Callable[[float], object] = time.sleep,
        sleep_soon: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.sleep = sleep
        self.sleep_soon = sleep_soon

    def hold(self, talk: Talk[T]) -> T:
        """In a thread."""
        try:
            wish = next(talk)
            while True:
                try:
                    came = self._come(wish)
                except BaseException as error:  # noqa: BLE001 - the talk decides what follows from it
                    wish = talk.throw(error)
                else:
                    wish = talk.send(came)
        except StopIteration as end:
            answer: T = end.value
            return answer

    def _come(self, wish: Wish) -> object:
        match wish:
            case Future():
                return wish.result()
            case RunSteps():
                return wish.report()
        return self.sleep(wish)

    async def hold_soon(self, talk: Talk[T]) -> T:
        """In a coroutine."""
        try:
            wish = next(talk)
            while True:
                try:
                    came = await self._come_soon(wish)
                except BaseException as error:  # noqa: BLE001 - the talk decides what follows from it
                    wish = talk.throw(error)
                else:
                    wish = talk.send(came)
        except StopIteration as end:
            answer: T = end.value
            return answer

    async def _come_soon(self, wish: Wish) -> object:
        match wish:
            case Future():
                return await asyncio.wrap_future(wish)
            case RunSteps():
                return await wish.report_soon()
        return await self.sleep_soon(wish)
