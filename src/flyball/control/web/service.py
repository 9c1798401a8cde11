"""What the web needs of a daemon, and who its visitors are. The daemon lives in another thread: what is called here may
be called from any, and none of it waits for a unit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request
from starlette.routing import BaseRoute

from flyball.control.board import Board
from flyball.control.context import Args, Caller
from flyball.store import Store


class Service(Protocol):
    """A daemon, as the web sees it."""

    @property
    def store(self) -> Store: ...

    @property
    def board(self) -> Board: ...

    def doorbell(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Ring in the running loop whenever the journal grows, until what this returns is called."""
        ...

    @property
    def metrics(self) -> Callable[[], bytes] | None:
        """The text for Prometheus. Called in a worker thread."""
        ...

    @property
    def act(self) -> Sequence[BaseRoute]:
        """Routes of action links, which need no login: what they carry is signed."""
        ...

    async def ask(self, caller: Caller, verb: str, args: Args) -> Any:
        """Carry out a verb. CommandError says why not. Only in the daemon's own loop."""
        ...


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who is at the other end, once that is known."""

    caller: Caller
    may_stay: Callable[[], bool]
    """Whether that still holds: whoever stays for long is asked again. TokensRefused if nobody can say."""
    cookie: str = ""
    """Nothing: it came with a token of its own."""


def visitor_of(request: Request) -> Visitor:
    found = request.scope["flyball.visitor"]
    assert isinstance(found, Visitor)  # noqa: S101 - the gate lets nobody in without
    return found
