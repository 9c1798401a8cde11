"""The other hosts: who fences whom, exactly once, and what is done for those; in virtual time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from flyball.core.event import Exited, Left, Start
from flyball.core.host import HostRecord, encode, host_key
from flyball.core.time import HOUR, SECOND, Instant
from flyball.governor import Governor
from flyball.policies import Exclusive
from flyball.runtimes import holder as holders
from flyball.runtimes.host.fence import FENCED, Fenced, fenced_key
from flyball.runtimes.host.lease import Lease
from flyball.runtimes.host.others import Others, hosts
from flyball.store import Draft
from flyball.testing.loop import SimulatedLoop
from tests.runtimes.host.world import BOOT, LEASE, Link, World


class Fleet:
    """Hosts, and a loop in which time flies."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.jump: Instant = 0
        self.world = World(self, self.boot)
        self.handed: list[tuple[str, str, Instant]] = []
        """Who handed over what whose, and when."""
        self.tasks: dict[str, list[asyncio.Future[None]]] = {}
        self.links: dict[str, list[Link]] = {}
        self.leases: dict[str, Lease] = {}
        self.watchers: dict[str, Others] = {}
        self.fails = 0

    # The store's clock, which can be set forward.

    def now(self) -> Instant:
        return self.loop.now() + self.jump

    def catch_up(self, instant: Instant) -> Instant:
        return self.loop.catch_up(instant - self.jump) + self.jump

    def boot(self) -> Instant:
        return BOOT + round(self.loop.time() * SECOND)

    async def up(self, name: str, number: int = 1) -> Lease:
        holder = f"{name}/{number}/1/daemon"
        lease, link = self.world.lease(holder)
        others, second = self.world.others(holder)
        lease.record = msgspec.structs.replace(lease.record, machine="")  # these are no real processes
        self.links[name] = [link, second]
        self.leases[name], self.watchers[name] = lease, others
        await lease.join()

        async def losing() -> None:
            await asyncio.sleep(0)

        async def fenced(record: HostRecord) -> None:
            if self.fails:
                self.fails -= 1
                raise OSError("the engine is away")
            self.handed.append((name, record.holder, self.boot()))

        self.tasks[name] = [asyncio.ensure_future(lease.keep(losing)), asyncio.ensure_future(others.watch(fenced))]
        return lease

    def kill(self, name: str) -> None:
        for task in self.tasks.pop(name):
            task.cancel()

    def cut(self, name: str) -> None:
        for link in self.links[name]:
            link.trouble = "silent"

    def start(self, unit: str, holder: str) -> None:
        decision = Governor([Exclusive()], self.world.store, self).submit(Start(unit=unit, run=holder, holder=holder))
        assert decision.proceeds

    def live(self) -> set[str]:
        return {live.holder for _, _, live in Governor([Exclusive()], self.world.store, self).live_runs()}

    def notes(self) -> int:
        return len(self.world.store.states(FENCED))

    def play(self, scene: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            try:
                await scene()
            finally:
                for name in list(self.tasks):
                    self.kill(name)
                await asyncio.sleep(0)

        self.loop.run(main())


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.mark.parametrize("fault", ["killed", "cut off"])
def test_one_winner(fleet: Fleet, fault: str) -> None:
    """A host that dies or is cut off is fenced by exactly one of five others, when its lease is at its end and not
    sooner; its runs are lost, and handed over once. Nothing is left to do afterwards."""

    async def story() -> None:
        names = ["a", "b", "c", "d", "e", "dead"]
        for name in names:
            await fleet.up(name)
        await asyncio.sleep(7.3)
        dead = fleet.leases["dead"]
        for name in names:
            fleet.start(f"unit-{name}", fleet.leases[name].holder)
        fleet.start("kept", f"{dead.holder}/kept")
        (fleet.kill if fault == "killed" else fleet.cut)("dead")
        end = dead.record.until
        await asyncio.sleep((end - fleet.now()) / SECOND - 0.01)
        assert fleet.world.events("left") == []
        assert fleet.handed == []
        await asyncio.sleep(0.1)
        assert len(fleet.handed) == 1
        winner, whose, _ = fleet.handed[0]
        assert whose == dead.holder
        assert fleet.world.events("left") == [Left(host="dead", holder=dead.holder, lost=True, runs=2, by=winner)]
        assert fleet.live() == {fleet.leases[name].holder for name in "abcde"}
        lost = [event for event in fleet.world.events("exited") if isinstance(event, Exited)]
        assert sorted(event.unit for event in lost) == ["kept", "unit-dead"]
        await asyncio.sleep(60)
        assert [record.name for record in hosts(fleet.world.store)] == ["a", "b", "c", "d", "e"]
        assert len(fleet.handed) == 1
        assert fleet.notes() == 0

    fleet.play(story)


def test_what_was_written_late(fleet: Fleet) -> None:
    """What a host had sent before it was fenced, and was written after that, is found a lease later, and lost."""

    async def story() -> None:
        for name in ("a", "dead"):
            await fleet.up(name)
        dead = fleet.leases["dead"]
        fleet.kill("dead")
        await asyncio.sleep(LEASE / SECOND + 1)
        assert len(fleet.handed) == 1
        fleet.watchers["a"].poke()
        await asyncio.sleep(0.1)
        fleet.start("late", dead.holder)
        await asyncio.sleep(LEASE / SECOND + 1)
        assert fleet.live() == set()
        assert fleet.notes() == 0

    fleet.play(story)


@pytest.mark.parametrize("fails", [1, 3])
def test_handing_over_fails(fleet: Fleet, fails: int) -> None:
    """What could not be handed over is tried again."""

    async def story() -> None:
        for name in ("a", "b", "dead"):
            await fleet.up(name)
        fleet.fails = fails
        fleet.kill("dead")
        await asyncio.sleep(LEASE / SECOND + fails + 1)
        assert len(fleet.handed) == 1

    fleet.play(story)


def test_the_winner_dies(fleet: Fleet) -> None:
    """If the one who fenced dies before it handed over, another goes on with it."""

    async def story() -> None:
        for name in ("a", "b", "dead"):
            await fleet.up(name)
        dead = fleet.leases["dead"]
        fleet.start("unit", dead.holder)
        fleet.fails = 1
        fleet.kill("dead")
        await asyncio.sleep(LEASE / SECOND + 0.1)
        assert fleet.handed == []
        (left,) = fleet.world.events("left")
        assert isinstance(left, Left)
        fleet.kill(left.by)
        await asyncio.sleep(2 * LEASE / SECOND + 1)
        rest = {"a", "b"} - {left.by}
        assert sorted((by, whose) for by, whose, _ in fleet.handed) == sorted(
            (rest.copy().pop(), fleet.leases[name].holder) for name in ("dead", left.by)
        )

    fleet.play(story)


def test_a_note_of_a_new_host_is_its_own(fleet: Fleet) -> None:
    """Who fenced its own former self while it joined does the rest itself, also if others saw the note before they saw
    the host."""

    async def story() -> None:
        await fleet.up("a")
        watcher = fleet.watchers["a"]
        fleet.kill("a")
        await watcher.look()
        await fleet.up("b")
        b = fleet.leases["b"].holder
        dead = HostRecord(name="b", holder="b/0/0/daemon", since=0, until=0, lease=LEASE)
        note = Fenced(record=dead, by=b)
        raw = {fenced_key(dead.holder): msgspec.json.encode(note)}
        fleet.world.store.transact((), lambda _: Draft(fleet.now(), raw, None))
        assert not await watcher._take(note)
        await asyncio.sleep(LEASE / SECOND)
        assert [(by, whose) for by, whose, _ in fleet.handed] == [("b", dead.holder)]

    fleet.play(story)


def test_the_stores_clock_is_set_forward(fleet: Fleet) -> None:
    """An hour forward: no host that lives is fenced, neither by those who know it nor by a new one; one that dies
    afterwards is."""

    async def story() -> None:
        for name in ("a", "b", "c"):
            await fleet.up(name)
        await asyncio.sleep(7.3)
        fleet.jump = HOUR
        for watcher in fleet.watchers.values():
            watcher.poke()
        await fleet.up("new")
        await asyncio.sleep(60)
        assert fleet.world.events("left") == []
        fleet.kill("a")
        await asyncio.sleep(LEASE / SECOND + 1)
        assert [whose for _, whose, _ in fleet.handed] == ["a/1/1/daemon"]

    fleet.play(story)


def test_back_under_another_holder(fleet: Fleet) -> None:
    """A host that comes back is another holder: its former runs are lost, and it takes part as before."""

    async def story() -> None:
        await fleet.up("a")
        first = await fleet.up("b")
        fleet.start("unit", first.holder)
        fleet.cut("b")
        await asyncio.sleep(LEASE / SECOND + 1)
        assert first.lost
        fleet.kill("b")
        second = await fleet.up("b", number=2)
        assert second.holds()
        await asyncio.sleep(60)
        assert second.holds()
        assert fleet.live() == set()
        assert [whose for _, whose, _ in fleet.handed] == [first.holder]

    fleet.play(story)


def test_who_is_gone(fleet: Fleet) -> None:
    """Gone is a daemon without a record, and what it kept. Programs and commands in the foreground have none ever, so
    nothing is said of them; nor of a host whose record cannot be read."""

    async def story() -> None:
        lease = await fleet.up("a")
        gone, kept = "b/1/1/daemon", "b/1/1/daemon/kept"
        others = [lease.holder, f"{lease.holder}/kept", "b/1/1", "b/2/2/unit", holders.me(), "broken/1/1/daemon"]
        for number, holder in enumerate([gone, kept, *others]):
            fleet.start(f"unit-{number}", holder)
        fleet.world.store.transact((), lambda _: Draft(fleet.now(), {host_key("broken"): b"{"}, None))
        watcher = fleet.watchers["a"]
        assert not watcher.gone(gone), "before it looked"
        await watcher.look()
        assert [holder for holder in (gone, kept, *others) if watcher.gone(holder)] == [gone, kept]
        watcher.governor.boot(lease.holder, gone=lambda holder: holder != lease.holder and watcher.gone(holder))
        assert fleet.live() == set(others) - {lease.holder}

    fleet.play(story)


def test_a_host_that_joins_is_not_gone(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are read before hosts: one that joined and began in between is not taken for gone."""

    async def story() -> None:
        await fleet.up("a")
        watcher = fleet.watchers["a"]
        fleet.kill("a")
        read = watcher._see

        async def see() -> set[str]:
            unreadable = await read()
            lease = await fleet.up("b")
            fleet.start("unit", lease.holder)
            return unreadable

        monkeypatch.setattr(watcher, "_see", see)
        await watcher.look()
        assert not watcher.gone(fleet.leases["b"].holder)

    fleet.play(story)


@pytest.mark.parametrize("trouble", ["away", "broken"])
def test_a_store_that_is_away(fleet: Fleet, trouble: str) -> None:
    """Whoever cannot look goes on when it can."""

    async def story() -> None:
        for name in ("a", "dead"):
            await fleet.up(name)
        fleet.kill("dead")
        fleet.links["a"][1].trouble = trouble
        await asyncio.sleep(LEASE / SECOND + 5)
        assert fleet.handed == []
        fleet.links["a"][1].trouble = ""
        await asyncio.sleep(LEASE / SECOND)
        assert len(fleet.handed) == 1

    fleet.play(story)


@pytest.mark.parametrize("bad", [b"{", b"null", b"\xff"])
def test_unreadable_notes_and_records(fleet: Fleet, bad: bytes) -> None:
    """What cannot be read keeps nobody from the rest."""

    async def story() -> None:
        for name in ("a", "dead"):
            await fleet.up(name)
        rows = {fenced_key("x"): bad, host_key("y"): bad}
        fleet.world.store.transact((), lambda _: Draft(fleet.now(), rows, None))
        fleet.kill("dead")
        await asyncio.sleep(LEASE / SECOND + 1)
        assert len(fleet.handed) == 1

    fleet.play(story)


def test_a_shorter_lease_is_seen_in_time(fleet: Fleet) -> None:
    """Each host has its own length: what ends first is looked at first, once it is known of."""

    async def story() -> None:
        await fleet.up("a")
        short = HostRecord(name="s", holder="s/1/1/daemon", since=0, until=fleet.now() + 2 * SECOND, lease=2 * SECOND)
        fleet.world.store.transact((), lambda _: Draft(fleet.now(), {host_key("s"): encode(short)}, None))
        fleet.watchers["a"].poke()
        await asyncio.sleep(2.1)
        assert len(fleet.handed) == 1

    fleet.play(story)


@pytest.fixture(autouse=True)
def _said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
