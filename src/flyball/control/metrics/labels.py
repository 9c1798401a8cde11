"""Values of a label, bounded: each one is a series that Prometheus keeps for weeks."""

from collections.abc import Iterable
from typing import Final

VALUES_MAX: Final = 1_000
"""Values of one label that have series of their own. With ten series each that is what one Prometheus takes without
notice; a fleet of ten thousand is looked at on the page, not in a list of series."""
LENGTH_MAX: Final = 128
"""Characters of a value. Names of units have 64."""

OTHER: Final = "(other)"
"""All beyond that, together. No unit can be called so."""
WORK: Final = "(work)"
"""All pieces of work (sessions, threads of graphs) that no settings name, together: each has a name of its own, and is
over for good one day."""


class Values:
    """Gives a label its value: the name itself, or `(other)` if there were too many others before. Who was given a
    series keeps it, so that no counter ever falls."""

    def __init__(self, first: Iterable[str] = (), *, most: int = VALUES_MAX) -> None:
        self._most = most
        self._own: set[str] = set()
        self.reserve(first)

    def __contains__(self, name: object) -> bool:
        """Whether it has a series of its own."""
        return name in self._own

    def of(self, name: str) -> str:
        """What to write for that name."""
        name = name[:LENGTH_MAX]
        if name in self._own:
            return name
        if len(self._own) >= self._most:
            return OTHER
        self._own.add(name)
        return name

    def reserve(self, names: Iterable[str]) -> None:
        """These before all that come by themselves."""
        for name in names:
            self.of(name)
