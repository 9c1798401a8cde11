"""The network of a fleet: each host and the store in a place of its own, with links that are cut, slowed and healed.

Where rights allow, places are network namespaces on a bridge that has one of its own, so nothing of the machine is
touched: what is cut is silent, as a cable is, and no end is told. They have no names: whatever becomes of the test,
the kernel takes them away with the last process that is in them. Elsewhere each host has a proxy of ours on loopback,
whose ends are told nothing either.
"""

import asyncio
import contextlib
import ctypes
import functools
import os
import subprocess
import threading
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

STORE: Final = "store"
"""The place of PostgreSQL."""
KIND: Final = "FLYBALL_FLEET_NET"
"""The variable that asks for `proxies` where namespaces could be made, too."""

CLONE_NEWNET: Final = 0x40000000
HOSTS_MAX: Final = 200
"""So many addresses the one net of a bridge has, and some are left."""
DELAY: Final = 0.08
"""Seconds that a slow link takes one way."""
THIN: Final = "tbf rate 128kbit burst 2kb limit 64kb"
"""A slow link where the kernel knows no delays: a queue in front of a thin line."""
_PIECE: Final = 65_536


class Net(Protocol):
    """Places and links. A host that is not named is at the end of a good link."""

    kind: str
    address: str
    """Where the store is to listen."""

    def at(self, place: str) -> contextlib.AbstractContextManager[None]:
        """Whatever is started or connected inside, by this thread, is there."""
        ...

    def reach(self, host: str, dsn: str) -> str:
        """How that host connects to the store."""
        ...

    def cut(self, host: str) -> None:
        """Nothing passes, and nobody is told."""
        ...

    def deafen(self, host: str) -> None:
        """What it says is heard; what it is told is not."""
        ...

    def slow(self, host: str) -> None:
        """All passes, late."""
        ...

    def heal(self, host: str) -> None:
        """A good link again."""
        ...

    def close(self) -> None:
        """Nothing of it is left."""
        ...


@contextlib.contextmanager
def net(hosts: Sequence[str]) -> Iterator[Net]:
    """A network for as long as the block lasts: of namespaces if they can be made."""
    made: Net = Proxies(hosts) if os.environ.get(KIND) == "proxies" or not has_rights() else Namespaces(hosts)
    try:
        yield made
    finally:
        made.close()


@functools.cache
def has_rights() -> bool:
    """Whether namespaces, links between them and what cuts a link can be had here."""
    try:
        Namespaces(["probe"]).close()
    except (OSError, subprocess.SubprocessError, AttributeError):
        return False
    return True


class Namespaces:
    """A namespace each, and one more with a bridge that all are plugged into."""

    kind = "namespaces"
    address = "10.99.0.250"

    def __init__(self, hosts: Sequence[str]) -> None:
        assert len(hosts) <= HOSTS_MAX
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self._places: dict[str, int] = {}
        self._ports = {host: f"port{number}" for number, host in enumerate(hosts, 1)}
        self._ports[STORE] = "port250"
        try:
            self._bridge = self._made()
            with self._inside(self._bridge):
                _ip("link add wire type bridge", "link set wire up")
            for place, port in self._ports.items():
                self._plug(place, port)
        except BaseException:
            self.close()
            raise

    def _plug(self, place: str, port: str) -> None:
        there = self._places[place] = self._made()
        with self._inside(self._bridge):
            end = f"/proc/{os.getpid()}/fd/{there}"
            _ip(
                f"link add {port} type veth peer name eth0 netns {end}",
                f"link set {port} master wire",
                f"link set {port} up",
            )
        with self._inside(there):
            address = f"10.99.0.{port.removeprefix('port')}"
            _ip("link set lo up", f"addr add {address}/24 dev eth0", "link set eth0 up")

    @contextlib.contextmanager
    def at(self, place: str) -> Iterator[None]:
        with self._inside(self._places[place]):
            yield

    def reach(self, host: str, dsn: str) -> str:
        return dsn

    def cut(self, host: str) -> None:
        self._state(host, 0)

    def deafen(self, host: str) -> None:
        with self._inside(self._bridge):
            port = self._ports[host]
            quiet = ["flood", "off", "mcast_flood", "off", "bcast_flood", "off", "learning", "off"]
            _run("bridge", "link", "set", "dev", port, *quiet)
            _run("bridge", "fdb", "flush", "dev", "wire", "brport", port, "dynamic")

    def slow(self, host: str) -> None:
        with self._inside(self._bridge):
            _delayed(self._ports[host])
        with self._inside(self._places[host]):
            _delayed("eth0")

    def heal(self, host: str) -> None:
        with self._inside(self._bridge):
            port = self._ports[host]
            loud = ["flood", "on", "mcast_flood", "on", "bcast_flood", "on", "learning", "on"]
            _run("bridge", "link", "set", "dev", port, *loud)
            _run("tc", "qdisc", "del", "dev", port, "root", check=False)
        with self._inside(self._places[host]):
            _run("tc", "qdisc", "del", "dev", "eth0", "root", check=False)
        self._state(host, 3)

    def close(self) -> None:
        for there in (*self._places.values(), getattr(self, "_bridge", -1), self._home):
            if there >= 0:
                os.close(there)
        self._places, self._bridge, self._home = {}, -1, -1

    def _state(self, host: str, state: int) -> None:
        with self._inside(self._bridge):
            _run("bridge", "link", "set", "dev", self._ports[host], "state", str(state))

    def _made(self) -> int:
        """A new namespace, held open."""
        _libc("unshare", CLONE_NEWNET)
        try:
            return os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        finally:
            _libc("setns", self._home, CLONE_NEWNET)

    @contextlib.contextmanager
    def _inside(self, namespace: int) -> Iterator[None]:
        _libc("setns", namespace, CLONE_NEWNET)
        try:
            yield
        finally:
            _libc("setns", self._home, CLONE_NEWNET)


class Proxies:
    """All on loopback; each host reaches the store through a proxy of its own."""

    kind = "proxies"
    address = "127.0.0.1"

    def __init__(self, hosts: Sequence[str]) -> None:
        self._wires = {host: _Wire() for host in hosts}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def at(self, place: str) -> Iterator[None]:
        yield

    def reach(self, host: str, dsn: str) -> str:
        url = urlsplit(dsn)
        assert url.hostname is not None
        assert url.port is not None
        port = self._done(self._wires[host].open(url.hostname, url.port))
        return urlunsplit(url._replace(netloc=f"{url.username}@127.0.0.1:{port}"))

    def cut(self, host: str) -> None:
        self._set(host, there=False, back=False)

    def deafen(self, host: str) -> None:
        self._set(host, there=True, back=False)

    def slow(self, host: str) -> None:
        self._set(host, there=True, back=True, delay=DELAY)

    def heal(self, host: str) -> None:
        self._set(host, there=True, back=True)

    def close(self) -> None:
        if self._thread.is_alive():
            for wire in self._wires.values():
                self._done(wire.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _set(self, host: str, *, there: bool, back: bool, delay: float = 0.0) -> None:
        self._done(self._wires[host].set(there=there, back=back, delay=delay))

    def _done(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)


class _Wire:
    """The link of one host: what comes in on a port of loopback goes to the store, while it passes."""

    def __init__(self) -> None:
        self._there, self._back = asyncio.Event(), asyncio.Event()
        self._there.set()
        self._back.set()
        self._delay = 0.0
        self._server: asyncio.Server | None = None
        self._calls: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> int:
        """Its port."""

        async def call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._calls.add(task)
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._connect(reader, writer, host, port)
            self._calls.discard(task)
            _abort(writer)

        if self._server is None:
            self._server = await asyncio.start_server(call, "127.0.0.1", 0)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
        await self._there.wait()
        to_reader, to_writer = await asyncio.open_connection(host, port)
        pumps = [
            asyncio.ensure_future(self._pump(reader, to_writer, self._there)),
            asyncio.ensure_future(self._pump(to_reader, writer, self._back)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            _abort(to_writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: asyncio.Event) -> None:
        while piece := await reader.read(_PIECE):
            await asyncio.sleep(self._delay)
            await passes.wait()
            writer.write(piece)
            await writer.drain()
        await passes.wait()  # that the other end hung up is news too, which does not pass either

    async def set(self, *, there: bool, back: bool, delay: float) -> None:
        self._delay = delay
        for passes, on in ((self._there, there), (self._back, back)):
            passes.set() if on else passes.clear()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in tuple(self._calls):
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)


def _abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def _libc(name: str, *args: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _ip(*commands: str) -> None:
    _run("ip", "-batch", "-", text="\n".join(commands))


def _delayed(device: str) -> None:
    at_root = ("tc", "qdisc", "replace", "dev", device, "root")
    if _run(*at_root, *f"netem delay {DELAY * 1000:g}ms".split(), check=False) != 0:
        _run(*at_root, *THIN.split())


def _run(*command: str, text: str = "", check: bool = True) -> int:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=10)
    if check and done.returncode != 0:
        raise OSError(f"{' '.join(command)} {text}: {done.stderr}")
    return done.returncode
