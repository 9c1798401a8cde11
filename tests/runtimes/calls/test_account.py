"""Allowances of calls: few commits, and never more attempts, or more money, than were granted."""

import asyncio
import contextlib
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, cycle
from typing import Any

import pytest

from flyball.core.codec import decode_state
from flyball.core.decision import Decision
from flyball.core.event import Event, Step
from flyball.core.policy import AnyPolicy
from flyball.core.time import SECOND
from flyball.errors import StoreFull
from flyball.governor import NO_ROWS, Governor, Rows
from flyball.policies import Budget, Exclusive, Limit, Loop
from flyball.policies.budget import State as Spent
from flyball.policies.limit import State as Counted
from flyball.runtimes.allowance import SHARE, RunSteps
from flyball.runtimes.calls import Calls
from flyball.runtimes.calls.account import ATTEMPTS_FIRST, ATTEMPTS_MAX
from flyball.runtimes.current import CURRENT
from flyball.runtimes.refusal import CircuitOpen, OutOfBudget, Refused
from tests.runtimes.calls.stage import UNIT, Broken, Fickle, Stage

BUSY: dict[str, Any] = {"breaker": "provider:x", "loop": (1_000_000, 60), "cost": "0.01", "budget": 10_000}


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.calls.close()


def money(stage: Stage, name: str = "fetch") -> Spent:
    data = stage.state("call_budget", f"call:{name}", UNIT)
    return decode_state(Spent, data) if data is not None else Spent()


def until_refused(made: Callable[[], object]) -> tuple[int, type[Refused]]:
    """How often it was made, and how it was refused in the end."""
    for times in count():
        try:
            made()
        except Refused as refused:
            return times, type(refused)
    raise AssertionError("unreachable: it is counted for ever")


def count_of(stage: Stage) -> int:
    data = stage.state("steps", "unit", UNIT)
    return decode_state(Counted, data).count if data is not None else 0


def test_few_commits_serve_many_calls(stage: Stage) -> None:
    """Allowances grow while they are used up, and what went well is one line of a report."""
    made = stage.calls("fetch", **BUSY)(lambda: None)
    for _ in range(5_000):
        made()
    stage.calls.report()
    granted = [step.steps for step in stage.events("step")]
    assert granted[:4] == [4, 16, 64, 256]
    assert set(granted[4:]) == {ATTEMPTS_MAX}
    works = [work for event in stage.events("stepped") for work in event.done]
    assert sum(work.times for work in works) == 5_000
    assert len(works) <= len(granted) + 1
    assert money(stage).spent == 5_000 * 10_000
    assert money(stage).reserved == 0


def test_who_calls_seldom_holds_little(stage: Stage) -> None:
    """An allowance that is not used shrinks again."""
    made = stage.calls("fetch", **BUSY)(lambda: None)
    for _ in range(2_000):
        made()
    for _ in range(9):
        stage.clock.move(6 * SECOND)
        made()
    assert stage.events("step")[-1].steps == ATTEMPTS_FIRST


@pytest.mark.parametrize(
    ("policy", "options", "most"),
    [
        (None, {"loop": (320, 60)}, 320 // SHARE),
        (None, {"loop": (10, 60)}, 1),
        (None, {"cost": 1, "budget": 160}, 160 // SHARE),
        (None, {"cost": 1, "budget": 5}, 1),
        (Limit(most=320, by="unit"), {}, 320 // SHARE),
        (Budget(limit=160_000_000, by="fleet"), {"cost": 1}, 160 // SHARE),
        (Budget(limit=160, meter="tokens", by="fleet"), {"cost": 1}, ATTEMPTS_MAX),
        (Loop(repeats_max=320), {}, 320 // SHARE),
    ],
)
def test_an_allowance_takes_little_of_what_is_shared(
    stage: Stage, policy: AnyPolicy | None, options: dict[str, Any], most: int
) -> None:
    """At most a sixteenth of any limit: what one process holds is refused to the others meanwhile."""
    if policy is not None:
        stage.put(policy)
    made = stage.calls("fetch", **options)(lambda: None)
    with contextlib.suppress(Refused):
        for _ in range(2_000):
            made()
    assert max(step.steps for step in stage.events("step")) == most


def test_the_lease_of_a_short_window_is_short(stage: Stage) -> None:
    """What was granted for a loop of a second is not used seconds later."""
    made = stage.calls("fetch", loop=(1_600, 1.2))(lambda: None)
    made()
    stage.clock.move(SECOND // 10 - 1)
    made()
    assert len(stage.events("step")) == 1
    stage.clock.move(1)
    made()
    assert len(stage.events("step")) == 2


def test_an_order_is_obeyed_when_the_lease_ends(stage: Stage) -> None:
    """Somebody else opened the circuit: whoever holds leave learns it within five seconds, or by the next failure."""
    here = stage.calls("fetch", breaker="provider:x")(lambda: None)
    for _ in range(50):
        here()
    there = stage.another("host/2/2")
    broken = there("fetch", breaker="provider:x")(Fickle(99).__call__)
    for _ in range(5):
        with pytest.raises(Broken):
            broken()
    here()
    stage.clock.move(5 * SECOND)
    with pytest.raises(CircuitOpen):
        here()
    there.close()


def test_in_one_process_the_circuit_opens_for_all_at_once(stage: Stage) -> None:
    """Other calls with the same breaker hold leave, and do not use it any more."""
    well = stage.calls("well", breaker="provider:x")(lambda: None)
    for _ in range(50):
        well()
    broken = stage.calls("broken", breaker="provider:x")(Fickle(99).__call__)
    for _ in range(5):
        with pytest.raises(Broken):
            broken()
    with pytest.raises(CircuitOpen):
        well()


def test_what_is_held_is_given_back(stage: Stage) -> None:
    """When it is closed, everything that was not used is there again for others."""
    stage.put(Limit(most=10_000, by="unit"))
    made = stage.calls("fetch", **BUSY)(lambda: None)
    for _ in range(100):
        made()
    assert money(stage).reserved > 0
    stage.calls.close()
    assert money(stage) == Spent(1_000_000)
    assert count_of(stage) == 100


def test_what_one_call_holds_is_not_refused_to_another(stage: Stage) -> None:
    """Before anybody in this process is refused, all that is held here is given back."""
    stage.put(Budget(limit=1_600_000, by="fleet"))
    names = [f"call{number}" for number in range(20)]
    made = {name: stage.calls(name, cost="0.01")(lambda: None) for name in names}
    turns = cycle(made.values())

    def in_turn() -> None:
        next(turns)()

    assert until_refused(in_turn) == (160, OutOfBudget)


def test_what_is_not_reported_counts_as_used(stage: Stage) -> None:
    """A process that dies takes with it what it held, and no more is made in all than was granted."""
    stage.put(Limit(most=100, by="unit"))
    total = 0
    for run in range(50):
        calls = stage.another(f"host/{run}/{run}")
        made = calls("fetch")(lambda: None)
        try:
            for _ in range(3):
                made()
                total += 1
        except Refused:
            break
        calls._books.disown()  # what a kill does: nobody reports
    assert 15 < total <= 100
    assert count_of(stage) == 100


@pytest.mark.parametrize("fails", [0, 7])
def test_threads_never_make_more_than_was_granted(stage: Stage, fails: int) -> None:
    """Eight threads on one call, some of whose attempts fail: exactly as many attempts as the limit allows."""
    stage.put(Limit(most=3_000, by="unit"))
    numbers = iter(range(10**9))

    @stage.calls("fetch", cost="0.01", budget=1_000)
    def fetch() -> None:
        if fails and next(numbers) % fails == 0:
            raise Broken

    def tried() -> None:
        with contextlib.suppress(Broken):
            fetch()

    with ThreadPoolExecutor(8) as pool:
        totals = [pool.submit(until_refused, tried) for _ in range(8)]
        made = sum(total.result()[0] for total in totals)
    stage.calls.report()
    assert made == 3_000 == count_of(stage)
    assert money(stage) == Spent(3_000 * 10_000)


def test_tasks_never_make_more_than_was_granted(stage: Stage) -> None:
    """A hundred tasks in one loop: the same."""
    stage.put(Limit(most=1_000, by="unit"))

    @stage.calls("fetch")
    async def fetch() -> None:
        await asyncio.sleep(0)

    async def work() -> int:
        made = 0
        while True:
            try:
                await fetch()
            except Refused:
                return made
            made += 1

    async def all_of_them() -> list[int]:
        return await asyncio.gather(*(work() for _ in range(100)))

    assert sum(asyncio.run(all_of_them())) == 1_000 == count_of(stage)


class SlowGovernor(Governor):
    """Answers requests only when it is told to."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.governor.panel, stage.store, stage.clock)
        self.asked: list[Callable[[], None]] = []

    def submit_soon(self, event: Event, rows: Rows = NO_ROWS) -> "Future[Decision]":
        if not isinstance(event, Step):
            return super().submit_soon(event, rows)
        answer: Future[Decision] = Future()
        answer.set_running_or_notify_cancel()
        self.asked.append(lambda: answer.set_result(self.submit(event)))
        return answer

    def answer(self) -> None:
        asked, self.asked = self.asked, []
        for one in asked:
            one()


def test_one_asks_for_all_who_wait(stage: Stage) -> None:
    """Fifty tasks that find nothing to take make one request, not fifty."""
    governor = SlowGovernor(stage)
    calls = Calls(governor, UNIT, stage.settings, stage.put, run="1")
    made = []

    @calls("fetch")
    async def fetch() -> None:
        made.append(1)

    async def all_of_them() -> None:
        tasks = [asyncio.ensure_future(fetch()) for _ in range(50)]
        requests = []
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            requests.append(len(governor.asked))
            governor.answer()
        assert max(requests) == 1

    asyncio.run(all_of_them())
    assert len(made) == 50
    calls.close()


@pytest.mark.parametrize("options", [{}, {"loop": (10, 60)}, {"cost": lambda: "0.01", "budget": 1}])
def test_who_is_cancelled_while_asking_loses_nothing(stage: Stage, options: dict[str, Any]) -> None:
    """What was on its way is granted all the same: others use it, or it is given back."""
    governor = SlowGovernor(stage)
    calls = Calls(governor, UNIT, stage.settings, stage.put, run="1")

    @calls("fetch", breaker="provider:x", **options)
    async def fetch() -> None:
        raise AssertionError("it was cancelled before")

    async def cancelled() -> None:
        task = asyncio.ensure_future(fetch())
        while not governor.asked:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        governor.answer()

    asyncio.run(cancelled())
    calls.close()
    assert money(stage) == Spent()
    works = [work for event in stage.events("stepped") for work in event.done]
    assert [(work.cut, work.used) for work in works] == ([(True, {})] if options else [])


def test_a_retry_that_waits_can_be_cancelled(stage: Stage) -> None:
    """The pause between two attempts of a coroutine ends when the task is cancelled."""
    waiting = asyncio.Event()

    async def pause(_: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    calls = Calls(stage.governor, UNIT, stage.settings, stage.put, run="1", sleep_soon=pause)
    work = Fickle(9)

    @calls("fetch", retry=3)
    async def fetch() -> None:
        work()

    async def cancelled() -> None:
        task = asyncio.ensure_future(fetch())
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert work.made == 1
    calls.close()


def test_at_most_three_trials_at_a_time(stage: Stage) -> None:
    """Half-open, three attempts may be in flight, of however many tasks; the fourth is refused for a second."""
    failing = stage.calls("fetch", breaker="provider:x")(Fickle(5).__call__)
    for _ in range(5):
        with pytest.raises(Broken):
            failing()
    stage.clock.move(60 * SECOND)
    go = asyncio.Event()
    made = []

    @stage.calls("fetch", breaker="provider:x")
    async def fetch() -> None:
        made.append(1)
        await go.wait()

    async def all_of_them() -> list[Any]:
        tasks = [asyncio.ensure_future(fetch()) for _ in range(9)]
        while sum(task.done() for task in tasks) < 6:
            await asyncio.sleep(0)
        assert len(made) == 3
        go.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    refused = [answer for answer in asyncio.run(all_of_them()) if answer is not None]
    assert [type(answer) for answer in refused] == [CircuitOpen] * 6
    assert {answer.retry_after for answer in refused} == {1.0}
    assert stage.state("call_breaker", "provider", "x") is None


def test_a_thread_gives_back_what_is_due(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody calls any more: what is held is given back when its lease ends, and the thread goes."""
    monkeypatch.setattr("flyball.runtimes.calls.books.LASTS_MAX", 0)  # it looks as often as it may
    made = stage.calls("fetch", **BUSY)(lambda: None)
    for _ in range(30):
        made()
    assert money(stage).reserved
    thread = stage.calls._books._thread
    assert thread is not None
    stage.clock.move(5 * SECOND)
    thread.join(10)
    assert not thread.is_alive()
    assert money(stage) == Spent(30 * 10_000)


def test_an_agent_asks_for_each_attempt(stage: Stage) -> None:
    """Inside a run of an agent an attempt is a step of that run: it asks for itself, with the run's labels."""

    @dataclass
    class Run:
        unit: str
        run: str
        labels: dict[str, str]
        steps: RunSteps

    stage.governor.panel.put("agent", [Exclusive(), Limit(most=50)])
    steps = RunSteps(stage.governor, "agent", "r1", {"tree": "t"})
    made = stage.calls("fetch", breaker="provider:x")(lambda: None)
    made()
    token = CURRENT.set(Run("agent", "r1", {"tree": "t"}, steps))
    try:
        for _ in range(20):
            made()
        # The run's own steps take an allowance of all that is left. It is given back before a refusal.
        assert steps.ask("think").proceeds
        assert until_refused(made) == (29, Refused)
    finally:
        CURRENT.reset(token)
    step = next(step for step in stage.events("step") if step.unit == "agent")
    assert (step.run, step.steps, step.labels) == ("r1", 1, {"tree": "t", "call": "fetch", "provider": "x"})


def test_a_forked_child_has_nothing(stage: Stage) -> None:
    """What the parent holds is the parent's: the child would use it a second time."""
    stage.put(Limit(most=100, by="unit"))
    made = stage.calls("fetch")(lambda: None)
    for _ in range(10):
        made()
    before = count_of(stage)
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads and forks do not go well together: that is why
        child = os.fork()
    if child == 0:
        made()
        os.write(write, str(count_of(stage) - before).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        asked_anew = int(pipe.read() or 0)
    os.waitpid(child, 0)
    assert asked_anew >= 1


class DeafGovernor(Governor):
    """Grants, and cannot write down what was done."""

    def submit_soon(self, event: Event, rows: Rows = NO_ROWS) -> "Future[Decision]":
        if isinstance(event, Step):
            return super().submit_soon(event, rows)
        answer: Future[Decision] = Future()
        answer.set_exception(StoreFull("no room"))
        return answer


@pytest.mark.parametrize("work", [Fickle(), Fickle(1)])
def test_a_report_that_fails_takes_no_result_away(stage: Stage, work: Fickle, caplog: pytest.LogCaptureFixture) -> None:
    """The call was made: its result, or its own error, comes through. What is not reported counts as used."""
    calls = Calls(DeafGovernor(stage.governor.panel, stage.store, stage.clock), UNIT, stage.settings, stage.put)
    made = calls("fetch", cost="0.50", budget=1)(work.__call__)
    fails = work.failures
    with caplog.at_level(logging.WARNING):
        if fails:
            with pytest.raises(Broken):
                made()
        else:
            assert made() == 1
        calls.close()
    assert "could not be reported" in caplog.text
    assert money(stage).reserved == 500_000


def test_the_first_call_of_many_threads(stage: Stage) -> None:
    """All threads begin at once, and all get leave."""
    barrier = threading.Barrier(8)
    made = stage.calls("fetch")(lambda: None)

    def work() -> None:
        barrier.wait(10)
        made()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    stage.calls.report()
    assert sum(work.times for event in stage.events("stepped") for work in event.done) == 8


def test_a_step_costs_the_same_after_many(stage: Stage) -> None:
    """What is held and kept does not grow with the number of calls."""
    made = stage.calls("fetch", **BUSY)(lambda: None)
    for _ in range(20_000):
        made()
    assert sum(len(data) for data in stage.store.states().values()) < 20_000
    assert len(stage.calls._books._open) <= 1
