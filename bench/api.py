"""The API beside a bare route of the same server: reads per second, as ratios; and how long a decision takes while
nobody watches, while a thousand do, and while one of them never reads.

    python -m bench.api
"""

import asyncio
import contextlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from bench.measure import Row
from flyball import app
from flyball.config import Settings
from flyball.config.plan import HttpPlan
from flyball.control.board import Board
from flyball.control.commands import perform
from flyball.control.context import Args, Caller, Context
from flyball.control.past import Past
from flyball.control.web.listener import Web
from flyball.control.web.tokens import Tokens
from flyball.core.event import Beat, Start
from flyball.governor import Governor
from flyball.http_server import HttpServer, routed
from flyball.runtimes.doorbell import Doorbell
from flyball.runtimes.holder import me
from flyball.store import Store

UNITS: Final = 1_000
STREAMS: Final = 1_000
SECONDS: Final = 2.0
"""Of each measurement."""
READERS: Final = 4
"""Connections that ask one after the other."""
ROUNDS: Final = 3
"""All take turns, so that a slow moment of the machine hits all; the best of each counts."""
PATHS: Final = (
    ("GET /health", "/health", 2.0),
    ("GET /api/v1/me", "/api/v1/me", 2.0),
    ("GET /api/v1/events?limit=1", "/api/v1/events?limit=1", 4.0),
    (f"GET /api/v1/board, {UNITS:,} units", "/api/v1/board", 4.0),
    (f"GET /api/v1/status, {UNITS:,} units", "/api/v1/status", 1000.0),
)
"""What is asked for, and how many times as long as a route that does nothing it may take: to know who asks, to cross to
the daemon and to look into the store takes its time; and to look at a thousand units takes that of a thousand."""
SLOWER_MAX: Final = 2.0
"""A decision may take so many times as long while a thousand watch."""


class Service:
    """A daemon without units that run: its store, its board, its verbs."""

    metrics: Callable[[], bytes] | None = None
    act: Sequence[BaseRoute] = ()

    def __init__(self, folder: Path) -> None:
        settings = Settings()
        self._file = folder / app.CHANGES
        self._settings = settings
        self.governor = Governor(settings.policies(), app.open_store(settings, {"FLYBALL_STATE_DIR": str(folder)}))
        self._past, watched = Past(), Past()
        self.board = Board(lambda: self._context(Caller("", "board"), watched).look())
        self._turn = asyncio.Lock()
        for number in range(UNITS):
            self.governor.submit(Start(unit=f"unit-{number:04}", run="r", holder=me()))

    @property
    def store(self) -> Store:
        return self.governor.store

    def doorbell(self, ring: Callable[[], None]) -> Callable[[], None]:
        return Doorbell(self.store, self._file, ring, events=()).close

    def _context(self, caller: Caller, past: Past) -> Context:
        return Context(
            governor=self.governor,
            settings=self._settings,
            who=caller.who,
            channel=caller.channel,
            right=caller.right,
            past=past,
        )

    async def ask(self, caller: Caller, verb: str, args: Args) -> Any:
        async with self._turn:
            return await asyncio.to_thread(perform, self._context(caller, self._past), verb, args)


async def _bare(_: Request) -> Response:
    return JSONResponse({"ok": True})


@contextlib.asynccontextmanager
async def _bare_server() -> AsyncIterator[int]:
    """The peer, in a thread of its own too."""
    opened: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    home = asyncio.get_running_loop()
    ending = threading.Event()

    async def serve() -> None:
        server = HttpServer("127.0.0.1:0", routed([Route("/bare", _bare)]), lambda _: None, setting="")
        await server.open()
        home.call_soon_threadsafe(opened.set_result, server.port)
        while not ending.is_set():
            await asyncio.sleep(0.05)
        await server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield await opened
    finally:
        ending.set()
        await asyncio.to_thread(thread.join)


async def _reads(port: int, path: str, token: str) -> float:
    """How many a second."""
    request = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {token}\r\n\r\n".encode()
    done, until = 0, time.perf_counter() + SECONDS / ROUNDS

    async def read() -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
        while time.perf_counter() < until:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 200 " in head, head
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r")[0])
            await reader.readexactly(length)
            done += 1
        writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(read() for _ in range(READERS)))
    return done / (time.perf_counter() - begun)


def _decisions(governor: Governor) -> list[float]:
    """Microseconds of each, one after the other, as units make them: most are refused or change little."""
    took = []
    until = time.perf_counter() + SECONDS
    number = 0
    while time.perf_counter() < until:
        begun = time.perf_counter()
        governor.submit(Beat(unit=f"unit-{number % UNITS:04}", run="r"))
        took.append((time.perf_counter() - begun) * 1e6)
        number += 1
        time.sleep(0.002)
    return took


@contextlib.asynccontextmanager
async def _watching(port: int, token: str, count: int, *, stuck: int = 0) -> AsyncIterator[None]:
    """So many streams; they are read by a process of their own, as browsers are."""
    code = f"""
import asyncio, sys
async def one():
    reader, writer = await asyncio.open_connection("127.0.0.1", {port}, limit=2**16)
    head = ["GET /api/v1/board/stream HTTP/1.1", "host: 127.0.0.1:{port}", "authorization: Bearer {token}"]
    writer.write("\\r\\n".join([*head, "", ""]).encode())
    await reader.readuntil(b"\\r\\n\\r\\n")
    return reader, writer
async def drain(reader):
    while await reader.read(2**16): pass
async def main():
    open_ = [await one() for _ in range({count})]
    tasks = [asyncio.create_task(drain(reader)) for reader, _ in open_[{stuck}:]]
    await asyncio.sleep(1)
    print("watching", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    said = await asyncio.wait_for(process.stdout.readline(), 120)
    assert said == b"watching\n", said
    try:
        yield
    finally:
        process.kill()
        await process.wait()


async def _measure(folder: Path) -> list[Row]:
    service = Service(folder)
    web = Web(service, HttpPlan(listen="127.0.0.1:0"), folder)
    await web.start()
    port, admin = int(web.address.rpartition(":")[2]), Tokens(folder).named("admin")
    assert admin is not None
    rows = []
    try:
        async with _bare_server() as bare:
            best = dict.fromkeys(("", *(path for _, path, _ in PATHS)), 0.0)
            for number in range(ROUNDS + 1):
                for path in best:
                    asked = (port, path) if path else (bare, "/bare")
                    rate = await _reads(*asked, admin.token)
                    best[path] = max(best[path], rate if number else 0.0)  # the first one makes what is made once
        for name, path, most in PATHS:
            ours, theirs = best[path], best[""]
            rows.append(Row(name, ours, "bare route", theirs, "/s", f"> 1/{most:g}", ours * most >= theirs))
        alone = await asyncio.to_thread(_decisions, service.governor)
        for name, count, stuck in ((f"{STREAMS:,} streams", STREAMS, 0), ("one that never reads", 1, 1)):
            async with _watching(port, admin.token, count, stuck=stuck):
                watched = await asyncio.to_thread(_decisions, service.governor)
            for word, of in (
                ("median", statistics.median),
                ("p99", lambda took: statistics.quantiles(took, n=100)[98]),
            ):
                ours, quiet = of(watched), of(alone)
                met = ours <= SLOWER_MAX * quiet
                rows.append(Row(f"a decision, {name}: {word}", ours, "nobody", quiet, "µs", f"< {SLOWER_MAX:g} x", met))
    finally:
        await web.stop()
        service.store.close()
    return rows


def run() -> Iterator[Row]:
    """All rows."""
    with tempfile.TemporaryDirectory() as folder:
        yield from asyncio.run(_measure(Path(folder)))


if __name__ == "__main__":
    for row in run():
        print(row)
