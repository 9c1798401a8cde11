"""Every setting, as a table of data: its name, its range, its default, and what it is for.

Nothing is decided here. The schema for editors, the reference in the docs and the texts of errors are made from this
table, so whatever a setting means must be said in its row. Durations are in the unit that the name ends with.

No safeguard can be switched off: ranges end before the number at which one would never speak.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationInfo, model_validator

from flyball.config.alert_settings import AlertsSection
from flyball.config.given import NOTHING, Given, Origin
from flyball.config.host_settings import HostGiven, StoreUrl
from flyball.config.http_settings import Http
from flyball.config.rule_fit import faults
from flyball.config.rule_settings import Listen, RulesGiven, rules_of
from flyball.config.rules import Attempts
from flyball.config.section import (
    COUNT_MAX,
    KEPT_MAX,
    Count,
    CountFromZero,
    Days,
    Factor,
    Hours,
    Kept,
    Label,
    Money,
    Seconds,
    Section,
    contradiction,
    contradictory,
)
from flyball.config.telegram_settings import TelegramGiven
from flyball.config.unit_settings import GroupsGiven, UnitsGiven, Word, fit_together
from flyball.core.amounts import MONEY
from flyball.core.time import span

if TYPE_CHECKING:
    from flyball.core.policy import AnyPolicy

LADDER_MAX: Final = 32
"""Rungs of a ladder. With two rungs an hour the last one is a day away."""
LABELS_MAX: Final = 8
"""Labels with a breaker of their own: each is one more state to read at every start."""
TIERS_MAX: Final = 64
"""Names of tiers: a price list, not a list of customers."""
METERS_MAX: Final = 8
"""Meters beside money: each is one more state to read and write at every step."""
MODELS_MAX: Final = 1_000
"""Models with a price of one's own."""

DEFAULT: Final = "default"
"""The origin of a value that nobody gave."""


class Effective(NamedTuple):
    """A value in force: its key, itself, and its origin (default, FILE:LINE:COLUMN, or a variable's name)."""

    key: str
    value: Any
    origin: str


class Quarantine(Section):
    """After a failure a unit waits; after too many of the same kind it is held until a person looks at it."""

    cooldown_ladder_seconds: Annotated[tuple[Seconds, ...], Field(strict=False, max_length=LADDER_MAX)] = (
        1.0,
        5.0,
        15.0,
        300.0,
        1800.0,
    )
    """How long a unit waits after its first, second, … failure of the same kind. Empty: exponential, by the delays of
    `restart_policy`; agents always wait exponentially."""
    max_failures_before_quarantine: Count = 6
    """The failure of one kind at which a unit is quarantined."""
    auto_reset_after_hours: Hours = 24.0
    """So much running without a failure counts as a success: all counts start anew. A quarantine does not expire."""
    healthy_after_seconds: Seconds | None = None
    """A shorter `auto_reset_after_hours`, for services that fail now and then and are fine in between."""


class CircuitBreaker(Section):
    """When several units fail at once, something that they share is down, so nothing more is started for a while."""

    failure_threshold: Count = 5
    """So many failures within the window open it."""
    recovery_timeout_seconds: Seconds = 60.0
    """How long it stays open before trial runs are let through."""
    window_seconds: Seconds = 60.0
    """The window in which failures are counted."""
    min_units: Kept = 3
    """Of at least so many different units. 1: one flapping unit alone can stop all the others."""
    max_trials: Kept = 3
    """Trial runs in flight at a time while it is half-open."""
    success_threshold: Count = 3
    """So many successful trials close it; one failure opens it again."""
    labels: Annotated[tuple[Label, ...], Field(strict=False, max_length=LABELS_MAX)] = ()
    """Labels, such as provider, each value of which gets a breaker of its own."""

    @model_validator(mode="after")
    def _labels_are_labels(self) -> Self:
        for label in self.labels:
            if label in ("unit", "run", "fleet"):
                raise contradiction("labels", f"{label!r} is a scope, not a label; the fleet has its breaker already")
            if self.labels.count(label) > 1:
                raise contradiction("labels", f"{label!r} is named twice")
        return self


class Safety(Section):
    """Loops, restart storms, clock jumps, and definitions that change by themselves."""

    max_loop_iterations: Annotated[int, Field(ge=2, le=COUNT_MAX)] = 100
    """The step at which the same pattern within the loop window is a loop, and stopped."""
    loop_window_seconds: Seconds = 60.0
    """The window in which steps of the same pattern are counted."""
    global_failure_threshold: Count = 10
    """More failures than this, over all units, within the window: a supervisor that starts pauses the fleet."""
    global_failure_window_seconds: Seconds = 300.0
    """The window in which failures and boots are counted for that."""
    global_failure_share: Annotated[float, Field(gt=0, le=KEPT_MAX)] | None = None
    """Instead of the threshold: so many failures per unit of the fleet."""
    max_boots: Count = 5
    """More starts of the supervisor than this within the window are a storm too."""
    storm_while_running: bool = False
    """Judge while running too, not only when a supervisor starts."""
    clock_back_seconds: Seconds = 300.0
    """A supervisor that starts with a clock further back than this waits for a person."""
    clock_ahead_days: Days = 30.0
    """A supervisor that starts with a clock further ahead than this waits for a person."""
    max_changes_per_day: CountFromZero = 3
    """How often a day a changed definition clears a unit's failures by itself. 0: only when a person says so."""


class Retry(Section):
    """Attempts inside one run of a rule's action; a run that used them all up is one failure."""

    max_attempts: Count = 3
    """Attempts in all, the first one included."""
    base_delay_seconds: Seconds = 1.0
    """The wait after the first attempt."""
    exponential_base: Factor = 2.0
    """Each further wait is so many times longer."""


class Supervisor(Section):
    """Whether anything is restarted by itself at all."""

    enabled: bool = True
    """false: nothing is restarted by itself."""


class RestartPolicy(Section):
    """Which exits are followed by another run, how soon, and how many runs may follow."""

    enabled: bool = True
    """false: nothing is restarted by itself."""
    max_restarts_per_hour: Annotated[Count, Field(json_schema_extra={"also": "max_restarts"})] = 10
    """Restarts of one unit within an hour; the next one waits. Also called max_restarts."""
    max_restarts_in_a_row: Count = 50
    """Restarts of one unit without a success, whatever its errors; then it is held."""
    max_total_restarts_per_hour: Count = 1000
    """Restarts of all units together within an hour; then the fleet is held."""
    initial_backoff_seconds: Seconds = 5.0
    """The first exponential delay."""
    max_backoff_seconds: Seconds = 300.0
    """No exponential delay is longer than this."""
    backoff_multiplier: Factor = 2.0
    """Each further delay is so many times longer."""
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.10
    """The share by which a delay is made longer or shorter, so that units do not start all at once."""
    restart_on_error: bool = True
    """Restart after an error (or a run that nobody reported)."""
    restart_on_timeout: bool = True
    """Restart after a deadline."""
    restart_on_resource_exhaustion: bool = False
    """Restart at once when money, quota or memory ran out, instead of waiting for it."""
    starved_wait_seconds: Seconds = 300.0
    """How long such a unit waits before it asks again."""

    @model_validator(mode="after")
    def _delays_grow(self) -> Self:
        if self.max_backoff_seconds < self.initial_backoff_seconds:
            text = f"{self.max_backoff_seconds:g} is below initial_backoff_seconds ({self.initial_backoff_seconds:g})"
            raise contradiction("max_backoff_seconds", text)
        return self


class CrashPolicy(Section):
    """A unit that keeps exiting soon after each start is slowed down, then halted."""

    ring_buffer_cap: Kept = 10
    """The last exits that are kept of one unit."""
    flap_window_seconds: Seconds = 60.0
    """The window in which failing exits are counted, in time that the unit really ran."""
    flap_threshold: Count = 3
    """So many failing exits within the window are a flap."""
    halt_threshold: Count = 5
    """The flap in a row at which the unit is halted."""
    transient_delay_seconds: Seconds = 2.0
    """The wait after a failing exit that is not a flap."""
    flapping_delay_seconds: Seconds = 30.0
    """The wait after a flap."""

    @model_validator(mode="after")
    def _flaps_can_be_seen(self) -> Self:
        if self.flap_threshold > self.ring_buffer_cap:
            text = f"{self.flap_threshold} exits are never seen: only {self.ring_buffer_cap} are kept (ring_buffer_cap)"
            raise contradiction("flap_threshold", text)
        return self


class Stall(Section):
    """An agent that goes round in circles is told, then refused the repeated call, then stopped."""

    profile: Literal["default", "cautious"] = "default"
    """How soon it is stopped: at a score of 6 or 3 circles; or, cautious about lost work, at 8 or 4 circles."""
    nudge_at: Count | None = None
    """The score at which the agent is told. Not given: by the profile, 4."""
    refuse_at: Count | None = None
    """The score at which a repeated call is refused. Not given: by the profile, 5."""
    stop_at: Count | None = None
    """The score at which the run is stopped. Not given: by the profile, 6 or 8."""
    polling_seconds: Seconds = 1800.0
    """How long a call that is declared as polling may go on without anything new."""

    @property
    def scores(self) -> tuple[int, int, int]:
        """Nudge, refuse and stop, with what the profile says where nothing was given."""
        nudge, refuse, stop, *_ = STALL_PROFILES[self.profile]
        return self.nudge_at or nudge, self.refuse_at or refuse, self.stop_at or stop

    @property
    def circles(self) -> int:
        """How many circles of the same calls and results stop the run."""
        return STALL_PROFILES[self.profile][3]

    @property
    def returned(self) -> int:
        """What going back to a failed call adds to the score."""
        return STALL_PROFILES[self.profile][4]

    @model_validator(mode="after")
    def _in_this_order(self) -> Self:
        nudge, refuse, stop = self.scores
        if not nudge <= refuse <= stop:
            given = next(key for key in ("refuse_at", "stop_at", "nudge_at") if getattr(self, key) is not None)
            raise contradiction(given, f"nudge_at {nudge}, refuse_at {refuse}, stop_at {stop} must not fall")
        return self


STALL_PROFILES: Final = {"default": (4, 5, 6, 3, 3), "cautious": (4, 5, 8, 4, 2)}
"""Nudge, refuse, stop; how many circles stop it; and what going back to a failed call adds."""


class Graph(Section):
    """What bounds a graph or a session: each of the layers stops it by itself."""

    recursion_limit: Count = 55
    """Steps of one piece of work, over all its resumes."""
    max_rounds: Annotated[int, Field(ge=5, le=15)] = 7
    """Rounds of a deliberation. Never above 15."""
    convergence_threshold: Annotated[float, Field(gt=0, lt=1)] = 0.85
    """Contributions that are more alike than this are a consensus."""
    consensus_threshold: Annotated[float, Field(gt=0, le=1)] = 0.80
    """So large a share that agrees is a consensus."""
    timeout_seconds: Seconds = 3600.0
    """How long one run may last. Also taken from the environment variable DELIBERATION_TIMEOUT_SECONDS."""


METER_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
"""It becomes a part of a policy's name."""

TIERS: Final[Mapping[str, Decimal]] = {
    "free": Decimal("0.50"),
    "pro": Decimal("2.00"),
    "enterprise": Decimal("10.00"),
}


def _with_known_tiers(given: Any) -> Any:
    return {**TIERS, **given} if isinstance(given, Mapping) else given


Whole = Annotated[int, Field(ge=1, le=10**15)]
"""An amount that is counted whole."""
Period = Literal["none", "hour", "day"]


class Meter(Section):
    """A budget of something that is counted whole, such as tokens, or credits of one's own."""

    per_run: Whole | None = None
    """For each run of a unit."""
    per_unit: Whole | None = None
    """For all runs of a unit together."""
    per_user: Whole | None = None
    """For all units with the same label `user`."""
    per_tree: Whole | None = None
    """For a unit and all that it started: all units with the same label `tree`."""
    per_fleet: Whole | None = None
    """For all units together."""
    period: Period = "none"
    """per_unit, per_user and per_fleet are for each such period (UTC), and what is over waits for the next."""


class Budget(Section):
    """Money, checked before it is spent. Amounts are exact to a millionth."""

    max_cost_per_session: Money = Decimal("1.00")
    """For one graph or session of no tier. Also taken from the environment variable MAX_COST_PER_SESSION."""
    tiers: Annotated[dict[str, Money], Field(max_length=TIERS_MAX), BeforeValidator(_with_known_tiers)] = dict(TIERS)
    """For one graph or session of that tier. Those that are not named keep their amounts."""
    kept_back: Money = Decimal("0.00")
    """The part of a session's money that only its last step may use, to wrap up with."""
    per_run: Money | None = None
    """For each run of a unit that has no `budget` of its own."""
    per_unit: Money | None = None
    """For all runs of a unit together. A graph or session has its own amount."""
    per_user: Money | None = None
    """For all units with the same label `user`."""
    per_fleet: Money | None = None
    """For all units together."""
    per_tree: Money | None = None
    """For a unit and all that it started: all units with the same label `tree`."""
    period: Period = "none"
    """per_unit, per_user and per_fleet are for each such period (UTC), and what is over waits for the next; none: for
    ever."""
    meters: Annotated[dict[str, Meter], Field(max_length=METERS_MAX)] = {}
    """Budgets of other things than money, by the name of the meter: `tokens`, or credits of one's own."""

    @model_validator(mode="after")
    def _money_to_work_with(self) -> Self:
        for key in ("max_cost_per_session", "per_run", "per_unit", "per_user", "per_fleet", "per_tree"):
            if getattr(self, key) == 0:
                raise contradiction(key, "0 would let nothing run; give an amount above it")
        for tier, amount in self.tiers.items():
            if amount <= self.kept_back:
                raise contradiction(
                    "tiers", f"{tier} has {amount}, of which {self.kept_back} is kept back: nothing is left"
                )
        if self.max_cost_per_session <= self.kept_back:
            text = f"{self.kept_back} of {self.max_cost_per_session} (max_cost_per_session) kept back leaves nothing"
            raise contradiction("kept_back", text)
        return self

    @model_validator(mode="after")
    def _meters_are_names(self) -> Self:
        for meter in self.meters:
            if meter == MONEY:
                raise contradiction(("meters", meter), "money has its keys in `budget` itself")
            if not METER_NAME.fullmatch(meter):
                text = "the name of a meter has at most 32 small letters, digits and _, a letter first"
                raise contradiction(("meters", meter), text)
        return self


class Anomaly(Section):
    """An agent that spends far more than it used to is told of; budgets stop it."""

    factor: Factor = 4.0
    """So many times what the agent usually spends in a period is told of."""
    period_seconds: Seconds = 3600.0
    """The period."""
    min_periods: Count = 6
    """Periods in which it spent something that are learned from before anything is told."""
    min_amount: Money = Decimal("0.10")
    """Less than this in a period is never told of."""


class ModelPrice(Section):
    """What a model costs, in dollars for a million tokens."""

    input: Money | None = None
    """Tokens that are sent. Has to be given; 0 for a model of one's own that costs nothing."""
    output: Money | None = None
    """Tokens that come back, those of its reasoning included. Has to be given, too."""
    cached_input: Money | None = None
    """Tokens that are sent and were cached. Not given: as `input`."""

    @model_validator(mode="after")
    def _has_both(self) -> Self:
        if self.input is None or self.output is None:
            raise contradiction((), "a model's price needs both `input` and `output`")
        return self


class Prices(Section):
    """What models cost. Prices that are not given here come from the package genai-prices."""

    unknown: Literal["refuse", "ceiling"] = "refuse"
    """A model without a known price is refused, or priced at the ceiling. It is never free."""
    ceiling_per_million_tokens: Money = Decimal("1000.00")
    """Dollars for a million tokens of such a model, sent or received."""
    models: Annotated[dict[str, ModelPrice], Field(max_length=MODELS_MAX)] = {}
    """Prices of one's own, by the model's name. They win over all others."""

    @model_validator(mode="after")
    def _never_free(self) -> Self:
        if not self.ceiling_per_million_tokens:
            raise contradiction("ceiling_per_million_tokens", "0 would make unknown models free")
        return self


class SessionRecovery(Section):
    """Resumes of a session from its checkpoint."""

    enabled: bool = True
    """false: a session is never resumed."""
    max_resume_attempts: Annotated[CountFromZero, Field(alias="maxResumeAttempts")] = 3
    """How often a session may be resumed before it has failed. 0: never."""
    forgive_progress: Annotated[bool, Field(alias="forgiveProgress")] = False
    """true: a resume that kept a new checkpoint before it ended again does not count."""
    pause_seconds: Annotated[Seconds, Field(alias="pauseSeconds")] = 60.0
    """How long a session stays paused that did not say how long."""


class Daemon(Section):
    """What the daemon does with work that was interrupted."""

    session_recovery: Annotated[SessionRecovery, Field(alias="sessionRecovery")] = SessionRecovery()
    """Resumes of a session from its checkpoint."""


class Rule(Section):
    """What bounds rules, each and all of them together."""

    timeout_seconds: Seconds = 300.0
    """How long one run may last."""
    max_running: Kept = 10
    """Runs of all rules at the same time."""
    max_runs_per_minute: Count = 1000
    """Runs of all rules together within a minute; the next one waits."""
    max_queued: Count = 10_000
    """Firings of all rules that wait. What comes when so many wait is dropped, and told."""
    listen: Listen = "127.0.0.1:8787"
    """Where webhooks come in: a host and a port. Opened only if a rule has a webhook."""
    auto_reload: bool = True
    """Files of rules are applied when they change, if nothing but rules changed in them."""


class Exclusive(Section):
    """One live run per unit, over all processes and hosts."""

    lease_seconds: Seconds = 600.0
    """A run whose holder does not renew its lease for so long is lost. On one machine a holder that died is found at
    once, without waiting for this; each renewal is an entry in the journal."""


class Journal(Section):
    """What is kept of the past."""

    max_entries: Annotated[int, Field(ge=1_000, le=100_000_000)] = 1_000_000
    """Entries that are kept at most; at least the newest half of them stay."""
    max_sessions: Annotated[int, Field(ge=1, le=10_000_000)] = 10_000
    """Graphs and sessions of programs that are kept. Of more than this the oldest that are done are forgotten; what
    can be resumed is not."""


class Logs(Section):
    """What the daemon says of its own work."""

    format: Literal["text", "json"] = "text"
    """text: lines for people. json: each line is an object with time, level, text, and where it is about one the unit,
    the event, the verdict and the codes of its reasons; for whoever collects logs. In force from the next `flyball up`
    on."""


class Traces(Section):
    """Spans for OpenTelemetry: one for each run, with what happened in it. Needs the extra `opentelemetry`."""

    exporter: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{0,64}$")] = ""
    """Where spans go: `otlp_proto_http`, `console`, or another exporter that is installed for OpenTelemetry. Nothing:
    there are none. The exporter's own settings are OpenTelemetry's variables, such as OTEL_EXPORTER_OTLP_ENDPOINT. In
    force from the next `flyball up` on."""


class Settings(Section):
    """Everything that can be set. An empty file is a good one: every key has a default."""

    quarantine: Quarantine = Quarantine()
    circuit_breaker: CircuitBreaker = CircuitBreaker()
    safety: Safety = Safety()
    retry: Retry = Retry()
    supervisor: Supervisor = Supervisor()
    restart_policy: RestartPolicy = RestartPolicy()
    crash_policy: CrashPolicy = CrashPolicy()
    stall: Stall = Stall()
    graph: Graph = Graph()
    budget: Budget = Budget()
    anomaly: Anomaly = Anomaly()
    prices: Prices = Prices()
    daemon: Daemon = Daemon()
    rule: Rule = Rule()
    exclusive: Exclusive = Exclusive()
    journal: Journal = Journal()
    store: StoreUrl = ""
    """Where states and journal are kept: `postgresql://user@host/database`, which many hosts may share. Not given: a
    file in the state folder. Needs the extra `fleet`. In force from the next `flyball up` on."""
    host: HostGiven = HostGiven()
    logs: Logs = Logs()
    traces: Traces = Traces()
    http: Http = Http()
    alerts: AlertsSection = AlertsSection()
    telegram: TelegramGiven = TelegramGiven()
    units: UnitsGiven = ()
    """What `flyball up` runs, by name."""
    groups: GroupsGiven = ()
    """Units that are restarted together, by name."""
    rules_dir: Word = ""
    """A folder with more rules, in files *.yaml, *.yml and *.json, each with rules by name; a relative one is beside
    this file."""
    rules: RulesGiven = ()
    """What is done when something happens, by name."""

    _given: Given = PrivateAttr(default=NOTHING)
    _notes: tuple[str, ...] = PrivateAttr(default=())
    _lacking: tuple[str, ...] = PrivateAttr(default=())
    _withheld: tuple[str, ...] = PrivateAttr(default=())
    _origin: Origin = PrivateAttr(default_factory=lambda: Origin(None, Path()))

    @model_validator(mode="after")
    def _units_fit_together(self) -> Self:
        # What a section says of itself is not complete without the others, so it is set once more; then never again.
        object.__setattr__(self, "units", fit_together(self.units, self.groups))
        return self

    @model_validator(mode="after")
    def _rules_fit_together(self, info: ValidationInfo) -> Self:
        retry = self.retry
        attempts = Attempts(
            most=retry.max_attempts, first=span(retry.base_delay_seconds), factor=retry.exponential_base
        )
        timeout = span(self.rule.timeout_seconds)
        rules = rules_of(self.rules, attempts, timeout, info.context)
        if wrong := faults(rules, {unit.name for unit in self.units}, self.rule.listen):
            raise contradictory(wrong)
        object.__setattr__(self, "rules", rules)
        return self

    def born_of(
        self,
        given: Given,
        origin: Origin,
        notes: Sequence[str],
        lacking: Sequence[str] = (),
        withheld: Sequence[str] = (),
    ) -> Self:
        """These settings, which now know where each of them came from, what there was to say about that, what units and
        rules take from outside that is not there, and what is not for them."""
        self._given, self._origin = given, origin
        self._notes, self._lacking, self._withheld = tuple(notes), tuple(lacking), tuple(withheld)
        return self

    @property
    def lacking(self) -> tuple[str, ...]:
        """What units and rules name and is not there, variables and files: without it, nothing should be run."""
        return self._lacking

    @property
    def withheld(self) -> tuple[str, ...]:
        """Variables that units do not inherit: they tell how people are reached."""
        return self._withheld

    @property
    def source(self) -> str:
        """The file that they were read from; empty if there was none."""
        return str(self._origin.file or "")

    @property
    def sources(self) -> tuple[str, ...]:
        """What they were read from: the file, and the folder of rules."""
        own = (self._origin.file,) if self._origin.file is not None else ()
        return tuple(str(path.absolute()) for path in (*own, *self._origin.sources))

    def policies(self, kind: str = "process", *, tier: str | None = None) -> tuple["AnyPolicy", ...]:
        """The safeguards of a unit of that kind: process, agent, rule, graph or session. `tier` is that of a session's
        user, where there is one."""
        from flyball.config.build import policies_of  # noqa: PLC0415 - it knows the settings, not the other way round

        return policies_of(self, kind, tier)

    def warnings(self) -> list[str]:
        """What is allowed and can hardly be meant: files that are not looked at, thresholds that are never reached."""
        from flyball.config.advice import advice  # noqa: PLC0415 - as above
        from flyball.config.problems import told  # noqa: PLC0415 - as above

        lines = [*self._notes, *self._lacking]
        for key, text in advice(self):
            found = self._given.find(tuple(key.split(".")))
            lines.append(f"{found.at}: {key}: {text}" if found else f"{key}: {text}")
        if self.rules:
            from flyball.config.rule_advice import rule_advice  # noqa: PLC0415 - as above

            lines += [told(fault, self._given) for fault in rule_advice(self)]
        return lines

    def effective(self) -> Iterator[Effective]:
        """Every value in force with its origin, in the order of the table."""
        yield from self._effective((), self.model_dump(mode="json", by_alias=True))

    def _effective(self, path: tuple[str, ...], value: Any) -> Iterator[Effective]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from self._effective((*path, key), inner)
        else:
            found = self._given.find(path)
            yield Effective(".".join(path), value, found.at if found else DEFAULT)
