"""What a rule is, as somebody defined it: values, without any way to run them. Its revision is a hash of its triggers,
its condition and its actions: when one of those changes, its failures are cleared.

Texts of actions may hold templates, `{{ trigger.path }}`: they are filled in when the action is done. Secrets are
filled in already, so nothing of this is ever printed or logged.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec

from flyball.core.time import HOUR, MINUTE, SECOND, Span

QUEUE_MAX: Final = 100
"""Firings of one rule that wait. More than this means that it is fired more often than it can be run."""
TIMEOUT: Final = 300 * SECOND
"""How long one run of a rule may last."""


class OnError(StrEnum):
    """What becomes of a run when one of its actions failed for good."""

    STOP = "stop"
    CONTINUE = "continue"
    ROLLBACK = "rollback"
    """What was done is undone, the last action first, as far as the actions say how."""


class Missed(StrEnum):
    """What becomes of a time at which nobody was there."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class When(StrEnum):
    """What may happen to another unit that fires a rule."""

    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    """It exited with error, timeout, starved or lost."""
    STOPPED = "stopped"
    HELD = "held"
    """It is refused until a person releases it: quarantined, halted, paused, out of resumes."""


# Triggers.


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """Again and again, so long after the last time."""

    every: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """At times of the day, the week, the month."""

    expression: str
    timezone: str = "UTC"
    missed: Missed = Missed.ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """Files that come, change or go."""

    pattern: str
    """An absolute path; its last parts may have `*`, `?` and `**`."""
    on: tuple[str, ...] = ("created", "modified")
    """Of `created`, `modified`, `deleted`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A signed request to the daemon's own address: POST /hooks/NAME."""

    hook: str
    secret: str = field(repr=False)
    tolerance: Span = 5 * MINUTE
    """How old, or how far ahead, the time of a request may be. Its id is remembered for longer than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitEvent:
    """What happens to another unit, or another rule."""

    unit: str
    """Its name; `*` stands for any letters."""
    on: tuple[When, ...] = (When.DONE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A person, by `flyball trigger`. Every rule can be fired so; one with this trigger alone, only so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """Whenever a daemon has started."""


Trigger = Every | Cron | FileChange | Webhook | UnitEvent | Command | Startup


# Actions.


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A command."""

    command: tuple[str, ...]
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """A request."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    json: Any = None
    """What is sent as JSON; None: nothing."""
    text: str = ""
    """What is sent as it is."""
    expect: tuple[int, ...] = ()
    """Statuses that are a success; none named: those below 400."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A function in Python, `module:name`, in a process that can be killed."""

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""
    """The folder that modules are looked for in first: that of the file that the rule stands in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUnit:
    """Start a unit, or fire a rule."""

    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopUnit:
    """Stop a unit. A person, or a rule, starts it again."""

    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Tell people something."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Do nothing for so long."""

    length: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class SetValues:
    """Remember something, for conditions and templates of all rules."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserStep:
    """One step on a page: goto, click, fill, wait, extract or screenshot."""

    verb: str
    target: str = ""
    """A URL, a selector, or the file of a screenshot."""
    text: str = ""
    """What to fill in."""
    name: str = ""
    """What an extracted text is called in the action's result."""
    timeout: Span = 10 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Browse:
    """Steps in a browser. All such actions of one run share one page."""

    steps: tuple[BrowserStep, ...]


Deed = Run | Http | Call | StartUnit | StopUnit | Notify | Wait | SetValues | Browse
"""What an action does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """How often an action is tried within one run, and how long to wait in between."""

    most: int = 3
    first: Span = 1 * SECOND
    factor: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A person has to say yes before an action is done."""

    text: str
    timeout: Span = 1 * HOUR
    default: bool = False
    """What is taken for the answer when nobody gave one in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One step of a rule."""

    id: str
    deed: Deed
    attempts: Attempts = Attempts()
    timeout: Span = TIMEOUT
    """Of one attempt."""
    approve: Approval | None = None
    undo: Deed | None = None
    """What takes it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """So many runs within so long."""

    starts: int
    window: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When something happens, and a condition holds, do this."""

    name: str
    triggers: tuple[Trigger, ...]
    when: str = ""
    """The condition, in CEL; nothing: always."""
    actions: tuple[Action, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    """When more rules are due than may run, those with a higher one come first."""
    on_error: OnError = OnError.STOP
    runs_again: bool = True
    """What fired it is tried in another run if one failed, as soon as the safeguards let it; else it is dropped."""
    timeout: Span = TIMEOUT
    """How long one run may last, what it waits for people not counted."""
    runs_max: int = 1
    """Runs at the same time."""
    pace: Pace | None = None
    queue_max: int = QUEUE_MAX

    @property
    def revision(self) -> str:
        """A hash of what it reacts to and what it does."""
        defined = (self.triggers, self.when, self.actions)
        return hashlib.blake2b(msgspec.json.encode(_tagged(defined), order="sorted"), digest_size=8).hexdigest()

    @property
    def asks_for_units(self) -> bool:
        """Whether its condition or a template of its actions may name units: what those are takes a while to find
        out."""
        return "units" in self.when or b"units" in msgspec.json.encode(_tagged(self.actions))

    @property
    def deadline(self) -> Span:
        """How long one run may last, with all that it may have to wait for people."""
        return self.timeout + sum(action.approve.timeout for action in self.actions if action.approve is not None)


def _tagged(value: Any) -> Any:
    """With the name of each kind: two that have the same fields are not the same."""
    if isinstance(value, tuple):
        return [_tagged(part) for part in value]
    names = getattr(value, "__dataclass_fields__", None)
    if names is None:
        return value
    return [type(value).__name__, {name: _tagged(getattr(value, name)) for name in names}]
