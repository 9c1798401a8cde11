"""Money: reserved before it is spent, settled after; never more than the limit, whatever happens in between."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flyball
from flyball.config import Settings
from flyball.core.codec import decode_body, decode_state
from flyball.core.decision import Decision, Verb
from flyball.core.event import Event, Held, Settled, Step, Stepped
from flyball.core.policy import AnyPolicy, Key
from flyball.core.time import DAY, HOUR, SECOND
from flyball.errors import FlyballError, StoreFull
from flyball.governor import NO_ROWS, Governor, Rows
from flyball.policies import Budget, Manual, Reservations
from flyball.policies.budget import State as BudgetState
from flyball.runtimes.allowance import RunSteps
from flyball.runtimes.current import CURRENT
from flyball.runtimes.money import Purse, Reservation, SettledAlready
from flyball.runtimes.refusal import OutOfBudget, Refused
from flyball.store import Store
from flyball.store.memory import MemoryStore
from flyball.store.sqlite import SqliteStore
from flyball.testing.clock import FakeClock

CENT = 10_000
LIMIT = 100 * CENT


@dataclass
class Bank:
    """A purse over budgets, on a clock that the test moves."""

    policies: list[AnyPolicy]
    store: Store = field(default_factory=MemoryStore)
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.governor = Governor(self.policies, self.store, self.clock)

    def purse(self, unit: str = "shop", run: str = "r1", **labels: str) -> Purse:
        async def sleep_soon(seconds: float) -> None:
            self.sleep(seconds)

        return Purse(self.governor, unit, run, labels, sleep=self.sleep, sleep_soon=sleep_soon)

    def sleep(self, seconds: float) -> None:
        self.clock.move(round(seconds * SECOND))

    def state(self, by: str = "unit", subject: str = "shop", name: str = "budget") -> tuple[int, int]:
        """Spent and reserved."""
        key = Key(name, by, subject)
        data = self.store.read([key]).records.get(key)
        state = decode_state(BudgetState, data) if data is not None else BudgetState()
        return state.spent, state.reserved

    def events(self) -> list[Event]:
        return [decode_body(entry.body).event for entry in self.store.entries()]


@pytest.fixture
def bank() -> Bank:
    """A dollar for the unit."""
    return Bank([Budget(by="unit"), Reservations()])


def left(money: Reservation, how: str) -> None:
    """Leave a block in one of the ways there are."""
    with money:
        if how == "settled":
            money.settle("0.02")
        elif how == "cancelled":
            money.cancel()
        elif how == "raised":
            raise KeyError("the call failed")
        elif how == "settled, then raised":
            money.settle("0.02")
            raise KeyError("after the call")
        elif how == "overrun":
            money.settle("0.07")


async def left_soon(purse: Purse, how: str) -> None:
    """The same in a coroutine."""
    async with purse.reserve_soon("0.05") as money:
        if how == "settled":
            await money.settle_soon("0.02")
        elif how == "cancelled":
            await money.cancel_soon()
        elif how == "raised":
            raise KeyError("the call failed")
        elif how == "settled, then raised":
            await money.settle_soon("0.02")
            raise KeyError("after the call")
        elif how == "overrun":
            await money.settle_soon("0.07")


@pytest.mark.parametrize("soon", [False, True])
@pytest.mark.parametrize(
    ("how", "cents"),
    [("left", 5), ("settled", 2), ("cancelled", 0), ("raised", 5), ("settled, then raised", 2), ("overrun", 7)],
)
def test_how_a_block_is_left(bank: Bank, how: str, cents: int, soon: bool) -> None:
    """What was settled counts, above the reservation too; what was not counts in full, however the block was left."""
    try:
        if soon:
            asyncio.run(left_soon(bank.purse(), how))
        else:
            left(bank.purse().reserve("0.05"), how)
    except KeyError:
        assert "raised" in how
    assert bank.state() == (cents * CENT, 0)


def test_reserved_when_it_returns(tmp_path: Path) -> None:
    """The reservation is on disk before anything can be spent: another process sees it."""
    with SqliteStore(tmp_path / "state.db") as store, SqliteStore(tmp_path / "state.db") as other:
        money = Bank([Budget(by="unit")], store).purse().reserve("0.60")
        seen = Bank([Budget(by="unit")], other)
        assert seen.state() == (0, 60 * CENT)
        with pytest.raises(OutOfBudget):
            seen.purse(run="r2").reserve("0.60")
        money.settle("0.10")
        assert seen.state() == (10 * CENT, 0)


@pytest.mark.parametrize(
    ("given", "cost"),
    [
        ("0.05", {"usd": 50_000}),
        (0.1, {"usd": 100_000}),
        (1, {"usd": 1_000_000}),
        (Decimal("0.000001"), {"usd": 1}),
        (0.1 + 0.2, {"usd": 300_001}),
        ({"usd": "0.05", "tokens": 1200}, {"usd": 50_000, "tokens": 1200}),
        ({"scrip": 7}, {"scrip": 7}),
        ("0", {"usd": 0}),
    ],
)
def test_amounts(bank: Bank, given: Any, cost: Mapping[str, int]) -> None:
    """Money is exact to a millionth; everything else is counted whole."""
    assert bank.purse().reserve(given).reserved == cost


@pytest.mark.parametrize("given", ["lots", -1, {"tokens": 1.5}, {"usd": None}, {"": 1}, [], True])
def test_what_is_no_amount(bank: Bank, given: Any) -> None:
    """Refused before anything is reserved, and so is a settlement, which can be made again."""
    with pytest.raises(ValueError, match=r"should be|has a name"):
        bank.purse().reserve(given)
    assert bank.events() == []
    money = bank.purse().reserve("0.05")
    with pytest.raises(ValueError, match=r"should be|has a name"):
        money.settle(given)
    money.settle("0.01")
    assert bank.state() == (1 * CENT, 0)


@pytest.mark.parametrize("given", [None, {}], ids=str)
def test_nothing_is_no_reservation(bank: Bank, given: Any) -> None:
    """A worst case that somebody forgot to compute is an error, not a reservation of nothing."""
    with pytest.raises(FlyballError, match="reservation of nothing"):
        bank.purse().reserve(given)
    with pytest.raises(FlyballError, match="reservation of nothing"):
        bank.purse().reserve_soon(given)


def test_out_of_budget(bank: Bank) -> None:
    """A refusal has the numbers and says what to do; nothing was reserved, and less may still fit."""
    bank.purse().reserve("0.40").settle("0.40")
    held = bank.purse().reserve("0.50")
    with pytest.raises(OutOfBudget) as caught:
        bank.purse().reserve("0.15")
    said = caught.value
    assert str(said) == "0.15 USD cannot be reserved: 0.40 USD spent and 0.65 USD reserved of 1.00 USD per unit"
    assert (said.code, said.verb, said.retry_after) == ("cost_budget_exceeded", Verb.FINISH, None)
    assert "flyball settle" in said.remedy
    assert bank.state() == (40 * CENT, 50 * CENT)
    bank.purse().reserve("0.10").cancel()
    held.cancel()


@pytest.mark.parametrize("again", [Reservation.settle, Reservation.cancel])
def test_settled_once(bank: Bank, again: Callable[..., Any]) -> None:
    """A second time would give back what somebody else has reserved: it is refused and changes nothing."""
    money = bank.purse().reserve("0.05")
    other = bank.purse(run="r2").reserve("0.90")
    money.settle("0.01")
    with pytest.raises(SettledAlready):
        again(money, *(["0.01"] if again is Reservation.settle else []))
    assert (money.settled, bank.state()) == (True, (1 * CENT, 90 * CENT))
    other.cancel()


def test_settled_by_many_threads_at_once(bank: Bank) -> None:
    """Of many who settle the same reservation, one does."""
    money, done = bank.purse().reserve("0.05"), []

    def settle() -> None:
        with suppress(SettledAlready):
            done.append(money.settle("0.01"))

    threads = [threading.Thread(target=settle) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(done), bank.state()) == (1, (1 * CENT, 0))


def test_an_overrun_counts_and_is_told(bank: Bank, caplog: pytest.LogCaptureFixture) -> None:
    """More than was reserved, even more than there is: a fact counts, people are warned, and nothing more is let
    through."""
    money = bank.purse().reserve({"usd": "0.05"})
    with caplog.at_level(logging.WARNING):
        answer = money.settle({"usd": "1.20", "tokens": 3})
    assert money.overrun == {"usd": 115 * CENT, "tokens": 3}
    assert "it cost 3 tokens and 1.20 USD, 3 tokens and 1.15 USD more than was reserved" in caplog.text
    assert (answer.verb, bank.state()) == (Verb.FINISH, (120 * CENT, 0))
    with pytest.raises(OutOfBudget):
        bank.purse().reserve("0.000001")


class Full(Governor):
    """On a disk that is full for a while."""

    full = False

    def submit(self, event: Event, rows: Rows = NO_ROWS) -> Decision:
        if self.full:
            raise StoreFull("no room")
        return super().submit(event, rows)


def test_a_settlement_that_could_not_be_written_can_be_made_again(bank: Bank) -> None:
    """The disk was full: it stays reserved, and is settled later."""
    governor = Full(bank.policies, bank.store, bank.clock)
    money = Purse(governor, "shop", "r1").reserve("0.05")
    governor.full = True
    with pytest.raises(StoreFull):
        money.settle("0.01")
    assert (money.settled, bank.state()) == (False, (0, 5 * CENT))
    governor.full = False
    money.settle("0.01")
    assert bank.state() == (1 * CENT, 0)


# Periods.


def daily() -> Bank:
    return Bank([Budget(by="unit", every=DAY, over=Verb.WAIT)])


def test_over_a_period_says_when() -> None:
    """Where there is a next period, the refusal says in how many seconds."""
    bank = daily()
    bank.clock.set(bank.clock.now() // DAY * DAY + 23 * HOUR)
    bank.purse().reserve("1.00").settle("1.00")
    with pytest.raises(OutOfBudget, match="per unit every 1 d") as caught:
        bank.purse().reserve("0.01")
    assert caught.value.retry_after == 3600
    with pytest.raises(OutOfBudget):
        bank.purse().reserve("0.01", wait=3599)
    assert bank.clock.now() % DAY == 23 * HOUR, "it does not wait for what comes too late"


@pytest.mark.parametrize("soon", [False, True])
def test_waits_for_the_next_period(soon: bool) -> None:
    """With `wait` it is waited for, and reserved at midnight."""
    bank = daily()
    bank.clock.set(bank.clock.now() // DAY * DAY + 23 * HOUR)
    bank.purse().reserve("1.00").settle("1.00")

    async def reserve() -> Reservation:
        return await bank.purse().reserve_soon("0.01", wait=3600)

    money = asyncio.run(reserve()) if soon else bank.purse().reserve("0.01", wait=3600)
    assert bank.clock.now() % DAY == 0
    money.settle("0.01")
    assert bank.state() == (1 * CENT, 0)


def test_what_never_comes_is_not_waited_for(bank: Bank) -> None:
    """A budget without a period, or a person who paused it, is raised at once."""
    with pytest.raises(OutOfBudget):
        bank.purse().reserve("2.00", wait=1e6)
    paused = Bank([Manual()])
    paused.governor.submit(Held(unit="shop", by="ann"))
    with pytest.raises(Refused, match="paused by ann") as caught:
        paused.purse().reserve("0.01", wait=1e6)
    assert not isinstance(caught.value, OutOfBudget)


# Coroutines.


def test_nothing_is_reserved_before_it_is_awaited(bank: Bank) -> None:
    """What `reserve_soon` returns cannot be settled, so it cannot be mistaken for a reservation."""
    soon = bank.purse().reserve_soon("0.05")
    assert bank.events() == []
    assert not hasattr(soon, "settle")


class Slow(Governor):
    """Whose answers come when the test lets them."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asked: list[Callable[[], None]] = []

    def submit_soon(self, event: Event, rows: Rows = NO_ROWS) -> Any:
        if isinstance(event, Stepped):
            return super().submit_soon(event, rows)
        answer: Future[Decision] = Future()
        answer.set_running_or_notify_cancel()
        self.asked.append(lambda: answer.set_result(self.submit(event, rows)))
        return answer


@pytest.mark.parametrize("limit", [LIMIT, 1])
def test_cancelled_while_it_waits_for_the_answer(bank: Bank, limit: int) -> None:
    """Nobody will spend it, so it is given back when the answer comes; where it was refused, nothing is."""
    governor = Slow([Budget(by="unit", limit=limit)], bank.store, bank.clock)

    async def cancelled() -> None:
        task = asyncio.ensure_future(Purse(governor, "shop", "r1").reserve_soon("0.05").__aenter__())
        while not governor.asked:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        governor.asked[0]()

    asyncio.run(cancelled())
    assert bank.state() == (0, 0)
    assert [type(event) for event in bank.events()] == ([Step, Stepped] if limit == LIMIT else [Step])


def test_many_coroutines_share_one_budget() -> None:
    """A hundred that want three cents each: thirty-three get them."""
    bank = Bank([Budget(by="unit")])

    async def spend() -> bool:
        try:
            async with bank.purse().reserve_soon("0.03"):
                await asyncio.sleep(0)
        except OutOfBudget:
            return False
        return True

    async def crowd() -> list[bool]:
        return await asyncio.gather(*(spend() for _ in range(100)))

    assert sum(asyncio.run(crowd())) == 33
    assert bank.state() == (99 * CENT, 0)


# Scopes.


@pytest.mark.parametrize(
    ("by", "subject"), [("run", "shop/r1"), ("unit", "shop"), ("user", "ann"), ("tree", "root"), ("fleet", "")]
)
def test_scopes(by: str, subject: str) -> None:
    """Whose money it is depends on the budget's scope: another subject has its own, the same one shares it."""
    bank = Bank([Budget(by=by)])
    purse = bank.purse(user="ann", tree="root")
    purse.reserve("0.80")
    assert bank.state(by, subject) == (0, 80 * CENT)
    with pytest.raises(OutOfBudget):
        purse.reserve("0.21")
    if by != "fleet":
        Bank(bank.policies, bank.store, bank.clock).purse("other", "r2", user="bob", tree="oak").reserve("0.21")


def test_labels_of_one_reservation() -> None:
    """A service that works for many says for whom each time."""
    bank = Bank([Budget(by="user")])
    bank.purse().reserve("0.80", labels={"user": "ann"})
    bank.purse().reserve("0.80", labels={"user": "bob"}).settle("0.10")
    assert (bank.state("user", "ann"), bank.state("user", "bob")) == ((0, 80 * CENT), (10 * CENT, 0))


def test_sub_agents_cannot_multiply() -> None:
    """A tree of a hundred agents, each with its own unit and run, has what the tree has and not a hundred times it."""
    bank = Bank([Budget(by="tree", limit=LIMIT), Budget(by="unit", limit=LIMIT)])
    for number in range(25):
        bank.purse(f"agent-{number}", f"r{number}", tree="root").reserve("0.04")
    for number in range(25, 100):
        with pytest.raises(OutOfBudget, match="per tree"):
            bank.purse(f"agent-{number}", f"r{number}", tree="root").reserve("0.04")


def test_meters_have_budgets_of_their_own() -> None:
    """Tokens and credits beside money: each is bounded by itself, and refused together."""
    bank = Bank([Budget(by="unit"), Budget(by="unit", meter="tokens", limit=1_000, name="budget_tokens")])
    bank.purse().reserve({"usd": "0.01", "tokens": 900}).settle({"usd": "0.01", "tokens": 800})
    with pytest.raises(OutOfBudget, match="800 tokens spent and 201 tokens reserved of 1000 tokens"):
        bank.purse().reserve({"usd": "0.01", "tokens": 201})
    assert bank.state() == (1 * CENT, 0)
    assert bank.state(name="budget_tokens") == (800, 0)


def test_the_last_step_may_use_what_is_kept_back() -> None:
    """There is always something to wrap up with."""
    bank = Bank([Budget(by="unit", kept_back=20 * CENT)])
    bank.purse().reserve("0.80").settle("0.80")
    with pytest.raises(OutOfBudget, match=r"0[.]20 USD of it kept back"):
        bank.purse().reserve("0.10")
    bank.purse().reserve("0.10", last=True).settle("0.10")


@dataclass
class Run:
    """A run of an agent."""

    unit: str
    run: str
    labels: Mapping[str, str]
    steps: RunSteps


@pytest.fixture
def inside(bank: Bank) -> Iterator[None]:
    """Inside an agent."""
    run = Run("agent", "a1", {"tree": "root"}, RunSteps(bank.governor, "agent", "a1"))
    token = CURRENT.set(run)
    yield
    CURRENT.reset(token)


@pytest.mark.usefixtures("inside")
def test_inside_an_agent_it_is_the_agents(bank: Bank) -> None:
    """What an agent calls spends on the agent's account, with its labels."""
    bank.purse().reserve("0.05", labels={"user": "ann"}, pattern="think").settle("0.01")
    step, stepped = bank.events()
    assert (step.unit, step.run, step.labels) == ("agent", "a1", {"tree": "root", "user": "ann"})
    assert (stepped.unit, stepped.run, stepped.labels) == (step.unit, step.run, step.labels)
    assert isinstance(step, Step)
    assert step.pattern == "think"


def test_what_nothing_bounds_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """A slip in a meter's name, or a label that is missing, must not be money without a limit that nobody notices."""
    bank = Bank([Budget(by="user"), Budget(by="unit", meter="tokens", name="budget_tokens")])
    purse = bank.purse()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            purse.reserve({"usd": "0.05", "tokens": 1, "tokns": 5})
        purse.reserve("0.05", labels={"user": "ann"})
    assert [record.getMessage() for record in caplog.records] == [
        f"shop: nothing bounds its {meter}: no budget is set for it" for meter in ("usd", "tokns")
    ]


def test_an_agents_own_budget_wins_over_the_settings() -> None:
    """An amount for every unit, and another for one agent: the agent has its own; prices are those of the settings."""
    given = Settings.model_validate(
        {"budget": {"per_unit": 5}, "prices": {"models": {"house": {"input": 1, "output": 1}}}}
    )
    guard = flyball.open("shop", settings=given, scratch=True)

    @guard.agent("reader", budget={"usd": "0.10", "tokens": 50})
    async def reader(context: flyball.Context) -> None: ...

    def limits(unit: str) -> list[tuple[str, str, int]]:
        policies = guard.governor.panel.policies_of(unit)
        return [(policy.name, policy.by, policy.limit) for policy in policies if isinstance(policy, Budget)]

    assert limits("reader") == [("budget", "unit", 10 * CENT), ("budget_tokens", "unit", 50)]
    assert limits("shop") == [("budget", "unit", 500 * CENT)]
    with pytest.raises(OutOfBudget):
        guard.reserve(guard.prices.worst_case("house", 4_000_000, 1_000_001))
    guard.reserve(guard.prices.worst_case("house", 4_000_000, 1_000_000)).cancel()


# The law, in one process.

Move = tuple[str, int, int, int]
MOVES = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "reserve", "settle", "cancel", "die", "restart", "person"]),
        st.integers(0, 7),
        st.integers(1, 40 * CENT),
        st.integers(0, 100),
    ),
    max_size=60,
)


@given(MOVES, st.booleans())
@settings(max_examples=150)
def test_never_overspent(moves: list[Move], tree: bool) -> None:
    """Whatever eight workers do, and whenever they die: spent + reserved is within the limit at every instant, what
    they really spent is too, and nothing is leaked but what the dead held."""
    policies: list[AnyPolicy] = [Budget(by="unit"), Budget(by="tree"), Reservations()]
    bank = Bank(policies)
    by, subject = ("tree", "root") if tree else ("unit", "shop")
    spent = 0
    held: dict[int, list[Reservation]] = {worker: [] for worker in range(8)}
    dead: list[tuple[str, str, int]] = []
    lives = dict.fromkeys(range(8), 0)
    for move, worker, amount, share in moves:
        unit, run = (f"shop{worker}" if tree else "shop"), f"w{worker}.{lives[worker]}"
        purse = bank.purse(unit, run, **({"tree": "root"} if tree else {}))
        match move:
            case "reserve":
                with suppress(OutOfBudget):
                    held[worker].append(purse.reserve(Decimal(amount) / 1_000_000))
            case "settle" if held[worker]:
                money = held[worker].pop(share % len(held[worker]))
                used = money.reserved["usd"] * share // 100
                spent += used
                money.settle(Decimal(used) / 1_000_000)
            case "cancel" if held[worker]:
                held[worker].pop().cancel()
            case "die":
                for money in held[worker]:
                    used = money.reserved["usd"] * share // 100
                    spent += used
                    dead.append((unit, run, money.reserved["usd"]))
                held[worker], lives[worker] = [], lives[worker] + 1
            case "restart":
                bank = Bank(policies, bank.store, bank.clock)
            case "person" if dead:
                whose, which, reserved = dead.pop()
                bank.governor.submit(
                    Settled(
                        unit=whose,
                        run=which,
                        labels={"tree": "root"} if tree else {},
                        reserved={"usd": reserved},
                        used={"usd": reserved},
                    )
                )
        counted, reserved = bank.state(by, subject)
        assert counted + reserved <= LIMIT
        assert spent <= LIMIT
        alive = sum(money.reserved["usd"] for monies in held.values() for money in monies)
        assert reserved == alive + sum(amount for _, _, amount in dead)
