"""A post: one task keeps its unit, through orders that end and begin runs, until it is told to quit. Real processes."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flyball.config import load
from flyball.config.build import unit_policies
from flyball.config.units import Unit
from flyball.core.codec import decode_body
from flyball.core.decision import Decision
from flyball.core.event import Cause, Event, Exited, Held
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.runtimes.driver import doze_until
from flyball.runtimes.flag import Flag
from flyball.runtimes.post import Pace, Post
from flyball.runtimes.session.turns import Turns
from flyball.runtimes.watched import WatchedHands
from flyball.store.memory import MemoryStore
from tests.runtimes.process.stage import WAIT_MAX, run, until

SLEEPS = Unit(name="u", command=("/bin/sleep", "60"))
FAILS = Unit(name="u", command=("/bin/false",), kind="session")
QUICK = {
    "FLYBALL_CRASH_POLICY__TRANSIENT_DELAY_SECONDS": "0.01",
    "FLYBALL_QUARANTINE__COOLDOWN_LADDER_SECONDS": "[0.01]",
}


class Alone:
    """There are no other posts."""

    def __init__(self) -> None:
        self.flag = Flag()

    def up(self, unit: str) -> asyncio.Event:
        return self.flag

    def heard(self, post: Post, event: Event, decision: Decision) -> None:
        pass

    def came_up(self, post: Post) -> None:
        pass

    def troubled(self, name: str, error: FlyballError | None) -> None:
        pass


class Kept:
    """A post, and the task that keeps it."""

    def __init__(self, folder: Path, unit: Unit = SLEEPS) -> None:
        self.governor = Governor(unit_policies(load(env=QUICK, cwd=folder), unit), MemoryStore())
        hands = WatchedHands(
            unit, self.governor, logs=folder / "logs", sockets=folder / "notify", sessions=folder / "sessions"
        )
        self.turns = Turns(every=3600)
        self.post = Post(
            unit, hands, self.governor, "me", Alone(), Pace(0.0), folder / "kept", turns=self.turns, again=False
        )
        self.task = asyncio.ensure_future(self.post.keep())

    async def ended(self) -> None:
        """Wait until nobody keeps the unit."""
        await asyncio.wait((self.task,), timeout=WAIT_MAX)
        assert self.task.done()

    def causes(self) -> list[Cause]:
        """How its runs ended."""
        events = [decode_body(entry.body).event for entry in self.governor.store.entries()]
        return [event.cause for event in events if isinstance(event, Exited)]

    def starts(self) -> int:
        """How often it was granted a run."""
        entries = self.governor.store.entries()
        return sum(entry.event in ("start", "resume") and entry.verb == "proceed" for entry in entries)


@contextlib.asynccontextmanager
async def kept(folder: Path, unit: Unit = SLEEPS) -> AsyncIterator[Kept]:
    """A unit that is kept, and gone at the end."""
    it = Kept(folder, unit)
    try:
        yield it
    finally:
        it.post.quit()
        await it.ended()


def is_there(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_told_to_quit_before_it_began(tmp_path: Path) -> None:
    """What is told to quit before its task ran starts nothing."""

    async def play() -> None:
        async with kept(tmp_path) as it:
            it.post.quit()
            await it.ended()
            assert (it.task.cancelled(), it.starts()) == (False, 0)

    run(play())


def test_told_to_quit_while_it_runs(tmp_path: Path) -> None:
    """Its run is ended in order and counted as stopped; to be told twice changes nothing."""

    async def play() -> None:
        async with kept(tmp_path) as it:
            await until(lambda: it.post.pid)
            pid = it.post.pid
            it.post.quit()
            it.post.quit()
            await it.ended()
            assert (it.causes(), is_there(pid)) == ([Cause.STOPPED], False)

    run(play())


def test_begun_again_by_the_same_task(tmp_path: Path) -> None:
    """An order to begin again ends the run, and the task goes on to the next one; any number of times."""

    async def play() -> None:
        async with kept(tmp_path) as it:
            seen = []
            for number in range(3):
                await until(lambda: it.post.pid and it.post.pid not in seen)
                seen.append(it.post.pid)
                if number < 2:
                    it.post.begin_again()
            assert not it.task.done()
            assert it.causes() == [Cause.STOPPED] * 2
            assert [is_there(pid) for pid in seen] == [False, False, True]

    run(play())


def test_cancelled_by_somebody_else(tmp_path: Path) -> None:
    """When the loop is closed the run is ended all the same, and the task is cancelled."""

    async def play() -> None:
        async with kept(tmp_path) as it:
            await until(lambda: it.post.pid)
            pid = it.post.pid
            it.task.cancel()
            await it.ended()
            assert (it.task.cancelled(), it.causes(), is_there(pid)) == (True, [Cause.STOPPED], False)

    run(play())


@pytest.mark.parametrize("verb", ["resume", "start", "pause", "quit"])
def test_a_session_that_waits_for_its_turn(verb: str, tmp_path: Path) -> None:
    """What a person wants is not kept waiting by the turns of others: it is resumed at once, held at once, or left at
    once. By itself it would be resumed only when its turn comes."""

    async def play() -> None:
        async with kept(tmp_path, FAILS) as it:
            await until(lambda: it.turns.waiting == 1)
            assert (it.starts(), it.causes()) == (1, [Cause.ERROR])
            if verb == "quit":
                it.post.quit()
                await it.ended()
                assert it.starts() == 1
                return
            if verb == "pause":
                it.governor.submit(Held(unit="u", by="ann"))
            await it.post.order(verb)
            await until(lambda: it.governor.store.last_entries(limit=1)[0].verb == "hold" or it.starts() == 2)
            assert it.starts() == (1 if verb == "pause" else 2)
            if verb != "pause":
                await until(lambda: it.turns.waiting == 1)
                assert it.starts() == 2, "the person's word was for one run"

    run(play())


@pytest.mark.parametrize("poked", [False, True])
def test_doze(poked: bool) -> None:
    """A doze ends when its time is over, and before that when it is poked; it is poked in both cases, and no timer is
    left."""

    async def play() -> None:
        flag = Flag()
        far = 4_000_000_000_000_000
        dozing = asyncio.ensure_future(doze_until(flag, far if poked else 0))
        await asyncio.sleep(0)
        if poked:
            assert not dozing.done()
            flag.set()
        await asyncio.wait_for(dozing, WAIT_MAX)
        assert flag.is_set()

    run(play())


def test_flag() -> None:
    """Whoever waits for a flag is woken by it, however many wait, and whoever waited in vain."""

    async def play() -> None:
        flag = Flag()
        flag.set()
        flag.clear()
        waits = [asyncio.ensure_future(flag.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        waits.pop().cancel()
        flag.set()
        assert await asyncio.wait_for(asyncio.gather(*waits), WAIT_MAX) == [True, True]
        assert await flag.wait() is True

    run(play())
