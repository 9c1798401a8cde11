"""This host's part in a fleet on many hosts: its lease, the other hosts, what is placed here, and what people order
elsewhere. Only a daemon on a store that many hosts share has one.

It runs no units. What is placed here is taken and left by whoever has them, and when the lease is lost, ended.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Final

import msgspec

from flyball.config.plan import Plan
from flyball.control.pokes import HEARD, pokes
from flyball.core.codec import decode_body
from flyball.core.event import Ordered
from flyball.core.failure import digest
from flyball.core.host import MOVES, HostRecord, Move, decode_move
from flyball.errors import StoreError
from flyball.governor import Governor
from flyball.placing.items import Item, items
from flyball.placing.placing import MOVED, Placing
from flyball.runtimes.bridge import write
from flyball.runtimes.doorbell import SharedBell
from flyball.runtimes.holder import daemon
from flyball.runtimes.host.deadman import Deadman
from flyball.runtimes.host.lease import Lease
from flyball.runtimes.host.others import Others, hosts
from flyball.store import Entry, SharedStore

log = logging.getLogger(__name__)

COMINGS: Final = ("joined", "left")
"""Kinds of events that say that there are other hosts than before."""
TO_HOSTS: Final = ("drain", "undrain", "move")
"""Verbs that are orders to hosts."""

Doing = Callable[[Item], Awaitable[None]]
Obey = Callable[[str, str], Awaitable[None]]
"""Has a unit that runs here (all: "") obey a verb."""


class Membership:
    """One host of a fleet."""

    def __init__(
        self,
        governor: Governor,
        plan: Plan,
        *,
        version: str,
        deadman: Deadman | None,
        obey: Obey,
        losing: Callable[[], Awaitable[None]],
    ) -> None:
        """`losing` is called once, when the lease is lost: it has to end all that runs here."""
        assert isinstance(governor.store, SharedStore)  # noqa: S101 - only there it is needed
        self._governor, self._store, self._plan = governor, governor.store, plan
        self.name: Final = plan.host.name or socket.gethostname()
        self.holder: Final = daemon(self.name)
        self.lease: Final = Lease(
            governor, plan.host, self.holder, deadman=deadman, version=version, settings_digest=_digest(plan)
        )
        self.others: Final = Others(governor, self.holder)
        self._placing = Placing(
            plan.store, self.holder, self.name, plan.host, live=self._live, lease_holds=self.lease.holds
        )
        self._obey, self._losing = obey, losing
        self._page = ""
        self._labels: dict[str, Mapping[str, str]] = {}
        self._heard: asyncio.Queue[Sequence[Entry]] = asyncio.Queue()
        self._bell: SharedBell | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeping: asyncio.Task[None] | None = None

    # From the beginning to the end.

    async def join(self) -> None:
        """Become a host of the fleet; from then on the lease is renewed."""
        await self.lease.join()
        self._keeping = asyncio.get_running_loop().create_task(self.lease.keep(self._losing))
        await self.others.look()

    async def begin(self, take: Doing, leave: Doing) -> None:
        """Take what is placed here, from now on."""
        self._know(self._plan)
        await self._placing.open(items(self._plan), take, leave)
        self._keep(self.others.watch(self._fenced))
        self._bell = SharedBell(self._store, self._heard.put_nowait, (*HEARD, *COMINGS))
        self._keep(self._hear())

    async def change(self, plan: Plan, page: str = "") -> None:
        """Other settings."""
        self._plan, self._page = plan, page or self._page
        self._know(plan)
        self.lease.change(plan.host, _digest(plan), self._page)
        await self._placing.change(items(plan))

    def served_at(self, page: str) -> None:
        """Where this host's page is."""
        self._page = page
        self.lease.change(self._plan.host, _digest(self._plan), page)

    async def leave_all(self) -> None:
        """Take nothing any more, and leave to others what is here."""
        if self._bell is not None:
            self._bell.close()
        for task in self._tasks:
            task.cancel()
        await self._placing.close()

    async def leave(self) -> None:
        """Nothing runs here any more: be no host of the fleet."""
        if self._keeping is not None:
            self._keeping.cancel()
            await self.lease.leave()

    @property
    def company(self) -> int:
        """Other hosts that were there at the last look."""
        return sum(record.holder != self.holder for record in self.others.records)

    def gone(self, holder: str) -> bool:
        """Whether a holder of runs is certainly no more."""
        return self.others.gone(holder)

    def _know(self, plan: Plan) -> None:
        self._labels = {unit.name: unit.labels for unit in plan.units}
        self._labels |= {rule.name: rule.labels for rule in plan.rules}

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # The others.

    def _live(self) -> Mapping[str, int]:
        """In a thread: who may have units, and how many."""
        return {record.holder: 0 if record.draining else record.units_max for record in hosts(self._store)}

    async def _fenced(self, record: HostRecord) -> None:
        taken = await self._placing.handed_over(record.holder)
        log.info("what %s had waits for other hosts: %d", record.name, taken)

    # Orders that were given elsewhere, or to this host.

    async def _hear(self) -> None:
        first = True
        while True:
            entries = await self._heard.get()
            try:
                await self._act_on(entries, first=first)
                first = False
            except StoreError as error:
                log.warning("an order could not be obeyed yet: %s", error)
                self._heard.put_nowait(entries)
                await asyncio.sleep(1)
            except Exception:  # a fault of ours is the end of this order, and not of hearing
                log.exception("an order could not be obeyed")

    async def _act_on(self, entries: Sequence[Entry], *, first: bool) -> None:
        for entry in entries:
            for unit, verb in pokes(entry, here=self.name, labels=self._labels):
                await self._obey(unit, verb)
        if first or any(entry.event in COMINGS for entry in entries):
            self.others.poke()
            await self._placing.share()
        if first or any(_is_to_hosts(entry) for entry in entries):
            await self._see_to_orders()

    async def _see_to_orders(self) -> None:
        record = await self.lease.look()
        if record.draining:
            await self._placing.drain()
        else:
            await self._placing.undrain()
            await self._placing.share()
        await self.see_to_moves()

    async def see_to_moves(self) -> None:
        """Leave what is to run on another host, and forget what runs where it should, or cannot."""
        moves = await asyncio.to_thread(self._store.states, MOVES)
        if not moves:
            return
        living = {record.name for record in await asyncio.to_thread(hosts, self._store) if not record.draining}
        item_of = {unit: item.name for item in items(self._plan) for unit in item.units}
        held = set(self._placing.held)
        for key, data in moves.items():
            move, item = _readable(data), item_of.get(key.subject, "")
            if item in held and move is not None and move.to != self.name and move.to in living:
                await self._placing.release(item, f"{MOVED}{move.to}")
            elif item in held:
                await write(self._governor, {key: None}, sync=False)


def _is_to_hosts(entry: Entry) -> bool:
    event = decode_body(entry.body).event if entry.event == "ordered" else None
    return isinstance(event, Ordered) and event.verb in TO_HOSTS and not event.refused


def _readable(data: bytes) -> Move | None:
    with contextlib.suppress(msgspec.MsgspecError):
        return decode_move(data)
    return None


def _digest(plan: Plan) -> str:
    """Of what a host knows of the units and rules: two that differ in it may not run the same."""
    defined = [f"{unit.name} {unit.revision}" for unit in plan.units]
    return digest([*defined, *(f"{rule.name} {rule.revision}" for rule in plan.rules)])
