"""A watchdog for what shares one event loop: a thread that sees when the loop does not go round any more.

Whoever blocks the loop blocks also those who would end it. From its own thread the watchdog can say who it is and where
it is, keep the leases of all others (they are alive, though they cannot say so), and, if that is wanted, end the
process: then it is found by whoever starts it next, and counted.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Final

from flyball.core.event import Beat
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.runtimes.agent.inline import InlineLife

log = logging.getLogger(__name__)

LOOKS: Final = 4
"""Looks within the time that a loop may be blocked: so it is seen at most a quarter later."""
LEASES_EVERY: Final = 5.0
"""Seconds between the beats that keep leases while the loop is blocked: far below any lease."""


class Watchdog:
    """Watches the loop that it is made in, until it is closed."""

    def __init__(
        self,
        governor: Governor,
        lives: Callable[[], Iterable[InlineLife]],
        stuck: Callable[[InlineLife | None, str], None],
        *,
        blocked_max: float,
    ) -> None:
        self._governor, self._lives, self._stuck = governor, lives, stuck
        self._blocked_max = blocked_max
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._asked = False
        """Whether the loop was asked to move, and has not yet. It is asked once, however long it is blocked."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="flyball watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Watch no more."""
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        looks = 0
        kept_at = 0.0
        while not self._closed.wait(self._blocked_max / LOOKS):
            # Looks are counted, not time: on a busy machine this thread may be late as well, and that blames nobody.
            looks = looks + 1 if self._asked else 0
            if looks == LOOKS:
                self._say()
            if looks >= LOOKS and time.monotonic() - kept_at > LEASES_EVERY:
                kept_at = time.monotonic()
                self._keep_leases()
            if not self._asked:
                self._asked = True
                try:
                    self._loop.call_soon_threadsafe(self._mark)
                except RuntimeError:  # the loop is closed
                    return

    def _mark(self) -> None:
        self._asked = False

    def _say(self) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        where = "".join(traceback.format_stack(frame)) if frame is not None else ""
        self._stuck(self._who(), where)

    def _who(self) -> InlineLife | None:
        """Whose turn it is in the loop. None: it cannot be said, or it is nobody of ours."""
        task = asyncio.current_task(self._loop)
        return next((life for life in list(self._lives()) if life.owns(task)), None)

    def _keep_leases(self) -> None:
        for life in list(self._lives()):
            context = life.context
            try:
                self._governor.submit(Beat(unit=context.unit, run=context.run, labels=context.labels, silent=True))
            except FlyballError as error:
                log.error("the lease of %s cannot be kept: %s", context.unit, error)
