"""Readings: what another part of the daemon (alerts, HTTP) tells of itself, under a name of the table."""

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Reading(NamedTuple):
    """One number. `labels` are the values, in the order of the table."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


Source = Callable[[], Iterable[Reading]]
"""Called at each scrape, in the thread of the scrape: it must not block."""
