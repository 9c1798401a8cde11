"""What a look came to: how good it is, what was found, and what to do."""

from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How good it is."""

    OK = 0
    WARNING = 1
    """It works, and will not always, or not as people may think."""
    BAD = 2
    """Something that is asked for cannot work."""

    @property
    def word(self) -> str:
        """As it is printed."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of what was found."""

    level: Level
    text: str
    """What was found, with the numbers."""
    remedy: str = ""
    """What to do about it; nothing: nothing has to be done."""
    check: str = ""
    """Who found it."""


def ok(text: str) -> Finding:
    """It is as it should be."""
    return Finding(Level.OK, text)


def warning(text: str, remedy: str) -> Finding:
    """It works, but."""
    return Finding(Level.WARNING, text, remedy)


def bad(text: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(Level.BAD, text, remedy)
