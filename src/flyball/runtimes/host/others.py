"""The other hosts: who of them is gone, and what is done for those.

Whoever finds that a lease is at its end fences that host. Who was the one to do it reports what that host ran as lost,
and has it handed over. If that one dies before it is done, another goes on with it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from flyball.core.host import HOSTS, HostRecord, holds, host_key, host_of
from flyball.core.time import FOREVER, SECOND, Instant, Span, seconds
from flyball.errors import StoreError
from flyball.governor import Governor, Rows
from flyball.runtimes.flag import Flag
from flyball.runtimes.guardian import boot_clock
from flyball.runtimes.holder import daemon_of
from flyball.runtimes.host.fence import FENCED, RENEWALS, Fenced, Sightings, fence, fenced_key, read_note
from flyball.runtimes.host.transactions import Aside, Records, readable, transact
from flyball.store import Store

log = logging.getLogger(__name__)

AGAIN: Final = 1 * SECOND
"""Between tries of what could not be done."""
AT_ONCE: Final = SECOND // 100
"""Between looks, at least."""


def hosts(store: Store) -> list[HostRecord]:
    """All hosts that have a record that can be read, by name."""
    return _readable_of(store)[0]


def _readable_of(store: Store) -> tuple[list[HostRecord], set[str]]:
    """And the names of those whose record cannot be read."""
    found, unreadable = [], set()
    for key, data in store.states(HOSTS).items():
        record = readable(data)
        if record is None:
            unreadable.add(key.subject)
        else:
            found.append(record)
    return sorted(found, key=lambda record: record.name), unreadable


class Others:
    """What a host knows of the others."""

    def __init__(
        self,
        governor: Governor,
        holder: str,
        *,
        clock_boot: Callable[[], Instant] = boot_clock,
        aside: Aside = asyncio.to_thread,
    ) -> None:
        self.governor = governor
        self.holder = holder
        self.records: list[HostRecord] = []
        """The hosts, as they were last seen; this one is among them."""
        self._clock = clock_boot
        self._aside = aside
        self._sightings = Sightings()
        self._gone: set[str] = set()
        self._woken = Flag()

    def gone(self, holder: str) -> bool:
        """Whether that holder is gone, as far as is known since the last look: it is a daemon of a fleet, or a unit
        that such a daemon kept, and has no record. Of programs, and of commands in the foreground, which have none
        ever, nothing is said here."""
        return holder in self._gone

    def poke(self) -> None:
        """Something changed: look now."""
        self._woken.set()

    # Looking.

    async def look(self) -> list[HostRecord]:
        """Find out who is there, and which holders of runs are gone; the hosts."""
        # The runs first: a holder has a record before it has a run, so one without a record is gone, and not new.
        live = await self._aside(self.governor.live_runs)
        unreadable = await self._see()
        there = {record.holder for record in self.records}
        self._gone = {
            lease.holder
            for _, _, lease in live
            if (daemon := daemon_of(lease.holder)) and daemon not in there and host_of(daemon) not in unreadable
        }
        return self.records

    async def _see(self) -> set[str]:
        unreadable: set[str]
        self.records, unreadable = await self._aside(_readable_of, self.governor.store)
        self._sightings.forget_but({record.name for record in self.records})
        return unreadable

    # Watching.

    async def watch(self, fenced: Callable[[HostRecord], Awaitable[None]]) -> None:
        """Fence who does not live any more, for ever. `fenced` is called for each host whose runs are to be handed
        over, after they were reported as lost; if it fails it is called again, here or on another host."""
        while True:
            try:
                wait = await self.round(fenced)
            except StoreError as error:
                log.debug("the other hosts cannot be looked at: %s", error)
                wait = AGAIN
            except Exception:  # a fault of ours is the end of this look, and not of looking
                log.exception("the other hosts cannot be looked at")
                wait = AGAIN
            await self._wait(wait)

    async def round(self, fenced: Callable[[HostRecord], Awaitable[None]]) -> Span:
        """One look; how long until there is something to look at again."""
        await self._see()
        # Sooner than a lease ends: a host that joined since, and died, is seen before its lease is at its end.
        wait = min((record.lease for record in self.records), default=AGAIN) * (RENEWALS - 1) // RENEWALS
        for record in self.records:
            if record.holder == self.holder:
                continue
            store_now, now = self.governor.clock.now(), self._clock()
            end = self._sightings.end_of(record, store_now, now)
            left = max(end - now, record.until - store_now)
            if left > 0 or not await self._fence(record):  # that it was renewed, or another fenced it, is seen at once
                wait = min(wait, left)
        return min(wait, await self._see_to(fenced))

    async def _fence(self, record: HostRecord) -> bool:
        """Whether it was this host that did it."""
        live = await self._aside(self.governor.live_runs)
        runs = sum(holds(record.holder, lease.holder) for _, _, lease in live)
        if not await fence(self.governor, record, self.holder, runs=runs):
            return False
        log.warning("host %s is lost: %s was fenced; it had %d runs", record.name, record.holder, runs)
        return True

    async def _see_to(self, fenced: Callable[[HostRecord], Awaitable[None]]) -> Span:
        """Do what is left to do for hosts that were fenced; how long until there is more."""
        notes = await self._aside(self.governor.store.states, FENCED)
        there = {record.holder for record in self.records}
        wait: Span = FOREVER
        for note in map(read_note, notes.values()):
            if note is None:
                continue
            if note.by != self.holder and (note.by in there or not await self._take(note)):
                wait = min(wait, note.record.lease)
                continue
            wait = min(wait, await self._hand_over(note, fenced))
        return wait

    async def _take(self, note: Fenced) -> bool:
        """Go on with what a host that is gone had to do for another."""
        return await self._write(note, msgspec.structs.replace(note, by=self.holder), unless=note.by)

    async def _hand_over(self, note: Fenced, fenced: Callable[[HostRecord], Awaitable[None]]) -> Span:
        """Report what it ran as lost, and have it handed over; a lease later, look once more for what came late."""
        record, now = note.record, self.governor.clock.now()
        mine = msgspec.structs.replace(note, by=self.holder)
        if note.handed_over and now < note.handed_over + record.lease:
            return note.handed_over + record.lease - now
        lost = await self._aside(self.governor.reap, lambda other: holds(record.holder, other))
        if note.handed_over:
            if lost:
                log.warning("%d runs of %s were written after it was fenced: given up", lost, record.holder)
            await self._write(mine, None)
            return FOREVER
        log.info("%d runs of %s are given up", lost, record.holder)
        try:
            await fenced(record)
        except Exception:  # whatever it was, it is to be tried again
            log.exception("what %s ran could not be handed over", record.holder)
            return AGAIN
        await self._write(mine, msgspec.structs.replace(mine, handed_over=self.governor.clock.now()))
        return record.lease

    async def _write(self, note: Fenced, new: Fenced | None, unless: str = "") -> bool:
        """Change the note, if it is as it was; and unless that holder is there, of which it was not known."""
        key, theirs = fenced_key(note.record.holder), host_key(host_of(unless))

        def change(records: Records, _: Instant) -> Rows | None:
            data, found = records.get(key), readable(records.get(theirs))
            if data is None or read_note(data) != note or (found is not None and found.holder == unless):
                return None
            return {key: None if new is None else msgspec.json.encode(new)}

        return await transact(self.governor, [key, theirs] if unless else [key], change)

    async def _wait(self, length: Span) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds(max(length, AT_ONCE))):
                await self._woken.wait()
        self._woken.clear()
