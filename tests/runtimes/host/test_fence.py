"""Fencing itself: what is taken out, and what is not."""

import asyncio
from typing import Any

import msgspec
import pytest

from flyball.core.event import Left
from flyball.core.host import HostRecord, encode, host_key
from flyball.core.time import SECOND
from flyball.runtimes.host.fence import FENCED, Fenced, Sightings, fence, fenced_key
from flyball.store import Draft
from flyball.testing.clock import START_OF_TIME, FakeClock
from tests.runtimes.host.world import LEASE, World

NOW = START_OF_TIME
SEEN = HostRecord(name="web", holder="web/1/1/daemon", since=NOW - LEASE, until=NOW, lease=LEASE)


@pytest.mark.parametrize(
    ("found", "dead", "fenced"),
    [
        ({}, False, True),
        ({"draining": True, "page": "http://there"}, False, True),
        ({"until": NOW + 1}, False, False),
        ({"until": NOW - 1}, False, False),
        ({"holder": "web/2/2/daemon"}, False, False),
        ({"until": NOW + SECOND}, True, True),
        ({"holder": "web/2/2/daemon"}, True, False),
        (None, False, False),
        (None, True, False),
    ],
)
def test_fence(found: dict[str, Any] | None, dead: bool, fenced: bool) -> None:
    """Only what is as it was seen and ran out, or that very holder if it is certainly dead; with a line in the journal
    and a note in its place, or nothing at all."""
    world = World(FakeClock(), lambda: 0)
    there = None if found is None else msgspec.structs.replace(SEEN, **found)
    if there is not None:
        world.store.transact((), lambda _: Draft(NOW, {host_key("web"): encode(there)}, None))
    before = world.store.states()
    governor, _ = world.governor()

    async def story() -> list[bool]:
        return [await fence(governor, SEEN, "db/1/1/daemon", runs=3, dead=dead) for _ in range(2)]

    assert asyncio.run(story()) == [fenced, False]
    if not fenced:
        assert world.store.states() == before
        assert world.events() == []
        return
    assert there is not None
    assert world.events() == [Left(host="web", holder=SEEN.holder, lost=True, runs=3, by="db")]
    note = Fenced(record=there, by="db/1/1/daemon")
    assert world.store.states() == {fenced_key(SEEN.holder): msgspec.json.encode(note)}
    assert world.store.states(FENCED)


@pytest.mark.parametrize(
    ("left", "end"),
    [(LEASE, LEASE), (LEASE // 2, LEASE // 2), (100 * LEASE, LEASE), (0, LEASE * 2 // 5), (-LEASE, LEASE * 2 // 5)],
)
def test_sightings(left: int, end: int) -> None:
    """The end by one's own clock follows from the first sight, and stays until the record changes; it is never more
    than a lease away."""
    sightings = Sightings()
    record = msgspec.structs.replace(SEEN, until=NOW + left)
    assert sightings.end_of(record, NOW, 1_000) == 1_000 + end
    assert sightings.end_of(record, NOW + 10 * LEASE, 2_000) == 1_000 + end, "whatever the store's clock says later"
    again = msgspec.structs.replace(record, holder="web/2/2/daemon")
    assert sightings.end_of(again, NOW, 3_000) == 3_000 + end
    sightings.forget_but(set())
    assert sightings.end_of(again, NOW, 4_000) == 4_000 + end
