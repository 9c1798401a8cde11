"""Thresholds that can never be reached: what the numbers multiply to."""

from pathlib import Path
from typing import Any

import pytest

from flyball.config import Settings, load
from flyball.core.event import Cause, Exited, Released, Start
from flyball.core.time import MINUTE
from flyball.governor import Governor
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock


def _set(**sections: Any) -> Settings:
    return Settings.model_validate(sections)


def test_defaults_need_no_advice() -> None:
    """The defaults are all reachable."""
    assert Settings().warnings() == []


@pytest.mark.parametrize(
    ("sections", "key", "says"),
    [
        (
            {"quarantine": {"max_failures_before_quarantine": 3}},
            "quarantine.cooldown_ladder_seconds",
            "of its 5 waits the last 3 can never come",
        ),
        ({"quarantine": {"cooldown_ladder_seconds": [5, 1]}}, "quarantine.cooldown_ladder_seconds", "shorter"),
        (
            {"quarantine": {"healthy_after_seconds": 60}},
            "quarantine.healthy_after_seconds",
            "restarted 10 times an hour",
        ),
        (
            {"quarantine": {"healthy_after_seconds": 100_000}},
            "quarantine.healthy_after_seconds",
            "longer than the 24 hours",
        ),
        (
            {"quarantine": {"max_failures_before_quarantine": 52}},
            "quarantine.max_failures_before_quarantine",
            "held at 51 failing runs in a row",
        ),
        (
            {"crash_policy": {"halt_threshold": 50}},
            "crash_policy.halt_threshold",
            "50 flaps take 52 failing runs, which are never reached",
        ),
        ({"crash_policy": {"flapping_delay_seconds": 1}}, "crash_policy.flapping_delay_seconds", "waits less"),
        (
            {"restart_policy": {"max_restarts_per_hour": 21, "max_total_restarts_per_hour": 20}},
            "restart_policy.max_restarts_per_hour",
            "all units together are held at 20",
        ),
        (
            {"crash_policy": {"transient_delay_seconds": 400, "flapping_delay_seconds": 400}},
            "restart_policy.max_restarts_per_hour",
            "at most 9 fit into an hour",
        ),
        (
            {"safety": {"global_failure_threshold": 1000}},
            "safety.global_failure_threshold",
            "never make 1001 failures within 300 s",
        ),
        (
            {"circuit_breaker": {"failure_threshold": 1001}},
            "circuit_breaker.failure_threshold",
            "never make 1001 failures",
        ),
        ({"circuit_breaker": {"min_units": 6}}, "circuit_breaker.failure_threshold", "5 failures never open it"),
        ({"graph": {"recursion_limit": 30}}, "graph.max_rounds", "7 rounds take about 31 steps"),
        ({"retry": {"max_attempts": 10}}, "retry.max_attempts", "the waits before attempt 10 alone last 300 s"),
        (
            {"retry": {"max_attempts": 150, "base_delay_seconds": 0.01, "exponential_base": 1}},
            "retry.max_attempts",
            "attempt 100 is a loop already",
        ),
        ({"budget": {"per_user": 5}}, "budget.tiers.enterprise", "10.00 is never reached: per_user allows 5"),
        (
            {"budget": {"per_tree": "0.75", "tiers": {"pro": "0.60", "enterprise": "0.60"}}},
            "budget.max_cost_per_session",
            "1.00",
        ),
    ],
)
def test_advice(sections: dict[str, Any], key: str, says: str) -> None:
    """A threshold behind another one is told of, by its key and with the numbers."""
    (warning,) = _set(**sections).warnings()
    assert warning.startswith(f"{key}: ")
    assert says in warning


@pytest.mark.parametrize(
    "sections",
    [
        {"quarantine": {"cooldown_ladder_seconds": [1, 1], "max_failures_before_quarantine": 3}},
        {"quarantine": {"max_failures_before_quarantine": 51}},
        {"quarantine": {"healthy_after_seconds": 360}},
        {"crash_policy": {"halt_threshold": 49}},
        {"crash_policy": {"transient_delay_seconds": 30}},
        {"restart_policy": {"max_restarts_per_hour": 20, "max_total_restarts_per_hour": 20}},
        {"safety": {"global_failure_threshold": 999}},
        {"safety": {"global_failure_threshold": 1500, "global_failure_window_seconds": 3601}},
        {"safety": {"global_failure_threshold": 5000, "global_failure_share": 0.5}},
        {"circuit_breaker": {"min_units": 5}},
        {"graph": {"max_rounds": 15}},
        {"retry": {"max_attempts": 9}},
        {"budget": {"per_user": 10}},
    ],
)
def test_no_advice_just_within(sections: dict[str, Any]) -> None:
    """What can just be reached is not told of."""
    assert _set(**sections).warnings() == []


def test_advice_has_its_place(tmp_path: Path) -> None:
    """Advice about a value that stands in a file points at it."""
    file = tmp_path / "f.yaml"
    file.write_text("circuit_breaker:\n  failure_threshold: 2\n")
    assert load(file, env={}).warnings()[0].startswith(f"{file}:2:22: circuit_breaker.failure_threshold: ")


@pytest.mark.parametrize("kind", ["process", "rule"])
@pytest.mark.parametrize(("most", "codes"), [(51, {"quarantined", "restarts_in_a_row"}), (52, {"restarts_in_a_row"})])
def test_what_is_said_of_restarts_in_a_row_is_so(kind: str, most: int, codes: set[str]) -> None:
    """The advice agrees with the policies: with 51 a quarantine comes just in time, with 52 it never comes."""
    settings = _set(
        quarantine={"max_failures_before_quarantine": most, "cooldown_ladder_seconds": [1]},
        crash_policy={"flap_window_seconds": 0.001},
    )
    clock = FakeClock()
    governor = Governor(settings.policies(kind), MemoryStore(), clock)
    for _ in range(51):
        clock.move(10 * MINUTE)
        governor.submit(Released(scope="fleet"))
        assert governor.submit(Start(unit="u", run="r", again=True)).proceeds
        clock.move(MINUTE)
        governor.submit(Exited(unit="u", run="r", cause=Cause.ERROR, fingerprint="f"))
    clock.move(10 * MINUTE)
    assert set(governor.look(Start(unit="u", run="r", again=True)).codes) == codes
