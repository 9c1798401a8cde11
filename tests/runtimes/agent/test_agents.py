"""Agents in Python: what follows each kind of death, what survives it, and who is told to end."""

import asyncio
import threading
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

import flyball
from flyball.core.decision import Verb
from flyball.core.event import Cause, Exited, Held, Released, Start
from flyball.core.time import SECOND
from flyball.errors import FlyballError
from flyball.runtimes.agent.context import Context
from flyball.runtimes.agent.ending import GAVE_UP, GaveUp, Starved
from flyball.runtimes.agent.memory import BYTES_MAX, Memory, MemoryRefused
from flyball.runtimes.refusal import OutOfBudget, Refused, SafetyError
from tests.runtimes.agent.scene import Scene


class QuotaGone(Exception):
    """A provider's word for it."""


@pytest.mark.parametrize(
    ("error", "cause", "restarted"),
    [
        (ValueError("boom"), "error", True),
        (TimeoutError(), "timeout", True),
        (KeyError("x"), "error", True),
        (asyncio.CancelledError(), "error", True),
        (SystemExit(3), "error", True),
        (SystemExit(0), "done", False),
        (GaveUp("enough"), "stopped", False),
        (None, "done", False),
    ],
    ids=str,
)
def test_deaths(error: BaseException | None, cause: str, restarted: bool) -> None:
    """S3-02, S3-04, S3-27: an error and a time-out are followed by another run; an end of its own is not."""
    scene = Scene()
    lives = 0

    @scene.guard.agent("a")
    async def agent(ctx: Context) -> None:
        nonlocal lives
        lives += 1
        if lives == 1 and error is not None:
            raise error

    scene.run()
    assert scene.causes("a")[0] == cause
    assert (lives > 1) is restarted


@pytest.mark.parametrize("error", [Starved("no quota"), MemoryError(), QuotaGone()], ids=repr)
def test_starved_waits_for_the_resource(error: Exception) -> None:
    """S3-20, S3-51: who runs out of a resource is not restarted like one who failed: it waits five minutes."""
    scene = Scene()
    lives: list[float] = []

    @scene.guard.agent("a", causes={QuotaGone: Cause.STARVED})
    async def agent(ctx: Context) -> None:
        lives.append(scene.loop.time())
        if len(lives) == 1:
            raise error

    scene.run()
    assert scene.causes("a") == ["starved", "done"]
    assert lives[1] - lives[0] >= 300


def test_bankrupt_is_not_restarted() -> None:
    """S3-03, S3-25: who has spent its money ends, however long one waits; its money is as it was."""
    scene = Scene()

    @scene.guard.agent("a", budget="0.05")
    async def agent(ctx: Context) -> None:
        while True:
            async with ctx.step("model", cost="0.02"):
                pass

    decision = scene.run()["a"]
    assert decision.verb is Verb.FINISH
    assert "ended_by_policy" in decision.codes
    assert scene.causes("a") == ["starved"]
    assert scene.starts("a") == 1


def test_money_and_memory_survive_a_restart() -> None:
    """S3-09, S3-44: a restart keeps what the agent remembers and what it has spent."""
    scene = Scene()
    seen: list[int] = []

    @scene.guard.agent("a", budget="0.05")
    async def agent(ctx: Context) -> None:
        seen.append(ctx.memory.get("steps", 0))
        while True:
            async with ctx.step("model", cost="0.01"):
                ctx.memory["steps"] = ctx.memory.get("steps", 0) + 1
            if ctx.memory["steps"] == 3 and not ctx.again:
                raise ValueError("boom")

    scene.run()
    assert seen == [0, 3]
    assert scene.causes("a") == ["error", "starved"]
    key = Memory.key("a")
    assert scene.store.read([key]).records[key] == b'{"steps":5}'


def test_memory_of_a_failed_step_is_taken_back() -> None:
    """The memory is as it was after the last step that was made: a step that failed changed nothing."""
    scene = Scene()
    seen: list[dict[str, Any]] = []

    @scene.guard.agent("a")
    async def agent(ctx: Context) -> None:
        seen.append(dict(ctx.memory))
        if ctx.again:
            return
        async with ctx.step("one"):
            ctx.memory["list"] = [1]
        async with ctx.step("two"):
            ctx.memory["list"].append(2)
            raise ValueError("boom")

    scene.run()
    assert seen == [{}, {"list": [1]}]


@pytest.mark.parametrize(
    ("value", "says"),
    [({1, 2}.__iter__(), "cannot be kept"), ("x" * BYTES_MAX, "allowed: 1048576")],
    ids=["kind", "size"],
)
def test_memory_refuses_what_it_cannot_keep(value: object, says: str) -> None:
    """What is no plain data, or too much, is refused with a reason, and the memory is as it was."""
    memory = Memory("a", b'{"kept":1}')
    memory["new"] = value
    with pytest.raises(MemoryRefused, match=says):
        memory.changed()
    assert dict(memory) == {"kept": 1}
    assert not memory.changed()


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        [1, {"deep": float("inf")}],
        {1: "a key"},
        {1, 2},
        b"bytes",
        datetime(2020, 1, 1, tzinfo=UTC),
        Decimal("1.10"),
    ],
    ids=repr,
)
def test_memory_refuses_what_would_come_back_as_something_else(value: object) -> None:
    """Not after the crash is it found out that a number became None, or a key a text; and it says where."""
    memory = Memory("a", b'{"kept":1}')
    memory["odd"] = value
    with pytest.raises(MemoryRefused, match="the memory of a cannot be kept: 'odd' has something"):
        memory.changed()
    assert dict(memory) == {"kept": 1}


def test_memory_takes_tuples_for_lists() -> None:
    """They are plain enough, at any depth."""
    memory = Memory("a")
    memory["pairs"] = [(1, 2), {"deep": ("x", None, True, 1.5, 2**70)}]
    [data] = memory.changed().values()
    assert dict(Memory("a", data)) == {"pairs": [[1, 2], {"deep": ["x", None, True, 1.5, 2**70]}]}


def test_backoff_grows_and_ends_with_a_good_step() -> None:
    """S3-29, S3-30: each failure doubles the wait, and one successful step starts it anew."""
    flapping = {"transient_delay_seconds": 1, "flapping_delay_seconds": 2}  # shorter than the backoff
    scene = Scene(restart_policy={"jitter": 0.0}, crash_policy=flapping)
    starts: list[float] = []

    @scene.guard.agent("a")
    async def agent(ctx: Context) -> None:
        starts.append(scene.loop.time())
        if len(starts) == 4:
            async with ctx.step("good"):
                pass
        if len(starts) == 6:
            return
        raise ValueError("boom")

    scene.run()
    waits = [round(after - before) for before, after in pairwise(starts)]
    assert waits == [5, 10, 20, 5, 10]


def test_stack_trace_and_reason_are_in_the_journal() -> None:
    """S3-26, S3-37: the journal has the reason of a crash, its stack trace, and how long the recovery took."""
    scene = Scene()

    @scene.guard.agent("a")
    async def agent(ctx: Context) -> None:
        if not ctx.again:
            raise ValueError("boom")

    scene.run()
    exited = scene.events("a", Exited)[0]
    assert isinstance(exited, Exited)
    assert exited.error == "ValueError: boom"
    assert "in agent" in exited.detail
    assert 'raise ValueError("boom")' in exited.detail
    again = scene.events("a", Start)[1]
    assert isinstance(again, Start)
    assert again.again
    assert 4 * SECOND < again.down < 7 * SECOND


def test_one_that_sleeps_delays_nobody() -> None:
    """S3-05: A sleeping agent, a waiting one and one in its backoff do not hold up another."""
    scene = Scene()
    ticks: list[float] = []

    @scene.guard.agent("sleeper")
    async def sleeper(ctx: Context) -> None:
        await ctx.sleep(86_400)

    @scene.guard.agent("failer")
    async def failer(ctx: Context) -> None:
        raise ValueError("boom")

    @scene.guard.agent("ticker")
    async def ticker(ctx: Context) -> None:
        for _ in range(100):
            async with ctx.step("tick"):
                ticks.append(scene.loop.time())
            await ctx.sleep(10)

    scene.run()
    assert [round(tick) for tick in ticks] == [round(ticks[0]) + 10 * number for number in range(100)]


def test_quota_pause_is_no_failure() -> None:
    """Where a budget comes back with the next hour, a step waits for it; nobody fails and nobody is restarted."""
    scene = Scene(budget={"per_fleet": "0.02", "period": "hour"})
    made: list[float] = []

    @scene.guard.agent("a")
    async def agent(ctx: Context) -> None:
        for _ in range(6):
            async with ctx.step("model", cost="0.01"):
                made.append(scene.loop.time())

    scene.run()
    assert len(made) == 6
    assert made[-1] - made[0] >= 3600
    assert scene.causes("a") == ["done"]


def test_circles_are_nudged_refused_and_stopped() -> None:
    """An agent that goes round in circles is told, then refused the call, then stopped; it is not started again, and
    the journal names where the circle began."""
    scene = Scene()
    nudges: list[str] = []
    refused: list[str] = []

    @scene.guard.agent("a")
    async def agent(ctx: Context) -> None:
        while True:
            try:
                async with ctx.step("look", call={"path": "/"}) as step:
                    step.result("the same as ever")
            except Refused as error:
                refused.append(error.code)
                if error.verb >= Verb.FINISH:
                    raise
            else:
                nudges.append(step.nudge)

    scene.run()
    exited = scene.events("a", Exited)[-1]
    assert isinstance(exited, Exited)
    assert any(nudges)
    assert exited.error == "going_in_circles"
    assert "since step 1" in exited.detail
    assert scene.starts("a") == 1
    assert len(nudges) <= 5


def test_one_that_does_not_listen_is_ended() -> None:
    """A refusal that is swallowed changes nothing: whoever goes on after STOP is cancelled."""
    scene = Scene()
    steps = 0

    @scene.guard.agent("a", grace=1)
    async def agent(ctx: Context) -> None:
        nonlocal steps
        while True:
            try:
                async with ctx.step("look", call="same") as step:
                    steps += 1
                    step.result("same")
            except Refused:
                await asyncio.sleep(0)

    scene.run()
    assert scene.causes("a") == ["stopped"]
    assert steps <= 5


def test_loop_of_one_pattern_is_stopped() -> None:
    """A hundred times the same pattern within a minute is a loop, whatever the calls are."""
    scene = Scene()
    made = 0

    @scene.guard.agent("a")
    async def agent(ctx: Context) -> None:
        nonlocal made
        while True:
            async with ctx.step("search", call=made) as step:
                made += 1
                step.result(made)

    scene.run()
    exited = scene.events("a", Exited)[-1]
    assert isinstance(exited, Exited)
    assert exited.error == "loop_detected"
    assert made == 99


def test_loop_is_a_safety_error() -> None:
    """S0-30: an agent that catches it is told what it is: a `SafetyError` that says "Loop detected"."""
    scene = Scene()
    caught: list[Refused] = []

    @scene.guard.agent("a")
    async def agent(ctx: Context) -> None:
        for number in range(200):
            try:
                async with ctx.step("search", call=number) as step:
                    step.result(number)
            except Refused as refused:
                caught.append(refused)
                raise

    scene.run()
    assert isinstance(caught[0], SafetyError)
    assert "Loop detected" in str(caught[0])


def test_side_by_side_steps_count() -> None:
    """Steps that are made side by side are counted like any others: no limit is passed by fanning out."""
    scene = Scene()
    made = 0

    @scene.guard.agent("a", budget="0.50")
    async def agent(ctx: Context) -> None:
        async def one(number: int) -> None:
            nonlocal made
            async with ctx.step(f"call {number % 7}", call=number, cost="0.01") as step:
                made += 1
                await ctx.sleep(1)
                step.result(number)

        for batch in range(20):
            await asyncio.gather(*(one(batch * 20 + number) for number in range(20)))

    scene.run()
    assert scene.causes("a") == ["starved"]
    assert made == 50


def test_a_tree_shares_its_money() -> None:
    """Agents of one tree share its budget: none takes so much at once that the others starve, and all together never
    spend more than there is."""
    scene = Scene(budget={"per_tree": "1.00"})
    made = dict.fromkeys(("one", "two", "three"), 0)

    def define(name: str) -> None:
        @scene.guard.agent(name, tree="root")
        async def agent(ctx: Context) -> None:
            while True:
                async with ctx.step("model", call=f"{name} {made[name]}", cost="0.01") as step:
                    made[name] += 1
                    step.result(made[name])
                await ctx.sleep(1)

    for name in made:
        define(name)
    scene.run()
    assert sum(made.values()) <= 100
    assert min(made.values()) >= 25
    assert all(scene.causes(name) == ["starved"] for name in made)


def test_deadline_ends_an_await_that_never_returns() -> None:
    """What awaits for ever is cancelled at its deadline; that is a time-out, and it is started again."""
    scene = Scene()
    lives: list[float] = []

    @scene.guard.agent("a", deadline=60)
    async def agent(ctx: Context) -> None:
        lives.append(scene.loop.time())
        if not ctx.again:
            await asyncio.Event().wait()

    scene.run()
    assert scene.causes("a") == ["timeout", "done"]
    assert 60 <= lives[1] - lives[0] < 80


def test_idle_agent_is_ended_and_a_busy_one_is_not() -> None:
    """S3-05: Silence is what counts: steps, beats and sleeping by the context are signs of life."""
    scene = Scene()

    @scene.guard.agent("silent", idle=30, restart="never")
    async def silent(ctx: Context) -> None:
        await asyncio.sleep(3600)

    @scene.guard.agent("sleeper", idle=30)
    async def sleeper(ctx: Context) -> None:
        await ctx.sleep(3600)

    @scene.guard.agent("stepper", idle=30)
    async def stepper(ctx: Context) -> None:
        for number in range(360):
            async with ctx.step("work", call=number) as step:
                step.result(number)
            await asyncio.sleep(10)

    @scene.guard.agent("beater", idle=30)
    async def beater(ctx: Context) -> None:
        for _ in range(360):
            ctx.beat()
            await asyncio.sleep(10)

    scene.run()
    assert scene.causes("silent") == ["timeout"]
    assert scene.causes("sleeper") == scene.causes("stepper") == scene.causes("beater") == ["done"]


def test_iterations_are_repeated() -> None:
    """With `every`, the function is one iteration; it is repeated until it gives up, and each is a step."""
    scene = Scene()
    at: list[float] = []

    @scene.guard.agent("a", every=60)
    async def agent(ctx: Context) -> None:
        at.append(scene.loop.time())
        if len(at) == 5:
            ctx.give_up("that is all")

    scene.run()
    assert [round(after - before) for before, after in pairwise(at)] == [60] * 4
    exited = scene.events("a", Exited)[-1]
    assert isinstance(exited, Exited)
    assert (exited.cause, exited.error, exited.detail) == (Cause.STOPPED, GAVE_UP, "that is all")


def test_stopped_by_a_person_is_never_brought_back() -> None:
    """What a person stopped stays stopped, in this program and in the next, until a person takes it back."""
    scene = Scene()

    def define(scene: Scene) -> list[float]:
        lives: list[float] = []

        @scene.guard.agent("a")
        async def agent(ctx: Context) -> None:
            lives.append(scene.loop.time())
            if len(lives) == 1 and not ctx.again:
                scene.governor.submit(Held(unit="a", verb=Verb.STOP, by="someone"))
            raise ValueError("boom")

        return lives

    first = define(scene)
    assert scene.run()["a"].verb is Verb.STOP
    assert len(first) == 1
    later = Scene(scene.store)
    second = define(later)
    later.loop.catch_up(scene.store.read(()).at)
    assert later.run()["a"].verb is Verb.STOP
    assert not second
    third = Scene(scene.store)
    lives = define(third)
    third.governor.submit(Released(unit="a", by="someone"))
    third.run()
    assert lives


def test_held_is_held_in_the_next_program_too() -> None:
    """Six times the same failure: quarantined, and a new program does not start it."""
    scene = Scene()

    @scene.guard.agent("a")
    async def agent(ctx: Context) -> None:
        raise ValueError("boom")

    assert scene.run()["a"].verb is Verb.HOLD
    assert scene.starts("a") == 6
    later = Scene(scene.store)

    @later.guard.agent("a")
    async def same(ctx: Context) -> None:
        raise AssertionError("it is held")

    # The same definition: another one would be a new revision, which clears failures.
    later.guard._agents["a"] = scene.guard._agents["a"]
    assert later.run()["a"].verb is Verb.HOLD
    assert scene.starts("a") == 6


def test_threads(tmp_path: Any) -> None:
    """S3-28: A plain function is an agent too, in a thread of its own; several do not wait for each other."""
    with flyball.open("program", state_dir=tmp_path) as guard:
        together = threading.Barrier(3, timeout=20)

        @guard.agent("one")
        def one(ctx: Context) -> None:
            with ctx.step("x", call=1, cost="0.01") as step:
                together.wait()
                ctx.memory["seen"] = 1
                step.result("fine")

        @guard.agent("two")
        def two(ctx: Context) -> None:
            together.wait()
            ctx.give_up()

        @guard.agent("three")
        async def three(ctx: Context) -> None:
            await asyncio.to_thread(together.wait)

        ended = guard.run()
        assert {name: decision.codes for name, decision in ended.items()} == {
            "one": ("ended_done",),
            "two": ("ended_stopped",),
            "three": ("ended_done",),
        }
        key = Memory.key("one")
        assert guard.governor.store.read([key]).records[key] == b'{"seen":1}'


def test_money_is_refused_before_it_is_spent(tmp_path: Any) -> None:
    """The step that would not fit is refused with numbers, before anything is spent."""
    with flyball.open("program", state_dir=tmp_path) as guard:
        errors: list[OutOfBudget] = []

        @guard.agent("a", budget={"usd": "0.05", "tokens": 100})
        async def agent(ctx: Context) -> None:
            async with ctx.step("model", cost={"usd": "0.01", "tokens": 90}) as step:
                step.spent({"usd": "0.004", "tokens": 80})
            try:
                async with ctx.step("model", cost={"usd": "0.01", "tokens": 30}):
                    raise AssertionError("there are only 20 tokens left")
            except OutOfBudget as error:
                errors.append(error)
                raise

        guard.run()
        assert errors[0].code == "cost_budget_exceeded"
        assert "80" in str(errors[0])
        assert errors[0].remedy


@pytest.mark.parametrize("name", ["", "with space", "a/b", "x" * 65])
def test_bad_names(name: str) -> None:
    """What is no name is refused where the agent is defined."""
    with flyball.open("program", scratch=True) as guard, pytest.raises(FlyballError, match="no name"):
        guard.agent(name)


def test_a_name_is_taken_once() -> None:
    """Two agents of one name would share one history."""
    with flyball.open("program", scratch=True) as guard:

        @guard.agent("a")
        async def agent(ctx: Context) -> None: ...

        with pytest.raises(FlyballError, match="already"):
            guard.agent("a")(agent)
        with pytest.raises(FlyballError, match="there is no agent 'b'"):
            guard.run("b")


def test_why() -> None:
    """S3-23: whether an agent may start, and if not why, can be asked at any time, and asking changes nothing."""
    scene = Scene()

    @scene.guard.agent("a")
    async def agent(ctx: Context) -> None:
        raise ValueError("boom")

    assert scene.guard.why("a").proceeds
    scene.run()
    entries = scene.store.read(()).seq
    assert "quarantined" in scene.guard.why("a").codes
    assert scene.store.read(()).seq == entries
