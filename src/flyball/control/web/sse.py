"""Server-sent events: how they are written, and one stream of them to one reader. What is told is made elsewhere, once
for all readers.

A reader that does not take what it is told waits alone: nothing is kept for it beyond a bound, and the server lets go
of one that takes nothing at all.
"""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from starlette.types import Receive, Scope, Send

from flyball.errors import FlyballError

STREAMS_MAX: Final = 1_500
"""At a time. The server takes more connections than this, so that there is room for everybody else."""
ALIVE_EVERY: Final = 5.0
"""Seconds between signs of life, by which a page notices that the daemon is gone, and the daemon that a reader is."""
PACE_MIN: Final = 0.04
"""Seconds between two tellings at least: an eye sees no more, and many changes become one telling."""
PACE_PER_STREAM: Final = 0.001
"""Seconds more for each reader. To tell one costs a tenth of that: so all of them cost a tenth of a core at most."""
RESTS: Final = 4
"""So many times as long as it takes to find out what there is to tell, at least until the next time: where everything
changes all the time, watching takes a quarter of a core and not all of it."""
AT_ONCE: Final = 50
"""Readers that are told in one go: then whoever waits for the processor is let through."""
BREATH: Final = 0.001
"""Seconds until the next ones are told."""
START: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"connection", b"close"),
    (b"x-accel-buffering", b"no"),
)


def event(name: str, data: bytes, number: int | None = None) -> bytes:
    """One event, as it is written. The data is JSON, which has no line ends."""
    head = b"" if number is None else b"id: %d\n" % number
    return b"%sevent: %s\ndata: %s\n\n" % (head, name.encode(), data)


def alive(at: float) -> bytes:
    """A sign of life: for pages, and for whatever only looks at bytes."""
    return b": ping\n\n" + event("alive", b'{"at":%.3f}' % at)


def pace(streams: int) -> float:
    """Seconds between two tellings of so many readers."""
    return max(PACE_MIN, streams * PACE_PER_STREAM)


class Source(Protocol):
    """What a stream is told."""

    async def next(self) -> bytes:
        """What the reader has not been told yet; nothing if that is all."""
        ...


class Stream:
    """One reader. It is an answer of the server."""

    def __init__(self, hub: "Hub", source: Source, may_stay: Callable[[], bool]) -> None:
        self._hub = hub
        self._source = source
        self._may_stay = may_stay
        self._news = asyncio.Event()
        self._extra: deque[bytes] = deque(maxlen=1)
        """A sign of life that is not told yet. An older one is of no use."""
        self._over = False

    def wake(self) -> None:
        """There is something to tell."""
        self._news.set()

    def sign(self, sign: bytes) -> None:
        """Give a sign of life, if the reader may still be here."""
        try:
            stays = self._may_stay()
        except FlyballError:
            stays = False
        if stays:
            self._extra.append(sign)
            self._news.set()
        else:
            self.end()

    def end(self) -> None:
        self._over = True
        self._news.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(START)})
        if scope["method"] != "HEAD":
            leaving = asyncio.ensure_future(self._leaves(receive))
            try:
                with self._hub.having(self):
                    await self._tell(send)
            finally:
                leaving.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await leaving
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _tell(self, send: Send) -> None:
        while not self._over:
            self._news.clear()
            data = await self._source.next()
            if self._extra:
                data += self._extra.popleft()
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
            else:
                await self._news.wait()

    async def _leaves(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.end()


class Hub:
    """All readers of one kind, and when they are told. What there is to tell is known by those who extend this."""

    def __init__(self, count: Callable[[], int], changed: Callable[[], None], now: Callable[[], float]) -> None:
        self._streams: dict[Stream, None] = {}
        self._count = count
        """How many readers there are of all kinds."""
        self._changed = changed
        """Told when one came or is gone."""
        self._now = now
        self._rung = asyncio.Event()

    def __len__(self) -> int:
        return len(self._streams)

    async def look(self) -> None:
        """Ring when nobody else does, until it is cancelled."""
        raise NotImplementedError

    async def catch_up(self) -> bool:
        """Make ready what is to be told; whether that is anything."""
        raise NotImplementedError

    @contextlib.contextmanager
    def having(self, stream: Stream) -> Iterator[None]:
        """One more reader, for as long as it is there."""
        self._streams[stream] = None
        self._rung.set()
        self._changed()
        try:
            yield
        finally:
            del self._streams[stream]
            self._changed()

    def ring(self) -> None:
        """Something changed. Only in the server's own loop."""
        self._rung.set()

    def end(self) -> None:
        """Tell nobody any more."""
        for stream in list(self._streams):
            stream.end()

    async def tell(self) -> None:
        """Tell all readers what there is to tell, until it is cancelled."""
        loop, told_at, took = asyncio.get_running_loop(), -math.inf, 0.0
        while True:
            await self._rung.wait()
            await asyncio.sleep(max(0.0, told_at + max(pace(self._count()), RESTS * took) - loop.time()))
            self._rung.clear()
            told_at = loop.time()
            if self._streams and await self.catch_up():
                took = loop.time() - told_at
                await self._each(Stream.wake)

    async def give_signs(self) -> None:
        """Give all readers signs of life, until it is cancelled."""
        while True:
            await asyncio.sleep(ALIVE_EVERY)
            sign = alive(self._now())
            await self._each(lambda stream, sign=sign: stream.sign(sign))  # type: ignore[misc]  # bound at once

    async def _each(self, do: Callable[[Stream], None]) -> None:
        for number, stream in enumerate(list(self._streams), 1):
            do(stream)
            if number % AT_ONCE == 0:
                await asyncio.sleep(BREATH)
