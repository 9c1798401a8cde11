"""The Telegram bot as a plan has it: its token, who may use it, and where. A plain value."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramUser:
    """Somebody who may use the bot."""

    id: int
    role: str
    """`look`, `operate` or `admin`."""
    name: str = ""
    """What the audit trail calls them; nothing: their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telegram:
    """A bot, and whom it listens to."""

    token: str = field(repr=False)
    base_url: str = "https://api.telegram.org"
    users: tuple[TelegramUser, ...]
    chats: tuple[int, ...] = ()
    """Groups in which it listens, besides the private chats of the users."""
    stale_after: float = 60.0
    """Seconds after which a command is too old to be done."""
