"""Times that fire rules: every so often, and at times of the day. One heap for all of them.

What is due next follows from what was due last, never from when it was run: nothing drifts, and a clock that is set
back fires nothing twice. What was due last is a record, so a restart goes on from there.
"""

import heapq
import importlib
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice
from types import ModuleType
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from flyball.config.rules import Cron, Every, Missed, Rule
from flyball.core.policy import Key
from flyball.core.time import DAY, FOREVER, MICROSECOND, MINUTE, SECOND, Instant, Span, format_span
from flyball.governor import Governor
from flyball.runtimes.driver import Sleep
from flyball.runtimes.flag import Flag
from flyball.runtimes.rule.firing import Bell, Spark
from flyball.runtimes.rule.triggers.striker import EPOCH, UNREADABLE, Striker, digest_of, missing, moment, place_of

log = logging.getLogger(__name__)

TIMER: Final = "timer"
"""The name of such a record, where policies have theirs."""
MISSED_MAX: Final = 100
"""Missed times of one trigger that are made up for, with `missed: all`. As many fit into the queue of a rule."""
LEFT_OUT_MAX: Final = 10_000
"""Times that were left out are counted up to here: to say how many is not worth more."""
LATE_MAX: Final[Span] = 1 * MINUTE
"""What comes later than this was missed. A restart takes a moment, and cron counts in minutes."""
LOOK_EVERY: Final[Span] = 10 * SECOND
"""How long to sleep at most: a machine that was suspended, or a clock that was set, is noticed within this."""
AHEAD_MAX: Final[Span] = 1 * DAY
"""A last time that lies further ahead than this was written while the clock was wrong."""

Timed = Every | Cron


class Due(msgspec.Struct, frozen=True):
    """The record of one trigger."""

    trigger: str
    """The digest of it."""
    last: Instant
    """When it was due last; at first, when it was seen first."""


@dataclass(slots=True, eq=False)
class _Timer:
    """One trigger of one rule."""

    rule: str
    key: Key
    trigger: Timed
    digest: str
    last: Instant
    due: Instant = FOREVER
    gone: bool = False

    def row(self, last: Instant) -> Mapping[Key, bytes]:
        return {self.key: msgspec.json.encode(Due(self.digest, last))}


class Timers:
    """Fires rules at times, of one kind: `Every` or `Cron`."""

    def __init__(self, bell: Bell, governor: Governor, kind: type[Timed], sleep: Sleep | None = None) -> None:
        if kind is Cron:
            _cronsim()
        self._striker = Striker(bell, governor, sleep)
        self._clock, self._store = governor.clock, governor.store
        self._kind = kind
        self._wanted: dict[Key, tuple[str, Timed]] = {}
        self._others: set[Key] = set()
        """Where there are times of the other kind: another source remembers something there."""
        self._refit = False
        self._timers: dict[Key, _Timer] = {}
        self._heap: list[tuple[Instant, int, _Timer]] = []
        self._pushed = 0
        self._poked = Flag()

    def use(self, rules: Sequence[Rule]) -> None:
        """Watch for the times of these rules."""
        self._wanted, self._others = {}, set()
        for rule in rules:
            for place, trigger in enumerate(rule.triggers):
                if isinstance(trigger, self._kind):
                    self._wanted[place_of(TIMER, rule.name, place)] = rule.name, trigger
                elif isinstance(trigger, Timed):
                    self._others.add(place_of(TIMER, rule.name, place))
        self._refit = True
        self._poked.set()

    async def run(self) -> None:
        """Fire what is due, until it is cancelled. What a run before this one knew is read again: it may have failed
        halfway."""
        self._timers.clear()
        self._heap.clear()
        self._refit = False
        await self._fit(self._store.states(TIMER))
        while True:
            self._poked.clear()
            if self._refit:
                self._refit = False
                await self._fit({})
            now = self._clock.now()
            await self._fire(now)
            await self._striker.sleep(self._poked, min(self._heap[0][0] if self._heap else FOREVER, now + LOOK_EVERY))

    async def _fit(self, stored: Mapping[Key, bytes]) -> None:
        """Have a timer for every trigger that there is now. One that did not change is not touched."""
        wanted, others = self._wanted, self._others
        now = self._striker.present()
        rows: dict[Key, bytes | None] = {key: None for key in stored if key not in wanted and key not in others}
        for key in self._timers.keys() - wanted.keys():
            self._timers.pop(key).gone = True
            if key not in others:
                rows[key] = None
        for key, (rule, trigger) in wanted.items():
            known = self._timers.get(key)
            if known is not None and known.trigger == trigger:
                continue
            if known is not None:
                self._timers.pop(key).gone = True
            digest = digest_of(trigger)
            last = _remembered(stored.get(key), digest, now, key)
            timer = self._timers[key] = _Timer(rule, key, trigger, digest, now if last is None else last)
            if last is None:
                rows |= timer.row(now)
            self._push(timer)
        await self._striker.keep(rows)

    def _push(self, timer: _Timer) -> None:
        try:
            timer.due = _following(timer.trigger, timer.last)
        except (LookupError, ValueError) as error:  # such a rule is refused when it is read
            log.error("%s: %r never comes: %s", timer.rule, _name(timer.trigger), error)
            timer.due = FOREVER
        if timer.due < FOREVER:
            self._pushed += 1
            heapq.heappush(self._heap, (timer.due, self._pushed, timer))

    async def _fire(self, now: Instant) -> None:
        due: list[_Timer] = []
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)[2]
            if not timer.gone:
                due.append(timer)
        if not due:
            return
        lines = [_sparks(timer, now) for timer in due]
        await self._striker.strike(sparks for _, sparks in lines)
        for timer, (last, _) in zip(due, lines, strict=True):
            timer.last = last
            self._push(timer)


def _remembered(data: bytes | None, digest: str, now: Instant, key: Key) -> Instant | None:
    """When the trigger was due last; None if that is not known of this very one."""
    try:
        known = None if data is None else msgspec.json.decode(data, type=Due)
    except UNREADABLE:
        log.warning("when %s was due last cannot be read: it starts fresh", key.subject)
        return None
    if known is None or known.trigger != digest:
        return None
    if known.last > now + AHEAD_MAX:
        text = "%s was due last %s from now: the clock was wrong then, so it starts fresh"
        log.warning(text, key.subject, format_span(known.last - now))
        return None
    return known.last


# What a time that is due says.


def _sparks(timer: _Timer, now: Instant) -> tuple[Instant, list[Spark]]:
    """What is due by now of a trigger that is: when it was due last then, and what to ring."""
    trigger = timer.trigger
    if isinstance(trigger, Every):
        last = now - (now - timer.last) % trigger.every
        return last, [_spark(timer, last, {"kind": "every", "at": moment(last).isoformat()}, joins=True)]
    if trigger.missed is Missed.ALL:
        times, left_out = _newest(trigger, timer.last, now, MISSED_MAX)
        if left_out:
            more = "more than " if left_out > LEFT_OUT_MAX else ""
            text = "%s: %s was missed too often: %s%d of the times are left out, the newest %d are made up for"
            log.warning(text, timer.rule, _name(trigger), more, min(left_out, LEFT_OUT_MAX), len(times))
        return times[-1], [_cron_spark(timer, trigger, at, now) for at in times]
    (newest,), _ = _newest(trigger, timer.last, now, 1)
    skips = trigger.missed is Missed.SKIP and now - newest > LATE_MAX
    return newest, [] if skips else [_cron_spark(timer, trigger, newest, now)]


def _cron_spark(timer: _Timer, cron: Cron, at: Instant, now: Instant) -> Spark:
    said = {"kind": "cron", "at": moment(at, _zone(cron.timezone)).isoformat(), "missed": now - at > LATE_MAX}
    return _spark(timer, at, said, joins=cron.missed is not Missed.ALL)


def _spark(timer: _Timer, last: Instant, said: Mapping[str, object], *, joins: bool) -> Spark:
    return Spark(rule=timer.rule, trigger=_name(timer.trigger), data=said, rows=timer.row(last), joins=joins)


def _name(trigger: Timed) -> str:
    """For people; and those that have the same one join each other."""
    if isinstance(trigger, Every):
        return f"every {format_span(trigger.every)}"
    zone = "" if trigger.timezone == "UTC" else f" {trigger.timezone}"
    return f"cron {trigger.expression}{zone}"


# When a time comes.


def _following(trigger: Timed, after: Instant) -> Instant:
    """The next time after that one; FOREVER: there is none."""
    if isinstance(trigger, Every):
        return after + trigger.every
    return _next_of(trigger.expression, trigger.timezone, after)


@lru_cache(maxsize=1024)  # many rules have the same times
def _next_of(expression: str, timezone: str, after: Instant) -> Instant:
    return next(_times(expression, timezone, after), FOREVER)


def _newest(cron: Cron, after: Instant, until: Instant, most: int) -> tuple[list[Instant], int]:
    """The newest times after one instant and until another, and how many there are besides, counted to a bound. After a
    year away nobody walks through the whole of it: the end is looked at, and more of it until there is enough."""
    first = _following(cron, after)
    if _following(cron, first) > until:  # as it is while somebody is there
        return [first], 0
    reach = 2 * MINUTE
    while True:
        start = max(after, until - reach)
        found = deque(_times(cron.expression, cron.timezone, start, until), most)
        if len(found) == most or start == after:
            break
        reach *= 8
    if most == 1:
        return list(found), 0
    others = _times(cron.expression, cron.timezone, after, found[0] - MICROSECOND)
    return list(found), sum(1 for _ in islice(others, LEFT_OUT_MAX + 1))


def _times(expression: str, timezone: str, after: Instant, until: Instant = FOREVER) -> Iterator[Instant]:
    """The times after one instant, until another. Where the clocks change, fixed times follow Debian's cron: what falls
    into the hour that is left out comes right after it, what falls into the hour that comes twice comes once."""
    for at in _calendar(expression, moment(after, _zone(timezone))):
        instant = _instant(at)
        if instant > until:
            return
        if instant > after:  # within an hour that comes twice, cronsim begins with the first of the two
            after = instant
            yield instant


def _calendar(expression: str, after: datetime) -> Iterator[datetime]:
    cronsim = _cronsim()
    try:
        times: Iterator[datetime] = cronsim.CronSim(expression, after)
    except cronsim.CronSimError as error:
        raise ValueError(str(error)) from None
    return times


def _cronsim() -> ModuleType:
    try:
        return importlib.import_module("cronsim")
    except ImportError:
        raise missing("cronsim", "times of the day (cron)") from None


def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


def _instant(at: datetime) -> Instant:
    return (at.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
