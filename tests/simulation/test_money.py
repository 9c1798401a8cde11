"""Days of spending by many units of several users, with deaths, restarts of the governor, and people who raise, settle
and forgive: the law of budgets holds at every instant, and all of it replays."""

import random
from typing import Any

import pytest

from flyball.core.codec import decode_state
from flyball.core.event import Amounts, Cause, Exited, Raised, Released, Settled, Start, Step, Stepped, Work
from flyball.core.panel import Panel
from flyball.core.policy import Key
from flyball.core.time import DAY, HOUR, MINUTE
from flyball.governor import Governor
from flyball.policies import Budget, Reservations
from flyball.policies.budget import State
from flyball.replay import replay
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock

BUDGETS = (
    Budget(by="run", limit=500_000),
    Budget(by="unit", limit=1_000_000, kept_back=50_000),
    Budget(by="user", limit=2_500_000, every=DAY),
    Budget(by="fleet", limit=6_000_000, every=HOUR * 6),
    Budget(by="fleet", limit=4_000, meter="tokens", name="budget_tokens"),
)
UNITS, USERS = 6, 3
MOVES = 1_200


class Town:
    """Units that spend, and people who let them."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.clock, self.store = FakeClock(), MemoryStore()
        self.panel = Panel([*BUDGETS, Reservations()])
        self.governor = Governor(self.panel, self.store, self.clock)
        self.runs = dict.fromkeys(range(UNITS), 0)
        self.held: list[tuple[int, int, Amounts]] = []
        """What was granted and not settled: unit, run, amounts."""
        self.dead: list[tuple[int, int, Amounts]] = []
        self.granted = self.raised = 0

    def who(self, unit: int, run: int | None = None) -> dict[str, Any]:
        run = self.runs[unit] if run is None else run
        return {"unit": f"u{unit}", "run": f"r{run}", "labels": {"user": f"user{unit % USERS}"}}

    def move(self) -> None:
        unit = self.dice.randrange(UNITS)
        match self.dice.choices(
            ("step", "made", "dies", "settle", "raise", "release", "reboot"), (9, 8, 2, 2, 2, 1, 1)
        ):
            case ["step"]:
                cost: Amounts = {"usd": self.dice.randrange(1, 300_000), "tokens": self.dice.randrange(40)}
                step = Step(
                    cost=cost, steps=self.dice.choice((1, 1, 5)), last=self.dice.random() < 0.1, **self.who(unit)
                )
                decision = self.governor.submit(step)
                if decision.proceeds:
                    times = decision.allowance.steps if decision.allowance is not None else 1
                    self.held += [(unit, self.runs[unit], cost)] * times
                    self.granted += 1
            case ["made"] if self.held:
                unit, run, cost = self.held.pop(self.dice.randrange(len(self.held)))
                used = {meter: self.dice.randint(0, amount) for meter, amount in cost.items()}
                self.governor.submit(Stepped(done=(Work(reserved=cost, used=used),), **self.who(unit, run)))
            case ["dies"]:
                self.governor.submit(Exited(cause=Cause.LOST, fingerprint="f", **self.who(unit)))
                self.dead += [one for one in self.held if one[0] == unit]
                self.held = [one for one in self.held if one[0] != unit]
                self.runs[unit] += 1
                self.governor.submit(Start(holder="here", **self.who(unit)))
            case ["settle"] if self.dead:
                unit, run, cost = self.dead.pop()
                used = {meter: self.dice.randint(0, amount) for meter, amount in cost.items()}
                self.governor.submit(Settled(reserved=cost, used=used, by="ann", **self.who(unit, run)))
            case ["raise"]:
                scope = self.dice.choice(("run", "unit", "user", "fleet"))
                more = {self.dice.choice(("usd", "tokens")): self.dice.randrange(1, 400_000)}
                self.governor.submit(Raised(scope=scope, more=more, by="ann", **self.who(unit)))
                self.raised += 1
            case ["release"]:
                scope = self.dice.choice(("unit", "user", "fleet"))
                self.governor.submit(Released(scope=scope, policies=("budget",), by="ann", **self.who(unit)))
            case ["reboot"]:
                self.governor = Governor(self.panel, self.store, self.clock)
        self.clock.move(self.dice.choice((0, 1, MINUTE, MINUTE, HOUR)))

    def check(self) -> None:
        """The law, of every budget that anything is known of, and what each holds is what was granted."""
        policies = {(policy.name, policy.by): policy for policy in BUDGETS}
        for key, data in self.store.states().items():
            policy = policies.get((key.policy, key.by))
            if policy is not None:
                state = policy.current(decode_state(State, data), self.clock.now())
                assert state.spent + state.reserved <= policy.limit + state.raised, (key, state)
        key = Key("budget", "fleet", "")
        stored = self.store.read([key]).records.get(key)
        reserved = decode_state(State, stored).reserved if stored is not None else 0
        assert reserved == sum(cost.get("usd", 0) for _, _, cost in (*self.held, *self.dead))


@pytest.mark.parametrize("seed", range(4))
def test_the_law_of_budgets(seed: int) -> None:
    """At every instant spent + reserved <= limit + raised, by run, unit, user and fleet, of money and of tokens; and
    the journal under the same settings gives the same decisions."""
    town = Town(seed)
    for _ in range(MOVES):
        town.move()
        town.check()
    assert town.granted > 50
    assert town.raised > 50
    replayed = list(replay(town.panel, town.store.base(), town.store.entries(limit=100_000)))
    assert len(replayed) > MOVES // 2
    assert all(again.agrees for again in replayed)
