"""A server of the page and its API in front of a fleet whose past is made up; and a client to ask it with."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import httpx
from starlette.routing import BaseRoute

from flyball.config.plan import HttpPlan
from flyball.control.board import Board
from flyball.control.commands import find, perform
from flyball.control.context import Args, Caller, CommandError, Right
from flyball.control.web.listener import Web
from flyball.control.web.tokens import Tokens
from flyball.store import Store
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene

WAIT_MAX = 30.0
"""Seconds for something that takes a fraction of one: this machine may be busy."""
ROLES = {right.name.lower(): right for right in Right}
HTML = {"accept": "text/html,application/xhtml+xml"}


class Service:
    """A daemon, as far as the web sees one."""

    def __init__(self, store: Store | None = None) -> None:
        self.scene = Scene(store or MemoryStore())
        self.board = Board(lambda: self.scene.context().look())
        self.asked: list[tuple[Caller, str, dict[str, Any]]] = []
        self.gate: asyncio.Event | None = None
        """Answers wait for it."""
        self.rings: list[Callable[[], None]] = []
        self.metrics: Callable[[], bytes] | None = lambda: b"flyball_up 1\n"
        self.act: Sequence[BaseRoute] = ()

    @property
    def store(self) -> Store:
        return self.scene.governor.store

    def doorbell(self, ring: Callable[[], None]) -> Callable[[], None]:
        loop = asyncio.get_running_loop()

        def rings() -> None:
            loop.call_soon_threadsafe(ring)

        self.rings.append(rings)
        return lambda: self.rings.remove(rings)

    def ring(self) -> None:
        """The journal grew."""
        for ring in list(self.rings):
            ring()

    async def ask(self, caller: Caller, verb: str, args: Args) -> Any:
        self.asked.append((caller, verb, dict(args)))
        if self.gate is not None:
            await self.gate.wait()
        if find(verb).name in ("ping", "reload", "down"):
            context = self.scene.context(right=caller.right, who=caller.who, channel=caller.channel)
            find(verb).checked(context, args)
            return {}
        context = self.scene.context(right=caller.right, who=caller.who, channel=caller.channel)
        return await asyncio.to_thread(perform, context, verb, args)


class Stage:
    """An open server."""

    def __init__(self, web: Web, service: Service, folder: Path) -> None:
        self.web, self.service, self.folder = web, service, folder
        self.tokens = Tokens(folder)
        self.port = int(web.address.rpartition(":")[2])
        self._clients: list[httpx.AsyncClient] = []
        self._writers: list[asyncio.StreamWriter] = []

    def token(self, role: str = "admin") -> str:
        """The text of a token with that role, made if there is none."""
        found = self.tokens.named(role)
        return (found or self.tokens.add(role, role)).token

    def client(self, role: str | None = None, **headers: str) -> httpx.AsyncClient:
        """Somebody with a token of that role, or with none."""
        if role is not None:
            headers["authorization"] = f"Bearer {self.token(role)}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        client = httpx.AsyncClient(base_url=self.web.address, headers=named, timeout=WAIT_MAX)
        self._clients.append(client)
        return client

    async def browser(self, role: str = "admin") -> httpx.AsyncClient:
        """Somebody who logged in with the form. What a browser sends of itself is sent."""
        client = self.client(origin=self.web.address, sec_fetch_site="same-origin")
        answer = await client.post("/login", data={"token": self.token(role)})
        assert answer.status_code == 303, answer.text
        me = (await client.get("/api/v1/me")).json()
        client.headers["x-flyball-csrf"] = me["csrf"]
        return client

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**24)
        self._writers.append(writer)
        return reader, writer

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        for client in self._clients:
            await client.aclose()


@contextlib.asynccontextmanager
async def staged(folder: Path, service: Service | None = None, **plan: Any) -> AsyncIterator[Stage]:
    """A server, open."""
    service = service or Service()
    web = Web(service, HttpPlan(**{"listen": "127.0.0.1:0", **plan}), folder)
    await web.start()
    stage = Stage(web, service, folder)
    try:
        yield stage
    finally:
        await stage.close()
        await web.stop()


def on_stage(folder: Path, case: Callable[[Stage], Coroutine[Any, Any, None]], **more: Any) -> None:
    """Play a case, within its time."""

    async def play() -> None:
        async with staged(folder, **more) as stage:
            await case(stage)

    asyncio.run(asyncio.wait_for(play(), 2 * WAIT_MAX))


async def until(there: Callable[[], object]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(WAIT_MAX):
        while not there():
            await asyncio.sleep(0.01)


class Events:
    """Reads a stream of events."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def next(self, *kinds: str) -> tuple[str, str, str]:
        """The next event of these kinds: kind, id, data. Comments are passed over."""
        async with asyncio.timeout(WAIT_MAX):
            while True:
                fields = await self._one()
                if fields.get("event") in kinds:
                    return fields["event"], fields.get("id", ""), fields["data"]

    async def _one(self) -> dict[str, str]:
        fields: dict[str, str] = {}
        while True:
            line = (await self._reader.readline()).decode()
            if not line:
                raise EOFError
            line = line.rstrip("\r\n")
            name, colon, value = line.partition(": ")
            if colon and name in ("event", "id", "data"):
                fields[name] = value
            if not line and fields.get("data"):
                return fields

    async def rest(self) -> bytes:
        """All that comes until the end."""
        async with asyncio.timeout(WAIT_MAX):
            return await self._reader.read()

    def close(self) -> None:
        self._writer.close()


async def watch(stage: Stage, path: str, role: str = "look", **headers: str) -> Events:
    """An open stream."""
    reader, writer = await stage.connect()
    lines = [f"GET {path} HTTP/1.1", f"host: 127.0.0.1:{stage.port}", f"authorization: Bearer {stage.token(role)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_MAX)
    assert head.startswith(b"HTTP/1.1 200 "), head
    assert b"text/event-stream" in head
    return Events(reader, writer)


def refusal(code: str) -> CommandError:
    """An error of a verb."""
    return CommandError(code, "it cannot be", remedy="Do something else.")
