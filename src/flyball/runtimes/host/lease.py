"""A host's own lease: joining the fleet, renewing, and what is known of it between two renewals.

The deadline is a lease after the moment *before* the last good renewal was sent, by the boot clock, which nobody can
set and which goes on while the machine sleeps; less what this host may be behind the store's clock. So it is never
after the end that the store has. Who cannot renew has to have ended all that it runs before that, and it begins with
that when two fifths of the lease are left. A fifth later the deadman does it.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from flyball.config.plan import HostPlan
from flyball.core.event import Joined, Left
from flyball.core.host import HostRecord, encode, host_key, host_of
from flyball.core.time import MILLISECOND, SECOND, Instant, Span, format_span, seconds
from flyball.errors import FlyballError, StoreError
from flyball.governor import Governor, Rows
from flyball.runtimes.flag import Flag
from flyball.runtimes.guardian import boot_clock
from flyball.runtimes.holder import daemon_of, is_gone
from flyball.runtimes.host import leftovers
from flyball.runtimes.host.deadman import Deadman
from flyball.runtimes.host.fence import RENEWALS, Sightings, fence
from flyball.runtimes.host.transactions import Aside, Records, look, readable, transact

log = logging.getLogger(__name__)

ENDING: Final = 2
MARGIN: Final = 1
"""Fifths of the lease before the deadline: when the host begins to end what it runs, and when all of it is killed."""
RENEWED: Final = 2
"""Renewals after which a host lives. One may have been on its way when it died."""
LOOKS: Final = 50
"""Looks in the time of a lease, at a store that fails or at another host with the same name."""
DRIFT: Final = 1_000
"""One part in so many of a lease, by which two clocks may go apart while it lasts. Real ones do by far less."""
LEAVE_MAX: Final = 5 * SECOND
"""For telling the store that this host leaves. If it cannot be told, the lease just runs out."""
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
PROCESSES: Final = Path("/proc/self/ns/pid")


class NameTaken(FlyballError):
    """Another host of the fleet has this one's name."""

    remedy = "Give this one a name of its own: `host.name` in its settings, or FLYBALL_HOST__NAME."


class Lease:
    """This host's part in the fleet."""

    def __init__(
        self,
        governor: Governor,
        plan_host: HostPlan,
        holder: str,
        *,
        deadman: Deadman | None = None,
        version: str = "",
        settings_digest: str = "",
        page: str = "",
        clock_boot: Callable[[], Instant] = boot_clock,
        aside: Aside = asyncio.to_thread,
    ) -> None:
        self.governor = governor
        self.holder = holder
        self.name = host_of(holder)
        self.deadline: Instant = 0
        """When all that runs here has to be dead, by the boot clock. 0: it has not joined yet, or left."""
        self.lost = ""
        """Why there is no lease any more; nothing: there is, or there was none yet."""
        self._clock = clock_boot
        self._aside = aside
        self._deadman = deadman
        self._woken = Flag()
        self._renewed_at: Instant = 0
        self._behind: Span = 0
        """What the store's clock may be ahead of what this host takes for it: at most what an answer takes."""
        self.record = HostRecord(
            name=self.name,
            holder=holder,
            since=0,
            until=0,
            lease=plan_host.lease,
            labels=dict(plan_host.labels),
            units_max=plan_host.units_max,
            version=version,
            settings=settings_digest,
            page=page,
            machine=machine(),
        )
        """As it was last written, or read back."""

    # What follows from it.

    @property
    def length(self) -> Span:
        """From the beginning to the end. It stays as it was when the host joined."""
        return self.record.lease

    @property
    def gives_up_at(self) -> Instant:
        """From then on nothing is begun, and what runs is ended, by the boot clock."""
        return self.deadline - self.length * ENDING // RENEWALS

    @property
    def grace(self) -> Span:
        """How long from now, at most, what runs may take to end: after that it is killed."""
        return max(0, self.deadline - self.length * MARGIN // RENEWALS - self._clock())

    def holds(self) -> bool:
        """Whether something may be begun here."""
        return bool(self.deadline) and not self.lost and self._clock() < self.gives_up_at

    # Joining.

    async def join(self) -> None:
        """Become a part of the fleet. What an earlier daemon on this host left is ended, and that one is fenced, at
        once if it is certainly gone, else when its lease is at its end. NameTaken if it lives."""
        key = host_key(self.name)
        sightings, ends = Sightings(), set[Instant]()
        while True:
            before = self._clock()
            records, store_now = await look(self.governor, [key])
            now = self._clock()
            self._behind = now - before
            found = readable(records.get(key))
            if found is None or found.holder == self.holder:
                await self._clear_away()
                if await self._enter():
                    return
                continue
            end = sightings.end_of(found, store_now, now)
            if is_certainly_gone(found):
                await self._fence(found, dead=True)
            elif len(ends | {found.until}) > RENEWED:
                text = f"a host named {self.name} is in this fleet already, and lives: {found.holder}"
                raise NameTaken(text)
            elif end <= now and found.ran_out(store_now):
                await self._fence(found)
            else:
                if not ends:
                    wait = format_span(max(end - now, MILLISECOND) // MILLISECOND * MILLISECOND)
                    log.warning("%s: waiting up to %s for the lease of %s to end", self.name, wait, found.holder)
                ends.add(found.until)
                await asyncio.sleep(seconds(found.lease) / LOOKS)

    async def _fence(self, found: HostRecord, *, dead: bool = False) -> None:
        """The one before us on this host. What it left is ended before anybody takes it over."""
        await self._clear_away()
        self.record = msgspec.structs.replace(self.record, draining=found.draining)
        if await fence(self.governor, found, self.holder, dead=dead):
            log.info("%s was fenced: %s", found.holder, "it is gone" if dead else "its lease ran out")

    async def _clear_away(self) -> None:
        """End what an earlier daemon left here. It may have been fenced by another host long ago."""
        ended = await self._aside(leftovers.end, self.name)
        if ended:
            log.warning("%d processes were left by an earlier daemon on %s: ended", ended, self.name)

    async def _enter(self) -> bool:
        """Write the record, if there is none of that name."""
        key, before = host_key(self.name), self._clock()
        if self._deadman is not None:
            self._deadman.know(self.holder, self.length * MARGIN // RENEWALS)
        mine = self.record

        def change(records: Records, now: Instant) -> Rows | None:
            nonlocal mine
            found = readable(records.get(key))
            if found is not None and found.holder != self.holder:
                return None
            mine = msgspec.structs.replace(mine, since=now, until=now + self.length)
            return {key: encode(mine)}

        joined = await transact(self.governor, [key], change, Joined(host=self.name, holder=self.holder))
        if joined:
            self.record = mine
            self._extended(before)
        return joined

    def _extended(self, before: Instant) -> None:
        now = self._renewed_at = self._clock()
        self.deadline = max(self.deadline, before + self.length - self.length // DRIFT - self._behind)
        self._behind = now - before
        if self._deadman is not None:
            self._deadman.arm(self.deadline)

    # Keeping it.

    async def keep(self, losing: Callable[[], Awaitable[None]]) -> None:
        """Renew it. When that is refused, or cannot be done in time, call `losing`, once, and return."""
        troubled = False
        while not self.lost:
            wait = self.length // LOOKS if troubled else self._renewed_at + self.length // RENEWALS - self._clock()
            await self._wait(wait)
            troubled = await self._renew_in_time(troubled)
        log.error("%s lost its lease: %s; all that runs here is ended", self.name, self.lost)
        await losing()

    async def _renew_in_time(self, troubled: bool) -> bool:
        """Renew it, unless it is lost. Whether the store cannot be written, as before."""
        left = self.gives_up_at - self._clock()
        if left <= 0:
            self._lose(f"it could not be renewed for {format_span(self.length * (RENEWALS - ENDING) // RENEWALS)}")
        if self.lost:
            return troubled
        try:
            async with asyncio.timeout(seconds(left)):
                await self.renew()
        except TimeoutError:
            return troubled
        except Exception as error:  # whatever it is: what cannot be renewed is given up in time, and in order
            if not troubled:
                trace = None if isinstance(error, StoreError) else error
                log.warning("the lease of %s cannot be renewed: %s", self.name, error, exc_info=trace)
            return True
        return False

    async def renew(self) -> None:
        """Say that this host lives. If it was fenced, its lease is lost."""
        key, before = host_key(self.name), self._clock()
        mine = self.record

        def change(records: Records, now: Instant) -> Rows | None:
            nonlocal mine
            found = readable(records.get(key))
            if key not in records or (found is not None and found.holder != self.holder):
                return None
            draining = found.draining if found is not None else mine.draining
            mine = msgspec.structs.replace(mine, until=max(now + self.length, mine.until), draining=draining)
            return {key: encode(mine)}

        if await transact(self.governor, [key], change):
            self.record = msgspec.structs.replace(self.record, until=mine.until, draining=mine.draining)
            self._extended(before)
        else:
            self._lose("another host fenced this one")

    async def look(self) -> HostRecord:
        """The record as others changed it. If it is not there any more, the lease is lost."""
        key = host_key(self.name)
        records, _ = await look(self.governor, [key])
        found = readable(records.get(key))
        if found is not None and found.holder == self.holder:
            self.record = msgspec.structs.replace(self.record, draining=found.draining)
        elif self.deadline and (key not in records or found is not None):
            self._lose("another host fenced this one")
        return self.record

    def change(self, plan_host: HostPlan, settings_digest: str, page: str) -> None:
        """Other settings came. They are written with the next renewal; the length stays as it is."""
        self.record = msgspec.structs.replace(
            self.record,
            labels=dict(plan_host.labels),
            units_max=plan_host.units_max,
            settings=settings_digest,
            page=page,
        )
        self._renewed_at = 0
        self._woken.set()

    async def leave(self) -> None:
        """Be no part of the fleet any more. Nothing runs here by now, so others take over at once."""
        key = host_key(self.name)

        def change(records: Records, _: Instant) -> Rows | None:
            found = readable(records.get(key))
            return {key: None} if found is not None and found.holder == self.holder else None

        try:
            async with asyncio.timeout(seconds(LEAVE_MAX)):
                await transact(self.governor, [key], change, Left(host=self.name, holder=self.holder))
        except (TimeoutError, StoreError) as error:
            log.warning("the store could not be told that %s leaves: %s", self.name, str(error) or "no answer")
        self.deadline = 0
        if self._deadman is not None:
            self._deadman.disarm()

    def _lose(self, why: str) -> None:
        self.lost = self.lost or why
        self._woken.set()

    async def _wait(self, length: Span) -> None:
        """Not beyond the moment at which the lease is given up."""
        length = min(length, self.gives_up_at - self._clock())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds(length))):
                await self._woken.wait()
        self._woken.clear()


def machine() -> str:
    """Where the numbers of processes mean the same: this start of this machine, and this container on it. Nothing if
    that is not known."""
    try:
        return f"{BOOT_ID.read_text().strip()} {os.readlink(PROCESSES)}"  # noqa: PTH115 - it names no file
    except OSError:
        return ""


def is_certainly_gone(record: HostRecord) -> bool:
    """Whether the daemon of a record was on this machine, and is not there any more."""
    if not record.machine or record.machine != machine():
        return False
    return is_gone(daemon_of(record.holder).rpartition("/")[0], record.name)
