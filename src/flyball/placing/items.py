"""What is placed: pure values. An item is what one host runs at a time: units that belong together, or what only one
host of the fleet does for all."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from flyball.config.components import components
from flyball.config.plan import HostPlan, Plan

RULES: Final = ":rules"
"""The item of whoever runs the rules. No unit is called so."""
VOICE: Final = ":voice"
"""The item of whoever speaks to people: alerts and Telegram."""
FREE: Final = "free"
"""The queue of what any host may run."""
PINNED: Final = "host."
"""The queues of what only one host may run begin with this."""
LISTENED_MAX: Final = 4096
"""Queues that a host may take from: all sets of 12 labels. Of more labels, only the smaller sets are listened to, and
those that are asked for when the daemon begins. Each is a word in memory; only those that are used cost more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What one host runs at a time."""

    name: str
    units: tuple[str, ...] = ()
    """None: it is what a host does for all."""
    host: str = ""
    """The only host that may run it; nothing: any."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What a host must have to run it."""

    @property
    def queue(self) -> str:
        """Where it waits for a host that takes it."""
        return pinned_to(self.host) if self.host else labelled(self.labels.items())

    def fits(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a host of that name and with those labels may run it."""
        return self.host in ("", name) and all(labels.get(key) == value for key, value in self.labels.items())


def items(plan: Plan) -> tuple[Item, ...]:
    """All that is to be placed of these settings."""
    placed = [
        Item(name=found.name, units=found.units, host=found.host, labels=found.labels)
        for found in components(plan.units, plan.groups)
    ]
    if plan.rules:
        placed.append(Item(name=RULES))
    if plan.alerts.channels or plan.telegram is not None:
        placed.append(Item(name=VOICE))
    return tuple(placed)


def pinned_to(host: str) -> str:
    """The queue of one host."""
    return f"{PINNED}{host}"


def labelled(labels: Iterable[tuple[str, str]]) -> str:
    """The queue of what needs a host with these labels."""
    words = ",".join(f"{key}={value}" for key, value in sorted(labels))
    return f"labels.{words}" if words else FREE


def listened(name: str, host: HostPlan, known: Iterable[Item]) -> list[str]:
    """The queues that a host takes from. What it may take from cannot be changed while it runs, and other settings may
    ask for other labels: so it listens to all sets of labels that it has, as far as there is room."""
    queues = {FREE: None, pinned_to(name): None}
    queues.update({item.queue: None for item in known if not item.host and item.fits(name, host.labels)})
    labels = sorted(host.labels.items())
    for size in range(1, len(labels) + 1):
        for some in combinations(labels, size):
            if len(queues) >= LISTENED_MAX:
                return [*queues]
            queues[labelled(some)] = None
    return [*queues]
