"""The engine's log, in ours: what it warns of, one line each, and nothing more often than once a minute. While the
database is away, each of its threads says so several times a second."""

import logging
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

SAME_EVERY: Final = 60.0
"""Seconds between two lines from the same place."""
KNOWN: Final = ("Asyncio task cancelled for workflow", "DBOS failed to launch")
"""What is said otherwise: a workflow that waits for another host is cancelled here, and what keeps it from launching is
raised."""
DRIVER: Final = "(psycopg."
TEXT_MAX: Final = 300
"""Characters of a line: what the engine adds after it are statements of SQL."""


class Quiet(logging.Handler):
    """Passes on what is new."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._said: dict[tuple[str, int], float] = {}
        """By place in the engine's code: there are only so many."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say it, unless that was said a moment ago."""
        whole = record.getMessage()
        text = whole.strip().partition("\n")[0][:TEXT_MAX]
        if text.startswith(KNOWN):
            return
        # What the database's driver says, all say: that it is away.
        place = ("", 0) if DRIVER in whole else (record.pathname, record.lineno)
        now = self._clock()
        said = self._said.get(place)
        if said is not None and now - said < SAME_EVERY:
            return
        self._said[place] = now
        log.warning("placement: %s", text)


def hush() -> None:
    """Have the engine's log go here, and nowhere else. Called before the engine is made, which otherwise gives itself a
    way to the terminal."""
    logger = logging.getLogger("dbos")
    if not any(isinstance(handler, Quiet) for handler in logger.handlers):
        logger.addHandler(Quiet())
    logger.propagate = False
