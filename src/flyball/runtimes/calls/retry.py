"""Retry: how often a call is tried, and how long to wait in between. Values only: nothing here waits or counts.

The jitter comes from a hash of the attempt, not from dice. It differs between processes and between calls, which is
what jitter is for.
"""

from collections.abc import Callable
from dataclasses import dataclass

from flyball.core.failure import digest

Kinds = type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool]
"""Which errors: a type, several, or a function that says so of an error."""


def picks(kinds: Kinds, error: BaseException) -> bool:
    """Whether it is one of these."""
    if isinstance(kinds, type | tuple):
        return isinstance(error, kinds)
    return kinds(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Three attempts, after 1 s and 2 s."""

    attempts: int = 3
    """In all, the first one included."""
    first: float = 1.0
    """Seconds to wait after the first attempt."""
    factor: float = 2.0
    """Each further wait is so many times longer."""
    longest: float = 60.0
    """No wait is longer, jitter included."""
    jitter: float = 0.1
    """A wait is up to this share longer or shorter."""
    on: Kinds = Exception
    """Errors that are worth another attempt."""
    after: Callable[[BaseException], float | None] | None = None
    """Of an error, how many seconds the other side asks to wait (its Retry-After); None: it does not say. Where it asks
    for more than `longest`, there is no further attempt."""

    def __post_init__(self) -> None:
        numbers = {"first": self.first, "factor": self.factor, "longest": self.longest, "jitter": self.jitter}
        if not isinstance(self.attempts, int) or self.attempts < 1:
            raise ValueError(f"retry: attempts is {self.attempts!r}; give a whole number from 1")
        for name, number in numbers.items():
            if not 0 <= number < float("inf"):
                raise ValueError(f"retry: {name} is {number!r}; give a number from 0")
        if self.jitter > 1:
            raise ValueError(f"retry: jitter is {self.jitter!r}; give a share from 0 to 1")

    def delay(self, number: int, salt: str) -> float:
        """Seconds to wait after that attempt."""
        # The exponent is capped: 2.0 ** 1100 is not a number any more, and the cap is reached long before.
        plain = min(self.first * self.factor ** min(number - 1, 64), self.longest)
        swing = int(digest([salt, str(number)])[:8], 16) / 0xFFFFFFFF * 2 - 1
        return min(plain * (1 + self.jitter * swing), self.longest)
