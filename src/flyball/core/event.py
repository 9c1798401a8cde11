"""Events: a closed set. Requests are verbs and ask leave; facts are in the past tense and have happened.

A refused request changes no policy's state; a fact always counts. The core and every policy know exactly these.
"""

import enum
from collections.abc import Mapping
from math import isfinite
from typing import ClassVar, Final

import msgspec
from msgspec.structs import force_setattr

from flyball.core.decision import Verb
from flyball.core.time import FOREVER, Instant, Span

Amounts = Mapping[str, int]
"""How much of each meter. Money is in millionths of its unit (`usd`: micro-dollars); tokens are counted whole."""

NOTHING: Final[Amounts] = {}

NAME_MAX: Final = 200
"""Characters of an error's name, a pattern or a fingerprint: they are kept in states, which are written again and
again."""

NOTE_MAX: Final = 2_000
"""Characters of what a person adds to an order, or answers."""

PROBLEM_MAX: Final = 500
"""Characters of a problem's id: a unit's name, a code and a fingerprint."""

QUESTION_MAX: Final = 1_000
"""Characters of a question: enough to decide by. It is kept in a state while it is open, and read on a phone."""

CHOICES_MAX: Final = 10
"""Answers to choose from. More than this are not chosen from but read."""

DETAIL_MAX: Final = 16_384
"""Characters of a stack trace or of last lines that are kept with an exit: enough for the frames that matter."""


class Cause(enum.StrEnum):
    """Why a run ended."""

    DONE = "done"
    STOPPED = "stopped"
    ERROR = "error"
    TIMEOUT = "timeout"
    STARVED = "starved"
    LOST = "lost"

    def __init__(self, value: str) -> None:
        self.done = value == "done"
        self.failed = value not in ("done", "stopped")
        """A failure: an exit with cause error, timeout, starved or lost."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event", tag=str.lower):
    """What every event says: of which unit, which run of it, and with which labels (provider, user, tree, …)."""

    asks: ClassVar[bool] = False
    unit: str = ""
    run: str = ""
    labels: Mapping[str, str] = {}


class Request(Event, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """Asks leave. Committed before the act, or refused without a trace."""

    asks: ClassVar[bool] = True


class Start(Request, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """May this run begin?"""

    again: bool = False
    """The runtime starts the unit again by itself after an exit; nobody asked for this run."""
    holder: str = ""
    """Who runs it (host and process): what it holds is lost when that is gone."""
    down: Span = 0
    """How long after its last exit, where whoever runs it saw that: the time to recovery."""


class Resume(Start, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """May this run begin from a checkpoint?"""

    checkpoint: str = ""


class Step(Request, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """May the run make one more step, or up to `steps` of them?"""

    pattern: str = ""
    """What kind of step: a tool's name, `action:rule`, a node. Counted by the loop policy."""
    call: str = ""
    """Fingerprint of the call with its arguments. Compared by the stall policy."""
    cost: Amounts = NOTHING
    """The worst case for one step, reserved before it is made."""
    steps: int = 1
    """How many are asked for at once. Fewer may be granted: the decision's allowance says how many."""
    last: bool = False
    """The step that wraps up: it may use what was kept back for it."""
    part: bool = False
    """It is made inside a step that was granted: it costs, but is not one more. A node of a graph is a step, the calls
    that it makes are parts."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            force_setattr(self, "steps", 1)
        if self.cost:
            _not_below_nothing(self, "cost")
        if len(self.pattern) + len(self.call) > NAME_MAX:
            _cut(self, NAME_MAX, "pattern", "call")


class Revise(Request, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """The unit's definition changed: may that clear its failures?"""

    revision: str
    by: str = ""
    """The person who changed it. Nobody: it changed by itself, and that is granted only so often."""


class Work(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finished step, or several alike."""

    pattern: str = ""
    call: str = ""
    result: str = ""
    """Fingerprint of the normalised result."""
    world: str = ""
    """Digest of the world after it, where there is one (a working tree, a database)."""
    error: bool = False
    cut: bool = False
    """It was cut short from outside (cancelled), and so shows neither that it works nor that it fails."""
    refused: bool = False
    """It was not made: this reports the refusal of it back to whoever asked."""
    polling: bool = False
    """The tool says of itself that it is asked again and again until something changes."""
    reserved: Amounts = NOTHING
    """What was reserved for it (the `cost` that was asked for)."""
    used: Amounts = NOTHING
    """What it really used."""
    gauges: Mapping[str, float] = {}
    """Readings such as `round`, `convergence`, `agreement`."""
    ago: Span = 0
    """How long before this report it was asked for: steps inside an allowance are reported together."""
    times: int = 1
    """How many. Then `reserved`, `used` and `lasted` are of all of them together, and `ago` is of the last."""
    lasted: Span = 0
    """How long it took, where whoever made it says so. For people only: nothing is decided by it."""

    def __post_init__(self) -> None:
        if self.times < 1:
            force_setattr(self, "times", 1)
        if self.gauges and not all(isfinite(reading) for reading in self.gauges.values()):
            # A reading that is no number says nothing, and JSON has no word for it.
            readings = {name: reading for name, reading in self.gauges.items() if isfinite(reading)}
            force_setattr(self, "gauges", readings)
        if self.reserved or self.used:
            _not_below_nothing(self, "reserved", "used")
        if len(self.pattern) + len(self.call) + len(self.result) + len(self.world) > NAME_MAX:
            _cut(self, NAME_MAX, "pattern", "call", "result", "world")


class Stepped(Event, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """So many steps were made, of those that were granted."""

    done: tuple[Work, ...] = ()
    allowed: int = 0
    """How many steps were granted together, where this reports a whole allowance back; those not in `done` were not
    made. 0: a single step, counted when it was asked for."""
    returned: Amounts = NOTHING
    """What had been reserved for steps that were not made."""
    heard: bool = False
    """A person said something new to the agent."""
    part: bool = False
    """What was made are parts of a step."""


class Beat(Event, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """The run is alive."""

    silent: bool = False
    """Only its holder is: it renews the lease, and has heard nothing of the run since the last beat."""
    stuck: str = ""
    """It does not move, or does not end though it was told to, and cannot be killed: where it is, as a stack."""

    def __post_init__(self) -> None:
        if len(self.stuck) > DETAIL_MAX:
            force_setattr(self, "stuck", self.stuck[-DETAIL_MAX:])


class Asked(Event, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """The run asks a person something, and waits for the answer."""

    id: str = ""
    """By which it is answered: no other open question of the unit has it."""
    text: str = ""
    choices: tuple[str, ...] = ()
    """The answers that are allowed; none named: any text."""
    until: Instant = FOREVER
    """How long the run waits."""
    default: str | None = None
    """What it takes for the answer then, if anything."""

    def __post_init__(self) -> None:
        _cut(self, NAME_MAX, "id")
        _cut(self, QUESTION_MAX, "text")
        if self.choices:
            force_setattr(self, "choices", tuple(choice[:NAME_MAX] for choice in self.choices[:CHOICES_MAX]))
        if self.default is not None:
            _cut(self, NAME_MAX, "default")


class Answered(Event, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """A question is open no more. If it was answered twice, the first answer counts."""

    id: str = ""
    answer: str | None = None
    """None: nobody answered it in time, or the run does not wait any more."""
    heard: bool = False
    """A person said it. A default is nobody's word."""
    by: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        _cut(self, NAME_MAX, "id", "by")
        _cut(self, NOTE_MAX, "note")
        if self.answer is not None:
            _cut(self, NOTE_MAX, "answer")


class Fired(Event, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """A trigger of a rule fired, and what it said waits in the queue for a run. What it said is not here: it may be
    secret, and it may be long."""

    id: str = ""
    """Of the firing. Its runs have it in their names."""
    trigger: str = ""
    """Which one: `cron`, `webhook price`, `event shop`."""
    depth: int = 0
    """How many rules fired each other before this one."""
    dropped: str = ""
    """Why it does not wait for a run after all: `queue_full`, `chain_too_long`, …; nothing: it waits."""

    def __post_init__(self) -> None:
        _cut(self, NAME_MAX, "id", "trigger", "dropped")


class Exited(Event, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """The run ended."""

    cause: Cause
    fingerprint: str = ""
    version: int = 0
    """Of the rule that made the fingerprint."""
    error: str = ""
    """The type of the error, for people: `SelectorNotFound`, `exit 3`, `SIGKILL`. Of what was told to end, the code of
    the reason."""
    policy: str = ""
    """Whose decision ended it: `budget`, `stall`, `manual`. Nobody's: it ended by itself, or with its supervisor."""
    code: int | None = None
    signal: int | None = None
    detail: str = ""
    """Stack trace or last lines. Of a longer one the end is kept: that is where it says what happened."""
    pause: str = ""
    """It is not over but paused, to go on from its checkpoint: for a `rate_limit`, a `usage_limit`, a `session_limit`,
    a `person`, or whatever else it names."""
    resume_at: Instant = 0
    """Not to be resumed before this instant. 0: it was not said."""
    progress: bool = False
    """It kept a new checkpoint since it began."""

    def __post_init__(self) -> None:
        if len(self.error) + len(self.fingerprint) > NAME_MAX:
            _cut(self, NAME_MAX, "error", "fingerprint")
        if len(self.detail) > DETAIL_MAX:
            force_setattr(self, "detail", self.detail[-DETAIL_MAX:])
        _cut(self, NAME_MAX, "pause")


class Booted(Event, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """A supervisor started on this store."""

    holder: str = ""
    units: int = 0
    """How many units it looks after."""
    skew: Span = 0
    """The clock minus the journal's last instant: below zero, the clock was set back."""
    others: int = 0
    """Other hosts of the fleet that live: with them it runs already."""


class Joined(Event, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """A host joined the fleet: from now on it holds a lease. No policy hears it."""

    host: str = ""
    holder: str = ""


class Left(Event, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """A host is no part of the fleet any more. No policy hears it: what becomes of its runs is told of each run."""

    host: str = ""
    holder: str = ""
    lost: bool = False
    """It did not leave in order: its lease ran out, or it was found dead."""
    runs: int = 0
    """How many runs it had."""
    by: str = ""
    """The host that found it out."""


class Held(Event, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """A person ordered a unit, everything with a label, or the fleet, to pause, stop or finish."""

    scope: str = "unit"
    verb: Verb = Verb.HOLD
    order: str = ""
    """What the person said, where the verb does not say all of it: a `kill` is a stop without grace."""
    host: str = ""
    """On which host of a fleet it was ordered: what runs there was told at once."""
    by: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        _cut(self, NAME_MAX, "order", "host", "by")
        _cut(self, NOTE_MAX, "note")


class Released(Event, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """A person took a hold back, or made a policy forget."""

    scope: str = "unit"
    policies: tuple[str, ...] = ()
    """Which policies; none named: all of that scope."""
    fingerprint: str = ""
    """Only this failure; none named: all."""
    order: str = ""
    """What the person said: `start`, `restart`, `resume`, `reset`. A restart also ends what runs."""
    host: str = ""
    """On which host of a fleet it was ordered: what runs there was told at once."""
    by: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        _cut(self, NAME_MAX, "order", "host", "by", "fingerprint")
        _cut(self, NOTE_MAX, "note")

    def frees(self, policy: str, by: str) -> bool:
        """Whether it speaks to the policy of that name and scope."""
        return self.scope == by and (not self.policies or policy in self.policies)


class Settled(Event, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """A person said what a run that died really used of what it had reserved."""

    reserved: Amounts = NOTHING
    """What it had reserved: reserved no more."""
    used: Amounts = NOTHING
    by: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        _not_below_nothing(self, "reserved", "used")
        _cut(self, NAME_MAX, "by")
        _cut(self, NOTE_MAX, "note")


class Raised(Event, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """A person allowed a unit, everything with a label, or the fleet, to use more than its budget says."""

    scope: str = "unit"
    """Whose budget: that of policies by this."""
    more: Amounts = NOTHING
    by: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        _not_below_nothing(self, "more")
        _cut(self, NAME_MAX, "by")
        _cut(self, NOTE_MAX, "note")

    def raises(self, by: str) -> bool:
        """Whether it speaks to budgets of that scope."""
        return self.scope == by


class Acknowledged(Event, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """A person has seen a problem: nobody is told of it again, unless it gets worse."""

    problem: str = ""
    """Its id."""
    until: Instant = FOREVER
    """It is told of again after this instant, if it is still there."""
    count: int = 0
    """How often it had happened by then: once more is worse."""
    by: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        _cut(self, PROBLEM_MAX, "problem")
        _cut(self, NAME_MAX, "by")
        _cut(self, NOTE_MAX, "note")


class Ordered(Event, frozen=True, kw_only=True, omit_defaults=True, tag=str.lower):
    """Somebody asked for something to be done, whatever came of it: the line of the audit trail. No policy hears it."""

    verb: str = ""
    asked: str = ""
    """With which arguments, in words; secrets are not in it."""
    effect: str = ""
    """What came of it, in words."""
    refused: str = ""
    """The code of why it was not done; nothing: it was."""
    by: str = ""
    channel: str = ""
    """`cli`, `socket`, `http`, `page`, `link`, `telegram`; `rule`: no person did."""

    def __post_init__(self) -> None:
        _cut(self, NAME_MAX, "verb", "refused", "by", "channel")
        _cut(self, NOTE_MAX, "asked", "effect")


AnyEvent = (
    Start
    | Resume
    | Step
    | Revise
    | Stepped
    | Beat
    | Asked
    | Answered
    | Fired
    | Exited
    | Booted
    | Joined
    | Left
    | Held
    | Released
    | Settled
    | Raised
    | Acknowledged
    | Ordered
)


def _cut(struct: msgspec.Struct, most: int, *names: str) -> None:
    for name in names:
        text = getattr(struct, name)
        if len(text) > most:
            force_setattr(struct, name, text[:most])


def _not_below_nothing(struct: msgspec.Struct, *names: str) -> None:
    for name in names:
        amounts = getattr(struct, name)
        if any(amount < 0 for amount in amounts.values()):
            force_setattr(struct, name, {meter: max(0, amount) for meter, amount in amounts.items()})


def is_failure(event: Event) -> bool:
    """An exit that is a failure."""
    return isinstance(event, Exited) and event.cause.failed
