"""Agents that share a process and hang: they cannot be killed, so they are told of, and never doubled."""

import asyncio
import contextlib
import functools
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flyball.core.codec import decode_state
from flyball.core.event import Beat, Cause, Start
from flyball.core.policy import Key
from flyball.core.time import HOUR, MINUTE
from flyball.policies.exclusive import State as Leases
from flyball.runtimes import driver
from flyball.runtimes.agent import watchdog
from flyball.runtimes.agent.context import Context
from flyball.runtimes.agent.supervisor import HUNG
from tests.runtimes.agent.station import WITHIN, Station, run, until


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    station = Station(tmp_path)
    yield station
    station.guard.close()


def stuck(station: Station, name: str) -> list[str]:
    """Where it was each time that it was said to be stuck."""
    return [event.stuck for event in station.events(name) if isinstance(event, Beat) and event.stuck]


def lease(station: Station, name: str) -> int:
    """When the lease of its run ends."""
    key = Key("exclusive", "unit", name)
    (live,) = decode_state(Leases, station.store.read([key]).records[key]).runs.values()
    return live.until


def test_blocked_loop_is_reported(station: Station, caplog: pytest.LogCaptureFixture) -> None:
    """A coroutine that blocks the loop is reported within its deadline, while it does so, with the line where it
    is: in the journal and in the log."""
    reported = threading.Event()

    @station.guard.agent("a", deadline=2, restart="never")
    async def agent(ctx: Context) -> None:
        the_place_where_it_blocks()

    def the_place_where_it_blocks() -> None:
        began = time.monotonic()
        assert reported.wait(WITHIN)
        took.append(time.monotonic() - began)

    def look() -> None:
        while not stuck(station, "a") and not reported.is_set():
            time.sleep(0.01)
        reported.set()

    took: list[float] = []
    looking = threading.Thread(target=look)
    looking.start()
    with caplog.at_level(logging.ERROR):
        station.run()
    reported.set()
    looking.join()
    assert took[0] < 2
    (where,) = stuck(station, "a")
    assert "the_place_where_it_blocks" in where
    assert "a does not go on" in caplog.text
    assert "the_place_where_it_blocks" in caplog.text


def test_leases_are_kept_while_the_loop_is_blocked(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that blocks the loop costs the others nothing: they keep their leases, though they cannot ask for them."""
    monkeypatch.setattr(watchdog, "LEASES_EVERY", 0.0)
    waiting = asyncio.Event()
    blocked, released = threading.Event(), threading.Event()

    @station.guard.agent("blocks", deadline=1, restart="never")
    async def blocks(ctx: Context) -> None:
        await waiting.wait()
        blocked.set()
        assert released.wait(WITHIN)

    @station.guard.agent("waits", restart="never")
    async def waits(ctx: Context) -> None:
        waiting.set()
        while not released.is_set():
            await asyncio.sleep(0.001)

    leases: list[int] = []

    def look() -> None:
        assert blocked.wait(WITHIN)
        end = time.monotonic() + WITHIN / 2
        while len(leases) < 3 and time.monotonic() < end:
            leases.append(lease(station, "waits"))
            station.pass_time(5 * MINUTE)
            while lease(station, "waits") == leases[-1] and time.monotonic() < end:
                time.sleep(0.01)
        leases.append(lease(station, "waits"))
        released.set()

    looking = threading.Thread(target=look)
    looking.start()
    station.run()
    looking.join()
    assert len(leases) == 4
    assert leases == sorted(set(leases))
    assert [exited.cause for exited in station.exits("waits")] == [Cause.DONE]


def test_loop_that_is_only_slow_is_not_blamed(station: Station) -> None:
    """An agent that gives way now and then does not hang, however busy it is."""

    @station.guard.agent("a", deadline=2, restart="never")
    async def agent(ctx: Context) -> None:
        end = time.monotonic() + 1.3
        while time.monotonic() < end:
            time.sleep(0.05)
            await asyncio.sleep(0)

    station.run()
    assert stuck(station, "a") == []
    assert [exited.cause for exited in station.exits("a")] == [Cause.DONE]


def test_await_that_never_returns(station: Station) -> None:
    """S3-19, S3-27: an await that never returns is cancelled at its deadline, and the agent is started again after a
    wait; the journal has where it waited."""

    @station.guard.agent("a", deadline=3600)
    async def agent(ctx: Context) -> None:
        if not ctx.again:
            await the_place_where_it_waits()

    async def the_place_where_it_waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    begun = asyncio.Event()

    async def play() -> None:
        supervising = asyncio.ensure_future(station.guard.supervise())
        await begun.wait()
        await station.passes(HOUR)
        await until(lambda: station.exits("a"))
        assert station.starts("a") == 1
        await station.passes(MINUTE)
        await supervising

    run(play())
    assert [exited.cause for exited in station.exits("a")] == [Cause.TIMEOUT, Cause.DONE]
    assert "the_place_where_it_waits" in station.exits("a")[0].detail
    assert station.exits("a")[0].fingerprint
    assert [event.again for event in station.events("a") if isinstance(event, Start)] == [False, True]


def test_cancelled_once(station: Station) -> None:
    """What an agent does in order to end is not cancelled as well, whoever wants it to end meanwhile."""

    @station.guard.agent("a", deadline=3600, restart="never")
    async def agent(ctx: Context) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await free.wait()
            done.append(True)

    begun, ending, free = asyncio.Event(), asyncio.Event(), asyncio.Event()
    done: list[bool] = []

    async def play() -> None:
        supervising = asyncio.ensure_future(station.guard.supervise())
        await begun.wait()
        await station.passes(HOUR)
        await ending.wait()
        assert station.guard._supervisor is not None
        station.guard._supervisor.end()
        await asyncio.sleep(0.01)
        free.set()
        await supervising

    run(play())
    assert done == [True]


def swallows(free: threading.Event) -> Callable[[Context], Any]:
    async def agent(ctx: Context) -> None:
        while not free.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await the_place_where_it_hangs()

    async def the_place_where_it_hangs() -> None:
        while not free.is_set():
            await asyncio.sleep(0.001)

    return agent


def sits_in_a_thread(free: threading.Event) -> Callable[[Context], Any]:
    def agent(ctx: Context) -> None:
        the_place_where_it_hangs()

    def the_place_where_it_hangs() -> None:
        assert free.wait(WITHIN)

    return agent


@pytest.mark.parametrize("kind", [swallows, sits_in_a_thread], ids=lambda kind: kind.__name__)
def test_what_cannot_be_ended_is_never_doubled(
    station: Station, kind: Callable[[threading.Event], Callable[[Context], Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Swallowed cancellation and a hung thread are reported as stuck after their grace, once; however long that takes,
    they keep their place, and are started again only after they ended."""
    monkeypatch.setattr(driver, "LEASE_EVERY", 0.01)
    free = threading.Event()
    function = kind(free)
    station.guard.agent("a", deadline=3600, grace=0.05)(function)
    others = Start(unit="a", run="other", holder="another/1/1")

    def renewed(before: int) -> bool:
        return lease(station, "a") > before

    async def play() -> None:
        supervising = asyncio.ensure_future(station.guard.supervise())
        await until(lambda: station.starts("a"))
        await station.passes(HOUR)
        try:
            await until(lambda: stuck(station, "a"))
            for _ in range(5):
                before = lease(station, "a")
                await station.passes(5 * MINUTE)
                await until(functools.partial(renewed, before))
                assert "already_running" in station.governor.submit(others).codes
            assert station.exits("a") == []
        finally:
            free.set()
        await until(lambda: station.exits("a"))
        assert station.starts("a") == 1
        await station.passes(HOUR)
        await supervising

    run(play())
    (where,) = stuck(station, "a")
    assert "the_place_where_it_hangs" in where
    assert [exited.cause for exited in station.exits("a")] == [Cause.TIMEOUT, Cause.DONE]


BLOCKS = "time.sleep(3600)"
SWALLOWS = """
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
"""


@pytest.mark.parametrize("hang", [BLOCKS, SWALLOWS], ids=["blocks", "swallows"])
def test_process_is_ended_if_that_is_wanted(station: Station, hang: str) -> None:
    """With `on_hang="exit"` the process of what hangs ends, with a code of its own; the next program finds that its run
    was lost, and counts it."""
    file = station.folder / "program.py"
    text = f"""
import asyncio, time
import flyball

guard = flyball.open("program", state_dir={str(station.folder)!r})

@guard.agent("a", deadline=1, grace=0.2)
async def agent(ctx):
    {hang.strip()}

guard.run(on_hang="exit")
"""
    file.write_text(text)
    done = subprocess.run([sys.executable, file], timeout=WITHIN, check=False, capture_output=True, text=True)
    assert done.returncode == HUNG
    assert "a does not go on" in done.stderr
    assert 'program.py", line' in stuck(station, "a")[0]
    assert station.exits("a") == []
    station.guard.agent("a", restart="never")(returns)

    async def play() -> None:
        supervising = asyncio.ensure_future(station.guard.supervise())
        # What was lost is counted before anything is supervised.
        await until(lambda: station.exits("a") and station.guard._supervisor is not None)
        await station.passes(HOUR)
        await supervising

    run(play())
    assert station.exits("a")[0].cause is Cause.LOST
    assert len(station.exits("a")) == station.starts("a")


async def returns(ctx: Context) -> None:
    pass
