"""The settings' section `alerts`: who is told what, by which channels, and when not.

Secrets come from variables (`${NAME}`) or from files (`token_file`, …), and are never shown.
"""

import re
import zoneinfo
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from flyball.config.alerts import (
    KINDS,
    USER,
    AlertRule,
    Alerts,
    AppriseChannel,
    ChannelSettings,
    Email,
    Ntfy,
    Quiet,
    TelegramChannel,
    WebhookChannel,
)
from flyball.config.section import Seconds, Section, contradiction
from flyball.config.unit_settings import HIDDEN, Word
from flyball.config.variables import IN_FILES
from flyball.core.name import IN_WORDS, is_name
from flyball.core.time import span

CHANNELS_MAX: Final = 16
"""Channels of one fleet: each has a task and a queue of its own."""
RULES_MAX: Final = 100
SUGGESTIONS_MAX: Final = 2
"""Names offered for one that is not known."""
NAME_SHOWN_MAX: Final = 60
"""Characters of a wrong name that are repeated."""
NAMES_MAX: Final = 100
"""Kinds, units, receivers or labels that one list names."""
SECRET_MIN: Final = 16
"""Characters of a webhook's secret: fewer can be guessed."""
UNFILLED: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")

_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_URL: Final = re.compile(r"https?://[^/\s]\S*")
_TOPIC: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ADDRESS: Final = re.compile(r"[^@\s,<>]+@[^@\s,<>]+")

KEYS: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    "ntfy": (frozenset({"topic"}), frozenset({"url", "token"})),
    "webhook": (frozenset({"url"}), frozenset({"secret"})),
    "email": (frozenset({"host", "sender", "to"}), frozenset({"port", "security", "user", "password"})),
    "telegram": (frozenset({"token", "chats"}), frozenset({"url"})),
    "apprise": (frozenset({"urls"}), frozenset()),
}
"""Of each type of channel: what it needs, and what it may have beside `type` and `timeout_seconds`."""


def _hidden(value: object) -> object:
    return HIDDEN if value else value


def _texts(given: object) -> object:
    """One text, or several; a chat is a number as often as a name."""
    if isinstance(given, str | int) and not isinstance(given, bool):
        given = [given]
    if isinstance(given, list | tuple):
        return tuple(str(one) if isinstance(one, int) and not isinstance(one, bool) else one for one in given)
    return given


def _lines(given: object) -> object:
    """Several texts; those of a file stand one a line."""
    return tuple(line.strip() for line in given.splitlines() if line.strip()) if isinstance(given, str) else given


def _clock(given: object) -> object:
    found = _CLOCK.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        raise ValueError('should be a time of the day, in quotes, such as "22:00"')
    return int(found[1]) * 60 + int(found[2])


def _zone(given: object) -> object:
    if isinstance(given, str):
        try:
            zoneinfo.ZoneInfo(given)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("should be a time zone such as Europe/Berlin") from None
    return given


_TEXTS_SCHEMA: Final = {
    "anyOf": [{"type": ["string", "integer"]}, {"type": "array", "items": {"type": ["string", "integer"]}}],
    "$comment": "a text, or a list of texts",
}
Texts = Annotated[
    tuple[Word, ...],
    BeforeValidator(_texts),
    Field(strict=False, max_length=NAMES_MAX),
    WithJsonSchema(_TEXTS_SCHEMA),
]
SecretWord = Annotated[Word, PlainSerializer(_hidden)]
SecretWords = Annotated[
    tuple[Word, ...],
    BeforeValidator(_lines),
    Field(strict=False, max_length=NAMES_MAX),
    WithJsonSchema(_TEXTS_SCHEMA),
    PlainSerializer(_hidden),
]
ClockTime = Annotated[
    int,
    BeforeValidator(_clock),
    PlainSerializer(lambda minutes: f"{minutes // 60:02}:{minutes % 60:02}"),
    WithJsonSchema({"type": "string", "pattern": f"^{_CLOCK.pattern}$", "$comment": 'a time such as "22:00"'}),
]
Zone = Annotated[
    str, BeforeValidator(_zone), WithJsonSchema({"type": "string", "$comment": "a time zone such as Europe/Berlin"})
]
Severity = Literal["info", "warning", "critical"]


class ChannelSection(Section):
    """One way to people."""

    type: Literal["ntfy", "webhook", "email", "telegram", "apprise"] | None = None
    """What it is. Has to be given. apprise needs the extra of that name."""
    url: SecretWord = ""
    """ntfy: the server, https://ntfy.sh if not given. webhook: where the request goes. telegram: another server that
    speaks the Bot API."""
    topic: SecretWord = ""
    """ntfy: the topic. Whoever knows it can read along."""
    token: SecretWord = ""
    """ntfy: an access token, where the topic needs one. telegram: the bot's token. Write it as ${NAME}."""
    token_file: Word = ""
    """A file with the token."""
    secret: SecretWord = ""
    """webhook: what requests are signed with (HMAC-SHA256), at least 16 characters. Not given: they are not signed."""
    secret_file: Word = ""
    """A file with the secret."""
    host: Word = ""
    """email: the SMTP server."""
    port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    """email: its port. Not given: 587, with `security: tls` 465, with `security: none` 25."""
    security: Literal["starttls", "tls", "none"] = "starttls"
    """email: how the connection is kept secret."""
    user: Word = ""
    """email: who logs in; not given: nobody does."""
    password: SecretWord = ""
    """email: its password."""
    password_file: Word = ""
    """A file with the password."""
    sender: Word = ""
    """email: the address that mails come from."""
    to: Texts = ()
    """email: who gets them. `user` stands for the user of the unit, if that label is an address: they are told, and get
    no links to act by."""
    chats: Texts = ()
    """telegram: chats by their numbers, or channels by their @names."""
    urls: SecretWords = ()
    """apprise: where it sends to, as Apprise writes it."""
    urls_file: Word = ""
    """A file with such URLs, one a line."""
    timeout_seconds: Seconds | None = None
    """How long one message may take. Not given: 15, for email and apprise 30."""

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        if self.type is None:
            raise contradiction((), f"a channel needs its `type`: {', '.join(KEYS)}")
        needs, may = KEYS[self.type]
        for key in sorted(self.model_fields_set - {"type", "timeout_seconds"}):
            if key.removesuffix("_file") not in needs | may:
                takes = ", ".join(sorted(needs | may))
                raise contradiction(key, f"a channel of type {self.type} has no such key; it has {takes}")
        for key in IN_FILES:
            if getattr(self, key) and getattr(self, f"{key}_file"):  # what a file holds has taken the file's place
                raise contradiction(f"{key}_file", f"there is `{key}` already; give one of them")
        for key in sorted(needs):
            if not getattr(self, key) and not getattr(self, f"{key}_file", ""):
                raise contradiction((), f"a channel of type {self.type} needs `{key}`")
        self._well_formed()
        return self

    def _well_formed(self) -> None:
        if self.url and not UNFILLED.search(self.url) and not _URL.fullmatch(self.url):
            raise contradiction("url", "should begin with http:// or https:// and have no spaces")
        if self.topic and not UNFILLED.search(self.topic) and not _TOPIC.fullmatch(self.topic):
            raise contradiction("topic", "should have at most 64 letters, digits, _ and -")
        if self.secret and not UNFILLED.search(self.secret) and len(self.secret) < SECRET_MIN:
            raise contradiction("secret", f"should have at least {SECRET_MIN} characters")
        to = tuple(one for one in self.to if one != USER)
        for key, addresses in (("sender", (self.sender,) if self.sender else ()), ("to", to)):
            for address in addresses:
                if not UNFILLED.search(address) and not _ADDRESS.fullmatch(address):
                    raise contradiction(key, "should be an address such as ops@example.org, without a name")

    def channel(self, name: str) -> ChannelSettings:
        """The channel that was given."""
        more: dict[str, Any] = {}
        if self.timeout_seconds is not None:
            more["timeout"] = span(self.timeout_seconds)
        match self.type:
            case "ntfy":
                url = self.url.rstrip("/") or Ntfy.SERVER
                return Ntfy(name=name, topic=self.topic, token=self.token, url=url, **more)
            case "webhook":
                return WebhookChannel(name=name, url=self.url, secret=self.secret, **more)
            case "email":
                port = self.port or {"tls": 465, "none": 25}.get(self.security, 587)
                return Email(
                    name=name,
                    host=self.host,
                    port=port,
                    security=self.security,
                    user=self.user,
                    password=self.password,
                    sender=self.sender,
                    to=self.to,
                    **more,
                )
            case "telegram":
                url = self.url.rstrip("/") or TelegramChannel.SERVER
                return TelegramChannel(name=name, token=self.token, chats=self.chats, url=url, **more)
        return AppriseChannel(name=name, urls=self.urls, **more)


class AlertRuleSection(Section):
    """What goes to which channels. All that a rule names has to fit; what several rules send to a channel goes there
    once."""

    kinds: Texts = ()
    """Kinds of alerts, such as quarantined. None named: all of them, but those that have to be named (`restarts`)."""
    severity: Severity = "warning"
    """At least so severe: info, warning, critical."""
    units: Texts = ()
    """Names of units; * stands for any letters. None named: all."""
    labels: Annotated[dict[str, Word], Field(max_length=NAMES_MAX)] = {}
    """Labels that the unit has to have, with their values."""
    channels: Texts = ()
    """Where it goes to. None named: to all."""

    @model_validator(mode="after")
    def _kinds_exist(self) -> Self:
        for kind in self.kinds:
            if kind not in KINDS:
                near = get_close_matches(kind, KINDS, n=SUGGESTIONS_MAX)
                hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(KINDS)}"
                raise contradiction("kinds", f"no kind of alert {kind[:NAME_SHOWN_MAX]!r}; {hint}")
        return self

    def rule(self) -> AlertRule:
        """The rule that was given."""
        return AlertRule(
            kinds=self.kinds,
            severity=self.severity,
            units=self.units,
            labels=dict(self.labels),
            channels=self.channels,
        )


class QuietSection(Section):
    """Hours in which only what is bad enough goes out. The rest is told afterwards, in one message."""

    from_: Annotated[ClockTime | None, Field(alias="from")] = None
    """When they begin, such as "22:00"."""
    to: ClockTime | None = None
    """When they end. An end before the beginning is on the next day."""
    timezone: Zone = "UTC"
    """Whose hours."""
    passes: Severity = "critical"
    """What is at least so severe goes out all the same."""

    @model_validator(mode="after")
    def _has_both(self) -> Self:
        if (self.from_ is None) != (self.to is None):
            raise contradiction((), "quiet hours need both `from` and `to`")
        if self.from_ is not None and self.from_ == self.to:
            raise contradiction("to", "quiet hours that end when they begin are none, or all day: leave them out")
        return self


class AlertsSection(Section):
    """Who is told what, by which channels. Without channels nobody is."""

    channels: Annotated[dict[str, ChannelSection], Field(max_length=CHANNELS_MAX)] = {}
    """The ways to people, by names of one's own."""
    rules: Annotated[tuple[AlertRuleSection, ...], Field(strict=False, max_length=RULES_MAX)] = ()
    """What goes where. None: whatever is a warning or worse goes to all channels."""
    quiet_hours: QuietSection = QuietSection()
    """Hours in which only what is bad enough goes out."""
    group_wait_seconds: Seconds = 2.0
    """Between the first time that something happens and the message about it: what comes meanwhile is in it."""
    renew_after_seconds: Seconds = 300.0
    """Between two new messages about the same thing that got worse. What comes meanwhile changes the last one."""
    repeat_after_seconds: Seconds = 14_400.0
    """What still stands after so long, and nobody has acknowledged, is told again."""
    give_up_after_seconds: Seconds = 86_400.0
    """A message that could not be sent for so long is given up."""
    budget_near: Annotated[float, Field(gt=0, le=1)] = 0.8
    """The share of a budget at which people are told that it is nearly spent. 1: they are not."""
    url: Word = ""
    """Where the page is reached from outside, such as https://flyball.example.org: for links in messages."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for name in self.channels:
            if not is_name(name):
                raise contradiction(("channels", name), f"the name of a channel has {IN_WORDS}")
        for place, rule in enumerate(self.rules):
            for channel in rule.channels:
                if channel not in self.channels:
                    there = ", ".join(self.channels) or "none"
                    raise contradiction(("rules", place, "channels"), f"no channel {channel!r}; there are: {there}")
        if self.url and not UNFILLED.search(self.url) and not _URL.fullmatch(self.url):
            raise contradiction("url", "should begin with http:// or https:// and have no spaces")
        return self

    @property
    def alerts(self) -> Alerts:
        """All of it, without the way it was given."""
        quiet = self.quiet_hours
        return Alerts(
            channels=tuple(section.channel(name) for name, section in self.channels.items()),
            rules=tuple(rule.rule() for rule in self.rules),
            quiet=None
            if quiet.from_ is None or quiet.to is None
            else Quiet(start=quiet.from_, end=quiet.to, timezone=quiet.timezone, passes=quiet.passes),
            group_wait=span(self.group_wait_seconds),
            renew_after=span(self.renew_after_seconds),
            repeat_after=span(self.repeat_after_seconds),
            give_up_after=span(self.give_up_after_seconds),
            budget_near=self.budget_near,
            url=self.url.rstrip("/"),
        )
