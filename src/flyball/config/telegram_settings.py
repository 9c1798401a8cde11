"""The settings' section `telegram`: what may be said of the bot, and how it becomes a `Telegram`."""

import ipaddress
import re
from typing import Annotated, Final, Literal, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, PlainSerializer, model_validator

from flyball.config.section import Section, contradiction
from flyball.config.telegram import Telegram, TelegramUser
from flyball.config.unit_settings import HIDDEN, Word

USERS_MAX: Final = 100
"""People, each named by somebody: more of them want a group and an alert channel."""
CHATS_MAX: Final = 100
NAME_MAX: Final = 40
"""Characters of what somebody is called: it stands in the audit trail beside `telegram:`."""
ID_MAX: Final = 2**52
"""Telegram's ids have at most 52 bits."""
STALE_MIN: Final = 5.0
"""Seconds. A clock that is off by a few must not make every command too old."""
STALE_MAX: Final = 3600.0
"""An hour: what somebody wanted before that is history."""
_TOKEN: Final = re.compile(r"\d{1,20}:[A-Za-z0-9_-]{20,100}")
_UNFILLED: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def _hidden(given: str) -> str:
    return HIDDEN if given else ""


Secret = Annotated[Word, Field(repr=False), PlainSerializer(_hidden)]
"""Never shown."""


class User(Section):
    """Somebody who may use the bot, and what for."""

    id: Annotated[int, Field(ge=1, le=ID_MAX)] | None = None
    """Their number at Telegram, which cannot be changed as names can. Has to be given."""
    role: Literal["look", "operate", "admin"] = "look"
    """look: see how things are; operate: also pause, resume, reset, answer; admin: also what costs money."""
    name: Annotated[str, Field(max_length=NAME_MAX, pattern=r"^[\w .@-]*$")] = ""
    """What the audit trail calls them. Not given: their number."""

    @model_validator(mode="after")
    def _has_id(self) -> Self:
        if self.id is None:
            raise contradiction((), "a user needs the `id`, a number; the bot says it to whoever writes to it")
        return self


class TelegramGiven(Section):
    """A bot that answers the people who are listed, and does what they may order. Needs the extra `telegram`."""

    token: Secret = ""
    """The bot's token, as BotFather gave it; best as `${VARIABLE}`. Not given, and no `token_file`: no bot."""
    token_file: Word = ""
    """Instead: a file with the token and nothing else, beside this one if the path is relative."""
    users: Annotated[tuple[User, ...], Field(strict=False, max_length=USERS_MAX)] = ()
    """Who may use it. Everybody else is refused."""
    chats: Annotated[
        tuple[Annotated[int, Field(ge=-ID_MAX, le=-1)], ...], Field(strict=False, max_length=CHATS_MAX)
    ] = ()
    """Groups in which it listens to these users, by their numbers, which are below 0. In a private chat it always
    does."""
    base_url: Word = "https://api.telegram.org"
    """Where the Bot API is. For a server of one's own."""
    stale_seconds: Annotated[float, Field(ge=STALE_MIN, le=STALE_MAX)] = 60.0
    """A command older than this is not done, and the sender is told: it may have been meant for another hour."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.token and self.token_file:
            raise contradiction("token_file", "there is a `token` too; give one of them")
        if self.token and not _TOKEN.fullmatch(self.token) and not _UNFILLED.search(self.token):
            raise contradiction("token", "is no token of a bot: those are a number, a colon, and 35 characters")
        has_token = bool(self.token or self.token_file)
        if has_token and not self.users:
            raise contradiction((), "nobody is listed under `users`, so nobody could use the bot")
        if self.users and not has_token:
            raise contradiction("users", "there is no `token` and no `token_file`, so there is no bot to use")
        return self

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        ids = [user.id for user in self.users]
        names = [user.name for user in self.users if user.name]
        for place, user in enumerate(self.users):
            if user.id in ids[:place]:
                raise contradiction(("users", place, "id"), f"{user.id} is listed twice")
            if names.count(user.name) > 1:
                raise contradiction(("users", place, "name"), f"two users are called {user.name!r}")
        return self

    @model_validator(mode="after")
    def _safe_to_reach(self) -> Self:
        try:
            url = urlsplit(self.base_url)
            good = url.scheme in ("http", "https") and bool(url.hostname) and not (url.query or url.fragment)
        except ValueError:
            good = False
        if not good or url.username or url.password:
            raise contradiction("base_url", "should be a URL such as https://api.telegram.org")
        if url.scheme == "http" and not _is_near(url):
            raise contradiction("base_url", "should begin with https://: the token is a part of every request")
        return self

    def plan(self) -> Telegram | None:
        """What the daemon has to know of it; None: there is no bot."""
        if not self.users:
            return None
        return Telegram(
            token=self.token,
            base_url=self.base_url.rstrip("/"),
            users=tuple(TelegramUser(id=user.id or 0, role=user.role, name=user.name) for user in self.users),
            chats=self.chats,
            stale_after=self.stale_seconds,
        )


def _is_near(url: SplitResult) -> bool:
    """Whether a host is this machine, or one of its own network: a name without a dot, or an address of such."""
    host = url.hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host
    return address.is_loopback or address.is_private
