"""Hosts of a fleet, as people see them: from the record that each renews, and, of those that are lost, from the
journal. What a host runs is what its daemon holds. Nothing is ordered here."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from flyball.config.components import Component
from flyball.control.shapes import HostView
from flyball.core.event import Left
from flyball.core.host import HOSTS, HostRecord, decode
from flyball.core.time import DAY, Instant, Span, seconds
from flyball.store import Store

UP: Final = "up"
DRAINING: Final = "draining"
LOST: Final = "lost"
SHOWN_FOR: Final[Span] = 1 * DAY
"""A host that is lost is shown for so long. By then somebody has put it right, or it is meant to be gone."""


def known(store: Store) -> dict[str, HostRecord]:
    """The hosts that have a record, by name. One that cannot be read says nothing: its host writes it anew."""
    found = {}
    for data in store.states(HOSTS).values():
        try:
            record = decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        found[record.name] = record
    return dict(sorted(found.items()))


def views(
    records: Mapping[str, HostRecord],
    lost: Mapping[str, tuple[Instant, Left]],
    units: Mapping[str, int],
    now: Instant,
) -> tuple[HostView, ...]:
    """All hosts, by name. `units`: how many each runs."""
    if not records:
        return ()  # whoever looks at a fleet without hosts has nothing to do with those of another time
    odd = differing([record for record in records.values() if not record.ran_out(now)])
    shown = [of_record(record, units.get(record.name, 0), now, differs=name in odd) for name, record in records.items()]
    for name, (at, left) in lost.items():
        if name not in records and now - at < SHOWN_FOR:
            shown.append(HostView(name=name, state=LOST, since=seconds(at), units=left.runs, by=left.by))
    return tuple(sorted(shown, key=lambda view: view.name))


def of_record(record: HostRecord, units: int, now: Instant, *, differs: bool = False) -> HostView:
    """A host that has a record. If its lease ran out and nobody took over yet, it is lost."""
    out = record.ran_out(now)
    return HostView(
        name=record.name,
        state=LOST if out else DRAINING if record.draining else UP,
        since=seconds(record.until if out else record.since),
        units=units,
        units_max=record.units_max,
        labels=dict(record.labels),
        page=record.page,
        version=record.version,
        differs=differs,
    )


def differing(records: Sequence[HostRecord]) -> frozenset[str]:
    """Hosts whose settings are not those of most. If there is no most, all: nobody knows who is right."""
    counts = Counter(record.settings for record in records if record.settings)
    if len(counts) < 2:
        return frozenset()
    (usual, first), (_, second) = counts.most_common(2)
    right = usual if first > second else None
    return frozenset(record.name for record in records if record.settings and record.settings != right)


def takers(units: Component, records: Iterable[HostRecord], now: Instant) -> list[str]:
    """The hosts that may run them, as they are now."""
    return [
        record.name
        for record in records
        if record.suits(units.host, units.labels) and not record.draining and not record.ran_out(now)
    ]


def homeless(asking: Iterable[Component], records: Collection[HostRecord], now: Instant) -> tuple[str, ...]:
    """Of units that ask for something of their host, those that no host may run."""
    return tuple(sorted(name for units in asking if not takers(units, records, now) for name in units.units))


def wanted(units: Component) -> str:
    """What they ask of their host, in words."""
    parts = [f"the host {units.host}"] if units.host else []
    parts += [f"a host with {name}: {value}" for name, value in units.labels.items()]
    return " and ".join(parts) or "any host"
