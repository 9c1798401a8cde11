"""The shapes of what people see: values that become JSON as they are. Scripts use them: fields are added, not renamed.

Instants are Unix seconds, lengths are seconds, amounts of money are in millionths. `null` where there is nothing to
tell.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class Word(StrEnum):
    """What a unit is, in one word."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    COOLING = "cooling"
    QUARANTINED = "quarantined"
    HALTED = "halted"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


class SessionWord(StrEnum):
    """What a session is, in one word."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    BUDGET_EXCEEDED = "budget_exceeded"
    STOPPED = "stopped"
    LOST = "lost"


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every view."""


class ReasonView(View, frozen=True, kw_only=True):
    """Why: one policy's reason."""

    policy: str
    by: str
    """Whose state it is about: "unit", "run", "fleet" or a label."""
    verb: str
    code: str
    text: str
    remedy: str
    until: float | None


class FailureView(View, frozen=True, kw_only=True):
    """One kind of failure that is remembered."""

    fingerprint: str
    error: str
    count: int
    first: float
    last: float
    until: float | None
    """When its wait ends."""
    quarantined: bool


class ExitView(View, frozen=True, kw_only=True):
    """How the last run ended."""

    at: float
    run: str
    cause: str
    error: str
    code: int | None
    signal: int | None
    fingerprint: str


class LiveView(View, frozen=True, kw_only=True):
    """A run that was granted and has not exited."""

    run: str
    holder: str
    since: float | None
    age: float | None
    lease_until: float
    lost: bool
    """Its holder is gone or its lease ran out: it is reported as lost when somebody next starts here."""


class BudgetView(View, frozen=True, kw_only=True):
    """Money, or another meter: what was spent, is reserved, and may be spent."""

    meter: str
    by: str
    spent: int
    reserved: int
    limit: int
    """What may be spent now: that of the settings, and what a person added."""
    raised: int = 0
    """How much of the limit a person added."""


class QuestionView(View, frozen=True, kw_only=True):
    """What a run asks a person."""

    id: str
    run: str
    text: str
    choices: tuple[str, ...]
    """The answers that are allowed; none named: any text."""
    default: str | None
    """What is taken for the answer at `until`."""
    at: float
    until: float | None


class OrderView(View, frozen=True, kw_only=True):
    """What a person ordered."""

    at: float
    order: str
    by: str
    note: str


class RestartsView(View, frozen=True, kw_only=True):
    """Starts after the first one."""

    last_hour: int
    """Those that count against the limit per hour (more exactly: within the window of the restart policy)."""
    total: int
    """By itself, as far as the journal was read."""
    by_hand: int
    """By a person, as far as the journal was read."""


class UnitView(View, frozen=True, kw_only=True):
    """All that there is to see of one unit."""

    name: str
    kind: str
    """rule; session, graph or call (pieces of work); unit: all others."""
    state: Word
    held: bool
    running: bool
    since: float | None
    until: float | None
    """When it goes on by itself, if it waits for a time."""
    reasons: tuple[ReasonView, ...]
    restarts: RestartsView
    failures_in_a_row: int
    failures: tuple[FailureView, ...]
    last_exit: ExitView | None
    live: tuple[LiveView, ...]
    budgets: tuple[BudgetView, ...]
    questions: tuple[QuestionView, ...]
    """What it waits for a person to answer, the oldest first."""
    revision: str
    orders: tuple[OrderView, ...]
    labels: Mapping[str, str]
    waiting: int
    """Of a rule: firings in its queue that no run has at this moment."""
    host: str = ""
    """Which host of the fleet runs it; nothing if none does, or if there are no hosts."""


class HostView(View, frozen=True, kw_only=True):
    """A host of the fleet."""

    name: str
    state: str
    """up, draining or lost."""
    since: float | None
    """When it joined; of one that is lost, when that was found."""
    units: int
    """Units that it runs; of one that is lost, runs that it had."""
    units_max: int = 0
    labels: Mapping[str, str] = {}
    page: str = ""
    """Where its page is, if it has one."""
    version: str = ""
    """Of flyball."""
    differs: bool = False
    """Its units and rules are others than those of most hosts."""
    by: str = ""
    """Of one that is lost: the host that found it out."""


class HostDetail(HostView, frozen=True, kw_only=True):
    """What changes all the time, too."""

    holder: str = ""
    lease: float = 0.0
    """How long it is taken to live without a word from it."""
    lease_until: float | None = None
    here: bool = False
    """It is the one that answers."""


class BreakerView(View, frozen=True, kw_only=True):
    """One circuit: the breakers by one label."""

    name: str
    """By which it is closed: `provider:x`, or `fleet`."""
    by: str
    subject: str
    state: str
    """closed, open or half-open."""
    until: float | None


class FleetState(View, frozen=True, kw_only=True):
    """What the fleet is, without its units."""

    state: str
    """running, paused or draining."""
    held: bool
    reasons: tuple[ReasonView, ...]
    at: float
    """The present, by which all ages are to be counted."""


class FleetView(FleetState, frozen=True, kw_only=True):
    """All units under one store."""

    breaker: str
    """The fleet's own: closed, open or half-open."""
    breakers: tuple[BreakerView, ...]
    """Those that are not closed, the fleet's and those of labels."""
    storm: bool
    units: int
    running: int
    counts: Mapping[str, int]
    """How many units are what."""
    orders: tuple[OrderView, ...]
    hosts: tuple[HostView, ...]
    """By name; nothing: the memory of the fleet is a file of one machine."""
    homeless: tuple[str, ...]
    """Units that no host may run, as the hosts are now."""


class PolicyState(View, frozen=True, kw_only=True):
    """What the flapping policy knows of a unit."""

    state: str
    """healthy, degraded or halted."""
    consecutive_flaps: int
    exits_in_window: int


# Rules.


class TriggerView(View, frozen=True, kw_only=True):
    """What fires a rule, in words."""

    text: str
    """`every 5m`, `cron 0 7 * * mon-fri Europe/Berlin`, `webhook price`."""
    next: float | None
    """When, where that is known: of times alone, and when a daemon has looked at them."""


class FiringView(View, frozen=True, kw_only=True):
    """What waits in a rule's queue. What its trigger said is not shown: it may be secret."""

    id: str
    trigger: str
    at: float
    attempt: int
    """How often a run of it was begun."""
    joined: int
    """How many others came while it waited, and said the same."""
    depth: int
    """How many rules fired each other before it."""
    running: bool
    by_person: bool


class RuleView(View, frozen=True, kw_only=True):
    """All that there is to see of one rule."""

    name: str
    state: Word
    held: bool
    running: bool
    until: float | None
    """When it goes on by itself, if it waits for a time."""
    reasons: tuple[ReasonView, ...]
    defined: bool
    """The settings name it. One that is gone from them is known by what it did, and is not fired any more."""
    triggers: tuple[TriggerView, ...]
    when: str
    """Its condition; nothing: always."""
    actions: tuple[str, ...]
    """The id of each, and what it does: `fetch: http`."""
    next: float | None
    """The first of the times at which it is fired, where one is known."""
    queue: tuple[FiringView, ...]
    """The oldest first."""
    waiting: int
    """How many of those no run has at this moment."""
    last_run: ExitView | None
    counts: Mapping[str, int]
    """What only a daemon knows, since its start: how many were queued, joined, skipped, refused; empty without one."""
    questions: int
    priority: int
    labels: Mapping[str, str]


class OpenQuestionView(QuestionView, frozen=True, kw_only=True):
    """A question, and who asks."""

    unit: str


# Sessions.


class CountView(View, frozen=True, kw_only=True):
    """So many of at most so many."""

    used: int
    max: int


class RoundsView(View, frozen=True, kw_only=True):
    """Rounds, and the latest readings of how far they agree."""

    reached: int
    max: int
    convergence: float | None
    agreement: float | None


class AmountView(View, frozen=True, kw_only=True):
    """What a session spent, has reserved, and may spend, in millionths."""

    spent: int
    reserved: int
    limit: int


class DeadlineView(View, frozen=True, kw_only=True):
    """How long a run lasted, or has lasted so far, and how long it may."""

    started: float | None
    lasted: float
    limit: float


class PauseView(View, frozen=True, kw_only=True):
    """Why a session is paused, and until when."""

    reason: str
    since: float
    resume_at: float | None
    """None: a person has to resume it."""


class CheckpointView(View, frozen=True, kw_only=True):
    """A checkpoint that is kept."""

    id: str
    stage: str
    at: float
    bytes: int


class SessionView(View, frozen=True, kw_only=True):
    """All that there is to see of one piece of work: a session, or a thread of a graph. `null` where it has no such
    limit."""

    id: str
    kind: str
    """session; graph (a thread of one); or call (one of a graph without a thread, which cannot be resumed)."""
    status: SessionWord
    held: bool
    """It waits for a person."""
    stop_reason: str | None
    """The code of what ended its last run, if a safeguard or a person did."""
    failure_reason: str | None
    """Why it failed: `max_resume_attempts_exceeded`, `timeout`, `lost`, or the type of its error."""
    layer: int | None
    """Which of the five layers ended its last run."""
    resumes: CountView | None
    steps: CountView | None
    rounds: RoundsView | None
    budget: AmountView | None
    deadline: DeadlineView | None
    pause: PauseView | None
    checkpoints: tuple[CheckpointView, ...]
    """The oldest first."""
    user: str
    tree: str
    started: float | None
    """When the work was begun."""
    ended: float | None
    """When its last run ended; none if it runs, or never ran."""


class CostlyView(View, frozen=True, kw_only=True):
    """A session that cost far more than others. In millionths."""

    id: str
    spent: int
    usual: int
    """The median of all that were looked at."""


class TimeView(View, frozen=True, kw_only=True):
    """Where the time of a session went: steps of one pattern."""

    pattern: str
    part: bool
    """They were made inside other steps, so their time is part of theirs."""
    times: int
    errors: int
    seconds: float
    longest: float
    """Of those that were reported together without their own lengths, the mean."""
    spent: int
    """In millionths."""


class MomentView(View, frozen=True, kw_only=True):
    """Something that happened to a session."""

    at: float
    text: str


class LayerView(View, frozen=True, kw_only=True):
    """What one layer saw."""

    layer: int
    name: str
    text: str
    fired: bool


class PostMortemView(View, frozen=True, kw_only=True):
    """How a session came to be what it is."""

    timeline: tuple[MomentView, ...]
    whole: bool
    """The journal still has its beginning."""
    times: tuple[TimeView, ...]
    """The longest first."""
    between: float
    """Seconds outside all steps that were reported: between them, or in one that did not end."""
    layers: tuple[LayerView, ...]
    causes: tuple[str, ...]
    """Of a timeout: what to look at."""
    ways_on: tuple[str, ...]
    """What can be done."""
