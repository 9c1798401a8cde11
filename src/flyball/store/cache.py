"""Records that are remembered in the process. Bounded, and the very same object for as long as a record is the same.

Two generations: when the young one is full, it becomes the old one, and the old one is forgotten; what is asked for
again moves to the young one. So what is used stays, without a list to keep in order at every look.
"""

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from flyball.core.policy import Key

RECORDS_MAX: Final = 262_144
"""Records (and known absences) in memory, where so many are used: about 80 MB, and enough for ten thousand busy units.
With fewer, every step of each of them would have to be looked up on disk."""

NOT_REMEMBERED: Final = frozenset({"checkpoint"})
"""Names of records that are large, written again and again, and hardly ever read: five megabytes of each session."""


V = TypeVar("V")


class Cache(Generic[V]):
    """Key to what is known of its record. For one thread at a time."""

    def __init__(self, records_max: int = RECORDS_MAX) -> None:
        self._young_max = records_max // 2
        self.young: dict[Key, V] = {}
        self.old: dict[Key, V] = {}

    def age(self) -> None:
        """Forget the old generation if the young one is full. Nothing that is being written may be forgotten, so the
        owner says when."""
        if len(self.young) > self._young_max:
            self.old = self.young
            self.young = {}

    def drop(self, keys: Iterable[Key]) -> None:
        """Forget what of these is not worth its memory. What is being written has to be written by then."""
        for key in keys:
            if key.policy in NOT_REMEMBERED:
                self.young.pop(key, None)
                self.old.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self.young = {}
        self.old = {}
