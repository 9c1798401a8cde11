"""What always fails is held after a bounded number of starts; what fails once a day is never held."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.core.event import Cause
from flyball.core.time import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Span
from flyball.store.memory import MemoryStore
from flyball.testing.simulator import (
    Life,
    Lives,
    Plan,
    Unit,
    bound_on_starts,
    default_policies,
    failing,
    failing_with,
    fate_of,
    simulate,
    with_long_leases,
)

STARTS_MAX = 51
"""Fifty restarts in a row, and the start before them: what the default settings promise."""

KINDS = ["process", "agent", "rule", "graph", "session"]
UPTIMES = [
    0,
    1,
    MILLISECOND,
    3 * SECOND,
    29 * SECOND,
    30 * SECOND,
    30 * SECOND + 1,
    45 * SECOND,
    60 * SECOND,
    6 * MINUTE,
    10 * MINUTE,
    6 * HOUR,
    DAY - MINUTE,
    DAY - 1,
]


def random_errors(kinds: int, seed: int, uptime: Span) -> Lives:
    return lambda n, _: Life(uptime=uptime, error=f"Error{random.Random(f'{seed}/{n}').randrange(kinds)}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("uptime", UPTIMES)
def test_always_fails(kind: str, uptime: Span) -> None:
    """A unit that always fails is held after at most 51 starts: same, changing, alternating and random errors."""
    policies = with_long_leases(default_policies(kind))
    for lives in (
        failing(uptime),
        failing(uptime, changing=True),
        failing_with(["A", "B"], uptime),
        failing_with([f"Error{n}" for n in range(11)], uptime),
        random_errors(5, 1, uptime),
        random_errors(40, 2, uptime),
    ):
        fate = fate_of(lives, policies)
        assert fate.held
        assert fate.starts <= STARTS_MAX


@pytest.mark.parametrize("changing", [False, True])
@pytest.mark.parametrize("uptime", [29 * SECOND, 10 * MINUTE, 6 * HOUR])
def test_always_fails_under_the_lease_that_is_set(uptime: Span, changing: bool) -> None:
    """The same with a lease that has to be renewed every minute: long leases in the other tests hide nothing."""
    fate = fate_of(failing(uptime, changing=changing), default_policies())
    patient = fate_of(failing(uptime, changing=changing), with_long_leases(default_policies()))
    assert fate == patient


@given(
    kind=st.sampled_from(KINDS),
    uptimes=st.lists(st.integers(0, DAY - 1), min_size=1, max_size=5),
    kinds=st.integers(1, 60),
    seed=st.integers(0, 1000),
)
@settings(max_examples=150, deadline=None)
def test_always_fails_at_any_uptime(kind: str, uptimes: list[Span], kinds: int, seed: int) -> None:
    """The same for uptimes that change from run to run, with errors in any order."""

    def lives(n: int, at: Span) -> Life:
        return random_errors(kinds, seed, uptimes[n % len(uptimes)])(n, at)

    fate = fate_of(lives, with_long_leases(default_policies(kind)))
    assert fate.held
    assert fate.starts <= STARTS_MAX


@given(uptime=st.one_of(st.integers(0, 2 * MINUTE), st.integers(0, DAY - 1)), changing=st.booleans())
@settings(max_examples=150, deadline=None)
def test_same_or_changing_error_at_any_uptime(uptime: Span, changing: bool) -> None:
    """With one error the sixth start is the last; with another each time, the fifty-first at the latest."""
    fate = fate_of(failing(uptime, changing=changing), with_long_leases(default_policies()))
    assert fate.held
    assert fate.starts <= STARTS_MAX if changing else fate.starts == 6


@pytest.mark.parametrize(
    ("uptime", "changing", "starts", "held_by"),
    [
        (0, False, 6, ("quarantine",)),
        (3 * SECOND, False, 6, ("quarantine",)),
        (6 * HOUR, False, 6, ("quarantine",)),
        (0, True, 7, ("flapping",)),
        (30 * SECOND, True, 7, ("flapping",)),
        (30 * SECOND + 1, True, 51, ("restart",)),
        (6 * HOUR, True, 51, ("restart",)),
    ],
)
def test_who_holds_it(uptime: Span, changing: bool, starts: int, held_by: tuple[str, ...]) -> None:
    """The same failure is quarantined, fast exits halt it, and whatever else fails runs out of restarts in a row."""
    fate = fate_of(failing(uptime, changing=changing), with_long_leases(default_policies()))
    assert (fate.starts, fate.held_by) == (starts, held_by)


@pytest.mark.parametrize(
    ("kind", "starts"), [("process", 51), ("agent", 51), ("rule", 51), ("graph", 4), ("session", 4)]
)
def test_bound_is_computed(kind: str, starts: int) -> None:
    """The bound that `flyball simulate` prints: fifty restarts in a row; for a piece of work, its three resumes."""
    assert bound_on_starts(default_policies(kind), MemoryStore).starts == starts


@pytest.mark.parametrize("changing", [False, True])
def test_fails_once_a_day(changing: bool) -> None:
    """A service that lives exactly a day and fails is started again for as long as it likes."""
    unit = Unit(name="unit", lives=failing(DAY, changing=changing))
    policies = with_long_leases(default_policies())
    report = simulate(policies, MemoryStore(), Plan(units=[unit], lasts_max=60 * DAY))
    assert not report.held
    assert report.starts == 60


@pytest.mark.parametrize("kind", ["process", "agent", "rule"])
def test_fails_once_in_a_day_of_successes(kind: str) -> None:
    """A unit that a trigger starts every hour, that is done 23 times and fails once, is never held, whatever it is."""

    def lives(n: int, _: Span) -> Life:
        return Life(uptime=MINUTE, cause=Cause.ERROR if n % 24 == 23 else Cause.DONE)

    unit = Unit(name="unit", lives=lives, every=HOUR)
    report = simulate(default_policies(kind), MemoryStore(), Plan(units=[unit], lasts_max=60 * DAY))
    assert not report.held
    assert report.starts >= 60 * 24


def test_an_agent_that_fails_once_a_day_is_held() -> None:
    """For agents a long life is no success: the sixth same failure calls a person, however long each run lasted."""
    fate = fate_of(failing(DAY), with_long_leases(default_policies("agent")))
    assert (fate.starts, fate.held_by) == (6, ("quarantine",))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_always_fails_with_random_uptimes(seed: int) -> None:
    """Two hundred random units for each seed: the bound holds for all of them."""
    dice = random.Random(seed)
    for number in range(200):
        usual = 10 ** dice.uniform(0, 10.9)
        kinds = dice.randrange(1, 80)

        def lives(n: int, _: Span, usual: float = usual, kinds: int = kinds, number: int = number) -> Life:
            run = random.Random(f"{seed}/{number}/{n}")
            uptime = min(round(usual * run.uniform(0.2, 1.8)), DAY - 1)
            return Life(uptime=uptime, error=f"Error{run.randrange(kinds)}")

        fate = fate_of(lives, with_long_leases(default_policies(dice.choice(KINDS))))
        assert fate.held
        assert fate.starts <= STARTS_MAX
