"""Steps inside an allowance: as strict as steps that are each put to the governor, at a fraction of the commits."""

import asyncio
import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.codec import decode_state
from flyball.core.decision import Verb
from flyball.core.event import Cause, Exited, Held, Released, Start, Work
from flyball.core.policy import AnyPolicy, Key
from flyball.core.time import MINUTE, SECOND
from flyball.governor import Governor
from flyball.policies import Budget, Convergence, Deadline, Exclusive, Limit, Loop, Manual, Rounds, Stall
from flyball.policies.budget import State as BudgetState
from flyball.policies.limit import State as LimitState
from flyball.runtimes.allowance import RunSteps
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock


class Bench:
    """A governor on a fake clock, and one run of one unit."""

    def __init__(self, *policies: AnyPolicy, steps_max: int = 64) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.governor = Governor([Exclusive(lease=60 * MINUTE), *policies], self.store, self.clock)
        assert self.governor.submit(Start(unit="u", run="r", labels={"tree": "t"})).proceeds
        self.steps = RunSteps(self.governor, "u", "r", {"tree": "t"}, steps_max=steps_max)

    def entries_of(self, event: str) -> int:
        return sum(entry.event == event for entry in self.store.entries(limit=100_000))

    def state(self, policy: str, by: str, subject: str) -> bytes:
        return self.store.states()[Key(policy, by, subject)]


def new_step(steps: RunSteps, number: int) -> Verb:
    """One step that breaks new ground; how it was answered in the end."""
    name = f"{number}"
    asked = steps.ask(f"p{number % 7}", name)
    if not asked.proceeds:
        return asked.verb
    return steps.made(Work(pattern=f"p{number % 7}", call=name, result=name)).verb


def test_two_commits_serve_many_steps() -> None:
    """A run's own steps cost a commit only every so many: 64 steps, one request and one report."""
    bench = Bench(Stall(), Loop())
    for number in range(65):
        assert new_step(bench.steps, number) is Verb.PROCEED
    assert bench.entries_of("step") == 2
    assert bench.entries_of("stepped") == 1


@pytest.mark.parametrize("steps_max", [1, 2, 7, 64, 1000])
@pytest.mark.parametrize("most", [1, 2, 55, 200])
def test_limit_is_exact(steps_max: int, most: int) -> None:
    """However many are asked for at once, exactly as many steps are made as the limit allows."""
    bench = Bench(Limit(most=most), steps_max=steps_max)
    made = 0
    while new_step(bench.steps, made) is Verb.PROCEED:
        made += 1
        assert made <= most
    assert made == most
    assert bench.steps.ask().codes == ("max_steps",)


def test_what_is_never_reported_counts_as_used() -> None:
    """Law 1: the grant is counted before the first step of it is made, so a crash gives nothing away."""
    bench = Bench(Limit(most=55, by="unit"), steps_max=40)
    assert bench.steps.ask().proceeds
    bench.governor.submit(Exited(unit="u", run="r", cause=Cause.LOST))
    assert decode_state(LimitState, bench.state("steps", "unit", "u")).count == 40
    assert bench.governor.submit(Start(unit="u", run="r2")).proceeds
    after_crash = RunSteps(bench.governor, "u", "r2", steps_max=40)
    made = 0
    while after_crash.ask().proceeds:
        after_crash.made(Work())
        made += 1
    assert made == 15


def test_what_is_given_back_is_not_used() -> None:
    """A report gives back the steps and the money that were granted and not used."""
    bench = Bench(Limit(most=55, by="unit"), Budget(limit=100_000, by="unit"), steps_max=10)
    for _ in range(3):
        assert bench.steps.ask(cost={"usd": 1_000}).proceeds
        bench.steps.made(Work(reserved={"usd": 1_000}, used={"usd": 400}))
    inside = decode_state(BudgetState, bench.state("budget", "unit", "u"))
    assert (inside.spent, inside.reserved) == (0, 10_000)
    bench.steps.report()
    after = decode_state(BudgetState, bench.state("budget", "unit", "u"))
    assert (after.spent, after.reserved) == (1_200, 0)
    assert decode_state(LimitState, bench.state("steps", "unit", "u")).count == 3


@given(st.lists(st.tuples(st.integers(0, 9_000), st.integers(0, 100)), max_size=80), st.integers(1, 20))
def test_budget_is_never_overspent(costs: list[tuple[int, int]], steps_max: int) -> None:
    """Spent + reserved stays within the limit at every entry, whatever the steps cost and however they are granted."""
    bench = Bench(Budget(limit=50_000, by="tree"), steps_max=steps_max)
    spent = 0
    for worst, share in costs:
        if bench.steps.ask(cost={"usd": worst}).proceeds:
            used = worst * share // 100
            spent += used
            bench.steps.made(Work(reserved={"usd": worst}, used={"usd": used}))
        data = bench.store.states().get(Key("budget", "tree", "t"))
        if data is not None:
            state = decode_state(BudgetState, data)
            assert state.spent + state.reserved <= 50_000
    bench.steps.report()
    data = bench.store.states().get(Key("budget", "tree", "t"))
    state = decode_state(BudgetState, data) if data is not None else BudgetState()
    assert (state.spent, state.reserved) == (spent, 0)


def test_circle_is_stopped_at_the_step_that_closes_it() -> None:
    """The stall policy is asked at each step, in memory: it stops at the fourth time, not when the 64 are used up."""
    bench = Bench(Stall())
    verbs = []
    for _ in range(10):
        if not bench.steps.ask("p", "same").proceeds:
            break
        verbs.append(bench.steps.made(Work(call="same", result="same")).verb)
    assert verbs[-1] is Verb.STOP
    assert len(verbs) == 4
    assert [entry.verb for entry in bench.store.last_entries(limit=1)] == ["stop"], "and the journal says so"


def test_nudge_reaches_the_agent() -> None:
    """A PROCEED with a reason is a text for the agent, also inside an allowance."""
    bench = Bench(Stall())
    for _ in range(3):
        bench.steps.ask("p", "same")
        decision = bench.steps.made(Work(call="same", result="same"))
    assert decision.proceeds
    assert decision.codes == ("repeating",)


def test_refused_call_is_put_to_the_governor() -> None:
    """What the run's own policies refuse is refused by the governor, and so it is in the journal."""
    bench = Bench(Stall(stop_at=8, repeats_max=10))
    for _ in range(4):
        assert bench.steps.ask("p", "same").proceeds
        bench.steps.made(Work(call="same", result="same"))
    refused = bench.steps.ask("p", "same")
    assert refused.verb is Verb.WAIT
    assert refused.codes == ("repeated_call",)
    assert bench.store.last_entries(limit=1)[0].verb == "wait"
    assert bench.steps.ask("p", "another").proceeds


def test_loop_is_stopped_at_the_hundredth() -> None:
    """Granted steps leave room for the loop policy: the 100th of one pattern within a minute is not made."""
    bench = Bench(Loop())
    made = 0
    while bench.steps.ask("p", str(made)).proceeds:
        bench.steps.made(Work(pattern="p", call=str(made)))
        made += 1
        assert made < 100
    assert made == 99
    assert bench.steps.ask("p").codes == ("loop_detected",)
    assert bench.steps.ask("another").proceeds, "another pattern is counted by itself"


def test_many_patterns_are_no_loop() -> None:
    """Steps of many patterns, granted together, never add up to a loop of one of them."""
    bench = Bench(Loop())
    for number in range(5_000):
        assert bench.steps.ask(f"p{number % 60}").proceeds
        assert bench.steps.made(Work(pattern=f"p{number % 60}")).proceeds


def test_order_is_obeyed_when_the_allowance_ends() -> None:
    """A person's order is not seen inside an allowance; it lasts half a minute at most. (Whoever runs the unit hears at
    once, and ends it.)"""
    bench = Bench(Manual())
    assert bench.steps.ask().proceeds
    bench.governor.submit(Held(unit="u", by="ann"))
    assert bench.steps.ask().proceeds
    bench.clock.move(30 * SECOND)
    assert bench.steps.ask().codes == ("paused",)
    bench.governor.submit(Released(unit="u", by="ann"))
    assert bench.steps.ask().proceeds


def test_deadline_ends_the_allowance() -> None:
    """The allowance never outlives the lease that came with it."""
    bench = Bench(Deadline(lasts_max=3 * SECOND))
    assert bench.steps.ask().proceeds
    bench.clock.move(3 * SECOND)
    assert bench.steps.ask().verb is Verb.STOP


@pytest.mark.parametrize(
    ("policy", "gauges", "code"),
    [
        (Convergence(), {"convergence": 0.9}, "consensus"),
        (Rounds(most=5), {"round": 5.0}, "max_rounds"),
    ],
)
def test_gauges_are_heard_inside(policy: AnyPolicy, gauges: dict[str, float], code: str) -> None:
    """What a step reports is judged at that step."""
    bench = Bench(policy)
    bench.steps.ask()
    decision = bench.steps.made(Work(gauges=gauges))
    assert decision.verb is Verb.FINISH
    assert decision.codes == (code,)


def test_last_step_uses_what_was_kept_back() -> None:
    """Money kept back for the last step is there for it, and only for it."""
    bench = Bench(Budget(limit=10_000, kept_back=4_000, by="run"), steps_max=8)
    for _ in range(2):
        assert bench.steps.ask(cost={"usd": 3_000}).proceeds
        bench.steps.made(Work(reserved={"usd": 3_000}, used={"usd": 3_000}))
    assert bench.steps.ask(cost={"usd": 3_000}).codes == ("cost_budget_exceeded",)
    assert bench.steps.ask(cost={"usd": 4_000}, last=True).proceeds
    bench.steps.made(Work(reserved={"usd": 4_000}, used={"usd": 4_000}))
    bench.steps.report()
    assert decode_state(BudgetState, bench.state("budget", "run", "u/r")).spent == 10_000


def test_report_without_anything_to_say_is_silent() -> None:
    """A run that made no step reports none."""
    bench = Bench(Stall())
    before = len(bench.store.entries())
    assert bench.steps.report().proceeds
    assert len(bench.store.entries()) == before
    bench.governor.submit(Exited(unit="u", run="r", cause=Cause.DONE))


@given(seed=st.integers(0, 2**32), steps_max=st.sampled_from([1, 2, 5, 64]))
def test_side_by_side(seed: int, steps_max: int) -> None:
    """Steps made side by side, some of them cancelled on the way, are counted as often as they were made: nothing is
    counted twice, given away, or left reserved."""
    dice = random.Random(seed)
    bench = Bench(Limit(most=40, by="unit"), Budget(limit=10_000, by="unit"), Loop(), steps_max=steps_max)
    made = 0

    async def one(number: int) -> None:
        nonlocal made
        decision = await bench.steps.ask_soon(f"p{number % 3}", f"{number}", {"usd": 100})
        if not decision.proceeds:
            return
        made += 1
        work = Work(
            pattern=f"p{number % 3}", call=f"{number}", result=f"{number}", reserved={"usd": 100}, used={"usd": 70}
        )
        for _ in range(dice.randrange(4)):
            await asyncio.sleep(0)
        await bench.steps.made_soon(work)

    async def fan_out() -> None:
        tasks = []
        for number in range(60):
            tasks.append(asyncio.ensure_future(one(number)))
            for _ in range(dice.randrange(3)):
                await asyncio.sleep(0)
            if dice.random() < 0.2:
                # Only those that still ask: a step that is being made is made.
                waiting = [task for task in tasks if not task.done() and task.get_stack()[0].f_lineno == ask_line]
                for task in waiting[:1]:
                    task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await bench.steps.report_soon()

    ask_line = one.__code__.co_firstlineno + 2
    asyncio.run(fan_out())
    assert made <= 40
    assert decode_state(LimitState, bench.state("steps", "unit", "u")).count == made
    budget = decode_state(BudgetState, bench.state("budget", "unit", "u"))
    assert (budget.spent, budget.reserved) == (70 * made, 0)


def test_threads_side_by_side() -> None:
    """The same for threads."""
    bench = Bench(Limit(most=200, by="unit"), Budget(limit=1_000_000, by="unit"), steps_max=7)
    made: list[int] = []

    def work() -> None:
        while bench.steps.ask("p", cost={"usd": 100}).proceeds:
            made.append(1)
            bench.steps.made(Work(pattern="p", reserved={"usd": 100}, used={"usd": 1}))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    bench.steps.report()
    assert len(made) == 200
    assert decode_state(LimitState, bench.state("steps", "unit", "u")).count == 200
    budget = decode_state(BudgetState, bench.state("budget", "unit", "u"))
    assert (budget.spent, budget.reserved) == (200, 0)
