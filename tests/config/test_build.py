"""From settings to policies: the table of safeguards.md, and that each setting does something."""

from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from flyball.config import DEFAULT, Settings, get_tier_limit
from flyball.config.build import KINDS
from flyball.core.decision import Verb
from flyball.core.panel import Panel
from flyball.core.policy import AnyPolicy
from flyball.core.time import DAY, FOREVER, HOUR, MINUTE, SECOND
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

FLEET_RESTART = Restart(restarts_max=1000, row_max=0, over=Verb.HOLD, by="fleet")
SHARED = (
    Breaker(),
    Storm(),
    FLEET_RESTART,
    Flapping(),
    Exclusive(),
    Manual(),
    Manual(by="fleet"),
    Manual(by="user"),
    Manual(by="tree"),
    Question(),
    Revision(),
    Clock(),
    Reservations(),
)
EVERYONE = (Cooldown(), Quarantine(), Restart(), *SHARED)
AGENT = (
    Cooldown(ladder=(), step_forgives=True, healthy_after=0),
    Quarantine(healthy_after=0),
    Restart(healthy_after=0),
)
WORK = (
    Limit(by="unit"),
    Rounds(by="unit"),
    Convergence(),
    Stall(),
    Deadline(),
    Budget(by="unit"),
    resume_limit(),
)

TABLE: dict[str, tuple[AnyPolicy, ...]] = {
    "process": EVERYONE,
    "agent": (*AGENT, *SHARED, Loop(), Stall(), Anomaly()),
    "rule": (
        *(policy for policy in EVERYONE if not isinstance(policy, Flapping)),
        Flapping(delay=0, flap_delay=0),
        Loop(),
        Deadline(lasts_max=300 * SECOND),
        Rate(by="runtime"),
        Exclusive(name="running", by="runtime", runs_max=10),
    ),
    "graph": (*EVERYONE, *WORK, Session(of="graph")),
    "session": (*EVERYONE, *WORK, Session()),
}


def _set(**sections: Any) -> Settings:
    return Settings.model_validate(sections)


def _only(policies: tuple[AnyPolicy, ...], kind: type, by: str | None = None) -> Any:
    (found,) = [policy for policy in policies if isinstance(policy, kind) and by in (None, policy.by)]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_are_those_of_the_policies(kind: str) -> None:
    """Empty settings give the policies of the table, each with its own defaults: the two cannot drift apart."""
    policies = Settings().policies(kind)
    assert len(policies) == len(TABLE[kind])
    for policy in TABLE[kind]:
        assert policy in policies


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_a_good_panel(kind: str) -> None:
    """No two policies share a state, also with everything switched on that can be."""
    everywhere = {"per_run": 2, "per_unit": 4, "per_user": 5, "per_fleet": 50, "per_tree": 7}
    settings = _set(
        circuit_breaker={"labels": ["provider", "user"]},
        budget={**everywhere, "meters": {"tokens": everywhere, "scrip": everywhere}},
    )
    panel = Panel(settings.policies(kind))
    its_own_money = kind in ("graph", "session")
    assert len(panel.policies_of("u")) == len(TABLE[kind]) + 2 + 15 - its_own_money


def test_unknown_kind() -> None:
    """An unknown kind is an error that lists the known ones, not a unit without safeguards."""
    with pytest.raises(ValueError, match="process, agent, rule, graph, session"):
        Settings().policies("proces")


OTHER_VALUES: dict[str, Any] = {
    "quarantine.cooldown_ladder_seconds": [2],
    "rule.max_runs_per_minute": 999,
    "quarantine.healthy_after_seconds": 600.0,
    "circuit_breaker.labels": ["provider"],
    "safety.global_failure_share": 0.5,
    "stall.profile": "cautious",
    "stall.nudge_at": 3,
    "stall.refuse_at": 6,
    "stall.stop_at": 9,
    "budget.per_run": "3.00",
    "budget.per_unit": "3.00",
    "budget.per_user": "3.00",
    "budget.per_fleet": "3.00",
    "budget.per_tree": "3.00",
    "budget.kept_back": "0.25",
}
USED_ELSEWHERE = {
    "retry.max_attempts": "the runtime of rules",
    "retry.base_delay_seconds": "the runtime of rules",
    "retry.exponential_base": "the runtime of rules",
    "rule.max_queued": "the queue of rules",
    "rule.listen": "webhooks",
    "rule.auto_reload": "the daemon",
    "rules_dir": "the reader of settings",
    "store": "the store that is opened",
    **{
        value.key: f"the plan of {section}"
        for value in Settings().effective()
        for section in ("alerts", "host", "http", "telegram")
        if value.key.startswith(f"{section}.")
    },
    "logs.format": "the daemon's log",
    "traces.exporter": "the daemon",
    "journal.max_entries": "the store",
    "journal.max_sessions": "the guard of a program",
    "prices.unknown": "the prices of models",
    "prices.ceiling_per_million_tokens": "the prices of models",
}
KEYS = [value.key for value in Settings().effective()]


def _another(key: str, value: Any) -> Any:
    if key in OTHER_VALUES:
        return OTHER_VALUES[key]
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return str(Decimal(value) * 2)
    return value * 0.5 if isinstance(value, float) else value + 1


@pytest.mark.parametrize("key", [key for key in KEYS if key not in USED_ELSEWHERE])
def test_every_setting_has_an_effect(key: str) -> None:
    """Each setting changes the policies of some kind of unit: none is decoration."""
    values: Any = {key: value for key, value, _ in Settings().effective()}
    given: Any = "day" if key == "budget.period" else _another(key, values[key])
    for name in reversed(key.split(".")):
        given = {name: given}
    if key == "budget.period":
        given = {"budget": {"period": "day", "per_user": 1}}
        before = _set(budget={"per_user": 1})
    else:
        before = Settings()
    after = Settings.model_validate(given)
    tier = key.removeprefix("budget.tiers.") if "tiers" in key else None
    assert any(before.policies(kind, tier=tier) != after.policies(kind, tier=tier) for kind in KINDS)


@pytest.mark.parametrize("by", ["run", "unit", "user", "tree", "fleet"])
@pytest.mark.parametrize("meter", ["usd", "tokens"])
def test_budgets(by: str, meter: str) -> None:
    """Of money and of any other meter, for each scope; runs and trees are pieces of work and have no periods."""
    given: Any = {f"per_{by}": 3, "period": "day"}
    settings = _set(budget=given if meter == "usd" else {"meters": {meter: given}})
    budget = _only(settings.policies("agent"), Budget)
    limit = 3_000_000 if meter == "usd" else 3
    assert (budget.meter, budget.by, budget.limit) == (meter, by, limit)
    assert budget.name == ("budget" if meter == "usd" else "budget_tokens")
    periods = by not in ("run", "tree")
    assert (budget.every, budget.over) == ((DAY, Verb.WAIT) if periods else (0, Verb.FINISH))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"budget": {"meters": {"usd": {"per_run": 5}}}}, "money has its keys in `budget` itself"),
        ({"budget": {"meters": {"My Tokens": {"per_run": 5}}}}, "small letters"),
        ({"budget": {"meters": {"tokens": {"per_run": 0}}}}, "greater than or equal to 1"),
        ({"budget": {"meters": {"tokens": {"per_run": 1.5}}}}, "integer"),
        ({"budget": {"meters": {"tokens": {"per_rum": 5}}}}, "Extra inputs"),
        ({"budget": {"per_unit": 0}}, "0 would let nothing run"),
        ({"prices": {"models": {"m": {"input": 1}}}}, "needs both"),
        ({"prices": {"ceiling_per_million_tokens": 0}}, "would make unknown models free"),
    ],
)
def test_budgets_that_make_no_sense(given: Any, says: str) -> None:
    """Refused, with why."""
    with pytest.raises(ValidationError, match=says):
        Settings.model_validate(given)


@pytest.mark.parametrize("section", ["supervisor", "restart_policy"])
def test_nothing_is_restarted_by_itself(section: str) -> None:
    """S3-13: with `enabled: false` no exit is followed by another run, whatever the other switches say."""
    switches = {} if section == "supervisor" else {"restart_on_resource_exhaustion": True}
    restart = _only(_set(**{section: {"enabled": False, **switches}}).policies(), Restart, "unit")
    assert not restart.on_error
    assert not restart.on_timeout
    assert not restart.on_starved
    assert restart.starved_wait == FOREVER


def test_breaker_of_a_label() -> None:
    """Each label that is named gets a breaker like the fleet's."""
    policies = _set(circuit_breaker={"labels": ["provider"], "failure_threshold": 7}).policies()
    assert _only(policies, Breaker, "provider") == Breaker(failures_max=7, by="provider")
    assert _only(policies, Breaker, "fleet") == Breaker(failures_max=7)


def test_empty_ladder_is_exponential() -> None:
    """Without a ladder the delays are those of the restart policy."""
    settings = _set(
        quarantine={"cooldown_ladder_seconds": []}, restart_policy={"initial_backoff_seconds": 1, "jitter": 0}
    )
    cooldown = _only(settings.policies(), Cooldown)
    assert cooldown == Cooldown(ladder=(), first=SECOND, jitter=0)


@pytest.mark.parametrize(
    ("given", "healthy_after"),
    [
        ({}, DAY),
        ({"auto_reset_after_hours": 1}, HOUR),
        ({"healthy_after_seconds": 600}, 10 * MINUTE),
        ({"auto_reset_after_hours": 1, "healthy_after_seconds": 0.5}, SECOND // 2),
    ],
)
def test_healthy_after(given: dict[str, float], healthy_after: int) -> None:
    """The shorter one for services wins; for agents it is off."""
    settings = _set(quarantine=given)
    for kind in (Cooldown, Quarantine):
        assert _only(settings.policies(), kind).healthy_after == healthy_after
        assert _only(settings.policies("agent"), kind).healthy_after == 0
    assert _only(settings.policies(), Restart, "unit").healthy_after == healthy_after
    assert _only(settings.policies("agent"), Restart, "unit").healthy_after == 0


@pytest.mark.parametrize(
    ("given", "scores"),
    [
        ({}, (4, 5, 6)),
        ({"profile": "cautious"}, (4, 5, 8)),
        ({"profile": "cautious", "stop_at": 10}, (4, 5, 10)),
        ({"nudge_at": 1, "refuse_at": 1, "stop_at": 1}, (1, 1, 1)),
    ],
)
def test_stall_profiles(given: dict[str, Any], scores: tuple[int, int, int]) -> None:
    """A profile gives the scores, and what is named wins over it."""
    stall = _only(_set(stall=given).policies("agent"), Stall)
    assert (stall.nudge_at, stall.refuse_at, stall.stop_at) == scores


@pytest.mark.parametrize(
    ("given", "most"),
    [({}, 3), ({"maxResumeAttempts": 0}, 0), ({"enabled": False}, 0), ({"max_resume_attempts": 5}, 5)],
)
def test_resumes(given: dict[str, Any], most: int) -> None:
    """S2-03, S2-04: three resumes, none if recovery is off, under either spelling."""
    assert resume_limit(most) in _set(daemon={"sessionRecovery": given}).policies("session")


@pytest.mark.parametrize(
    ("tier", "limit"),
    [(None, 1_000_000), ("free", 500_000), ("pro", 2_000_000), ("enterprise", 10_000_000), ("gold", 7_250_000)],
)
def test_tier_limits(tier: str | None, limit: int) -> None:
    """S1-29, S1-30, S1-32: a session of each tier has its budget; a tier of one's own does not push the others out."""
    settings = _set(budget={"tiers": {"gold": "7.25"}})
    assert get_tier_limit(tier, settings) == limit
    assert _only(settings.policies("session", tier=tier), Budget).limit == limit


def test_unknown_tier(caplog: pytest.LogCaptureFixture) -> None:
    """An unknown tier gets the default, with a warning that names it."""
    assert get_tier_limit("plutonium", Settings()) == 1_000_000
    assert "plutonium" in caplog.text


def test_shared_budgets() -> None:
    """Those of users and of the fleet turn with the period and wait for the next one; a tree's does not."""
    budget = {"per_user": "1.5", "per_fleet": 20, "per_tree": "0.25", "period": "day"}
    policies = _set(budget=budget).policies()
    assert _only(policies, Budget, "user") == Budget(limit=1_500_000, every=DAY, over=Verb.WAIT, by="user")
    assert _only(policies, Budget, "fleet") == Budget(limit=20_000_000, every=DAY, over=Verb.WAIT, by="fleet")
    assert _only(policies, Budget, "tree") == Budget(limit=250_000, by="tree")


def test_effective_defaults() -> None:
    """Settings that nobody gave all say so."""
    assert {value.origin for value in Settings().effective()} == {DEFAULT}
