"""Agents in a process of their own: whatever they do, they are gone when their time is over; how they ended is known."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flyball
from flyball.core.event import Cause
from flyball.core.time import HOUR
from flyball.errors import FlyballError
from flyball.runtimes.agent.context import Context
from tests.runtimes.agent import crew
from tests.runtimes.agent.station import Station, processes, run, until

GRACE = 0.4
SLACK = 3.0
"""Seconds that a busy machine may be late. What is not killed stays for an hour."""


@pytest.fixture
def station(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Station]:
    """The claim of all: nothing is left running."""
    monkeypatch.setenv(crew.FOLDER, str(tmp_path))
    station = Station(tmp_path)
    yield station
    assert processes(station.mark) == []
    station.guard.close()


@pytest.mark.parametrize("agent", crew.HANGS, ids=lambda agent: agent.__name__)
def test_every_kind_of_hang_ends(station: Station, agent: Callable[..., Any]) -> None:
    """S3-27: what hangs in a process of its own is gone within its deadline and its grace, with all that it started."""
    name = station.agent(agent, deadline=3600, grace=GRACE)

    async def play() -> float:
        supervising = asyncio.ensure_future(station.guard.supervise())
        pid = await station.begun(name)
        await station.passes(HOUR)
        told = time.monotonic()
        await supervising
        assert pid not in processes(station.mark)
        return time.monotonic() - told

    assert run(play()) < GRACE + SLACK
    (exited,) = station.exits(name)
    assert (exited.cause, exited.error) == (Cause.TIMEOUT, "timeout")
