"""What people are told of, and by which channels: values, without any way to send them.

Secrets are filled in already, so nothing of this is ever printed or logged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from flyball.core.time import DAY, HOUR, MINUTE, SECOND, Span

SEVERITIES: Final = ("info", "warning", "critical")
"""From news that nobody waits for to what somebody is woken for."""

KINDS: Final = (
    "quarantined",
    "halted",
    "restarts_in_a_row",
    "max_resume_attempts_exceeded",
    "restart_storm",
    "too_many_restarts",
    "clock_jumped",
    "policy_failed",
    "stuck",
    "waits_for_person",
    "question",
    "circuit_open",
    "restarts_often",
    "cost_budget_exceeded",
    "budget_near",
    "starved",
    "spend_anomaly",
    "failed",
    "failure",
    "timeout",
    "idle_timeout",
    "hard_cap_15_rounds",
    "max_rounds",
    "max_steps",
    "preflight",
    "loop_detected",
    "stalled",
    "lost",
    "firing_dropped",
    "message",
    "restarts",
    "daemon_started",
    "channel_dead",
    "journal_gap",
    "host_lost",
    "hosts_differ",
    "store_away",
    "test",
)
"""Every kind of alert, by which rules name them."""

USER: Final = "user"
"""Among the receivers of mails it stands for the user of the unit, if that label is an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ntfy:
    """A topic of an ntfy server."""

    TYPE: ClassVar = "ntfy"
    name: str
    topic: str = field(repr=False)
    """Who knows it can read along, so it is as good as a secret."""
    SERVER: ClassVar = "https://ntfy.sh"
    url: str = field(default=SERVER, repr=False)
    token: str = field(default="", repr=False)
    timeout: Span = 15 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookChannel:
    """A request with the message as JSON, signed."""

    TYPE: ClassVar = "webhook"
    name: str
    url: str = field(repr=False)
    secret: str = field(default="", repr=False)
    """Nothing: it is not signed."""
    timeout: Span = 15 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Email:
    """A mail over SMTP."""

    TYPE: ClassVar = "email"
    name: str
    host: str
    port: int
    security: str = "starttls"
    """`starttls`, `tls` (from the first byte), or `none`."""
    user: str = ""
    password: str = field(default="", repr=False)
    sender: str = ""
    to: tuple[str, ...] = ()
    timeout: Span = 30 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramChannel:
    """Messages of a Telegram bot to chats."""

    TYPE: ClassVar = "telegram"
    name: str
    token: str = field(repr=False)
    chats: tuple[str, ...] = ()
    SERVER: ClassVar = "https://api.telegram.org"
    url: str = field(default=SERVER, repr=False)
    timeout: Span = 15 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class AppriseChannel:
    """Whatever Apprise knows, by its URLs."""

    TYPE: ClassVar = "apprise"
    name: str
    urls: tuple[str, ...] = field(repr=False)
    timeout: Span = 30 * SECOND


ChannelSettings = Ntfy | WebhookChannel | Email | TelegramChannel | AppriseChannel


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """Hours in which only what is bad enough goes out. The rest is told afterwards, in one message."""

    start: int
    """Minutes after midnight; so is `end`. An end before the start is on the next day."""
    end: int
    timezone: str = "UTC"
    passes: str = "critical"
    """What is at least so severe goes out all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """What goes to which channels. All that it names has to fit."""

    kinds: tuple[str, ...] = ()
    """None named: all of them, but those that have to be named."""
    severity: str = "warning"
    """At least so severe."""
    units: tuple[str, ...] = ()
    """Names; `*` stands for any letters. None named: all."""
    labels: Mapping[str, str] = field(default_factory=dict)
    channels: tuple[str, ...] = ()
    """None named: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerts:
    """Everything about alerts."""

    channels: tuple[ChannelSettings, ...] = ()
    rules: tuple[AlertRule, ...] = ()
    """None: whatever is a warning or worse goes to all channels."""
    quiet: Quiet | None = None
    group_wait: Span = 2 * SECOND
    """Between the first time and the first message."""
    renew_after: Span = 5 * MINUTE
    """Between two new messages about the same thing that got worse."""
    repeat_after: Span = 4 * HOUR
    """What still stands, and nobody has acknowledged, is told again."""
    give_up_after: Span = 1 * DAY
    """A message that could not be sent for so long is given up."""
    budget_near: float = 0.8
    """The share of a budget at which people are told that it is nearly spent."""
    url: str = ""
    """Where the page is reached from outside, for links in messages."""
