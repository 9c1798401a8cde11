"""From settings to policies: which safeguards a unit of each kind stands under, with which numbers.

None of them can be taken away. The numbers of a policy's own that have no setting stay at its default.
"""

import logging
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final

from flyball.config.layers import load
from flyball.config.money import micro
from flyball.config.rules import Rule
from flyball.config.settings import Settings
from flyball.config.units import RestartWhen, Unit
from flyball.core.amounts import MONEY
from flyball.core.decision import Verb
from flyball.core.policy import AnyPolicy
from flyball.core.time import DAY, FOREVER, HOUR, MINUTE, Span, span
from flyball.policies import (
    Anomaly,
    Breaker,
    Budget,
    Clock,
    Convergence,
    Cooldown,
    Deadline,
    Exclusive,
    Flapping,
    Limit,
    Loop,
    Manual,
    Quarantine,
    Question,
    Rate,
    Reservations,
    Restart,
    Revision,
    Rounds,
    Session,
    Stall,
    Storm,
    resume_limit,
)

log = logging.getLogger(__name__)

KINDS: Final = ("process", "agent", "rule", "graph", "session")
PERIODS: Final[dict[str, Span]] = {"none": 0, "hour": HOUR, "day": DAY}
RUNTIME: Final = "runtime"
"""The label of every run of a rule."""
BUDGETS_BY: Final = ("run", "unit", "user", "tree", "fleet")


def policies_of(settings: Settings, kind: str = "process", tier: str | None = None) -> tuple[AnyPolicy, ...]:
    """The safeguards of a unit of that kind. `tier` is that of the session's user, where there is one."""
    match kind:
        case "process":
            own: tuple[AnyPolicy, ...] = _own_budgets(settings)
        case "agent":
            own = (_loop(settings), _stall(settings), _anomaly(settings), *_own_budgets(settings))
        case "rule":
            own = (
                _loop(settings),
                Deadline(lasts_max=span(settings.rule.timeout_seconds)),
                *_all_rules(settings),
                *_own_budgets(settings),
            )
        case "graph" | "session":
            own = _work(settings, kind, tier)
        case _:
            raise ValueError(f"{kind!r} is no kind of unit; there are {', '.join(KINDS)}")
    return (*_everyone(settings, kind), *own)


def unit_policies(settings: Settings, unit: Unit, *, budget_by: str = "run") -> tuple[AnyPolicy, ...]:
    """The safeguards of that unit: those of its kind, and those that its own definition asks for. `budget_by` says
    whether its budget is for each run of it, or for all of them together ("unit")."""
    policies = {(policy.name, policy.by): policy for policy in settings.policies(unit.kind)}
    own: list[AnyPolicy] = [
        _restart(settings, _healthy_after(settings, agent=unit.kind == "agent"), unit.restart),
        _flapping(settings, unit.kind, clean_counts=unit.restart is RestartWhen.ALWAYS),
    ]
    if unit.deadline:
        own.append(Deadline(lasts_max=unit.deadline, grace=unit.grace))
    if unit.idle:
        own.append(Deadline(lasts_max=unit.idle, idle=True, grace=unit.grace, name="idle"))
    if unit.budget:
        # A piece of work (a graph, a session) has its budget by unit already: then this is its amount.
        own.append(Budget(limit=unit.budget, by="unit" if ("budget", "unit") in policies else budget_by))
    if unit.steps:
        own.append(Limit(most=unit.steps, by="unit"))
    recovery = settings.daemon.session_recovery
    if unit.resumes is not None and recovery.enabled:
        own.append(resume_limit(unit.resumes, forgives=recovery.forgive_progress))
    return tuple((policies | {(policy.name, policy.by): policy for policy in own}).values())


def rule_policies(settings: Settings, rules: Sequence[Rule]) -> dict[str, tuple[AnyPolicy, ...]]:
    """The safeguards of each of these rules: those of all rules, and those that its own definition asks for. Rules that
    ask for the same share them."""
    of_all = {(policy.name, policy.by): policy for policy in settings.policies("rule")}
    healthy_after, lease = _healthy_after(settings, agent=False), span(settings.exclusive.lease_seconds)
    sets: dict[tuple[object, ...], tuple[AnyPolicy, ...]] = {}
    policies: dict[str, tuple[AnyPolicy, ...]] = {}
    for rule in rules:
        asked = (rule.deadline, rule.runs_max, rule.pace, rule.runs_again)
        if asked not in sets:
            when = RestartWhen.ON_FAILURE if rule.runs_again else RestartWhen.NEVER
            own: list[AnyPolicy] = [
                _restart(settings, healthy_after, when),
                Deadline(lasts_max=rule.deadline),
                Exclusive(runs_max=rule.runs_max, lease=lease),
            ]
            if rule.pace is not None:
                own.append(Rate(starts_max=rule.pace.starts, window=rule.pace.window))
            sets[asked] = tuple((of_all | {(policy.name, policy.by): policy for policy in own}).values())
        policies[rule.name] = sets[asked]
    return policies


def get_tier_limit(tier: str | None, settings: Settings | None = None) -> int:
    """What a session of that tier may cost, in millionths; by the settings that are found, if none are given. An
    unknown tier gets what no tier gets, with a warning."""
    budget = (settings or load()).budget
    if tier is not None and tier not in budget.tiers:
        known = ", ".join(budget.tiers)
        log.warning("unknown tier %r: it gets %s; known are %s", tier, budget.max_cost_per_session, known)
    return micro(budget.tiers.get(tier or "", budget.max_cost_per_session))


def _everyone(settings: Settings, kind: str) -> tuple[AnyPolicy, ...]:
    agent = kind == "agent"
    healthy_after = _healthy_after(settings, agent=agent)
    breakers = [_breaker(settings, by) for by in ("fleet", *settings.circuit_breaker.labels)]
    manuals = [Manual(by=by) for by in ("unit", "fleet", "user", "tree")]
    safety = settings.safety
    return (
        _cooldown(settings, healthy_after, agent=agent),
        Quarantine(
            failures_max=settings.quarantine.max_failures_before_quarantine,
            healthy_after=healthy_after,
        ),
        *breakers,
        Storm(
            failures_max=safety.global_failure_threshold,
            window=span(safety.global_failure_window_seconds),
            share=safety.global_failure_share or 0.0,
            boots_max=safety.max_boots,
            while_running=safety.storm_while_running,
        ),
        _restart(settings, healthy_after),
        Restart(
            restarts_max=settings.restart_policy.max_total_restarts_per_hour, row_max=0, over=Verb.HOLD, by="fleet"
        ),
        _flapping(settings, kind),
        Exclusive(lease=span(settings.exclusive.lease_seconds)),
        *manuals,
        Question(),
        Revision(changes_max=safety.max_changes_per_day),
        Clock(back_max=span(safety.clock_back_seconds), ahead_max=span(safety.clock_ahead_days * 86400)),
        Reservations(),
        *_shared_budgets(settings),
    )


def _work(settings: Settings, kind: str, tier: str | None) -> tuple[AnyPolicy, ...]:
    """A graph or session is a piece of work: what bounds it is counted by unit, and so goes on over its resumes."""
    graph, recovery = settings.graph, settings.daemon.session_recovery
    return (
        Limit(most=graph.recursion_limit, by="unit"),
        Rounds(most=graph.max_rounds, by="unit"),
        Convergence(above=graph.convergence_threshold, agreement_min=graph.consensus_threshold),
        _stall(settings),
        Deadline(lasts_max=span(graph.timeout_seconds)),
        Budget(limit=get_tier_limit(tier, settings), kept_back=micro(settings.budget.kept_back), by="unit"),
        resume_limit(recovery.max_resume_attempts if recovery.enabled else 0, forgives=recovery.forgive_progress),
        Session(pauses=span(recovery.pause_seconds), of=kind),
        # Its own money is above.
        *(budget for budget in _own_budgets(settings) if (budget.meter, budget.by) != (MONEY, "unit")),
    )


def _healthy_after(settings: Settings, *, agent: bool) -> Span:
    """For agents it is off: the same failure six times in a row calls a person, however long each run lasted."""
    quarantine = settings.quarantine
    if agent:
        return 0
    if quarantine.healthy_after_seconds is not None:
        return span(quarantine.healthy_after_seconds)
    return span(quarantine.auto_reset_after_hours * 3600)


def _cooldown(settings: Settings, healthy_after: Span, *, agent: bool) -> Cooldown:
    restart = settings.restart_policy
    ladder = () if agent else tuple(span(rung) for rung in settings.quarantine.cooldown_ladder_seconds)
    return Cooldown(
        ladder=ladder,
        first=span(restart.initial_backoff_seconds),
        factor=restart.backoff_multiplier,
        longest=span(restart.max_backoff_seconds),
        jitter=restart.jitter,
        healthy_after=healthy_after,
        step_forgives=agent,
    )


def _breaker(settings: Settings, by: str) -> Breaker:
    breaker = settings.circuit_breaker
    return Breaker(
        failures_max=breaker.failure_threshold,
        window=span(breaker.window_seconds),
        units_min=breaker.min_units,
        recovery=span(breaker.recovery_timeout_seconds),
        trials_max=breaker.max_trials,
        successes_min=breaker.success_threshold,
        by=by,
    )


def _restart(settings: Settings, healthy_after: Span, when: RestartWhen = RestartWhen.ON_FAILURE) -> Restart:
    restart = settings.restart_policy
    restarts = settings.supervisor.enabled and restart.enabled and when is not RestartWhen.NEVER
    return Restart(
        always=restarts and when is RestartWhen.ALWAYS,
        on_error=restarts and restart.restart_on_error,
        on_timeout=restarts and restart.restart_on_timeout,
        on_starved=restarts and restart.restart_on_resource_exhaustion,
        # Where nothing is restarted by itself, what starved waits until a person starts it.
        starved_wait=span(restart.starved_wait_seconds) if restarts else FOREVER,
        restarts_max=restart.max_restarts_per_hour,
        row_max=restart.max_restarts_in_a_row,
        healthy_after=healthy_after,
    )


def _flapping(settings: Settings, kind: str, *, clean_counts: bool = False) -> Flapping:
    """A rule waits by its ladder and by nothing else; what flaps is halted all the same."""
    crash, waits = settings.crash_policy, kind != "rule"
    return Flapping(
        window=span(crash.flap_window_seconds),
        exits_max=crash.flap_threshold,
        flaps_max=crash.halt_threshold,
        delay=span(crash.transient_delay_seconds) if waits else 0,
        flap_delay=span(crash.flapping_delay_seconds) if waits else 0,
        kept_max=crash.ring_buffer_cap,
        clean_counts=clean_counts,
    )


def _all_rules(settings: Settings) -> tuple[AnyPolicy, ...]:
    """What bounds all rules together. Their runs have the label."""
    rule, lease = settings.rule, span(settings.exclusive.lease_seconds)
    return (
        Rate(starts_max=rule.max_runs_per_minute, window=MINUTE, by=RUNTIME),
        Exclusive(runs_max=rule.max_running, lease=lease, name="running", by=RUNTIME),
    )


def _loop(settings: Settings) -> Loop:
    return Loop(repeats_max=settings.safety.max_loop_iterations, window=span(settings.safety.loop_window_seconds))


def _stall(settings: Settings) -> Stall:
    nudge_at, refuse_at, stop_at = settings.stall.scores
    polling_max = span(settings.stall.polling_seconds)
    return Stall(
        nudge_at=nudge_at,
        refuse_at=refuse_at,
        stop_at=stop_at,
        returned=settings.stall.returned,
        repeats_max=settings.stall.circles,
        polling_max=polling_max,
    )


def _anomaly(settings: Settings) -> Anomaly:
    anomaly = settings.anomaly
    return Anomaly(
        factor=anomaly.factor,
        every=span(anomaly.period_seconds),
        periods_min=anomaly.min_periods,
        least=micro(anomaly.min_amount),
    )


def _own_budgets(settings: Settings) -> tuple[Budget, ...]:
    """What each unit, and each of its runs, may spend."""
    return tuple(budget for budget in _all_budgets(settings) if budget.by in ("run", "unit"))


def _shared_budgets(settings: Settings) -> tuple[Budget, ...]:
    return tuple(budget for budget in _all_budgets(settings) if budget.by not in ("run", "unit"))


def _all_budgets(settings: Settings) -> Iterator[Budget]:
    """Of money and of every other meter. Runs and trees are pieces of work and have no periods; units, users and fleets
    live on."""
    money = settings.budget
    for by in BUDGETS_BY:
        amount: Decimal | None = getattr(money, f"per_{by}")
        if amount is not None:
            yield _budget(MONEY, by, micro(amount), money.period)
    for meter, budget in money.meters.items():
        for by in BUDGETS_BY:
            whole: int | None = getattr(budget, f"per_{by}")
            if whole is not None:
                yield _budget(meter, by, whole, budget.period)


def _budget(meter: str, by: str, limit: int, period: str) -> Budget:
    every = 0 if by in ("run", "tree") else PERIODS[period]
    over = Verb.WAIT if every else Verb.FINISH
    return Budget(meter=meter, limit=limit, every=every, over=over, by=by, name=budget_name(meter))


def budget_name(meter: str) -> str:
    """The name of the policy that is a budget of that meter: two of one scope share no state."""
    return Budget().name if meter == MONEY else f"{Budget().name}_{meter}"
