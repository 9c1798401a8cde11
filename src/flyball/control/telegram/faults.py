"""What can be wrong with what Telegram answers, by what to do about it."""

from enum import Enum

from flyball.errors import FlyballError


class Fault(Enum):
    """What to do about it."""

    NETWORK = "network"
    """Try again."""
    WAIT = "wait"
    """Try again, and not sooner than it says."""
    CONFLICT = "conflict"
    """Somebody else listens with the same token."""
    TOKEN = "token"  # noqa: S105 - a kind of fault
    """The token is not, or no longer, a bot's."""
    REFUSED = "refused"
    """It will not take this, now or later."""


class ApiError(FlyballError):
    """Telegram did not do it."""

    def __init__(self, fault: Fault, text: str, *, after: float = 0.0) -> None:
        super().__init__(text)
        self.fault = fault
        self.after = after
        """Seconds that it wants to be left alone for."""
