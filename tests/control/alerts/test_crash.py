"""Nothing is lost, and nothing is told too often: whatever happens, and wherever the service is killed."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as run_with
from hypothesis import strategies as st

from flyball.config import Settings
from flyball.control.alerts.channel import ChannelError, Message
from flyball.control.alerts.service import AlertService
from flyball.core.event import Acknowledged, Released
from flyball.core.policy import Key
from flyball.core.time import FOREVER, HOUR, MINUTE, SECOND
from flyball.governor import Governor
from flyball.store import Drafter, Entry, Snapshot, Store
from flyball.store.memory import MemoryStore
from flyball.testing.loop import SimulatedLoop
from tests.control.alerts.fixtures import Remembers, Site, alerts, inline

PER_HOUR_MAX = 20
"""Messages about one thing in any hour, changes of messages included."""


class Killed(BaseException):
    """kill -9: nothing catches it."""


class Knife:
    """Kills at the write of that number: before it is written, or after."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.at, self.after, self.writes, self.fell = at, after, 0, False

    def cut(self, write: Callable[[], Any]) -> Any:
        if self.fell:
            raise Killed
        self.writes += 1
        falls = self.writes == self.at
        if falls:
            self.fell = True
            if not self.after:
                raise Killed
        done = write()
        if falls:
            raise Killed
        return done


class CutStore:
    """A store whose writer can be killed at any write."""

    def __init__(self, store: Store, knife: Knife) -> None:
        self._store, self._knife = store, knife

    def transact(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> Entry | None:
        written: Entry | None = self._knife.cut(lambda: self._store.transact(keys, draft, sync=sync))
        return written

    def transact_soon(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> "Future[Entry | None]":
        return self._store.transact_soon(keys, draft, sync=sync)

    def read(self, keys: Sequence[Key]) -> Snapshot:
        if self._knife.fell:
            raise Killed
        return self._store.read(keys)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class CutChannel(Remembers):
    """A channel that took the message when the service was killed."""

    def __init__(self, name: str, knife: Knife) -> None:
        super().__init__(name)
        self.knife = knife

    async def send(self, message: Message, previous: str | None) -> str:
        if self.knife.fell:
            raise Killed
        id_ = await super().send(message, previous)
        self.knife.cut(lambda: None)
        return id_


async def _lives(service: AlertService, knife: Knife, length: float) -> bool:
    """Let it run so long, or until it is killed; whether it was."""
    task = asyncio.create_task(service.run())
    end = asyncio.get_running_loop().time() + length
    while asyncio.get_running_loop().time() < end and not knife.fell:
        await asyncio.sleep(1.0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Killed):
        await task
    return knife.fell


def _killed_at(write: int, *, after: bool) -> tuple[list[Message], bool]:
    """Two units are quarantined, one is let go again; the service is killed at that write, and another one follows.
    What people got, and whether it came to that write."""
    loop = SimulatedLoop()
    store = MemoryStore()
    knife = Knife(write, after=after)
    phone = CutChannel("phone", knife)

    async def main() -> bool:
        site = Site(loop, store=store)
        await site.passes(SECOND)
        await site.end()
        governor = Governor(Settings().policies(), CutStore(store, knife), loop)

        def service() -> AlertService:
            return AlertService(governor, alerts(), [phone], do=inline)

        site.quarantine("one", "First")
        killed = await _lives(service(), knife, 20)
        await site.passes(5 * SECOND)
        site.quarantine("two", "Second")
        site.submit(Released(unit="one"))
        killed = killed or await _lives(service(), knife, 60)
        knife.fell, knife.at = False, 0
        await _lives(service(), knife, 120)
        return killed

    killed = loop.run(main())
    return [message for message, _ in phone.sent], killed


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_write(after: bool) -> None:
    """Killed at any write, before or after it, and after the channel took a message: each problem is told, and so is
    the end of the one that was over."""
    write = 0
    killed = True
    while killed:
        write += 1
        got, killed = _killed_at(write, after=after)
        told = {message.unit for message in got if not message.resolved}
        resolved = {message.unit for message in got if message.resolved}
        assert {"two"} <= told, write
        assert "one" in told | resolved, write
        assert "one" in resolved, write
        assert len(got) <= 3 + 2, write  # what may have been sent already is sent once more, and nothing else
    assert write > 6


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_killed_again_and_again(seed: int) -> None:
    """With problems that come and go, channels that fail, and a service that is killed every few writes: whatever
    lasted longer than the wait is told, to every channel."""
    dice = random.Random(seed)
    loop = SimulatedLoop()
    store = MemoryStore()
    knife = Knife(0, after=False)
    channels = [CutChannel("phone", knife), CutChannel("mail", knife)]
    script = sorted((dice.uniform(0, 3_000), f"u{number}") for number in range(30))
    lasts = {unit: dice.choice([10.0, 60.0, 5_000.0]) for _, unit in script}

    async def happens(site: Site) -> None:
        now = 0.0
        steps = [(at, unit, True) for at, unit in script] + [(at + lasts[unit], unit, False) for at, unit in script]
        for at, unit, begins in sorted(steps):
            await asyncio.sleep(max(0.0, at - now))
            now = max(now, at)
            if begins:
                site.quarantine(unit, f"Error of {unit}")
            else:
                site.submit(Released(unit=unit))

    async def main() -> None:
        site = Site(loop, store=store)
        await site.passes(SECOND)
        await site.end()
        governor = Governor(Settings().policies(), CutStore(store, knife), loop)
        happening = asyncio.create_task(happens(site))
        while not happening.done():
            knife.fell, knife.writes, knife.at, knife.after = False, 0, dice.randint(1, 12), dice.random() < 0.5
            for channel in channels:
                channel.fails = ChannelError("503", retry=True) if dice.random() < 0.3 else None
            await _lives(AlertService(governor, alerts("phone", "mail"), channels, every=10.0, do=inline), knife, 300)
            await asyncio.sleep(dice.uniform(0, 30))
        await happening
        knife.fell, knife.at = False, 0
        for channel in channels:
            channel.fails = None
        await _lives(AlertService(governor, alerts("phone", "mail"), channels, every=10.0, do=inline), knife, 1_800)

    loop.run(main())
    for channel in channels:
        assert {message.unit for message, _ in channel.sent if message.kind == "quarantined"} == lasts.keys()


Step = tuple[str, int, float]


@run_with(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["fail", "release", "acknowledge", "snooze"]), st.integers(0, 2), st.floats(0.5, 900)
        ),
        min_size=1,
        max_size=40,
    )
)
def test_never_too_often(steps: list[Step]) -> None:
    """Whatever happens to a few units: no more than so many messages about one thing in any hour; and what is still so
    at the end, was not acknowledged and lasted long enough, was told."""
    loop = SimulatedLoop()

    async def main() -> Site:
        site = Site(loop)
        try:
            await site.passes(SECOND)
            for what, number, then in steps:
                unit = f"u{number}"
                problem = next((m.problem for m, _ in site.phone.sent if m.unit == unit), f"{unit}:quarantined")
                if what == "fail":
                    site.quarantine(unit, f"Error of {unit}")
                elif what == "release":
                    site.submit(Released(unit=unit))
                else:
                    until = FOREVER if what == "acknowledge" else loop.now() + 10 * MINUTE
                    site.submit(Acknowledged(problem=problem, by="ann", until=until))
                await asyncio.sleep(then)
            await site.passes(2 * HOUR)
            book = site.service._book
            assert book is not None
            for group in book.groups.values():
                silent = any(item.seen_until > loop.now() for item in group.items.values())
                assert group.over or silent or group.told == group.version
        finally:
            await site.end()
        return site

    site = loop.run(main())
    by_group: dict[str, list[int]] = {}
    for (message, _), at in zip(site.phone.sent, site.phone.at, strict=True):
        by_group.setdefault(message.group, []).append(at)
    for times in by_group.values():
        for start in times:
            assert sum(start <= at < start + HOUR for at in times) <= PER_HOUR_MAX
