"""The daemon's side of the deadman: until when it may live. The other side is the guardian's."""

import os

from flyball.core.time import Instant, Span
from flyball.runtimes.guardian import Shared


class Deadman:
    """Kills the daemon and all that it started if the deadline comes near. Instants are of the boot clock."""

    def __init__(self, descriptor: int) -> None:
        """`descriptor` is the file that the guardian gave (`Guard.deadline`)."""
        self._shared = Shared(descriptor)

    def know(self, holder: str, margin: Span) -> None:
        """Whose runs they are, and how long before the deadline all of them have to be dead."""
        self._shared.holder = os.fsencode(holder)
        self._shared.write(Shared.MARGIN, margin)

    def arm(self, deadline: Instant) -> None:
        """From now on, until that deadline."""
        self._shared.write(Shared.DEADLINE, deadline)

    def disarm(self) -> None:
        """There is no lease, and nothing runs."""
        self._shared.write(Shared.DEADLINE, 0)

    def last(self) -> None:
        """The daemon was told to end: whatever becomes of its lease, it is not begun anew."""
        self._shared.write(Shared.LAST, 1)
