"""What was seen before, and when: a map that is a value, bounded, and cheap to add to.

Copying a large map for each step would make a step cost what the run's length is. So new things go into a small map
that is copied, which is poured into a larger one every so often; when that is full it becomes the older generation, and
the one before it is forgotten. Adding costs the same at the 100th step and at the 1,000,000th.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

FRESH_MAX: Final = 32
"""Things copied at each step: below this, copying costs less than a microsecond."""
GENERATION_MAX: Final = 512
"""Things in each of two generations. A circle longer than this many steps is not seen as one; limits catch it."""


class Seen(msgspec.Struct, frozen=True, omit_defaults=True):
    """Things by name, with a number each (here: the step at which they were last seen)."""

    fresh: dict[str, int] = {}
    recent: dict[str, int] = {}
    older: dict[str, int] = {}

    def get(self, name: str) -> int | None:
        """The number that goes with a name, or None if it was not seen, or so long ago that it is forgotten."""
        number = self.fresh.get(name)
        if number is None:
            number = self.recent.get(name)
            if number is None:
                number = self.older.get(name)
        return number

    def with_(self, things: Mapping[str, int]) -> "Seen":
        """Seen, with these too."""
        fresh = self.fresh.copy()
        fresh.update(things)
        if len(fresh) <= FRESH_MAX:
            return Seen(fresh, self.recent, self.older)
        recent = self.recent.copy()
        recent.update(fresh)
        if len(recent) <= GENERATION_MAX:
            return Seen({}, recent, self.older)
        return Seen({}, {}, recent)


NOTHING_SEEN: Final = Seen()
