"""Leases on the store that they are for: two hosts with a connection each, and the database's time."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from flyball.config.plan import HostPlan
from flyball.core.event import Ordered
from flyball.core.host import HostRecord, decode, encode, host_key
from flyball.core.time import SECOND
from flyball.governor import Governor
from flyball.policies import Exclusive
from flyball.runtimes.guardian import boot_clock
from flyball.runtimes.host.lease import Lease
from flyball.runtimes.host.others import Others, hosts
from flyball.store.postgres import PostgresStore

LEASE = SECOND


@pytest.fixture
def governors(dsn: str) -> Iterator[tuple[Governor, Governor]]:
    stores = PostgresStore(dsn), PostgresStore(dsn)
    yield Governor([Exclusive()], stores[0]), Governor([Exclusive()], stores[1])
    for store in stores:
        store.close()


def test_one_is_fenced(governors: tuple[Governor, Governor]) -> None:
    """What another host wrote is heard at the next look; a host that does not renew is fenced after its own deadline,
    and told so when it tries to."""
    here, there = governors
    handed: list[HostRecord] = []

    async def fenced(record: HostRecord) -> None:
        handed.append(record)

    async def story() -> None:
        one = Lease(here, HostPlan(lease=LEASE), "one/1/1/daemon")
        two = Lease(there, HostPlan(lease=60 * SECOND), "two/1/1/daemon")
        await one.join()
        await two.join()
        await one.renew()
        assert one.holds()
        assert [record.name for record in hosts(there.store)] == ["one", "two"]
        order = Ordered(verb="drain", asked="one")
        key = host_key("one")
        there.submit_changing(order, [key], lambda found: {key: _drained(found.records[key])})
        assert (await one.look()).draining
        await one.renew()
        others = Others(there, two.holder)
        give_up = boot_clock() + 20 * SECOND
        while not handed and boot_clock() < give_up:
            await asyncio.sleep(await others.round(fenced) / SECOND / 10)
        assert boot_clock() > one.deadline
        assert [(record.holder, record.draining) for record in handed] == [(one.holder, True)]
        assert one.lost == ""
        await one.renew()
        assert one.lost
        again = Lease(here, HostPlan(lease=LEASE), "one/2/1/daemon")
        await again.join()
        assert again.holds()
        await again.leave()
        await two.leave()

    asyncio.run(story())
    assert hosts(here.store) == []
    kinds = [entry.event for entry in here.store.entries()]
    assert kinds == ["joined", "joined", "ordered", "left", "joined", "left", "left"]


def _drained(data: bytes) -> bytes:
    return encode(msgspec.structs.replace(decode(data), draining=True))


def test_one_of_many_wins(governors: tuple[Governor, Governor]) -> None:
    """Ten that join under one name at the same moment, over two connections: one does."""

    async def enter(number: int) -> bool:
        lease = Lease(governors[number % 2], HostPlan(lease=60 * SECOND), f"same/{number}/1/daemon")
        return await lease._enter()

    async def story() -> list[bool]:
        return await asyncio.gather(*map(enter, range(10)))

    assert sum(asyncio.run(story())) == 1
    (record,) = hosts(governors[0].store)
    (entry,) = governors[1].store.entries()
    assert entry.event == "joined"
    assert record.holder.encode() in entry.body
