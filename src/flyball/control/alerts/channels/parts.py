"""What of a message was taken already when the rest of it was not: the next attempt leaves that out, so that nobody is
told twice because somebody else could not be told. Kept in memory alone: after a crash, twice is better than never."""


class Parts:
    """Of the message that was tried last."""

    def __init__(self) -> None:
        self._message = ""
        self._taken: dict[str, str] = {}

    def of(self, message: str) -> dict[str, str]:
        """By part, what it is known by; to be added to. Of a message without an id, and of a new one, there is none."""
        if not message or message != self._message:
            self._message, self._taken = message, {}
        return self._taken
