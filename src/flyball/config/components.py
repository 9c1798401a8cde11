"""Which units belong together: those that wait for each other, and those of a group. They run on one host, because what
comes up there is seen there. A value from values; where they run is decided elsewhere.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from flyball.config.units import Group, Unit


class Component(NamedTuple):
    """Units that run on one host together."""

    name: str
    """The first by name of those that wait for nobody: what is added behind them does not rename it."""
    units: tuple[str, ...]
    """In the order of the settings."""
    host: str
    """The only one that may run them; nothing: any."""
    labels: Mapping[str, str]
    """What a host must have."""


class Clash(NamedTuple):
    """Units that belong together and cannot be on one host."""

    key: str
    """What of the second one is at odds."""
    first: str
    second: str
    text: str


def components(units: Sequence[Unit], groups: Sequence[Group]) -> tuple[Component, ...]:
    """All units, each in one of these. Where units are at odds, the first one counts."""
    known = {unit.name: unit for unit in units}
    return tuple(_component([known[name] for name in names]) for names in _together(units, groups))


def clash(units: Sequence[Unit], groups: Sequence[Group]) -> Clash | None:
    """Two units that belong together and ask for different hosts; None if there are none."""
    known = {unit.name: unit for unit in units}
    for names in _together(units, groups):
        found = _clash([known[name] for name in names])
        if found is not None:
            return found
    return None


def _clash(units: Sequence[Unit]) -> Clash | None:
    pinned: Unit | None = None
    asked: dict[str, Unit] = {}
    for unit in units:
        if unit.host and pinned is not None and pinned.host != unit.host:
            text = f"is to run on {unit.host!r}, and {pinned.name!r}, which it runs together with, on {pinned.host!r}"
            return Clash("host", pinned.name, unit.name, text)
        pinned = pinned or (unit if unit.host else None)
        for label, value in unit.host_labels.items():
            other = asked.setdefault(label, unit)
            if other.host_labels[label] != value:
                text = (
                    f"needs a host with {label}: {value}, and {other.name!r}, which it runs together with, one with "
                    f"{label}: {other.host_labels[label]}"
                )
                return Clash("host_labels", other.name, unit.name, text)
    return None


def _component(units: Sequence[Unit]) -> Component:
    names = {unit.name for unit in units}
    first = min(unit.name for unit in units if not names.intersection(unit.after))
    labels: dict[str, str] = {}
    for unit in reversed(units):
        labels.update(unit.host_labels)
    host = next((unit.host for unit in units if unit.host), "")
    return Component(first, tuple(unit.name for unit in units), host, dict(sorted(labels.items())))


def _together(units: Sequence[Unit], groups: Sequence[Group]) -> Collection[Sequence[str]]:
    """The names of units that belong together, in the order of the settings."""
    leader = {unit.name: unit.name for unit in units}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for unit in units:
        for other in unit.after:
            leader[find(other)] = find(unit.name)
    for group in groups:
        for other in group.units[1:]:
            leader[find(other)] = find(group.units[0])
    together: dict[str, list[str]] = {}
    for unit in units:
        together.setdefault(find(unit.name), []).append(unit.name)
    return together.values()
