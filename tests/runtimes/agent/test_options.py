"""Options of agents: what cannot be meant is refused where it is said, and nothing is defined."""

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flyball
from flyball.core.event import Cause
from flyball.errors import FlyballError
from flyball.runtimes.agent.context import Context
from tests.runtimes.agent.scene import Scene


async def agent(ctx: Context) -> None:
    """Does nothing."""


@pytest.fixture
def guard() -> Iterator[flyball.Guard]:
    with flyball.open("program", scratch=True) as opened:
        yield opened


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("deadline", -1),
        ("deadline", 0),
        ("deadline", math.nan),
        ("deadline", math.inf),
        ("deadline", "5m"),
        ("deadline", True),
        ("idle", -2.0),
        ("grace", -1),
        ("grace", None),
        ("every", -1),
        ("every", math.nan),
        ("every", "5"),
        ("restart", "sometimes"),
        ("isolation", "thread"),
        ("budget_by", "usr"),
        ("labels", {"a": 1}),
        ("labels", {"a": "x\x1b[2J"}),
        ("labels", {"a": "x" * 201}),
        ("labels", 5),
        ("user", 5),
        ("causes", {ValueError: "starved"}),
        ("causes", {"ValueError": Cause.STARVED}),
    ],
)
def test_options_that_cannot_be_meant(guard: flyball.Guard, option: str, value: Any) -> None:
    """A limit with a slip in it is an error that names it, never a limit that is silently not there."""
    with pytest.raises(FlyballError, match="user" if option == "user" else option) as caught:
        guard.agent("a", **{option: value})(agent)
    assert caught.value.remedy
    guard.agent("a")(agent)  # the name is free still


def test_options_of_a_block(guard: flyball.Guard) -> None:
    """A block is checked like an agent."""
    with pytest.raises(FlyballError, match="deadline is -1"):
        guard.watch("a", deadline=-1)


def generates(ctx: Context) -> Iterator[int]:
    yield 1


async def generates_soon(ctx: Context) -> AsyncIterator[int]:
    yield 1


def takes_nothing() -> None:
    """Would fail in each run."""


def takes_two(ctx: Context, more: str) -> None:
    """Would fail in each run."""


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (5, "is no function"),
        (generates, "generator"),
        (generates_soon, "generator"),
        (takes_nothing, "the context alone"),
        (takes_two, "the context alone"),
    ],
)
def test_functions_that_are_no_agents(guard: flyball.Guard, function: Any, says: str) -> None:
    """What would be over at once, having done nothing, or fail each time, is refused before its first run."""
    with pytest.raises(FlyballError, match=says):
        guard.agent("a")(function)
    guard.agent("a")(agent)


def test_a_coroutine_that_nobody_awaits_is_an_error() -> None:
    """A plain function that only returns a coroutine has done nothing, so it is not done."""
    scene = Scene()

    @scene.guard.agent("a", restart="never")
    def only_makes_it(ctx: Context) -> object:
        return agent(ctx)

    scene.run()
    assert scene.causes("a") == ["error"]


@pytest.mark.parametrize("name", ["a b", "", "x" * 65, "../up", 5])
def test_names_of_programs(name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program's name is checked as an agent's is, before anything is opened; none at all is that of the script."""
    monkeypatch.setattr("sys.argv", ["script.py"])
    if not name:
        with flyball.open(name, scratch=True) as guard:
            assert guard.name == "script"
        return
    with pytest.raises(FlyballError, match="is no name for a program"):
        flyball.open(name, state_dir=tmp_path / "state")
    assert not (tmp_path / "state").exists()


def test_two_guards_of_one_process_do_not_run_an_agent_twice(tmp_path: Path) -> None:
    """A second guard in the same process takes no run for lost that the first one looks after."""
    begun, may_end = threading.Event(), threading.Event()
    started: list[str] = []

    def define(guard: flyball.Guard, function: Callable[[Context], None]) -> flyball.Guard:
        guard.agent("one")(function)
        return guard

    def waits(ctx: Context) -> None:
        begun.set()
        assert may_end.wait(30)

    def starts(ctx: Context) -> None:
        started.append(ctx.run)

    with flyball.open("program", state_dir=tmp_path) as first, flyball.open("program", state_dir=tmp_path) as second:
        define(first, waits)
        define(second, starts)
        thread = threading.Thread(target=lambda: asyncio.run(first.supervise()))
        thread.start()
        try:
            assert begun.wait(30)
            with pytest.raises(FlyballError, match="supervises one already"):
                asyncio.run(second.supervise())
            assert not started
        finally:
            may_end.set()
            thread.join(30)
        exits = [event.cause for event in first.history("one") if isinstance(event, flyball.Exited)]
        assert exits == [Cause.DONE]
        asyncio.run(second.supervise())
        assert len(started) == 1  # it was nobody's any more


def test_a_bad_budget_defines_nothing(tmp_path: Path) -> None:
    """An agent whose budget is refused is not defined: it must not run without one. Its name is free."""
    with flyball.open("program", state_dir=tmp_path) as guard:

        async def agent(ctx: Context) -> None: ...

        with pytest.raises(ValueError, match="an amount"):
            guard.agent("a", budget="abc")(agent)
        with pytest.raises(FlyballError, match="there is no agent 'a'"):
            guard.run("a")
        guard.agent("a", budget="0.50")(agent)
        assert "ended_done" in guard.run("a")["a"].codes
