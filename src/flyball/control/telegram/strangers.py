"""Whoever is not listed: told so once in a while, and on the audit trail as often. So nobody can make the bot talk, or
fill the journal, by writing to it."""

from typing import Final

ONCE_IN: Final = 3600.0
"""Seconds in which one stranger is answered once."""
ANSWERED_MAX: Final = 20
"""Strangers that are answered in that time, all together."""


class Strangers:
    """Those who were answered lately."""

    def __init__(self) -> None:
        self._answered: dict[int, float] = {}

    def is_news(self, stranger: int, now: float) -> bool:
        """Whether to answer this one now. Said once."""
        self._answered = {one: at for one, at in self._answered.items() if 0 <= now - at < ONCE_IN}
        if stranger in self._answered or len(self._answered) >= ANSWERED_MAX:
            return False
        self._answered[stranger] = now
        return True
