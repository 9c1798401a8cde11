"""Many units for days: each is bounded, none holds its siblings, and nobody's sleep delays another."""

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Cause
from flyball.core.time import DAY, FOREVER, HOUR, MINUTE, SECOND, Span
from flyball.policies import Breaker, Storm
from flyball.store.memory import MemoryStore
from flyball.testing.simulator import (
    Life,
    Plan,
    Report,
    Unit,
    default_policies,
    failing,
    faulty,
    simulate,
    with_long_leases,
)

STARTS_MAX = 51


def hundred(seed: int, days: int) -> Report:
    units = [faulty(f"unit-{n}", seed) for n in range(100)]
    policies = with_long_leases(default_policies())
    return simulate(policies, MemoryStore(), Plan(units=units, lasts_max=days * DAY, starts_max=100_000))


def check_fleet(report: Report) -> None:
    """What holds for every fleet: no more failing starts in a row than the bound, and no hold but a unit's own."""
    for name, fate in report.fates.items():
        row = most = 0
        for run in report.runs(name):
            row = 0 if run.cause is Cause.DONE else row + 1
            most = max(most, row)
        assert most <= STARTS_MAX
        if fate.held:
            assert "storm" not in fate.held_by
            assert most >= 5  # flapping also counts the failing exits before a clean one
    instants = [what.at for what in report.history]
    assert instants == sorted(instants)


@pytest.mark.parametrize("seed", range(3))
def test_hundred_units(seed: int) -> None:
    """A hundred units with random faults for three days: some are held, each by its own failures, most live on."""
    report = hundred(seed, days=3)
    check_fleet(report)
    held = sum(fate.held for fate in report.fates.values())
    assert 0 < held < 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 106))
def test_hundred_units_for_a_month(seed: int) -> None:
    """The same for thirty days."""
    check_fleet(hundred(seed, days=30))


def test_same_seed_same_history() -> None:
    """There is no dice and no clock in it but the seed: the same plan has the same history."""
    assert hundred(7, days=1).history == hundred(7, days=1).history
    assert hundred(7, days=1).history != hundred(8, days=1).history


TRIED_FIRST = ("sound-0", "sound-1", "sound-2")


def test_a_hold_never_holds_its_siblings() -> None:
    """Ten broken units are all held; ten well ones beside them are started each hour as if they were alone. Only the
    breaker, which the broken ones have opened, speaks for the fleet: it tries three of the well ones first, so that the
    other seven miss their first hour."""

    def well(_: int, __: Span) -> Life:
        return Life(uptime=MINUTE, cause=Cause.DONE)

    broken = [Unit(name=f"broken-{n}", lives=failing(3 * SECOND)) for n in range(10)]
    sound = [Unit(name=f"sound-{n}", lives=well, every=HOUR, starts_at=2 * HOUR) for n in range(10)]
    plan = Plan(units=[*broken, *sound], lasts_max=2 * DAY)
    report = simulate(with_long_leases(default_policies()), MemoryStore(), plan)
    for name, fate in report.fates.items():
        assert fate.held == name.startswith("broken")
        if name.startswith("sound"):
            assert fate.starts == (47 if name in TRIED_FIRST else 46)


def test_sleep_of_one_never_delays_another() -> None:
    """Beside a unit that waits half an hour, another lives exactly as it does alone."""

    def starts_of(units: list[Unit]) -> list[int]:
        plan = Plan(units=units, lasts_max=DAY)
        policies = [policy for policy in default_policies() if not isinstance(policy, Breaker | Storm)]
        return [run.started for run in simulate(with_long_leases(policies), MemoryStore(), plan).runs("watched")]

    watched = Unit(name="watched", lives=failing(7 * MINUTE, changing=True))
    alone = starts_of([watched])
    beside = starts_of([Unit(name="a", lives=failing(SECOND)), watched, Unit(name="b", lives=failing(0))])
    assert len(alone) > 10
    assert alone == beside


def test_cascade_opens_the_breaker_and_recovers() -> None:
    """What twenty units share is down for ten minutes: the breaker refuses starts meanwhile, and nobody is held."""
    outage = 10 * MINUTE

    def lives(_: int, at: Span) -> Life:
        return Life(uptime=2 * SECOND) if at < outage else Life(uptime=FOREVER)

    units = [Unit(name=f"unit-{n}", lives=lives, starts_at=n * SECOND) for n in range(20)]
    report = simulate(default_policies(), MemoryStore(), Plan(units=units, lasts_max=2 * HOUR))
    refused = [what for what in report.history if what.what == "start" and what.verb is Verb.WAIT]
    assert any("breaker" in what.by for what in refused)
    assert not report.held
    assert all(run.exited is None for name in report.fates for run in list(report.runs(name))[-1:])


def test_hourly_limit_of_the_fleet() -> None:
    """A thousand restarts within an hour over all units hold the fleet, though no unit is at its own limit."""
    units = [Unit(name=f"unit-{n}", lives=failing(SECOND, changing=True)) for n in range(400)]
    policies = [policy for policy in default_policies() if not isinstance(policy, Breaker | Storm)]
    report = simulate(with_long_leases(policies), MemoryStore(), Plan(units=units, lasts_max=HOUR))
    assert report.starts <= 400 + 1_000
    assert "restart" in report.held_by
