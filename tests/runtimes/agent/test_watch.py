"""`guard.watch`: a block of one's own code is a run like any other, but for that nobody starts it again."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import flyball
from flyball.config import Settings, definitions
from flyball.core.codec import decode_body
from flyball.core.decision import Verb
from flyball.core.event import AnyEvent, Cause, Exited, Held, Start
from flyball.core.policy import Key
from flyball.errors import FlyballError
from flyball.guard import Guard
from flyball.policies import Budget
from flyball.runtimes.current import CURRENT
from flyball.runtimes.refusal import OutOfBudget, Refused

WAIT_MAX = 30.0
"""Seconds for what takes milliseconds."""


@pytest.fixture
def guard(request: pytest.FixtureRequest) -> Iterator[Guard]:
    settings = Settings.model_validate(getattr(request, "param", {}))
    with flyball.open("program", settings=settings, scratch=True) as opened:
        yield opened


def events(guard: Guard) -> list[AnyEvent]:
    return [decode_body(entry.body).event for entry in guard.governor.store.entries() if entry.unit == "work"]


def exits(guard: Guard) -> list[tuple[Cause, str]]:
    return [(event.cause, event.error) for event in events(guard) if isinstance(event, Exited)]


def watch_soon(guard: Guard, body: Any, **options: Any) -> Any:
    """Run a coroutine inside an `async with`."""

    async def watched() -> Any:
        async with guard.watch("work", **options) as ctx:
            return await body(ctx)

    return asyncio.run(asyncio.wait_for(watched(), WAIT_MAX))


async def for_ever(_: object) -> None:
    await asyncio.Event().wait()


def test_a_block_is_a_run(guard: Guard) -> None:
    """It starts, its steps count, it exits; inside it everything finds its run, after it nothing does."""
    with guard.watch("work", labels={"team": "a"}) as ctx:
        assert CURRENT.get() is ctx
        with ctx.step("look"):
            ctx.memory["seen"] = 1
    assert CURRENT.get() is None
    kinds = [type(event).__name__ for event in events(guard)]
    assert (kinds[0], kinds[-1]) == ("Start", "Exited")
    assert all(event.labels["team"] == "a" for event in events(guard))
    assert exits(guard) == [(Cause.DONE, "")]
    with guard.watch("work") as ctx:
        assert ctx.memory["seen"] == 1


def test_its_options_are_kept(guard: Guard) -> None:
    """The command line, a daemon and a replay judge it by what was said of it here."""
    with guard.watch("work", budget="2.00", deadline=600):
        pass
    kept = definitions.decode(guard.governor.store.states(definitions.NAME)[Key(definitions.NAME, "unit", "work")])
    assert Budget(limit=2_000_000) in kept
    assert tuple(kept) == tuple(guard.governor.panel.policies_of("work"))


def test_a_coroutine_is_a_run_too(guard: Guard) -> None:
    """The same with `async with`."""

    async def look(ctx: flyball.Context) -> str:
        async with ctx.step("look"):
            assert CURRENT.get() is ctx
        return "found"

    assert watch_soon(guard, look) == "found"
    assert exits(guard) == [(Cause.DONE, "")]


@pytest.mark.parametrize(
    ("error", "cause", "name"),
    [
        (ValueError("no"), Cause.ERROR, "ValueError: no"),
        (TimeoutError("late"), Cause.TIMEOUT, "TimeoutError: late"),
        (flyball.Starved("no quota"), Cause.STARVED, "flyball.errors.Starved: no quota"),
        (flyball.GaveUp("enough"), Cause.STOPPED, "gave_up"),
        (KeyboardInterrupt(), Cause.STOPPED, "KeyboardInterrupt"),
        (SystemExit(0), Cause.DONE, ""),
        (SystemExit(3), Cause.ERROR, "SystemExit: 3"),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, BaseException) else None,
)
def test_what_leaves_the_block_leaves_it_as_it_is(guard: Guard, error: BaseException, cause: Cause, name: str) -> None:
    """Nothing is swallowed; how the run ended is in the journal."""
    with pytest.raises(type(error)) as raised, guard.watch("work"):
        raise error
    assert raised.value is error
    ((found, said),) = exits(guard)
    assert found is cause
    assert said.rpartition(".")[2] == name.rpartition(".")[2]


def test_one_at_a_time(guard: Guard) -> None:
    """The same work is not done twice at once."""
    with guard.watch("work"), pytest.raises(Refused) as raised, guard.watch("work"):
        pass
    assert raised.value.code == "already_running"
    assert exits(guard) == [(Cause.DONE, "")]


def test_what_failed_may_not_start_again_at_once(guard: Guard) -> None:
    """A script that fails and is started again and again is refused, and told when to come back."""
    with pytest.raises(ValueError, match="no"), guard.watch("work"):
        raise ValueError("no")
    with pytest.raises(Refused) as raised, guard.watch("work"):
        pass
    assert raised.value.verb is Verb.WAIT
    assert raised.value.retry_after is not None
    assert sum(isinstance(event, Start) for event in events(guard)) == 2


def test_a_refusal_ends_it_in_order(guard: Guard) -> None:
    """Out of money: the step is refused, and the run has starved, not failed."""
    with pytest.raises(OutOfBudget), guard.watch("work", budget="0.01") as ctx, ctx.step("model", cost="0.02"):
        pass
    assert exits(guard) == [(Cause.STARVED, "cost_budget_exceeded")]


def test_at_its_deadline_a_coroutine_is_cancelled(guard: Guard) -> None:
    """What awaits for ever leaves the block with the refusal."""
    with pytest.raises(Refused) as raised:
        watch_soon(guard, for_ever, deadline=0.05)
    assert raised.value.code == "timeout"
    assert exits(guard) == [(Cause.TIMEOUT, "timeout")]


def test_at_its_deadline_a_thread_is_refused(guard: Guard) -> None:
    """A thread that waits through its context is told; any other finds its next step refused."""
    with pytest.raises(Refused) as raised, guard.watch("work", deadline=0.05) as ctx:
        ctx.wait_until(ctx.now() + 60_000_000)
    assert raised.value.code == "timeout"
    assert exits(guard) == [(Cause.TIMEOUT, "timeout")]


@pytest.mark.parametrize("guard", [{"exclusive": {"lease_seconds": 0.3}}], indirect=True)
def test_an_order_reaches_it_and_its_lease_is_kept(guard: Guard) -> None:
    """A block that says nothing for many leases keeps them, and hears at the next what a person orders."""

    def live() -> int:
        return guard.governor.live_runs("work")[0][2].until

    async def body(_: object) -> None:
        first = live()
        while live() < first + 900_000:
            await asyncio.sleep(0.01)
        guard.governor.submit(Held(unit="work", verb=Verb.STOP, by="me"))
        await asyncio.Event().wait()

    with pytest.raises(Refused) as raised:
        watch_soon(guard, body)
    assert raised.value.decision.verb is Verb.STOP
    assert [cause for cause, _ in exits(guard)] == [Cause.STOPPED]


def test_who_else_cancels_it_is_not_robbed_of_that(guard: Guard) -> None:
    """A task that is cancelled from outside is cancelled, and the run was stopped."""

    async def cancelled() -> None:
        begun = asyncio.Event()

        async def watched() -> None:
            async with guard.watch("work"):
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(watched())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(asyncio.wait_for(cancelled(), WAIT_MAX))
    assert [cause for cause, _ in exits(guard)] == [Cause.STOPPED]


def test_nothing_is_left_running(guard: Guard) -> None:
    """The thread that keeps the lease ends with the block."""
    before = threading.active_count()
    with guard.watch("work"):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


@pytest.mark.parametrize(("name", "match"), [("no name", "is no name"), ("program", "is taken"), ("agent", "is taken")])
def test_names(guard: Guard, name: str, match: str) -> None:
    """A name that cannot be, or that is somebody's already, is refused before anything is asked."""
    guard.agent("agent")(lambda _: None)
    with pytest.raises(FlyballError, match=match) as raised:
        guard.watch(name)
    assert raised.value.remedy
