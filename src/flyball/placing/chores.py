"""What a host has to put right about the placement, from what it sees of it: pure. Any host may do any of it, several
at once too: what is done twice is as if it was done once.

Where hosts disagree for a moment, because one saw something earlier than the other, an item may be put back that
somebody has. Then that host finds at its next look that the item is not its own any more, and leaves it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from flyball.placing.items import FREE, Item

WAITING: Final = "ENQUEUED"
KEPT: Final = "PENDING"
OVER: Final = ("SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")

STRAYED_MAX: Final = 15.0
"""Seconds that an item may wait for the host that it was moved to. Then any host may take it."""
UNHELD_MAX: Final = 3.0
"""Seconds after which an item that is this host's, and that it does not have, is put back: it was given to a thread
that failed, or could not be put back."""
STUCK_MAX: Final = 2.0
"""Seconds that an item may wait for a host that has not its share yet, and may be unable to take it. Then each may take
as many as there are: that all run comes before that all have the same."""


class Placement(NamedTuple):
    """Where an item is."""

    item: str
    turn: int
    """How often it was put anew. Only the last one counts."""
    workflow: str
    status: str
    queue: str
    holder: str
    """Who has it, if somebody does."""

    @property
    def kept(self) -> bool:
        """Whether a host has it."""
        return self.status == KEPT

    @property
    def waits(self) -> bool:
        """Whether it waits for a host."""
        return self.status == WAITING


class Doubt(NamedTuple):
    """Something looks wrong, and may be right in a moment."""

    what: str
    since: float


@dataclass(slots=True)
class Chores:
    """What is to be done."""

    puts: list[tuple[str, int, str]] = field(default_factory=list)
    """Items that are nowhere: item, turn, queue."""
    backs: dict[str, list[str]] = field(default_factory=dict)
    """Workflows that are to wait, by queue."""
    withdrawn: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Items that this host has, and that are not its own any more."""
    share: int = 1
    """Items of the queue of all that each host takes at most."""
    rooms: dict[str, int] = field(default_factory=dict)
    """Units that each of the other holders still has room for."""
    doubts: dict[str, Doubt] = field(default_factory=dict)
    """For the next look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a host sees."""

    me: str
    name: str
    """Of the host."""
    items: Mapping[str, Item]
    held: Mapping[str, str]
    """What it had before it looked: the workflow of each item."""
    places: Sequence[Placement]
    live: Mapping[str, int]
    """Who lives, read after the places: each with the units that it takes at most."""
    now: float
    """Seconds, by any clock that runs on."""
    doubts: Mapping[str, Doubt] = field(default_factory=dict)
    removed: Collection[str] = ()
    """Items that the settings have no more, since a moment ago."""
    reloaded: bool = False
    """The settings are others: what waits for another host than these say waits no longer."""
    first: bool = False
    """Its first look: what never was anywhere it does not put yet, unless only this host may run it."""


def chores(view: View) -> Chores:
    """What is to be done."""
    todo = Chores()
    last: dict[str, Placement] = {}
    for place in view.places:
        if place.item not in last or place.turn > last[place.item].turn:
            last[place.item] = place
    for place in view.places:
        if place.turn < last[place.item].turn:
            _outdated(view, todo, place)
        else:
            _current(view, todo, place)
    for item in view.items.values():
        found = last.get(item.name)
        if found is None and (not view.first or item.host == view.name):
            todo.puts.append((item.name, 1, item.queue))
        elif found is not None and found.status in OVER:
            todo.puts.append((item.name, found.turn + 1, item.queue))
    mine = {place.workflow for place in view.places if place.kept and place.holder == view.me}
    todo.lost += [item for item, workflow in view.held.items() if workflow not in mine and item not in todo.lost]
    free = sum(item.queue == FREE for item in view.items.values())
    stuck = any(doubt.what == "waits" and view.now - doubt.since >= STUCK_MAX for doubt in todo.doubts.values())
    todo.share = max(1, free) if stuck else fair_share(free, view.live.values())
    todo.rooms = _rooms(view)
    return todo


def _rooms(view: View) -> dict[str, int]:
    rooms = {holder: units for holder, units in view.live.items() if holder != view.me}
    for place in view.places:
        item = view.items.get(place.item)
        if place.kept and place.holder in rooms and item is not None and not item.host:
            rooms[place.holder] -= len(item.units)
    return rooms


def _outdated(view: View, todo: Chores, place: Placement) -> None:
    """There is a later one of the same item."""
    if place.status in OVER:
        todo.forgotten.append(place.workflow)
    elif place.waits or place.holder == view.me or place.holder not in view.live:
        todo.withdrawn.append(place.workflow)
        if view.held.get(place.item) == place.workflow:
            todo.lost.append(place.item)


def _current(view: View, todo: Chores, place: Placement) -> None:
    item = view.items.get(place.item)
    if place.status in OVER:
        if item is None:
            todo.forgotten.append(place.workflow)
        return
    queue = item.queue if item is not None else place.queue
    if place.waits and place.item in view.removed:
        todo.withdrawn.append(place.workflow)
    elif place.waits and place.queue != queue:
        if view.reloaded or _doubted(view, todo, place, "strayed", STRAYED_MAX):
            todo.backs.setdefault(queue, []).append(place.workflow)
    elif place.waits and queue == FREE:
        _doubted(view, todo, place, "waits", STUCK_MAX)
    elif place.kept and place.holder == view.me:
        if place.item not in view.held and _doubted(view, todo, place, "unheld", UNHELD_MAX):
            todo.backs.setdefault(queue, []).append(place.workflow)
    elif place.kept and place.holder not in view.live:
        todo.backs.setdefault(queue, []).append(place.workflow)


def _doubted(view: View, todo: Chores, place: Placement, what: str, wait: float) -> bool:
    """Whether that looks so for that long."""
    before = view.doubts.get(place.workflow)
    doubt = before if before is not None and before.what == what else Doubt(what, view.now)
    todo.doubts[place.workflow] = doubt
    return view.now - doubt.since >= wait


def fair_share(items: int, takers: Collection[int]) -> int:
    """The least that each host may take so that all items find one. A host takes no more than it can: then the others
    have more."""
    share, left = 0, items
    room = sorted(taker for taker in takers if taker > 0)
    while left > 0 and room:
        step = max(1, min(room[0] - share, -(-left // len(room))))
        share += step
        left -= step * len(room)
        room = [taker for taker in room if taker > share]
    return max(1, share)
