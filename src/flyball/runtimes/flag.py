"""A flag that somebody waits for: asyncio's event, for those who have thousands of them.

asyncio's own keeps room for 64 who wait, 600 bytes, from the beginning. For most flags here there is one, or nobody.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Literal


class Flag(asyncio.Event):
    """An event that is small."""

    def __init__(self) -> None:
        super().__init__()
        self._waiters = ()  # type: ignore[assignment]  # nobody, until somebody waits

    def wait(self) -> Coroutine[Any, Any, Literal[True]]:
        """Wait until it is set."""
        if not self._waiters:
            self._waiters = []  # type: ignore[assignment]  # all that is done with it can be done with a list, too
        return super().wait()
