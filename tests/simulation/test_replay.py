"""Replaying a journal under the same settings gives the same decisions, bit for bit."""

from dataclasses import replace

import pytest

from flyball.core.codec import encode
from flyball.core.panel import Panel
from flyball.core.time import DAY, HOUR, MINUTE, SECOND
from flyball.policies import Quarantine, Storm
from flyball.replay import replay
from flyball.runtimes.scenarios import SCENARIOS, Options
from flyball.store.memory import MemoryStore
from flyball.testing.simulator import Plan, Unit, default_policies, failing, faulty, simulate, with_long_leases

ENTRIES_MAX = 1_000_000


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "random-faults"])
def test_every_scenario(name: str) -> None:
    """Whatever happens in a scenario, every decision of its journal comes out the same again."""
    scenario = SCENARIOS[name]
    panel = Panel(default_policies(scenario.kind))
    store = MemoryStore()
    simulate(panel, store, scenario.plan(Options(days=3 if name == "fails-once-a-day" else None)))
    replayed = list(replay(panel, store.base(), store.entries(limit=ENTRIES_MAX)))
    assert replayed
    for again in replayed:
        assert again.agrees
        assert encode(again.decision) == encode(again.body.decision)


@pytest.mark.parametrize("seed", range(3))
def test_random_fleet_with_kills(seed: int) -> None:
    """The same for a fleet with random faults whose supervisor is killed now and then."""
    calm = [Storm(failures_max=100, boots_max=100) if isinstance(p, Storm) else p for p in default_policies()]
    panel = Panel(with_long_leases(calm))
    store = MemoryStore()
    units = [faulty(f"unit-{n}", seed) for n in range(30)]
    plan = Plan(units=units, kills=frozenset(range(50, 2_000, 97)), down=10 * MINUTE, lasts_max=2 * DAY)
    report = simulate(panel, store, plan)
    replayed = list(replay(panel, store.base(), store.entries(limit=ENTRIES_MAX)))
    assert report.boots > 5
    assert len(replayed) > 500
    assert all(again.agrees for again in replayed)


def test_other_settings_are_seen() -> None:
    """Replay under another limit shows where it would have decided otherwise: agreement is not a matter of course."""
    policies = with_long_leases(default_policies())
    store = MemoryStore()
    simulate(policies, store, Plan(units=[Unit(name="unit", lives=failing(3 * SECOND))], lasts_max=2 * HOUR))
    stricter = [replace(policy, failures_max=3) if isinstance(policy, Quarantine) else policy for policy in policies]
    replayed = list(replay(Panel(stricter), store.base(), store.entries(limit=ENTRIES_MAX)))
    assert not all(again.agrees for again in replayed)
