"""What happens to units, and fires rules: read from the journal, entry by entry.

Each trigger remembers the last entry that fired it, written with that spark: after a crash the entries behind it are
read again, and none fires twice. Where to begin to read is remembered for all of them together, behind the sparks.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec

from flyball.config.rules import Rule, UnitEvent, When
from flyball.core.codec import decode_body
from flyball.core.event import Event, Exited, Held, Released, Start
from flyball.core.policy import Key
from flyball.core.time import SECOND, Span
from flyball.errors import StoreCorrupt
from flyball.governor import Governor
from flyball.runtimes.doorbell import doorbell
from flyball.runtimes.driver import Sleep
from flyball.runtimes.flag import Flag
from flyball.runtimes.rule.firing import Bell, Spark
from flyball.runtimes.rule.triggers.striker import UNREADABLE, Striker, digest_of, place_of
from flyball.store import Entry

log = logging.getLogger(__name__)

EVENT: Final = "event"
"""The name of such records, where policies have theirs."""
TAIL: Final = Key(EVENT, "fleet", "")
"""The last entry that was read, whatever it fired."""
KINDS: Final = ("start", "resume", "exited", "held", "released")
"""What is read of the journal. Of what happens within a run nothing fires a rule."""
ENTRIES_MAX: Final = 1_000
"""Entries in memory at a time. So many are read again, too, after a crash, though they fired nothing."""
LOOK_EVERY: Final[Span] = 1 * SECOND
"""How long to wait for the bell of the store: one that is missed must not be missed for long."""
HELD_MAX: Final = 1_000
"""Units that a trigger knows to be held. Of more than this the first ones are forgotten, and may fire it again."""
UNITS_MAX: Final = 10_000
"""Units whose triggers are remembered. Beyond, they are looked up anew: a bound, not a tuning knob."""

ChainOf = Callable[[str, str], tuple[str, int]]
"""Which chain of rules a unit's run belongs to, and its place in that; of none: nothing, and -1."""


class Heard(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of one trigger."""

    trigger: str
    """The digest of it."""
    after: int
    """The last entry that fired it; at first, the last one before it was there."""
    held: tuple[str, ...] = ()
    """Units that are held, by now: they fire it when they are held again."""


@dataclass(slots=True, eq=False)
class _Ear:
    """One trigger of one rule."""

    rule: str
    key: Key
    trigger: UnitEvent
    digest: str
    after: int
    held: dict[str, None] = field(default_factory=dict)
    freed: bool = False
    """Units are held no more, and that is not written yet."""

    def free(self, units: Sequence[str]) -> None:
        """They are held no more."""
        for unit in units:
            if unit in self.held:
                del self.held[unit]
                self.freed = True

    def row(self) -> Mapping[Key, bytes]:
        return {self.key: msgspec.json.encode(Heard(self.digest, self.after, tuple(self.held)))}


class Events:
    """Fires rules by what the journal says of units."""

    def __init__(
        self,
        bell: Bell,
        governor: Governor,
        chain_of: ChainOf,
        file: Path | None = None,
        sleep: Sleep | None = None,
    ) -> None:
        """`file` is the one that every commit changes; without it, the journal is looked at now and then."""
        self._striker = Striker(bell, governor, sleep)
        self._clock, self._store = governor.clock, governor.store
        self._chain_of, self._file = chain_of, file
        self._wanted: dict[Key, tuple[str, UnitEvent]] = {}
        self._refit = False
        self._ears: dict[Key, _Ear] = {}
        self._concerned: dict[str, list[_Ear]] = {}
        self._read = 0
        self._kept = 0
        self._poked = Flag()

    def use(self, rules: Sequence[Rule]) -> None:
        """Listen for what fires these rules, from now on."""
        self._wanted = {
            place_of(EVENT, rule.name, place): (rule.name, trigger)
            for rule in rules
            for place, trigger in enumerate(rule.triggers)
            if isinstance(trigger, UnitEvent)
        }
        self._refit = True
        self._poked.set()

    def poke(self) -> None:
        """Something was written: read on at once."""
        self._poked.set()

    async def run(self) -> None:
        """Read on, until it is cancelled. What a run before this one knew is read again: it may have failed halfway."""
        bell = doorbell(self._store, self._file, self.poke, KINDS) if self._file is not None else None
        try:
            await self._begin()
            while True:
                self._poked.clear()
                if self._refit:
                    self._refit = False
                    await self._fit({})
                while await self._read_on():
                    pass
                await self._striker.sleep(self._poked, self._clock.now() + LOOK_EVERY)
        finally:
            if bell is not None:
                bell.close()

    async def _begin(self) -> None:
        self._ears.clear()
        stored = dict(self._store.states(EVENT))
        head = self._store.read(()).seq
        self._read = _tail(stored.pop(TAIL, None), head) if stored.keys() & self._wanted.keys() else head
        first = self._store.entries(after=self._read, limit=1)
        if first and first[0].seq > self._read + 1:
            text = "the journal begins at entry %d, and was read up to %d: what it forgot in between fires nothing"
            log.warning(text, first[0].seq, self._read)
        self._refit = False
        await self._fit(stored)

    async def _fit(self, stored: Mapping[Key, bytes]) -> None:
        """Have an ear for every trigger that there is now. One that did not change is not touched."""
        wanted = self._wanted
        rows: dict[Key, bytes | None] = dict.fromkeys(key for key in stored if key not in wanted)
        for key in self._ears.keys() - wanted.keys():
            del self._ears[key]
            rows[key] = None
        head = self._store.read(()).seq
        for key, (rule, trigger) in wanted.items():
            known = self._ears.get(key)
            if known is not None and known.trigger == trigger:
                continue
            digest = digest_of(trigger)
            heard = _remembered(stored.get(key), digest, key)
            ear = self._ears[key] = _Ear(rule, key, trigger, digest, head)
            if heard is None:
                rows |= ear.row()
            else:
                ear.after, ear.held = heard.after, dict.fromkeys(heard.held)
        self._concerned.clear()
        await self._striker.keep(rows | self._tail_row())

    async def _read_on(self) -> bool:
        """Read what is new, and ring for it. Whether there may be more."""
        head = self._store.read(()).seq
        if head <= self._read:
            return False
        if not self._ears:
            self._read = head
            return False
        entries = self._store.entries(after=self._read, limit=ENTRIES_MAX, events=KINDS)
        full = len(entries) == ENTRIES_MAX
        lines: dict[Key, list[Spark]] = {}
        for entry in entries:
            for ear, spark in self._hear(entry):
                lines.setdefault(ear.key, []).append(spark)
        await self._striker.strike(lines.values())
        self._read = entries[-1].seq if full else max(head, entries[-1].seq if entries else 0)
        await self._remember(fired=bool(lines))
        return full

    async def _remember(self, *, fired: bool) -> None:
        freed = [ear for ear in self._ears.values() if ear.freed]
        if not (fired or freed or self._read - self._kept >= ENTRIES_MAX):
            return
        rows = self._tail_row()
        for ear in freed:
            ear.freed = False
            rows |= ear.row()
        # What is lost of this is read again, and fires nothing: each trigger knows better.
        await self._striker.keep(rows, sync=False)

    def _tail_row(self) -> dict[Key, bytes | None]:
        self._kept = self._read
        return {TAIL: msgspec.json.encode(self._read)}

    def _hear(self, entry: Entry) -> list[tuple[_Ear, Spark]]:
        ears = self._ears.values() if entry.event == "released" else self._ears_for(entry.unit)
        ears = [ear for ear in ears if ear.after < entry.seq]
        if not ears:
            return []
        try:
            event = decode_body(entry.body).event
        except StoreCorrupt as error:
            log.error("entry %d of the journal fires nothing: %s", entry.seq, error)
            return []
        if isinstance(event, Held) and event.scope != "unit":
            return []
        return [(ear, self._spark(ear, entry, event, on)) for ear in ears if (on := _happened(ear, entry, event))]

    def _ears_for(self, unit: str) -> list[_Ear]:
        ears = self._concerned.get(unit)
        if ears is None:
            if len(self._concerned) >= UNITS_MAX:
                self._concerned.clear()
            ears = [ear for ear in self._ears.values() if _matches(ear.trigger.unit, unit)]
            self._concerned[unit] = ears
        return ears

    def _spark(self, ear: _Ear, entry: Entry, event: Event, on: When) -> Spark:
        tree, depth = self._chain_of(entry.unit, event.run)
        exited = event if isinstance(event, Exited) else None
        said = {
            "kind": "event",
            "unit": entry.unit,
            "on": on.value,
            "run": event.run,
            "cause": exited.cause.value if exited is not None else "",
            "error": exited.error if exited is not None else "",
            "fingerprint": exited.fingerprint if exited is not None else "",
        }
        ear.after = entry.seq
        return Spark(
            rule=ear.rule, trigger=f"event {entry.unit}", data=said, rows=ear.row(), tree=tree, depth=depth + 1
        )


def _happened(ear: _Ear, entry: Entry, event: Event) -> When | None:
    """What of all that the trigger waits for happened, if anything. That a unit is held says more than why its run
    ended, and it is said once, until it may start again."""
    wants = ear.trigger.on
    if When.HELD in wants and _is_held_now(ear, entry, event):
        return When.HELD
    on = None
    if isinstance(event, Start):
        on = When.STARTED if entry.verb == "proceed" else None
    elif isinstance(event, Exited) and not event.pause:  # what is paused goes on: it neither ended nor failed
        on = When.DONE if event.cause.done else When.FAILED if event.cause.failed else When.STOPPED
    return on if on in wants else None


def _is_held_now(ear: _Ear, entry: Entry, event: Event) -> bool:
    """Whether the unit is held, and was not before."""
    unit, held = entry.unit, ear.held
    if isinstance(event, Released):
        # Of a label or the fleet it is not said which units those are: who is still held is refused anew.
        ear.free([unit] if event.scope == "unit" else list(held))
    elif entry.verb == "hold":
        if unit in held:
            return False
        if len(held) >= HELD_MAX:
            del held[next(iter(held))]
        held[unit] = None
        return True
    elif isinstance(event, Start) and entry.verb == "proceed":
        ear.free([unit])
    return False


def _matches(pattern: str, unit: str) -> bool:
    """Only `*` is special."""
    return fnmatchcase(unit, pattern.replace("[", "[[]").replace("?", "[?]"))


def _tail(data: bytes | None, head: int) -> int:
    try:
        return head if data is None else min(head, msgspec.json.decode(data, type=int))
    except UNREADABLE:
        log.warning("how far the journal was read cannot be read: it is read from its end")
        return head


def _remembered(data: bytes | None, digest: str, key: Key) -> Heard | None:
    try:
        known = None if data is None else msgspec.json.decode(data, type=Heard)
    except UNREADABLE:
        log.warning("what %s heard last cannot be read: it starts fresh", key.subject)
        return None
    return known if known is not None and known.trigger == digest else None
