"""The past of each unit, as far as the journal tells it. Read once, and then only what is new; nothing is stored.

Policies forget what no longer matters to them. What people still ask about (how did it end last, who started it, who
ordered what) is in the journal alone.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from flyball.core.codec import decode_body
from flyball.core.event import Exited, Held, Joined, Left, Released, Resume, Revise, Start
from flyball.core.layers import layer_of
from flyball.core.time import Instant
from flyball.errors import StoreCorrupt
from flyball.store import Entry, Store

SCAN_MAX: Final = 50_000
"""Entries that are read at first: the newest. Half a second of work; totals do not reach further back."""
CHUNK_MAX: Final = 5_000
"""Entries in memory at a time."""
RUNTIME: Final = "runtime"
RULE: Final = "rule"
"""The label that every run of a rule has, and what it says."""
ORDERS_MAX: Final = 5
"""Orders remembered for a unit: the newest. All of them are in the journal."""
TOLD: Final = frozenset(("start", "resume", "revise", "exited", "held", "released"))
"""Kinds of events that tell of a unit's past; steps and signs of life, which are the most, do not."""
ASKED: Final = frozenset(("ordered", "acknowledged"))
"""Kinds of events that tell what people asked for: nobody is known by that. A name that somebody got wrong, and may not
use, is in the journal too."""


HOSTS: Final = frozenset(("joined", "left"))
"""Kinds of events that tell of hosts."""
LOST_MAX: Final = 1_000
"""Hosts that are lost and remembered: where each has a name of its own for ever, they would be more and more."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a person ordered."""

    at: Instant
    order: Held | Released


@dataclass(slots=True)
class UnitPast:
    """What happened to one unit (or, under no name, to the fleet)."""

    since: Instant | None = None
    """When it last started, exited, was changed, held or released."""
    starts: int = 0
    restarts: int = 0
    """Starts that it made by itself after an exit."""
    by_hand: int = 0
    """Starts that a person asked for, after the first one. Of a rule none: what fired it is in its queue's entries."""
    exited_at: Instant = 0
    last_exit: Exited | None = None
    runs: dict[str, Instant] = field(default_factory=dict)
    """When each run that has not exited was started."""
    labels: Mapping[str, str] = field(default_factory=dict)
    orders: tuple[Order, ...] = ()
    began: Instant | None = None
    """When its work was begun: by the last start that was no resume, and that it did not make by itself."""
    started: Instant | None = None
    """When its last run was."""
    fired: dict[int, int] = field(default_factory=dict)
    """How often each layer ended it."""

    def hear(self, entry: Entry) -> None:
        """What an entry adds to it. A refused request changed nothing, and what cannot be read says nothing: `flyball
        events` names it, and nobody is kept from looking at the rest."""
        try:
            event = decode_body(entry.body).event
        except StoreCorrupt:
            return
        match event:
            case Start() | Revise() if entry.verb != "proceed":
                return
            case Start():
                fired = event.labels.get(RUNTIME) == RULE
                failed = self.last_exit is not None and self.last_exit.cause.failed
                self.restarts += event.again or (fired and failed)  # as the policy counts them
                self.by_hand += not (event.again or fired or isinstance(event, Resume)) and self.starts > 0
                self.starts += 1
                self.runs[event.run] = self.started = entry.at
                self.labels = event.labels
                if self.began is None or not (event.again or isinstance(event, Resume)):
                    self.began = entry.at
            case Exited():
                self.exited_at, self.last_exit = entry.at, event
                self.runs.pop(event.run, None)
                layer = layer_of(event.error)
                if layer is not None:
                    self.fired[layer] = self.fired.get(layer, 0) + 1
            case Held() | Released():
                self.orders = (*self.orders, Order(entry.at, event))[-ORDERS_MAX:]
        self.since = entry.at


class Past:
    """The past of all units. Safe to use from several threads."""

    def __init__(self) -> None:
        self._seq: int | None = None
        self._units: dict[str, UnitPast] = {}
        self._lost: dict[str, tuple[Instant, Left]] = {}
        self._lock = threading.Lock()

    def of(self, unit: str) -> UnitPast:
        """One unit's past; an empty one if the journal knows nothing of it."""
        return self._units.get(unit) or UnitPast()

    @property
    def units(self) -> frozenset[str]:
        """Whom the journal knows."""
        with self._lock:
            return frozenset(self._units) - {""}

    @property
    def lost_hosts(self) -> Mapping[str, tuple[Instant, Left]]:
        """Hosts that were lost and did not join again, each with when that was."""
        with self._lock:
            return dict(self._lost)

    def catch_up(self, store: Store) -> None:
        """Read what is new in the journal."""
        with self._lock:
            if self._seq is None:
                self._seq = max(0, store.read(()).seq - SCAN_MAX)
            while entries := store.entries(after=self._seq, limit=CHUNK_MAX):
                for entry in entries:
                    if entry.event in ASKED:
                        continue
                    if entry.event in HOSTS:
                        self._hear_host(entry)
                        continue
                    past = self._units.get(entry.unit)
                    if past is None:  # a program that only makes calls never starts, and is known all the same
                        past = self._units[entry.unit] = UnitPast()
                    if entry.event in TOLD:
                        past.hear(entry)
                self._seq = entries[-1].seq

    def _hear_host(self, entry: Entry) -> None:
        try:
            event = decode_body(entry.body).event
        except StoreCorrupt:
            return
        if isinstance(event, Joined | Left):
            self._lost.pop(event.host, None)
        if isinstance(event, Left) and event.lost:
            self._lost[event.host] = (entry.at, event)
            while len(self._lost) > LOST_MAX:
                del self._lost[next(iter(self._lost))]
