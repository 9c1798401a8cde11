"""What an exercise is: a name, what it provokes and how, and what it must see."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from flyball.config import Settings

if TYPE_CHECKING:
    from flyball.drill.fleet import Fleet

STARTS_MAX: Final = 100
"""Runs of one unit, and units of one exercise. Each takes a few hundredths of a second."""
STEPS_MAX: Final = 2_000
"""Steps of one run. Each takes a few thousandths of a second."""
RELOADS_MAX: Final = 10
"""Changes of a definition. Each takes about half a second."""

MAIN: Final = "main"
"""The fleet of all exercises that do not disturb each other."""


class NotFired(Exception):
    """The safeguard was provoked, and something went on that should not have."""


class NotReachable(NotFired):
    """With these settings it does not come to that in the time of a drill."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A safeguard fired."""

    after: float
    """Seconds from the beginning of what provoked it."""
    text: str
    """What was seen: the safeguard's own words, or what became of it all."""


class Exercise:
    """One safeguard, provoked."""

    name: ClassVar[str]
    policy: ClassVar[type[Any] | None] = None
    """The policy that it is about; none: what is relied on is not a policy."""
    how: ClassVar[str]
    """How it is provoked, in one sentence."""
    fleet: ClassVar[str] = MAIN
    """Exercises of one fleet share a daemon."""
    needs: ClassVar[tuple[str, str] | None] = None
    """A module that has to be installed, and the extra that brings it."""

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        """What it adds to the settings of its fleet. NotReachable if it does not come to that."""
        return {}

    def prepare(self, fleet: "Fleet") -> None:
        """What has to be there before the daemon is."""

    def watch(self, fleet: "Fleet") -> Seen:
        """Provoke it, unless its units do so by themselves, and see it fire. NotFired if it does not."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what it has opened."""


def within(number: int, most: int, key: str, what: str) -> int:
    """The number, if a drill can get there."""
    if number > most:
        raise NotReachable(f"{key} asks for {number:,} {what}; a drill makes at most {most:,}")
    return number
