"""What becomes of an activity whose attempts are runs of a unit: with a real server, and a worker in this process."""

import asyncio
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    Replayer,
    SharedStateManager,
)

import flyball
from flyball.core.decision import Decision
from flyball.core.event import Cause, Event, Exited, Held, Released, Start, Step, Stepped
from flyball.errors import StoreFull
from flyball.governor import NO_ROWS, Governor, Rows
from flyball.integrations import temporal
from flyball.integrations.temporal import Limits, current
from tests.integrations.scene import a_guard
from tests.integrations.temporal.scene import FAST, exits, granted, refusal, result, told, until, working
from tests.integrations.temporal.workflows import ALL
from tests.servers.temporal import TemporalServer

pytestmark = pytest.mark.slow  # real servers, and workers that are killed

WAIT = 1.0
"""Seconds that a circuit stays open here."""


@activity.defn
async def plain(given: dict[str, Any]) -> Any:
    """Gives back what it was given."""
    return given.get("answer", "done")


def test_a_good_activity_is_let_alone(server: TemporalServer) -> None:
    """What does not fail is one run, done, and its result is Temporal's; so many side by side as its workflow likes.
    The workflow replays without the interceptor: nothing of it is in there."""

    async def scene() -> None:
        with a_guard() as guard:
            async with working(server, guard, plain) as there:
                handle = await there.many("plain", *({"answer": number} for number in range(5)))
                assert await result(handle) == list(range(5))
                history = await handle.fetch_history()
            units = [f"plain@{handle.id}.{number}" for number in range(1, 6)]
            assert [exits(guard, unit) for unit in units] == [[Cause.DONE]] * 5
        await Replayer(workflows=ALL).replay_workflow(history)

    asyncio.run(scene())


def test_what_fails_ends_at_the_limit(server: TemporalServer) -> None:
    """A failing activity is tried as often as flyball says, though Temporal would for ever; each type may have limits
    of its own. What failed stays as it is: only the attempt that is refused says so."""

    @activity.defn
    async def fails(given: dict[str, Any]) -> None:
        raise ValueError("no luck")

    async def scene() -> None:
        with a_guard(**FAST) as guard:
            async with working(server, guard, fails, attempts=9, activities={"fails": Limits(attempts=2)}) as there:
                handle = await there.one("fails")
                error = await refusal(handle)
            unit = f"fails@{handle.id}.1"
            assert (error.type, error.non_retryable) == ("max_resume_attempts_exceeded", True)
            assert (error.details[0]["unit"], error.details[0]["verb"]) == (unit, "hold")
            assert exits(guard, unit) == [Cause.ERROR] * 2

    asyncio.run(scene())


def test_new_work_begins_at_zero(server: TemporalServer) -> None:
    """A workflow that runs once more under its id does new work: attempts of work that was done are forgotten. Those of
    work that was not done are not."""
    tries = 0

    @activity.defn
    async def every_second(given: dict[str, Any]) -> int:
        nonlocal tries
        tries += 1
        if tries % 2:
            raise ValueError("once more")
        return tries

    async def scene() -> None:
        with a_guard(**FAST) as guard:
            async with working(server, guard, every_second, attempts=3) as there:
                for run in (1, 2, 3):
                    assert await result(await there.one("every_second", id="cron")) == 2 * run
            assert exits(guard, "every_second@cron.1") == [Cause.ERROR, Cause.DONE] * 3

    asyncio.run(scene())


class Unheard(Interceptor):
    """What is done is never told to Temporal: as if the worker were killed just before."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - Temporal's
        class Lost(ActivityInboundInterceptor):
            async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - Temporal's
                await super().execute_activity(input)
                raise RuntimeError("the worker is gone")

        return Lost(next)


def test_what_is_done_and_never_told_ends_too(server: TemporalServer) -> None:
    """An agent that kills its worker when it is done, before anybody hears of it, is tried again, and counted."""

    async def scene() -> None:
        with a_guard(**FAST) as guard:
            async with working(server, guard, plain, attempts=3, outside=Unheard()) as there:
                handle = await there.one("plain")
                assert (await refusal(handle)).type == "max_resume_attempts_exceeded"
            assert exits(guard, f"plain@{handle.id}.1") == [Cause.DONE] * 3

    asyncio.run(scene())


def test_a_workflow_that_does_not_end_is_ended(server: TemporalServer) -> None:
    """Each of its activities is a new one, and done. The workflow as a whole has a limit."""

    async def scene() -> None:
        with a_guard() as guard:
            async with working(server, guard, plain, workflow_attempts=4) as there:
                handle = await there.endless("plain")
                error = await refusal(handle)
            assert error.type == "max_steps"
            assert "Activity limit of the workflow reached (5/4)" in str(error)
            assert [granted(guard, f"plain@{handle.id}.{number}") for number in range(1, 7)] == [1, 1, 1, 1, 0, 0]

    asyncio.run(scene())


def test_no_more_than_the_budget_is_spent(server: TemporalServer) -> None:
    """The money of an activity, and that of its workflow, is refused before it is spent. Temporal does not try it
    again."""
    spent: list[str] = []

    @activity.defn
    async def buys(given: dict[str, Any]) -> str:
        for _ in range(10):
            async with current().reserve_soon("0.20") as money:
                spent.append(given["who"])
                money.settle("0.20")
        return "rich"

    async def scene() -> None:
        with a_guard(**FAST) as guard:
            async with working(server, guard, buys, budget="0.50") as there:
                handle = await there.one("buys", who="alone")
                error = await refusal(handle)
                assert (error.type, error.non_retryable) == ("cost_budget_exceeded", True)
                assert exits(guard, f"buys@{handle.id}.1") == [Cause.STOPPED]
            async with working(server, guard, buys, workflow_budget="0.70") as there:
                handle = await there.many("buys", {"who": "shared"}, {"who": "shared"})
                assert await result(handle) == ["cost_budget_exceeded"] * 2
        assert (spent.count("alone"), spent.count("shared")) == (2, 3)

    asyncio.run(scene())


def test_an_open_circuit_is_waited_for_by_temporal(server: TemporalServer) -> None:
    """While a circuit is open no activity starts, and no worker is busy with it: the attempt is scheduled for the
    instant at which it may be asked again. Then it goes on by itself."""
    settings = {**FAST, "circuit_breaker": {"failure_threshold": 3, "min_units": 3, "recovery_timeout_seconds": WAIT}}
    at: list[float] = []

    @activity.defn
    async def down(given: dict[str, Any]) -> None:
        raise ApplicationError("down", non_retryable=True)

    @activity.defn
    async def late(given: dict[str, Any]) -> str:
        at.append(time.time())
        return "done"

    async def scene() -> None:
        with a_guard(**settings) as guard:
            async with working(server, guard, down, late) as there:
                await result(await there.many("down", {}, {}, {}))
                opened = time.time()
                handle = await there.one("late")
                waiting: list[Any] = []
                while not waiting or not waiting[0].HasField("last_failure"):
                    waiting = list((await handle.describe()).raw_description.pending_activities)
                assert waiting[0].last_failure.application_failure_info.type == "circuit_open"
                scheduled = waiting[0].next_attempt_schedule_time.ToDatetime().timestamp()
                assert opened + WAIT - 0.3 < scheduled <= opened + WAIT + 0.1
                assert await result(handle) == "done"
            assert opened + WAIT - 0.3 < at[0]
            assert granted(guard, f"late@{handle.id}.1") == 1

    asyncio.run(scene())


at_work: list[str] = []
"""What is in the middle of something."""


@contextmanager
def being_at_work() -> Iterator[None]:
    """For as long as the block lasts, and however it is left."""
    at_work.append(activity.info().activity_type)
    try:
        yield
    finally:
        time.sleep(0.1)  # whoever does not wait for it finds it here
        at_work.pop()


@activity.defn
async def sleeps(given: dict[str, Any]) -> str:
    """A coroutine that does not listen to anybody."""
    with being_at_work():
        await asyncio.sleep(600)
    return "slept"


@activity.defn
def blocks(given: dict[str, Any]) -> str:
    """A thread, which only says that it is alive."""
    with being_at_work():
        while True:
            activity.heartbeat()
            time.sleep(0.01)


@pytest.mark.parametrize("kind", [sleeps, blocks], ids=["coroutine", "thread"])
def test_a_person_ends_what_runs(server: TemporalServer, kind: Any) -> None:
    """A hold reaches an activity that runs: a coroutine is cancelled, a thread hears it at its next heartbeat. It has
    ended when Temporal is told so, and nobody tries it again."""

    async def scene() -> None:
        with a_guard() as guard, ThreadPoolExecutor(4) as executor:
            async with working(server, guard, kind, executor=executor) as there:
                handle = await there.one(kind.__name__)
                unit = f"{kind.__name__}@{handle.id}.1"
                await until(lambda: granted(guard, unit) == 1)
                await until(lambda: bool(at_work))
                guard.governor.submit(Held(unit=unit, by="ann", note="enough"))
                error = await refusal(handle)
                assert at_work == []
            assert (error.type, error.non_retryable) == ("paused", True)
            assert "paused by ann: enough" in str(error)
            assert exits(guard, unit) == [Cause.STOPPED]

    asyncio.run(scene())


def test_what_is_held_may_wait_for_its_person(server: TemporalServer) -> None:
    """With `asks_again` a hold fails nothing: the workflow waits, and goes on when a person has released it."""

    async def scene() -> None:
        with a_guard() as guard:
            async with working(server, guard, plain, asks_again=0.1) as there:
                unit = "plain@waits.1"
                guard.governor.submit(Held(unit=unit, by="ann"))
                handle = await there.one("plain", id="waits")
                while not (pending := (await handle.describe()).raw_description.pending_activities):
                    await asyncio.sleep(0.01)
                while pending[0].attempt < 3:
                    pending = (await handle.describe()).raw_description.pending_activities
                assert granted(guard, unit) == 0
                guard.governor.submit(Released(unit=unit, by="ann"))
                assert await result(handle) == "done"
            assert exits(guard, unit) == [Cause.DONE]

    asyncio.run(scene())


@activity.defn
async def beats(given: dict[str, Any]) -> str:
    """A coroutine that says that it is alive."""
    while True:
        activity.heartbeat()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", [beats, blocks], ids=["coroutine", "thread"])
def test_what_temporal_cancels_did_not_fail(server: TemporalServer, kind: Any) -> None:
    """A workflow that is cancelled takes its activities with it: they were stopped."""

    async def scene() -> None:
        with a_guard() as guard, ThreadPoolExecutor(4) as executor:
            async with working(server, guard, kind, executor=executor) as there:
                handle = await there.one(kind.__name__)
                unit = f"{kind.__name__}@{handle.id}.1"
                await until(lambda: granted(guard, unit) == 1)
                await handle.cancel()
                await until(lambda: bool(exits(guard, unit)))
            assert exits(guard, unit) == [Cause.STOPPED]

    asyncio.run(scene())


def test_time_is_over_and_it_is_tried_again(server: TemporalServer) -> None:
    """The time that Temporal gives an attempt is its deadline: it is ended here too, before another one starts, and
    another one may start."""
    alive: list[int] = []
    most: list[int] = []

    @activity.defn
    async def slow_at_first(given: dict[str, Any]) -> str:
        alive.append(1)
        most.append(len(alive))
        try:
            if activity.info().attempt < 2:
                await asyncio.sleep(600)
        finally:
            alive.pop()
        return "done"

    async def scene() -> None:
        with a_guard(**FAST) as guard:
            async with working(server, guard, slow_at_first, attempts=2) as there:
                handle = await there.one("slow_at_first", timeout=0.5)
                assert await result(handle) == "done"
            assert exits(guard, f"slow_at_first@{handle.id}.1") == [Cause.TIMEOUT, Cause.DONE]
        assert max(most) == 1

    asyncio.run(scene())


@activity.defn
def steps(given: dict[str, Any]) -> int:
    """Makes steps, in a thread."""
    for number in range(100):
        with current().step("look", call=number) as step:
            step.result(number)
    return 100


def test_steps_inside_are_counted(server: TemporalServer) -> None:
    """What an activity does inside is its run's. A thread of Temporal's pool finds it, and is refused a step too
    many."""

    async def scene() -> None:
        with a_guard() as guard, ThreadPoolExecutor(1) as executor:
            async with working(server, guard, steps, executor=executor, steps=5) as there:
                handle = await there.one("steps")
                error = await refusal(handle)
            assert (error.type, error.non_retryable) == ("max_steps", True)
            events = told(guard, f"steps@{handle.id}.1")
            assert sum(len(event.done) for event in events if isinstance(event, Stepped)) == 5
            # What is asked for and not made is lost with a worker that is killed.
            assert {event.steps for event in events if isinstance(event, Step)} == {1}

    asyncio.run(scene())


@activity.defn
def elsewhere(given: dict[str, Any]) -> int:
    """Says which process it is in."""
    activity.heartbeat()
    return os.getpid()


def test_a_pool_of_processes_is_counted_too(server: TemporalServer) -> None:
    """Of what is in another process nothing is seen inside; its attempts are runs all the same."""

    async def scene() -> None:
        # A spawned process has nothing of ours; a forked one would have locks of threads that it does not have.
        spawn = multiprocessing.get_context("spawn")
        with a_guard() as guard, ProcessPoolExecutor(1, mp_context=spawn) as executor, spawn.Manager() as manager:
            shared = SharedStateManager.create_from_multiprocessing(manager)
            async with working(server, guard, elsewhere, executor=executor, shared=shared) as there:
                handle = await there.one("elsewhere")
                assert await result(handle) != os.getpid()
            assert exits(guard, f"elsewhere@{handle.id}.1") == [Cause.DONE]

    asyncio.run(scene())


def test_what_somebody_else_completes_is_done_here(server: TemporalServer) -> None:
    """An activity that hands its completion on has not failed."""
    tokens: list[bytes] = []

    @activity.defn
    async def hands_on(given: dict[str, Any]) -> None:
        tokens.append(activity.info().task_token)
        activity.raise_complete_async()

    async def scene() -> None:
        with a_guard() as guard:
            async with working(server, guard, hands_on) as there:
                handle = await there.one("hands_on")
                unit = f"hands_on@{handle.id}.1"
                await until(lambda: bool(exits(guard, unit)))
                await there.client.get_async_activity_handle(task_token=tokens[0]).complete("by hand")
                assert await result(handle) == "by hand"
            assert exits(guard, unit) == [Cause.DONE]

    asyncio.run(scene())


def test_the_loop_is_not_blocked(server: TemporalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the store takes its time, the worker's loop goes on."""
    asked, answered = threading.Event(), threading.Event()
    submit = Governor.submit

    def slowly(self: Governor, event: Event, rows: Rows = NO_ROWS) -> Decision:
        if isinstance(event, Start):
            asked.set()
            assert answered.wait(30)
        return submit(self, event, rows)

    async def scene() -> None:
        with a_guard() as guard:
            async with working(server, guard, plain) as there:
                monkeypatch.setattr(Governor, "submit", slowly)
                handle = await there.one("plain")
                await until(asked.is_set)
                answered.set()  # only a loop that goes on comes here
                assert await result(handle) == "done"

    asyncio.run(scene())


@pytest.mark.parametrize("kind", [Start, Exited], ids=["at the start", "at the end"])
def test_a_store_out_of_reach(server: TemporalServer, monkeypatch: pytest.MonkeyPatch, kind: type[Event]) -> None:
    """Where nobody can be asked nothing begins, and Temporal tries again. What was done is done, and how it ended is
    said when it can be."""
    monkeypatch.setattr(temporal, "TROUBLE_WAIT", 10_000)
    failures = iter([StoreFull("no room"), StoreFull("no room")])
    submit, submit_if = Governor.submit, Governor.submit_if
    acted: list[int] = []

    def trouble(event: Event) -> None:
        if isinstance(event, kind) and (error := next(failures, None)) is not None:
            raise error

    def submitting(self: Governor, event: Event, rows: Rows = NO_ROWS) -> Decision:
        trouble(event)
        return submit(self, event, rows)

    def submitting_if(self: Governor, fact: Event, still: Any) -> Decision | None:
        trouble(fact)
        return submit_if(self, fact, still)

    @activity.defn
    async def acts(given: dict[str, Any]) -> str:
        acted.append(1)
        return "done"

    async def scene() -> None:
        with a_guard() as guard:
            monkeypatch.setattr(Governor, "submit", submitting)
            monkeypatch.setattr(Governor, "submit_if", submitting_if)
            async with working(server, guard, acts) as there:
                handle = await there.one("acts")
                assert await result(handle) == "done"
                await until(lambda: bool(exits(guard, f"acts@{handle.id}.1")))
            assert exits(guard, f"acts@{handle.id}.1") == [Cause.DONE]
        assert len(acted) == 1

    asyncio.run(scene())


def test_labels_are_for_what_activities_share(server: TemporalServer) -> None:
    """Labels are given for all, or made for each; the workflow is the tree. A user's hold reaches what is theirs."""

    async def scene() -> None:
        with a_guard() as guard:
            guard.governor.submit(Held(scope="user", labels={"user": "bob"}, by="ann"))
            async with working(
                server, guard, plain, labels=lambda info, args: {"user": args[0]["who"], "queue": info.task_queue}
            ) as there:
                assert await result(await there.one("plain", id="eve-1", who="eve")) == "done"
                assert (await refusal(await there.one("plain", who="bob"))).type == "paused"
            start = next(event for event in told(guard, "plain@eve-1.1") if isinstance(event, Start))
            assert start.labels == {"activity": "plain", "tree": "eve-1", "user": "eve", "queue": there.queue}

    asyncio.run(scene())


def test_without_a_guard_one_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `flyball.open()` has it."""
    with a_guard() as guard:
        monkeypatch.setattr(flyball, "open", lambda: guard, raising=False)
        assert temporal.GuardInterceptor()._guard is guard
