"""How an action says that it failed. It is a module by itself, because the process of a rule's calls needs this and
little else, and has to be there soon."""

from flyball.core.time import Span


class ActionFailed(Exception):
    """An action did not do what it should. What is known of it makes the failure's fingerprint."""

    def __init__(
        self,
        error: str,
        text: str,
        *,
        target: str = "",
        code: int | None = None,
        signal: int | None = None,
        status: int | None = None,
        errno: int | None = None,
        detail: str = "",
        final: bool = False,
        starved: bool = False,
        asks_to_wait: Span = 0,
    ) -> None:
        super().__init__(text)
        self.error = error
        """Its type: `SelectorNotFound`, `HttpStatus`, `exit 3`."""
        self.target = target
        """What it was about: a selector, a URL, a file."""
        self.code, self.signal, self.status, self.errno = code, signal, status, errno
        self.detail = detail
        """A stack trace, or the last lines."""
        self.final = final
        """Another attempt would fail the same way: there is none in this run."""
        self.starved = starved
        """Out of memory, files, quota: not the rule's own fault."""
        self.asks_to_wait = asks_to_wait
        """So long the other side asks to be left in peace: another attempt is not made before."""
