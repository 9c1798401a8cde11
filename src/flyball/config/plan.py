"""The plan: what a supervisor has to know of the settings, and nothing more. A plain value, which one process can hand
to another.

So the process that supervises for months reads no settings itself and has nothing of what that takes in its memory:
who starts it reads them, and whoever it asks when they have changed.
"""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from flyball.config.alerts import Alerts
from flyball.config.rules import Rule
from flyball.config.telegram import Telegram
from flyball.config.units import Group, Unit
from flyball.core.policy import AnyPolicy
from flyball.core.time import SECOND, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLimits:
    """What bounds all rules together, and where webhooks come in."""

    running_max: int = 10
    queued_max: int = 10_000
    listen: str = "127.0.0.1:8787"
    auto_reload: bool = True


OFF: Final = "off"
"""Where the page is if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpPlan:
    """Where the page and its API are."""

    listen: str | None = None
    """Not given: at the default, or anywhere. `off`: nowhere."""
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """What this machine is to a fleet on many hosts."""

    name: str = ""
    """Not given: the machine's host name."""
    labels: Mapping[str, str] = field(default_factory=dict)
    lease: Span = 15 * SECOND
    units_max: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be run, and under which safeguards."""

    units: tuple[Unit, ...]
    groups: tuple[Group, ...] = ()
    rules: tuple[Rule, ...] = ()
    limits: RuleLimits = RuleLimits()
    http: HttpPlan = HttpPlan()
    alerts: Alerts = field(default_factory=Alerts)
    sources: tuple[str, ...] = ()
    """Files and folders that it was read from: when one of them changes, so may the rules."""
    read_at: int = 0
    """When that was, in nanoseconds since 1970, as file systems count."""
    policies: tuple[AnyPolicy, ...]
    """Of whatever is not one of the units."""
    own: Mapping[str, tuple[AnyPolicy, ...]]
    """Of each unit and each rule. Those that stand under the same ones share them."""
    jitter: float
    """The share of a wait by which the starts of many units are spread."""
    quarantined_at: int
    """So many failures of one kind quarantine a unit: the store's table for people shows it."""
    journal_max: int
    log_format: str = "text"
    """Of the daemon's own log: text or json."""
    traces: str = ""
    """The exporter of spans; nothing: there are none."""
    source: str
    """The file that it was read from; empty if there was none."""
    telegram: Telegram | None = None
    """The bot; None: there is none."""
    withheld: tuple[str, ...] = ()
    store: str = field(default="", repr=False)
    """The URL of the database that many hosts share; nothing: a file in the state folder."""
    host: HostPlan = field(default_factory=HostPlan)
    """Variables that units do not inherit."""

    def encode(self) -> bytes:
        """As bytes for another process of the same flyball. What is shared stays so."""
        return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)


def decode(data: bytes) -> Plan:
    """The plan in these bytes. They have to come from a process of ours, by a way that nobody else has."""
    plan = pickle.loads(data)  # noqa: S301 - see above
    assert isinstance(plan, Plan)  # noqa: S101 - as above
    return plan
