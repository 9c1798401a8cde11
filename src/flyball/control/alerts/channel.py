"""What a channel of alerts is: something that takes a message to people, and can mostly change it later. No channel is
made here, and no message either."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from flyball.core.time import Instant
from flyball.errors import FlyballError

TITLE_MAX: Final = 120
"""Characters of a title: what a phone shows of it on its locked screen."""
TEXT_MAX: Final = 2_000
"""Characters of a text: every channel takes that many, and nobody reads more on a phone."""
ID_MAX: Final = 200
"""Characters of a message's id. It is kept for as long as its group is open."""


class Action(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person can do about it, at one touch."""

    label: str
    verb: str
    args: Mapping[str, Any] = {}
    url: str = ""
    """Of an action link, where there is one. Nothing: the channel cannot offer it, unless it has a way of its own."""
    destructive: bool = False


class ForUser(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a user is told: of their own units alone, and nothing that can be done by whoever runs the fleet."""

    user: str
    """The label of that name; an address, if they can be told at all."""
    title: str
    text: str = ""
    id: str = ""
    """The same however often the others are told more: a user is told once, and once that it is over."""
    thread: str = ""
    """The same for both."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What people get to see. It holds no secret."""

    title: str
    text: str = ""
    severity: str = "warning"
    """`info`, `warning` or `critical`."""
    kind: str = ""
    unit: str = ""
    """Whose it is; of several units the first."""
    users: tuple[ForUser, ...] = ()
    """What the users whose units these are may be told, each of their own."""
    url: str = ""
    """Where there is more to see: a page of ours."""
    actions: tuple[Action, ...] = ()
    count: int = 1
    """How often it happened."""
    resolved: bool = False
    at: Instant = 0
    tags: tuple[str, ...] = ()
    problem: str = ""
    """By which it is acknowledged."""
    group: str = ""
    """The same for every message about the same thing: a channel that has threads may use it."""
    id: str = ""
    """The same for every attempt to send this very message: who gets it twice can tell."""


class ChannelError(FlyballError):
    """A message could not be sent. `retry` says whether it may work later; if not, the message is given up. The text
    holds no secret: no token, no password, no URL that has one in it."""

    def __init__(self, text: str, *, retry: bool, after: float = 0.0) -> None:
        super().__init__(text)
        self.retry = retry
        self.after = after
        """Seconds that the channel itself wants to be left alone for; 0: it did not say."""


class Channel(Protocol):
    """One way to people. Used by one task at a time."""

    @property
    def name(self) -> str:
        """As the settings name it."""
        ...

    async def send(self, message: Message, previous: str | None) -> str:
        """Take it to people; the id by which it can be changed later, or "" if it cannot. `previous` is what an
        earlier message of the same group returned: that one is replaced, and a channel that cannot do that sends a new
        one. ChannelError if it did not work. It has to come back by itself, also from a server that is silent."""
        ...

    async def close(self) -> None:
        """Let go of what it holds open."""
        ...
