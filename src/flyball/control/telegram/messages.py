"""What comes from people on Telegram, and what goes to them. Plain values: nothing here knows the library."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Something that came in."""

    number: int
    """Telegram's own: each is handled once."""
    chat: int
    private: bool
    sender: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Said(Update):
    """Somebody wrote something."""

    text: str
    at: float
    """When, in Unix seconds, by Telegram's clock."""
    own: bool = True
    """Not forwarded: the sender's own words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressed(Update):
    """Somebody pressed a button. Telegram does not say when."""

    press: str
    """By which it is answered."""
    data: str
    message: int
    """The message that the button is under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing(Update):
    """Something that is not for a bot of this kind: a picture, somebody who joined."""


@dataclass(frozen=True, slots=True)
class Button:
    """A button under a message."""

    label: str
    data: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What is said: HTML of the few tags that Telegram knows, and rows of buttons."""

    text: str
    buttons: tuple[tuple[Button, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What follows from a press."""

    toast: str = ""
    """Shown for a moment."""
    replies: tuple[Reply, ...] = ()
    edit: Reply | None = None
    """Instead of the message that the button is under; None: that stays."""
