"""A host's own lease, in virtual time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from flyball.config.plan import HostPlan
from flyball.core.event import Joined, Left
from flyball.core.host import HostRecord, decode, encode, host_key
from flyball.core.time import SECOND, Instant
from flyball.runtimes import holder as holders
from flyball.runtimes.host import leftovers
from flyball.runtimes.host.lease import NameTaken, machine
from flyball.store import Draft
from flyball.testing.loop import SimulatedLoop
from tests.runtimes.host.world import BOOT, LEASE, Link, World

ME = "web/1/1/daemon"
OTHER = "web/2/2/daemon"


class Armed:
    """A deadman that only remembers."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def know(self, holder: str, margin: int) -> None:
        self.said.append((holder, margin))

    def arm(self, deadline: int) -> None:
        self.said.append(deadline)

    def disarm(self) -> None:
        self.said.append("disarmed")

    def last(self) -> None:
        self.said.append("last")


class Scene:
    """One host, and a loop in which time flies."""

    def __init__(self, holder: str = ME) -> None:
        self.loop = SimulatedLoop()
        self.world = World(self.loop, self.boot)
        self.deadman = Armed()
        self.lease, self.link = self.world.lease(holder, deadman=self.deadman)
        self.lost_at: list[Instant] = []

    def boot(self) -> Instant:
        return BOOT + round(self.loop.time() * SECOND)

    def record(self) -> HostRecord | None:
        data = self.world.store.states().get(host_key("web"))
        return None if data is None else decode(data)

    def put(self, **changes: Any) -> HostRecord:
        """A record of this name that was there before."""
        now = self.loop.now()
        base = HostRecord(name="web", holder=OTHER, since=now, until=now + LEASE, lease=LEASE)
        record = msgspec.structs.replace(base, **changes)
        self.world.store.transact((), lambda _: Draft(now, {host_key("web"): encode(record)}, None))
        return record

    async def losing(self) -> None:
        self.lost_at.append(self.boot())

    def play(self, scene: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await scene()

        self.loop.run(main())


async def at(seconds: float) -> None:
    await asyncio.sleep(seconds)


def test_joins_renews_and_leaves() -> None:
    """A host joins with a line in the journal, renews without one every fifth of its lease, and leaves with one; its
    deadline is never after the end that the store has."""
    scene = Scene()

    async def story() -> None:
        assert not scene.lease.holds()
        await scene.lease.join()
        assert scene.lease.holds()
        keeping = asyncio.ensure_future(scene.lease.keep(scene.losing))
        before = scene.link.writes
        for _ in range(100):
            await at(1.0)
            record = scene.record()
            assert record is not None
            assert scene.lease.deadline - BOOT <= record.until - scene.world.clock.now() + scene.boot() - BOOT
            assert scene.lease.holds()
            assert record.until - scene.loop.now() >= LEASE * 4 // 5 - SECOND // 10
        assert 45 <= scene.link.writes - before <= 51
        keeping.cancel()
        await scene.lease.leave()
        assert not scene.lease.holds()

    scene.play(story)
    assert scene.record() is None
    assert scene.world.events() == [Joined(host="web", holder=ME), Left(host="web", holder=ME)]
    assert scene.deadman.said[0] == (ME, LEASE // 5)
    assert scene.deadman.said[-1] == "disarmed"
    assert scene.lost_at == []


@pytest.mark.parametrize("trouble", ["away", "silent", "broken"])
def test_cannot_renew(trouble: str) -> None:
    """From two fifths before its deadline on, a host that cannot renew holds nothing: it is told once, in time."""
    scene = Scene()

    async def story() -> None:
        await scene.lease.join()
        keeping = asyncio.ensure_future(scene.lease.keep(scene.losing))
        await at(20.5)
        scene.link.trouble = trouble
        last = scene.lease.deadline
        await keeping
        assert scene.lease.deadline == last, "nothing was renewed"
        assert not scene.lease.holds()
        assert scene.lost_at[0] >= scene.lease.gives_up_at
        assert scene.lost_at[0] - scene.lease.gives_up_at < SECOND // 10
        assert scene.lease.grace <= LEASE // 5
        assert scene.lease.grace > LEASE // 5 - SECOND // 10
        await at(30)

    scene.play(story)
    assert len(scene.lost_at) == 1


@pytest.mark.parametrize("trouble", ["away", "silent"])
def test_a_short_trouble(trouble: str, caplog: pytest.LogCaptureFixture) -> None:
    """A store that is back in time changes nothing; it is said once."""
    scene = Scene()

    async def story() -> None:
        await scene.lease.join()
        keeping = asyncio.ensure_future(scene.lease.keep(scene.losing))
        await at(4.1)
        scene.link.trouble = trouble
        await at(1.5 if trouble == "silent" else 5.0)
        scene.link.trouble = ""
        await at(30)
        assert scene.lease.holds()
        keeping.cancel()

    scene.play(story)
    assert scene.lost_at == []
    assert len([line for line in caplog.messages if "cannot be renewed" in line]) == (trouble == "away")


@pytest.mark.parametrize("heard", ["renewal", "look"])
@pytest.mark.parametrize("how", ["gone", "another's"])
def test_fenced(heard: str, how: str) -> None:
    """A renewal of what was fenced is refused, and so is a look: the host loses its lease, and changes nothing."""
    scene = Scene()

    async def story() -> None:
        await scene.lease.join()
        keeping = asyncio.ensure_future(scene.lease.keep(scene.losing))
        await at(1)
        if how == "gone":
            scene.world.store.transact((), lambda _: Draft(scene.loop.now(), {host_key("web"): None}, None))
        else:
            scene.put(until=scene.loop.now() + 100 * LEASE)
        before = scene.record()
        if heard == "look":
            await scene.lease.look()
            assert not scene.lease.holds()
        await keeping
        assert scene.boot() - BOOT <= (SECOND if heard == "look" else 2 * SECOND) + SECOND // 10
        assert scene.record() == before
        await scene.lease.leave()
        assert scene.record() == before

    scene.play(story)
    assert len(scene.lost_at) == 1


@pytest.mark.parametrize("by", ["renewal", "look"])
def test_draining_is_heard(by: str) -> None:
    """Somebody else wrote into the record that this host is to be drained: a renewal keeps it, and it is heard."""
    scene = Scene()

    async def story() -> None:
        await scene.lease.join()
        keeping = asyncio.ensure_future(scene.lease.keep(scene.losing))
        await at(1)
        found = scene.record()
        assert found is not None
        drained = encode(msgspec.structs.replace(found, draining=True))
        scene.world.store.transact((), lambda _: Draft(scene.loop.now(), {host_key("web"): drained}, None))
        if by == "look":
            await scene.lease.look()
        else:
            await at(2)
        assert scene.lease.record.draining
        await at(20)
        found = scene.record()
        assert found is not None
        assert found.draining
        keeping.cancel()

    scene.play(story)


def test_other_settings() -> None:
    """What changed in the settings is in the record at once, but for the length of the lease."""
    scene = Scene()

    async def story() -> None:
        await scene.lease.join()
        keeping = asyncio.ensure_future(scene.lease.keep(scene.losing))
        await at(0.1)
        scene.lease.change(HostPlan(lease=99 * SECOND, labels={"gpu": "1"}, units_max=3), "digest", "http://here")
        await at(0.1)
        found = scene.record()
        assert found is not None
        assert (found.labels, found.units_max, found.settings, found.page) == ({"gpu": "1"}, 3, "digest", "http://here")
        assert found.lease == LEASE
        keeping.cancel()

    scene.play(story)


@pytest.mark.parametrize("late", [0, LEASE // 2, LEASE * 2])
def test_waits_for_the_one_before(late: int, caplog: pytest.LogCaptureFixture) -> None:
    """A record of this name whose process may live is waited for until it ran out, with a word in the log; then it is
    fenced. One that had run out when it was first seen has time to show that it lives."""
    scene = Scene()
    scene.put(until=scene.loop.now() + LEASE - late, draining=True)

    async def story() -> None:
        await scene.lease.join()
        expected = LEASE - late if late <= LEASE else LEASE * 2 // 5
        assert 0 <= scene.boot() - BOOT - expected < LEASE // 10

    scene.play(story)
    found = scene.record()
    assert found is not None
    assert found.holder == ME
    assert found.draining, "that it is to be drained is not forgotten"
    left = Left(host="web", holder=OTHER, lost=True, by="web")
    assert scene.world.events() == [left, Joined(host="web", holder=ME)]
    assert "waiting up to" in caplog.text


def test_gone_for_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of this name whose process was on this machine, and is not any more, is fenced at once; but only after
    what that one left was ended."""
    scene = Scene()
    scene.put(holder=f"web/{2**22 + 1}/1/daemon", machine=machine())
    ended: list[str] = []

    def end(name: str) -> int:
        found = scene.record()
        ended.append(f"{name}: {found.holder if found is not None else 'nobody'}")
        return 1

    monkeypatch.setattr(leftovers, "end", end)

    async def story() -> None:
        await scene.lease.join()

    scene.play(story)
    assert ended == [f"web: web/{2**22 + 1}/1/daemon", "web: nobody"]
    assert len(scene.world.events("left")) == 1
    assert scene.boot() - BOOT < LEASE // 10


@pytest.mark.parametrize("where", ["", "another machine"])
def test_not_certain(where: str) -> None:
    """The same number on another machine, or on one that is not known, says nothing."""
    scene = Scene()
    scene.put(holder=f"web/{2**22 + 1}/1/daemon", machine=where)

    async def story() -> None:
        await scene.lease.join()
        assert scene.boot() - BOOT >= LEASE

    scene.play(story)


def test_a_living_one_of_that_name() -> None:
    """Two hosts of one name: the second is told so when the first has renewed twice, and nothing changed."""
    scene = Scene()
    first, _ = scene.world.lease(holders.daemon("web"))

    async def story() -> None:
        await first.join()
        keeping = asyncio.ensure_future(first.keep(scene.losing))
        await at(1)
        with pytest.raises(
            NameTaken, match=f"a host named web is in this fleet already, and lives: {first.holder}"
        ) as told:
            await scene.lease.join()
        assert "FLYBALL_HOST__NAME" in told.value.remedy
        assert scene.boot() - BOOT <= LEASE * 2 // 5 + LEASE // 50
        assert first.holds()
        keeping.cancel()

    scene.play(story)
    assert not scene.lease.holds()
    assert [type(event) for event in scene.world.events()] == [Joined]


def test_a_renewal_that_came_late() -> None:
    """What a dead one had sent before it died is no sign of life: it is waited for a little longer."""
    scene = Scene()
    record = scene.put()

    async def story() -> None:
        joining = asyncio.ensure_future(scene.lease.join())
        await at(3)
        scene.put(until=record.until + SECOND)
        await joining
        assert scene.boot() - BOOT >= LEASE + SECOND

    scene.play(story)
    assert scene.lease.holds()


def test_an_unreadable_record() -> None:
    """What nobody can read holds no name, and is written anew, by who joins and by who renews."""
    scene = Scene()

    def spoil() -> None:
        scene.world.store.transact((), lambda _: Draft(scene.loop.now(), {host_key("web"): b"{"}, None))

    async def story() -> None:
        spoil()
        await scene.lease.join()
        spoil()
        await scene.lease.look()
        await scene.lease.renew()
        assert scene.lease.holds()
        found = scene.record()
        assert found is not None
        assert found.holder == ME

    scene.play(story)


def test_leaving_without_a_store(caplog: pytest.LogCaptureFixture) -> None:
    """A store that does not answer keeps nobody from leaving: the lease just runs out."""
    scene = Scene()

    async def story() -> None:
        await scene.lease.join()
        scene.link.trouble = "silent"
        await scene.lease.leave()

    scene.play(story)
    assert scene.deadman.said[-1] == "disarmed"
    assert "could not be told that web leaves" in caplog.text


def test_slow_answers_shorten_the_lease() -> None:
    """The store's clock may be ahead of what this host takes for it by as much as an answer takes: the deadline is
    earlier by that."""
    scene = Scene()
    seconds = 0.5

    class Slow(Link):
        def transact_soon(self, keys: Any, draft: Any, *, sync: bool = True) -> Any:
            answer = super().transact_soon(keys, draft, sync=sync)
            scene.loop._simulated.elapsed += seconds
            return answer

    async def story() -> None:
        scene.lease.governor.store = Slow(scene.world.store).as_store()
        await scene.lease.join()
        record = scene.record()
        assert record is not None
        assert scene.lease.deadline - scene.boot() <= record.until - scene.loop.now() - seconds * SECOND

    scene.play(story)


@pytest.mark.parametrize(
    ("holder", "daemon"),
    [
        ("web/1/2/daemon", "web/1/2/daemon"),
        ("web/1/2/daemon/unit", "web/1/2/daemon"),
        ("web/1/2/daemon/unit/of/slashes", "web/1/2/daemon"),
        ("web/1/2", ""),
        ("web/1/2/unit", ""),
        ("daemon", ""),
        ("", ""),
    ],
)
def test_daemon_of(holder: str, daemon: str) -> None:
    """Which daemon of a fleet a holder is, or is of; programs and commands in the foreground are none."""
    assert holders.daemon_of(holder) == daemon


def test_me_as_a_daemon() -> None:
    """A daemon of a fleet is a holder of its own kind, under the name of its host."""
    assert holders.daemon("web") == f"{holders.me('web')}/daemon"
    assert holders.daemon_of(holders.daemon("web")) == holders.daemon("web")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
