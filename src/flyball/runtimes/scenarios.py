"""Named scenarios: units that misbehave in ways that have a name, and the bound on starts that settings give.

Everything random is thrown here, from a seed: the life of a unit's n-th run depends on the seed, the unit and n alone.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, NamedTuple

from flyball.core.event import Cause, Work
from flyball.core.policy import AnyPolicy
from flyball.core.time import DAY, FOREVER, HOUR, MILLISECOND, MINUTE, SECOND, Span
from flyball.policies import Exclusive, Restart
from flyball.runtimes.simulation import Crash, Life, Lives, Plan, Unit, simulate
from flyball.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a person may change about a scenario. None: as the scenario has it."""

    uptime: Span | None = None
    changing_error: bool = False
    days: float | None = None
    units: int | None = None
    seed: int = 0


class Scenario(NamedTuple):
    """A plan with a name."""

    does: str
    """One line for a person who has to choose."""
    kind: str
    """The kind of unit that it is about."""
    takes: frozenset[str]
    """The options that mean something here; `seed` and `days` always do."""
    plan: Callable[[Options], Plan]


def _always_fails(options: Options) -> Plan:
    uptime = 3 * SECOND if options.uptime is None else options.uptime
    return _plan([Unit(name="unit", lives=failing(uptime, changing=options.changing_error))], options)


def _fails_once_a_day(options: Options) -> Plan:
    lives = failing(DAY, changing=options.changing_error)
    return _plan([Unit(name="unit", lives=lives)], options, days=60)


def _flaps(options: Options) -> Plan:
    uptime = 5 * SECOND if options.uptime is None else options.uptime
    errors = ("BrokenPipe", "OutOfMemory", "BadConfig")
    return _plan([Unit(name="unit", lives=lambda n, _: Life(uptime=uptime, error=errors[n % 3]))], options)


def _loops(options: Options) -> Plan:
    same = Work(pattern="click", call="click #buy", result="nothing happened")
    life = Life(uptime=FOREVER, steps=(same,), pace=SECOND // 2)
    return _plan([Unit(name="unit", lives=lambda *_: life)], options, days=1 / 24)


def _overspends(options: Options) -> Plan:
    dear = Work(
        pattern="ask", call="question {n}", result="answer {n}", reserved={"usd": 200_000}, used={"usd": 150_000}
    )
    life = Life(uptime=FOREVER, steps=(dear,), pace=30 * SECOND)
    return _plan([Unit(name="unit", lives=lambda *_: life)], options, days=1)


def _hangs(options: Options) -> Plan:
    return _plan([Unit(name="unit", lives=lambda *_: Life(uptime=FOREVER))], options, days=30)


def _resumes(options: Options) -> Plan:
    uptime = 10 * MINUTE if options.uptime is None else options.uptime
    life = Life(uptime=uptime, cause=Cause.STOPPED)
    return _plan([Unit(name="unit", lives=lambda *_: life, resumes_after=MINUTE)], options)


def _cascade(options: Options) -> Plan:
    """What all of them need is down for ten minutes; then they live."""
    outage, dice = 10 * MINUTE, random.Random(options.seed)  # noqa: S311 - a simulation, not a secret
    uptime = 2 * SECOND if options.uptime is None else options.uptime

    def lives(_: int, at: Span) -> Life:
        return Life(uptime=uptime, error="ConnectionRefused") if at < outage else Life(uptime=FOREVER)

    count = 20 if options.units is None else options.units
    units = [Unit(name=f"unit-{n + 1}", lives=lives, starts_at=dice.randrange(5 * SECOND)) for n in range(count)]
    return _plan(units, options, days=2 / 24)


def _storm(options: Options) -> Plan:
    """Many fail within a minute, and the supervisor itself is killed and started again."""
    dice = random.Random(options.seed)  # noqa: S311 - a simulation, not a secret
    count = 15 if options.units is None else options.units
    units = [
        Unit(name=f"unit-{n + 1}", lives=failing(2 * SECOND), starts_at=dice.randrange(SECOND)) for n in range(count)
    ]
    return replace(_plan(units, options, days=1), crashes=(Crash(MINUTE),))


def _random_faults(options: Options) -> Plan:
    count = 20 if options.units is None else options.units
    units = [faulty(f"unit-{n + 1}", options.seed) for n in range(count)]
    return _plan(units, options, days=7)


def _plan(units: Sequence[Unit], options: Options, days: float = 400) -> Plan:
    return Plan(units=units, lasts_max=round((days if options.days is None else options.days) * DAY))


SCENARIOS: Final = {
    "always-fails": Scenario(
        "It lives for --uptime (3s) and fails, each time.",
        "process",
        frozenset({"uptime", "changing_error"}),
        _always_fails,
    ),
    "fails-once-a-day": Scenario(
        "A service that lives a day, fails, and starts again.",
        "process",
        frozenset({"changing_error"}),
        _fails_once_a_day,
    ),
    "flaps": Scenario(
        "It crashes after --uptime (5s), with three errors in turn.", "process", frozenset({"uptime"}), _flaps
    ),
    "loops": Scenario("It makes the same step again and again, to no effect.", "agent", frozenset(), _loops),
    "overspends": Scenario("Each step costs up to 0.20 USD, and it never ends.", "session", frozenset(), _overspends),
    "hangs": Scenario("It does nothing and never exits.", "rule", frozenset(), _hangs),
    "resumes": Scenario(
        "It pauses after --uptime (10m) and is resumed, for ever.", "session", frozenset({"uptime"}), _resumes
    ),
    "cascade": Scenario(
        "What --units (20) share is down for ten minutes.", "process", frozenset({"uptime", "units"}), _cascade
    ),
    "storm": Scenario(
        "--units (15) fail at once, and the supervisor is restarted.", "process", frozenset({"units"}), _storm
    ),
    "random-faults": Scenario(
        "--units (20) live and fail at random for a week.", "process", frozenset({"units"}), _random_faults
    ),
}


def failing(uptime: Span, *, changing: bool = False) -> Lives:
    """Lives that all end in an error: the same one, or another each time."""

    def lives(n: int, _: Span) -> Life:
        return Life(uptime=uptime, error=f"Error{n + 1}" if changing else "Error")

    return lives


def faulty(name: str, seed: int) -> Unit:
    """A unit with a character: some are well, some are frail, some are broken. Drawn from the seed and its name."""
    character = random.Random(f"{seed}/{name}")  # noqa: S311 - a simulation, not a secret
    frailty = character.choice((0.0, 0.02, 0.2, 0.6, 1.0))
    usual = round(10 ** character.uniform(0, 5) * SECOND)
    kinds = character.randrange(1, 12)

    def lives(n: int, _: Span) -> Life:
        dice = random.Random(f"{seed}/{name}/{n}")  # noqa: S311 - a simulation, not a secret
        uptime = round(usual * dice.uniform(0, 2))
        if dice.random() >= frailty:
            return Life(uptime=uptime, cause=Cause.DONE)
        return Life(uptime=uptime, error=f"Error{dice.randrange(kinds)}")

    return Unit(name=name, lives=lives, every=HOUR if character.random() < 0.5 else 0)


class Bound(NamedTuple):
    """The most starts that a unit that always fails can make before it is held."""

    starts: int | None
    """None: some unit was not held within the starts that were simulated."""
    uptime: Span
    """With this uptime, and with the same error or another each time, it makes them."""
    changing_error: bool
    below: Span
    """It holds for uptimes below this; FOREVER: for all."""
    simulated: int
    """How many units that was computed from."""


UPTIMES: Final = (
    0,
    MILLISECOND,
    *(n * SECOND for n in (1, 3, 10, 20, 29, 30, 31, 45)),
    *(n * MINUTE for n in (1, 2, 5, 10, 30)),
    *(n * HOUR for n in (1, 3, 6, 12)),
    DAY - MINUTE,
    DAY,
    7 * DAY,
)
"""From nothing to a week, closest where the windows of flapping and of the hourly limit begin and end."""

BOUND_STARTS_MAX: Final = 1_000
"""A unit that was started so often and is not held is called unbounded."""


def bound_on_starts(policies: Sequence[AnyPolicy], new_store: Callable[[], Store]) -> Bound:
    """Computed, not looked up: one unit for each uptime, with the same error and with another each time."""
    patient = with_long_leases(policies)
    below = healthy_after(policies)
    grid = list(product(_below(below), (False, True)))
    starts, worst = 0, grid[0]
    for uptime, changing in grid:
        unit = Unit(name="unit", lives=failing(uptime, changing=changing))
        plan = Plan(units=[unit], starts_max=BOUND_STARTS_MAX, lasts_max=FOREVER)
        fate = simulate(patient, new_store(), plan).fates["unit"]
        if fate.ended is None:
            return Bound(None, uptime, changing, below, len(grid))
        if fate.starts > starts:
            starts, worst = fate.starts, (uptime, changing)
    return Bound(starts, *worst, below, len(grid))


def with_long_leases(policies: Sequence[AnyPolicy]) -> list[AnyPolicy]:
    """The same policies, with leases that are longer than any uptime, so that a day is not spent on a thousand
    renewals. They decide how soon the death of a supervisor is noticed, not how often a unit is started."""
    return [replace(policy, lease=400 * DAY) if isinstance(policy, Exclusive) else policy for policy in policies]


def healthy_after(policies: Sequence[AnyPolicy]) -> Span:
    """A unit that lives so long without a failure is well again, by the policy that counts failures of every kind."""
    for policy in policies:
        if isinstance(policy, Restart) and policy.by == "unit":
            return policy.healthy_after or FOREVER
    return FOREVER


def _below(ceiling: Span) -> Iterator[Span]:
    yield from (uptime for uptime in UPTIMES if uptime < ceiling)
    if ceiling < FOREVER:
        yield ceiling - 1
