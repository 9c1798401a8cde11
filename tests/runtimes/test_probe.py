"""Probes: one look from outside, by command, HTTP or TCP, against real processes and servers."""

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from flyball.config.units import Probe, Unit
from flyball.core.time import MILLISECOND, SECOND
from flyball.runtimes.probe import FINE, check

UNIT = Unit(name="u", command=("true",))

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(serve: Serve) -> AsyncIterator[int]:
    """A server on a free port."""

    async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve_and_close, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


def answers(text: bytes) -> Serve:
    """A server that reads a request and says this."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text)
        await writer.drain()

    return serve


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as trying:
        trying.bind(("127.0.0.1", 0))
        port: int = trying.getsockname()[1]
        return port


def probe_http(answer: bytes, path: str = "/health") -> str:
    async def look() -> str:
        async with server(answers(answer)) as port:
            said = await check(Probe(http=f"http://127.0.0.1:{port}{path}", timeout=5 * SECOND), UNIT)
            return said.replace(str(port), "PORT")

    return asyncio.run(look())


@pytest.mark.parametrize("status", ["200 OK", "204 No Content", "302 Found", "399"])
def test_http_below_400_is_fine(status: str) -> None:
    """Every status below 400 says that it is alive; the body is not even read."""
    assert probe_http(f"HTTP/1.1 {status}\r\n\r\n".encode() + b"x" * 100_000) == FINE


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "status 400"),
        (b"HTTP/1.0 503 Service Unavailable\r\n\r\n", "status 503"),
        (b"", "the answer is not HTTP"),
        (b"220 mail.example.org ESMTP\r\n", "the answer is not HTTP"),
        (b"HTTP/1.1 abc\r\n", "the answer is not HTTP"),
        (b"x" * 200_000, "the answer is not HTTP"),
        (bytes(range(11, 256)) + b"\n", "the answer is not HTTP"),
    ],
)
def test_http_that_is_not_fine(answer: bytes, said: str) -> None:
    """A status from 400 up, an answer that is not HTTP or has no end of line: said in words."""
    assert said in probe_http(answer)


def test_an_http_probe_never_shows_what_a_url_keeps_secret() -> None:
    """User, password and query are sent, and left out of the words."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 500 no\r\n\r\n")

    async def look() -> str:
        async with server(serve) as port:
            return await check(Probe(http=f"http://me:hush@127.0.0.1:{port}/h?key=hush"), UNIT)

    said = asyncio.run(look())
    assert "hush" not in said
    assert "status 500" in said
    assert seen[0].startswith(b"GET /h?key=hush HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"Authorization: Basic bWU6aHVzaA==" in seen[0]


def test_a_server_that_accepts_and_says_nothing_runs_into_the_timeout() -> None:
    """The hung server of all hung servers: the probe ends at its own timeout."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def look() -> str:
        async with server(serve) as port:
            return await check(Probe(http=f"http://127.0.0.1:{port}/", timeout=50 * MILLISECOND), UNIT)

    assert "no answer within 50 ms" in asyncio.run(look())


def test_tcp_that_accepts_is_fine_and_that_refuses_is_not() -> None:
    """host:port, also with an IPv6 address in brackets."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pass

    async def look() -> None:
        async with server(serve) as port:
            assert await check(Probe(tcp=f"127.0.0.1:{port}"), UNIT) == FINE
        assert "connection refused" in await check(Probe(tcp=f"127.0.0.1:{free_port()}"), UNIT)

    asyncio.run(look())


@pytest.mark.parametrize("probe", [Probe(tcp="nonsense"), Probe(http="http://[oops/"), Probe(http="http://no host/")])
def test_nonsense_is_a_failed_probe_and_never_raises(probe: Probe) -> None:
    """Settings check these; should one get through, the unit counts as not answering."""
    assert asyncio.run(check(probe, UNIT)) != FINE


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 0", FINE),
        ("exit 3", "sh: exit 3"),
        ("kill -9 $$", "sh: ended by SIGKILL"),
        ('test "$FLYBALL_UNIT $PLACE $(pwd)" = "u here /"', FINE),
    ],
)
def test_a_command_is_judged_by_its_exit(script: str, said: str) -> None:
    """It runs with the unit's environment and folder; exit code and signal are told apart."""
    unit = Unit(name="u", command=("true",), cwd="/", env={"PLACE": "here"})
    assert asyncio.run(check(Probe(command=("sh", "-c", script)), unit)) == said


def test_a_command_that_is_not_there_is_a_failed_probe() -> None:
    """In words, with its name."""
    said = asyncio.run(check(Probe(command=("no-such-command-here",)), UNIT))
    assert said == "no-such-command-here: No such file or directory"


def test_a_command_that_hangs_is_gone_with_all_it_started(tmp_path: Path) -> None:
    """At the timeout the probe's whole group is killed: probes must not pile up."""
    pids = tmp_path / "pids"
    script = f"""
    import os, signal, subprocess, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "1000"])
    open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
    time.sleep(1000)
    """
    words = (sys.executable, "-c", "\n".join(line[4:] for line in script.splitlines()))

    async def look() -> str:
        return await check(Probe(command=words, timeout=500 * MILLISECOND), UNIT)

    began = time.monotonic()
    assert "no answer within 500 ms" in asyncio.run(look())
    assert time.monotonic() - began < 5
    for pid in pids.read_text().split():
        _wait_until_gone(int(pid))


def _wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except FileNotFoundError:
            return
        time.sleep(0.005)
    raise AssertionError(f"{pid} is still there")


def test_a_command_leaves_nothing_behind(tmp_path: Path) -> None:
    """What a probe starts in the background ends with it."""
    pid = tmp_path / "pid"
    assert asyncio.run(check(Probe(command=("sh", "-c", f"sleep 1000 & echo $! > {pid}; exit 0")), UNIT)) == FINE
    _wait_until_gone(int(pid.read_text()))
