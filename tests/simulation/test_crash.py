"""kill -9 of the supervisor gives nothing a free attempt, and takes no hold away."""

import random

import pytest

from flyball.core.event import Released, Work
from flyball.core.time import DAY, FOREVER, HOUR, MINUTE, SECOND, Span
from flyball.store.memory import MemoryStore
from flyball.testing.simulator import (
    Crash,
    Life,
    Plan,
    Report,
    Unit,
    default_policies,
    failing,
    simulate,
    with_long_leases,
)

STARTS_MAX = 51


def killed(kills: frozenset[int], uptime: Span = 3 * SECOND, *, changing: bool = False, down: Span = MINUTE) -> Report:
    plan = Plan(
        units=[Unit(name="unit", lives=failing(uptime, changing=changing))], kills=kills, down=down, starts_max=200
    )
    return simulate(with_long_leases(default_policies()), MemoryStore(), plan)


@pytest.mark.parametrize("event", range(1, 14))
def test_killed_once_after_any_event(event: int) -> None:
    """Wherever it is killed, a unit that always fails is held, and not started more often than the bound."""
    report = killed(frozenset({event}))
    fate = report.fates["unit"]
    assert report.boots == 2
    assert fate.held
    assert fate.starts <= 7  # at most one of them is lost, which is another failure than the six


@pytest.mark.parametrize("changing", [False, True])
@pytest.mark.parametrize("uptime", [0, 45 * SECOND, 6 * HOUR])
def test_killed_again_and_again(uptime: Span, changing: bool) -> None:
    """Killed after every third event for ever, ten minutes apart: the starts stay below the bound."""
    report = killed(frozenset(range(3, 3_000, 3)), uptime, changing=changing, down=10 * MINUTE)
    fate = report.fates["unit"]
    assert report.boots > 2
    assert fate.held
    assert fate.starts <= STARTS_MAX


def test_a_start_that_was_granted_counts_though_nothing_was_started() -> None:
    """Killed right after each start is granted: the runs are lost, lost runs are failures, and it is held at six."""
    report = killed(frozenset(range(2, 200, 2)), down=10 * MINUTE)
    fate = report.fates["unit"]
    assert fate.held
    assert fate.starts == 6
    assert {what.cause for what in report.history if what.what == "exited"} == {"lost"}


@pytest.mark.parametrize("seed", range(6))
def test_killed_at_random(seed: int) -> None:
    """A fleet whose supervisor is killed at random instants: every unit's starts stay below the bound."""
    dice = random.Random(seed)
    units = [
        Unit(name=f"unit-{n}", lives=failing(round(10 ** dice.uniform(0, 10)), changing=dice.random() < 0.5))
        for n in range(6)
    ]
    kills = frozenset(dice.randrange(1, 600) for _ in range(30))
    plan = Plan(units=units, kills=kills, down=10 * MINUTE, starts_max=2_000)
    report = simulate(with_long_leases(default_policies()), MemoryStore(), plan)
    assert all(fate.held and fate.starts <= STARTS_MAX for fate in report.fates.values())


@pytest.mark.parametrize("seed", range(12))
def test_steps_resumes_and_money_survive_kills(seed: int) -> None:
    """A session whose supervisor is killed at random events, with every granted step taken as made at its worst case:
    never more than its 55 steps, its dollar and its three resumes."""
    dice = random.Random(seed)
    cheap = Work(call="c{n}", result="r{n}", reserved={"usd": 1_000}, used={"usd": 500})
    dear = Work(call="d{n}", result="s{n}", reserved={"usd": 90_000}, used={"usd": 60_000})
    steps = (cheap, dear) if seed % 2 else (cheap,)
    unit = Unit(name="unit", lives=lambda *_: Life(uptime=FOREVER, steps=steps))
    kills = frozenset(dice.randrange(2, 130) for _ in range(3))
    plan = Plan(units=[unit], kills=kills, down=10 * MINUTE)
    fate = simulate(default_policies("session"), MemoryStore(), plan).fates["unit"]
    assert fate.ended is not None
    assert 0 < fate.steps <= 55
    assert 0 < fate.spent["usd"] <= 1_000_000
    assert 1 <= fate.starts <= 4


def test_a_hold_survives_the_supervisor() -> None:
    """Held, killed, booted: it asks, and it is still held; a person's release is what lets it start again."""
    released = Released(unit="unit", by="a person")
    unit = Unit(name="unit", lives=failing(3 * SECOND))
    crashes = (Crash(2 * HOUR), Crash(3 * HOUR))
    policies = with_long_leases(default_policies())
    held = simulate(policies, MemoryStore(), Plan(units=[unit], crashes=crashes))
    assert (held.boots, held.starts, held.held) == (3, 6, True)
    freed = simulate(policies, MemoryStore(), Plan(units=[unit], crashes=crashes, orders=((4 * HOUR, released),)))
    assert (freed.starts, freed.held) == (12, True)


def test_the_store_outlives_the_process() -> None:
    """A second simulation on the same store goes on where the first one was cut off. The run that was live then is
    lost, which is a failure of another kind; the three before it count."""
    store, policies = MemoryStore(), with_long_leases(default_policies())
    unit = Unit(name="unit", lives=failing(3 * SECOND))
    first = simulate(policies, store, Plan(units=[unit], starts_max=4))
    second = simulate(policies, store, Plan(units=[unit]))
    assert (first.starts, second.starts) == (4, 3)
    assert second.held


def test_many_boots_pause_the_fleet() -> None:
    """Something that restarts the supervisor itself again and again is a storm."""
    crashes = tuple(Crash(n * 20 * SECOND, SECOND) for n in range(1, 10))
    plan = Plan(units=[Unit(name="unit", lives=failing(DAY))], crashes=crashes, lasts_max=HOUR)
    report = simulate(default_policies(), MemoryStore(), plan)
    assert "storm" in report.held_by
