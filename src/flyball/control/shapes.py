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


class BreakerView(View, frozen=True, kw_only=True):
    """One circuit breaker."""

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


class PolicyState(View, frozen=True, kw_only=True):
    """What the flapping policy knows of a unit."""

    state: str
    """healthy, degraded or halted."""
    consecutive_flaps: int
    exits_in_window: int
