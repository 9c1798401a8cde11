"""The hands of one unit in a supervisor: what is told to end ends in time, says where it was, and for what reason."""

import asyncio
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flyball.config.units import Unit
from flyball.core.event import Cause, Exited
from flyball.core.policy import AnyPolicy
from flyball.core.time import HOUR, MILLISECOND, SECOND
from flyball.governor import Governor
from flyball.policies import Budget, Deadline, Exclusive, Restart
from flyball.runtimes.driver import Driver
from flyball.runtimes.watched import WatchedHands
from flyball.store.memory import MemoryStore
from tests.runtimes.children import WITHIN

SPENDS = """
from flyball.runtimes.tell import ask
with open("answer", "w") as file:
    file.write(ask([("X_FLYBALL_SPENT", "2")])["verb"])
"""
HANGS = """
import time
from flyball.runtimes import dump
def the_place_where_it_hangs():
    time.sleep(600)
assert dump.enable()
the_place_where_it_hangs()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path: a socket is made in it."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def hands_of(folder: Path, governor: Governor, text: str, **settings: Any) -> WatchedHands:
    command = (sys.executable, "-c", textwrap.dedent(text))
    unit = Unit(name="u", command=command, cwd=str(folder), **settings)
    return WatchedHands(unit, governor, logs=folder / "logs", sockets=folder / "sockets")


def exit_of(folder: Path, text: str, *policies: AnyPolicy, **settings: Any) -> Exited:
    """Drive a unit until it is over; its only exit."""
    exits: list[Exited] = []
    governor = Governor([Exclusive(lease=HOUR), Restart(), *policies], MemoryStore())

    async def drive() -> None:
        hands = hands_of(folder, governor, text, **settings)
        driver = Driver("u", hands, governor, "h", grace=hands.unit.grace)
        driver.listener = lambda _, event, __: exits.append(event) if isinstance(event, Exited) else None
        try:
            await asyncio.wait_for(driver.drive(), WITHIN)
        finally:
            hands.close()

    asyncio.run(drive())
    assert len(exits) == 1
    return exits[0]


def test_told_to_finish_it_may_end_by_itself(folder: Path) -> None:
    """A child whose money is spent hears so in the answer to its report: it has its grace to wrap up before it gets a
    signal. However it ends, it was stopped for that reason, and no other run follows."""
    text = SPENDS + "time = __import__('time'); time.sleep(0.3); open('wrapped', 'w'); raise SystemExit(3)"
    exited = exit_of(folder, text, Budget(by="run"), budget=1_000_000, grace=5 * SECOND)
    assert (folder / "answer").read_text() == "finish"
    assert (folder / "wrapped").exists()
    assert (exited.cause, exited.error, exited.code) == (Cause.STOPPED, "cost_budget_exceeded", 3)


def test_told_to_finish_it_must_end(folder: Path) -> None:
    """One that does not care is ended when the grace is over, for the same reason."""
    text = SPENDS + "import time; time.sleep(600)"
    exited = exit_of(folder, text, Budget(by="run"), budget=1_000_000, grace=100 * MILLISECOND)
    assert (exited.cause, exited.error, exited.signal) == (Cause.STOPPED, "cost_budget_exceeded", 15)


@pytest.mark.parametrize("idle", [False, True])
def test_overdue_python_child_shows_where(folder: Path, idle: bool) -> None:
    """A Python child that agreed to dumps shows its stacks before it is ended because its time is over."""
    deadline = Deadline(lasts_max=2 * SECOND, idle=idle)
    settings = {"idle": 2 * SECOND} if idle else {"deadline": 2 * SECOND}
    exited = exit_of(folder, HANGS, deadline, Restart(name="never", on_timeout=False), **settings)
    assert (exited.cause, exited.error) == (Cause.TIMEOUT, "idle_timeout" if idle else "timeout")
    assert "the_place_where_it_hangs" in exited.detail


def test_socket_is_opened_by_a_run(folder: Path) -> None:
    """Who has no run listens nowhere: two supervisors of one unit meet at the governor, not at the socket. A run that
    cannot have its socket is a run that failed, with what to do about it."""

    async def play() -> None:
        governor = Governor([], MemoryStore())
        first, second = (hands_of(folder, governor, "import time; time.sleep(600)", budget=1) for _ in range(2))
        assert not (folder / "sockets").exists()
        life = await first.begin("r.1", again=False)
        ending = await (await second.begin("r.2", again=False)).ended()
        assert (ending.cause, ending.error) == (Cause.ERROR, "no notify socket")
        assert "another supervisor listens" in ending.detail
        await life.end(0)
        first.close()
        life = await second.begin("r.3", again=False)
        assert list((folder / "sockets").iterdir())
        await life.end(0)
        second.close()

    asyncio.run(play())
