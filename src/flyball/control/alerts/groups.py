"""Groups: what belongs together is one message, and when that is sent, changed, sent anew and taken back.

Everything here is a function of a group, of what happened to it and of the present. Who is told, and by what, is the
business of others.

A group is told of `group_wait` after it began. What happens to it later changes its message, ever less often; a new one
is sent only when it got worse, and not soon after the last. What is over is told too, unless it comes back before that:
the more often it does, the longer that is waited for.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from flyball.config.alerts import SEVERITIES, Alerts
from flyball.control.alerts.notices import ALSO, KINDS, Notice, Over, Seen
from flyball.core.failure import digest
from flyball.core.time import FOREVER, HOUR, MINUTE, SECOND, Instant, Span, later

ITEMS_MAX: Final = 100
"""Problems that a group knows one by one, with all there is to know of each."""
OTHERS_MAX: Final = 2_000
"""Problems beyond them, of which it knows whose they are: some hundred kilobytes. Of more than this it is only known
that there were some."""
UPDATE_WAIT: Final[Span] = 10 * SECOND
"""Before a message is changed for the first time; twice as long before each further change."""
UPDATE_WAIT_MAX: Final[Span] = 10 * MINUTE
OVER_WAIT: Final[Span] = 5 * SECOND
"""Before it is told that something is over: a unit that is let go and fails at once was not."""
OVER_WAIT_MAX: Final[Span] = 10 * MINUTE
RENEW_WAIT_MAX: Final[Span] = 1 * HOUR
"""However often it comes and goes."""
KEPT_FOR: Final[Span] = 1 * HOUR
"""A group that is over is remembered for so long: if it comes back, it is no news."""
DOUBLINGS_MAX: Final = 16
DIGITS_MIN: Final = 6
"""Digits by which a fingerprint is known."""


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """One problem: of a unit, told apart from its others by a reference."""

    unit: str
    ref: str = ""
    problem: str = ""
    count: int = 0
    """How often it happened; 0: it is only known that it is so."""
    first: Instant = 0
    last: Instant = 0
    run: str = ""
    labels: Mapping[str, str] = {}
    choices: tuple[str, ...] = ()
    seen_until: Instant = 0
    """A person has seen it: silent until then, unless it gets worse."""
    seen_count: int = 0
    seen_by: str = ""


class Group(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is told in one message."""

    key: str
    kind: str
    severity: str
    subject: str = ""
    text: str = ""
    """The newest."""
    remedy: str = ""
    items: dict[str, Item] = {}
    others: dict[str, str] = {}
    """Problems beyond those: what each is called."""
    more: int = 0
    """How often one was told of that is beyond those, too."""
    count: int = 0
    opened: Instant = 0
    last: Instant = 0
    over: Instant = 0
    """When the last of its problems was gone; 0: there are some."""
    channels: tuple[str, ...] = ()
    """Who is to be told."""
    version: int = 1
    """Changes with everything that a reader would see."""
    told: int = 0
    """The version that was told last; 0: none, since it opened."""
    worse: bool = False
    """It got worse since a message was last sent anew."""
    ever: bool = False
    """Somebody was told of it, and not yet that it is over."""
    new_at: Instant = 0
    """When a message was last sent anew, and when one was last changed or sent."""
    told_at: Instant = 0
    updates: int = 0
    flaps: int = 0
    """How often it came back after it was over."""
    owed: bool = False
    """It lasted long enough to be told of, and was over before that was done."""
    was: dict[str, Item] = {}
    """The problems that it had and that are over."""

    @property
    def beyond(self) -> int:
        """Problems beyond those that are known one by one."""
        return len(self.others) + self.more

    @property
    def is_open(self) -> bool:
        """It has problems."""
        return not self.over

    @property
    def stands(self) -> bool:
        """Its problems last until they are over."""
        return KINDS[self.kind].stands


class Telling(msgspec.Struct, frozen=True):
    """That a message is to be sent."""

    fresh: bool
    """As a new one; otherwise the last one is changed."""
    over: bool = False


def key_of(kind: str, subject: str) -> str:
    """The name of a group."""
    return f"{kind}-{digest([kind, subject])[:12]}"


def item_key(notice: Notice) -> str:
    """The name of a problem in its group."""
    return f"{notice.unit}|{notice.ref}"


def opened(notice: Notice, channels: tuple[str, ...]) -> Group:
    """The group of a first notice."""
    group = Group(
        key_of(notice.kind, notice.subject),
        notice.kind,
        notice.severity,
        notice.subject,
        opened=notice.at,
    )
    return heard(group, notice, channels)


def heard(group: Group, notice: Notice, channels: tuple[str, ...]) -> Group:
    """With one more notice."""
    change = msgspec.structs.replace
    key = item_key(notice)
    known = group.items.get(key)
    listed = key in group.others
    if (known is not None or listed) and not notice.counts and not group.over:
        return group
    severer = SEVERITIES.index(notice.severity) > SEVERITIES.index(group.severity)
    new = known is None and not listed
    if group.over:
        new = not (group.ever and key in group.was)
        group = _back(group, notice.at)
    item = Item(notice.unit, notice.ref, notice.problem, first=notice.at) if known is None else known
    silent = item.seen_until > notice.at
    item = change(
        item,
        count=item.count + notice.counts,
        last=notice.at,
        run=notice.run,
        labels=notice.labels,
        choices=notice.choices,
    )
    fits = known is not None or (not listed and len(group.items) < ITEMS_MAX)
    joins = not fits and not listed and len(group.others) < OTHERS_MAX
    return change(
        group,
        severity=notice.severity if severer else group.severity,
        text=notice.text or group.text,
        remedy=notice.remedy or group.remedy,
        items={**group.items, key: item} if fits else group.items,
        was={old: gone for old, gone in group.was.items() if old != key} if group.was else group.was,
        others={**group.others, key: notice.problem} if joins else group.others,
        more=group.more + (not fits and not listed and not joins),
        count=group.count + (notice.counts or new),
        last=max(group.last, notice.at),
        channels=tuple(dict.fromkeys((*group.channels, *channels))),
        version=group.version + 1,
        worse=group.worse or severer or new or silent,
    )


def _back(group: Group, now: Instant) -> Group:
    """A group that was over, and is not. Whoever was not told yet that it was over need not be told that it is back."""
    return msgspec.structs.replace(
        group,
        items={},
        others={},
        more=0,
        was={},
        over=0,
        owed=False,
        opened=group.opened if group.ever else now,
        count=group.count if group.ever else 0,
        told=group.told if group.ever else 0,
        updates=group.updates if group.ever else 0,
        flaps=group.flaps + bool(group.told_at),
    )


def ended(group: Group, over: Over, settings: Alerts) -> Group:
    """Without those problems that are over."""
    if group.over or group.kind not in over.kinds:
        return group
    left = {key: item for key, item in group.items.items() if not _is_over(item, over)}
    others = {key: problem for key, problem in group.others.items() if not _is_over(_other(key, problem, group), over)}
    if len(left) == len(group.items) and len(others) == len(group.others):
        return group
    change = msgspec.structs.replace
    gone = {key: item for key, item in group.items.items() if key not in left}
    was = dict([*group.was.items(), *gone.items()][-ITEMS_MAX:])
    if not left and not over.run and not over.labels:
        left = {key: _other(key, others.pop(key), group) for key in [*others][:ITEMS_MAX]}
    if left:
        return change(group, items=left, others=others, was=was, version=group.version + 1)
    # What is left now cannot be followed: it is over with the last that can.
    owed = not group.ever and over.at - group.opened >= settings.group_wait
    return change(
        group, items={}, others={}, more=0, over=max(over.at, 1), was=was, version=group.version + 1, owed=owed
    )


def _other(key: str, problem: str, group: Group) -> Item:
    """What is known of one of the others."""
    unit, _, ref = key.partition("|")
    return Item(unit, ref, problem, first=group.opened, last=group.last)


def _is_over(item: Item, over: Over) -> bool:
    if over.run and item.run != over.run:
        return False
    if over.ref and not _same(item.ref, over.ref):
        return False
    if over.everyone:
        return all(item.labels.get(name) == value for name, value in over.labels.items())
    return item.unit == over.unit


def acknowledged(group: Group, seen: Seen) -> Group:
    """With what a person has seen."""
    found = {key: item for key, item in group.items.items() if _means(seen.problem, group.kind, item)}
    if not found:
        return group
    items = {
        key: msgspec.structs.replace(item, seen_until=seen.until, seen_count=item.count, seen_by=seen.by)
        for key, item in found.items()
    }
    return msgspec.structs.replace(group, items={**group.items, **items}, version=group.version + 1, worse=False)


def _means(problem: str, kind: str, item: Item) -> bool:
    """Whether that is its name. Of a fingerprint the first digits are enough."""
    if problem == item.problem:
        return True
    for code in (kind, *ALSO.get(kind, ())):
        head = f"{item.unit or 'fleet'}:{code}"
        ref = problem.removeprefix(head).removeprefix(":")
        if problem.startswith(head) and (not ref or _same(item.ref, ref)):
            return True
    return False


def _same(one: str, other: str) -> bool:
    """Whether two references are the same. Of a fingerprint the first digits are enough."""
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    return len(short) >= DIGITS_MIN and long.startswith(short) and not long.strip("0123456789abcdef")


def silent_until(group: Group, now: Instant) -> Instant:
    """Until when nobody is told of it, because a person has seen all of it; 0: people are told."""
    if not group.items or group.beyond:
        return 0
    seen = [item.seen_until if item.count <= item.seen_count else 0 for item in group.items.values()]
    soonest = min(seen)
    return soonest if soonest > now else 0


def next_at(group: Group, settings: Alerts, now: Instant) -> Instant:
    """When there is something to do about it; FOREVER: not by itself."""
    if group.over:
        if _owes_an_end(group):
            return later(group.over, _doubled(OVER_WAIT, group.flaps, OVER_WAIT_MAX))
        return later(max(group.over, group.told_at), KEPT_FOR)
    silent = silent_until(group, now)
    if silent:
        return silent
    times = [FOREVER]
    if not group.told:
        times.append(max(later(group.opened, settings.group_wait), _renews_at(group, settings)))
    elif group.version > group.told:
        times.append(later(group.told_at, _doubled(UPDATE_WAIT, group.updates, UPDATE_WAIT_MAX)))
    if group.told and group.worse:
        times.append(_renews_at(group, settings))
    if group.stands and group.told:
        times.append(later(group.new_at, settings.repeat_after))
        times.extend(item.seen_until for item in group.items.values() if now < item.seen_until < FOREVER)
    if not group.stands:
        times.append(later(group.last, KINDS[group.kind].passes))
    return min(times)


def telling(group: Group, settings: Alerts, now: Instant) -> Telling | None:
    """What people are to be told of it now, if anything."""
    if group.over:
        return Telling(False, over=True) if _owes_an_end(group) and next_at(group, settings, now) <= now else None
    if silent_until(group, now):
        return None
    if not group.told:
        at = max(later(group.opened, settings.group_wait), _renews_at(group, settings))
        return Telling(True) if at <= now else None
    if group.worse and _renews_at(group, settings) <= now:
        return Telling(True)
    if group.stands and (later(group.new_at, settings.repeat_after) <= now or _woke_up(group, now)):
        return Telling(True)
    waits = _doubled(UPDATE_WAIT, group.updates, UPDATE_WAIT_MAX)
    if group.version > group.told and later(group.told_at, waits) <= now:
        return Telling(False)
    return None


def was_told(group: Group, said: Telling, now: Instant) -> Group:
    """The group once its message is on its way."""
    return msgspec.structs.replace(
        group,
        told=group.version,
        worse=False if said.fresh else group.worse,
        ever=not said.over,
        owed=False,
        new_at=now if said.fresh else group.new_at,
        told_at=now,
        updates=0 if said.fresh else group.updates + 1,
    )


def is_past(group: Group, now: Instant) -> bool:
    """Whether it can be forgotten."""
    if group.over:
        kept = KEPT_FOR if group.told_at else 0
        return not _owes_an_end(group) and later(max(group.over, group.told_at), kept) <= now
    return not group.stands and later(group.last, KINDS[group.kind].passes) <= now


def _owes_an_end(group: Group) -> bool:
    return group.ever or group.owed


def _woke_up(group: Group, now: Instant) -> bool:
    """Somebody wanted to be told again after an instant that has passed since the last message."""
    return any(group.new_at < item.seen_until <= now for item in group.items.values())


def _renews_at(group: Group, settings: Alerts) -> Instant:
    if not group.new_at:
        return 0
    return later(group.new_at, _doubled(settings.renew_after, group.flaps, max(RENEW_WAIT_MAX, settings.renew_after)))


def _doubled(length: Span, times: int, most: Span) -> Span:
    return min(length << min(times, DOUBLINGS_MAX), most)
