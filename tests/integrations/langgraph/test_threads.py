"""A thread is one piece of work: counted over all its runs, resumed so often and no more; it waits for people."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START
from langgraph.types import Command, Send, interrupt

from flyball.core.event import Cause
from flyball.core.time import HOUR
from flyball.integrations.langgraph import GraphChanged, StepLimit, Stopped, guard
from flyball.runtimes.refusal import Refused
from flyball.testing.clock import FakeClock
from tests.integrations.langgraph.scene import (
    State,
    a_builder,
    a_guard,
    endless,
    exits,
    line,
    next_round,
    of_thread,
    says,
    starts,
    steps,
)

INLINE: dict[str, Any] = {"isolation": "inline", "name": "board"}


@contextmanager
def in_memory(_: Path) -> Iterator[BaseCheckpointSaver[Any]]:
    yield InMemorySaver()


@contextmanager
def in_a_file(folder: Path) -> Iterator[BaseCheckpointSaver[Any]]:
    connection = sqlite3.connect(folder / "graph.db", check_same_thread=False)
    yield SqliteSaver(connection)
    connection.close()


@asynccontextmanager
async def in_a_file_soon(folder: Path) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    async with AsyncSqliteSaver.from_conn_string(str(folder / "graph.db")) as saver:
        yield saver


every_saver = pytest.mark.parametrize("saving", [in_memory, in_a_file], ids=["memory", "sqlite"])


@every_saver
def test_a_second_invoke_does_not_begin_at_zero(saving: Callable[[Path], Any], tmp_path: Path) -> None:
    """S1-03: 20 steps each time, and the third time only 15: the thread has 55, however often it is called."""
    with a_guard() as opened, saving(tmp_path) as saver:
        graph = guard(line(*(f"n{n}" for n in range(20))), guard=opened, checkpointer=saver, **INLINE)
        for _ in range(2):
            graph.invoke({"log": []}, of_thread("7"))
        with pytest.raises(StepLimit):
            graph.invoke({"log": []}, of_thread("7"))
        assert steps(opened, "board@7") == 55
        assert len(graph.get_state(of_thread("7")).values["log"]) == 55
        assert graph.invoke({"log": []}, of_thread("8")).status == "completed"
        assert starts(opened, "board@7") == ["Start"] * 3


@every_saver
def test_a_chat_begins_each_turn_at_zero(saving: Callable[[Path], Any], tmp_path: Path) -> None:
    """S1-03: with `work="turn"` a turn that came to its end is done, and the next has all its steps."""
    with a_guard() as opened, saving(tmp_path) as saver:
        graph = guard(line("a", "b"), guard=opened, checkpointer=saver, work="turn", steps=3, **INLINE)
        for turn in range(5):
            assert len(graph.invoke({"log": []}, of_thread("7"))["log"]) == 2 * (turn + 1)


def test_an_async_checkpointer(tmp_path: Path) -> None:
    """S1-06: a checkpointer that only coroutines can use is used by them: to count, to wrap up, to look."""

    async def run() -> None:
        async with in_a_file_soon(tmp_path) as saver:
            with a_guard() as opened:
                graph = guard(endless(pong=next_round), guard=opened, checkpointer=saver, wrap_up="end", **INLINE)
                values = await graph.ainvoke({"log": []}, of_thread("7"))
                assert values["log"] == ["ping", "pong"] * 7 + ["end"]
                state = await graph.aget_state(of_thread("7"))
                assert state.values == values
                assert state.next == ()

    asyncio.run(run())


@every_saver
def test_the_wrap_up_is_on_the_thread(saving: Callable[[Path], Any], tmp_path: Path) -> None:
    """S1-17, S1-35: what is wrapped up is kept with the thread, as everything before it."""
    with a_guard() as opened, saving(tmp_path) as saver:
        graph = guard(endless(pong=next_round), guard=opened, checkpointer=saver, wrap_up="end", **INLINE)
        values = graph.invoke({"log": []}, of_thread("7"))
        kept = graph.get_state(of_thread("7"))
        assert kept.values == values
        assert (kept.values["stop_reason"], kept.next) == ("max_rounds", ())
        assert len(list(graph.get_state_history(of_thread("7")))) > 15


# Resumes.


def test_a_loop_outside_does_not_get_round_the_limit() -> None:
    """S1-63, S2: a thread that failed is resumed three times, also where each time new input is given."""
    clock = FakeClock()
    ran: list[str] = []

    def broken(_: State) -> dict[str, Any]:
        ran.append("x")
        raise ConnectionError("down")

    with a_guard(clock) as opened:
        graph = guard(line("a", a=broken), guard=opened, checkpointer=InMemorySaver(), **INLINE)
        for attempt in range(4):
            clock.move(HOUR)
            with pytest.raises(ConnectionError):
                graph.invoke({"log": [str(attempt)]}, of_thread("7"))
        clock.move(HOUR)
        with pytest.raises(Stopped, match=r"\(4/3\)") as raised:
            graph.invoke({"log": ["once more"]}, of_thread("7"))
        assert raised.value.code == "max_resume_attempts_exceeded"
        assert len(ran) == 4
        assert starts(opened, "board@7") == ["Start", "Resume", "Resume", "Resume"]
        assert graph.get_state(of_thread("7")).values["log"] == ["0", "1", "2", "3"]


def test_what_failed_goes_on_where_it_was() -> None:
    """S1-63: a thread that failed is resumed from its checkpoint, and its steps are counted on."""
    clock = FakeClock()
    works: list[str] = []

    def flaky(_: State) -> dict[str, Any]:
        if not works:
            raise ConnectionError("down")
        return {"log": ["b"]}

    with a_guard(clock) as opened:
        graph = guard(line("a", "b", b=flaky), guard=opened, checkpointer=InMemorySaver(), **INLINE)
        with pytest.raises(ConnectionError):
            graph.invoke({"log": []}, of_thread("7"))
        clock.move(HOUR)
        works.append("now")
        assert graph.invoke(None, of_thread("7"))["log"] == ["a", "b"]
        assert [exited.progress for exited in exits(opened, "board@7")] == [True, False]


def test_a_cooldown_is_waited_for_or_not() -> None:
    """S1-63: after a failure there is a cooldown; whoever does not want to wait for it is told how long it lasts."""
    with a_guard(FakeClock()) as opened:

        def broken(_: State) -> dict[str, Any]:
            raise ConnectionError("down")

        graph = guard(line("a", a=broken), guard=opened, wait=0, **INLINE)
        with pytest.raises(ConnectionError):
            graph.invoke({"log": []}, of_thread("7"))
        with pytest.raises(Refused) as raised:
            graph.invoke({"log": []}, of_thread("7"))
        assert raised.value.retry_after is not None


def test_two_at_once_on_one_thread() -> None:
    """S1-43: a thread runs once at a time; the second is refused, and the first is left alone."""
    with a_guard() as opened:
        graph = guard(line("a", "b"), guard=opened, **INLINE)
        first = graph.stream({"log": []}, of_thread("7"))
        next(first)
        with pytest.raises(Stopped) as raised:
            graph.invoke({"log": []}, of_thread("7"))
        assert raised.value.code == "already_running"
        assert list(first) == [{"b": {"log": ["b"]}}]


@pytest.mark.parametrize("soon", [False, True], ids=["thread", "coroutine"])
def test_whoever_reads_goes_away(soon: bool) -> None:
    """S1-60: a stream that nobody reads to its end is a run that was stopped; the thread is resumed later."""
    with a_guard() as opened:
        graph = guard(line("a", "b"), guard=opened, checkpointer=InMemorySaver(), **INLINE)
        if soon:

            async def read() -> None:
                stream: Any = graph.astream({"log": []}, of_thread("7"))
                await anext(stream)
                await stream.aclose()

            asyncio.run(read())
        else:
            stream: Any = graph.stream({"log": []}, of_thread("7"))
            next(stream)
            stream.close()
        [exited] = exits(opened, "board@7")
        assert exited.cause is Cause.STOPPED
        assert graph.last is not None
        assert graph.last.status == "stopped"
        assert graph.invoke(None, of_thread("7"))["log"] == ["a", "b"]
        assert starts(opened, "board@7") == ["Start", "Resume"]


def test_a_cancelled_task() -> None:
    """S1-60: who cancels the task is obeyed, and the run is reported as stopped."""
    with a_guard() as opened:
        begun = asyncio.Event()

        async def waits(_: State) -> dict[str, Any]:
            begun.set()
            await asyncio.sleep(3600)
            return {}

        async def run() -> None:
            graph = guard(line("a", a=waits), guard=opened, **INLINE)
            task = asyncio.ensure_future(graph.ainvoke({"log": []}, of_thread("7")))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(run())
        [exited] = exits(opened, "board@7")
        assert (exited.cause, exited.error) == (Cause.STOPPED, "CancelledError")


# People.


def asks(_: State) -> dict[str, Any]:
    """A node that asks a person."""
    return {"log": [interrupt("may I?")]}


@every_saver
def test_an_interrupt_waits_for_a_person(saving: Callable[[Path], Any], tmp_path: Path) -> None:
    """S1-63, S2: it is paused for a person: new input does not get round that, the answer goes on, and is a resume."""
    with a_guard() as opened, saving(tmp_path) as saver:
        graph = guard(line("a", "b", b=asks), guard=opened, checkpointer=saver, **INLINE)
        values = graph.invoke({"log": []}, of_thread("7"))
        assert [question.value for question in values["__interrupt__"]] == ["may I?"]
        assert (values.status, values.stop_reason) == ("paused", None)
        [exited] = exits(opened, "board@7")
        assert (exited.cause, exited.pause) == (Cause.STOPPED, "person")
        with pytest.raises(Stopped) as raised:
            graph.invoke({"log": ["never mind"]}, of_thread("7"))
        assert raised.value.code == "waits_for_person"
        values = graph.invoke(Command(resume="yes"), of_thread("7"))
        assert values["log"] == ["a", "yes"]
        assert values.status == "completed"
        assert starts(opened, "board@7") == ["Start", "Resume"]


def test_in_a_chat_each_turn_is_somebody_s_word() -> None:
    """S1-63: a new message leaves the question open and goes on, as LangGraph has it."""
    with a_guard() as opened:
        graph = guard(line("a", "b", b=asks), guard=opened, checkpointer=InMemorySaver(), work="turn", **INLINE)
        graph.invoke({"log": []}, of_thread("7"))
        assert graph.invoke({"log": ["never mind"]}, of_thread("7"))["log"] == ["a", "never mind", "a"]


@pytest.mark.parametrize("soon", [False, True], ids=["thread", "coroutine"])
@pytest.mark.parametrize("point", [{"interrupt_before": ["b"]}, {"interrupt_after": ["a"]}], ids=["before", "after"])
def test_a_breakpoint(point: dict[str, list[str]], soon: bool) -> None:
    """S1-63: a breakpoint waits for a person, too, and goes on when it is called without input."""
    with a_guard() as opened:
        graph = guard(line("a", "b").compile(checkpointer=InMemorySaver(), **point), guard=opened, **INLINE)

        def run(given: Any) -> Any:
            return asyncio.run(graph.ainvoke(given, of_thread("7"))) if soon else graph.invoke(given, of_thread("7"))

        assert run({"log": []}).status == "paused"
        assert exits(opened, "board@7")[0].pause == "person"
        values = run(None)
        assert (values["log"], values.status) == (["a", "b"], "completed")


# Changed graphs.


def test_a_changed_graph() -> None:
    """S1-63: a thread that waits at a node which is not there any more is an error, before anything is counted."""
    saver, clock = InMemorySaver(), FakeClock()

    def broken(_: State) -> dict[str, Any]:
        raise ConnectionError("down")

    with a_guard(clock) as opened:
        old = guard(line("a", "b", b=broken), guard=opened, checkpointer=saver, **INLINE)
        with pytest.raises(ConnectionError):
            old.invoke({"log": []}, of_thread("7"))
        clock.move(HOUR)
        new = guard(line("a", "c"), guard=opened, checkpointer=saver, **INLINE)
        with pytest.raises(GraphChanged, match="was left at b"):
            new.invoke(None, of_thread("7"))
        with pytest.raises(GraphChanged):
            asyncio.run(new.ainvoke(None, of_thread("7")))
        assert starts(opened, "board@7") == ["Start"]
        assert old.get_state(of_thread("7")).next == ("b",)


def test_a_changed_graph_with_something_sent() -> None:
    """S1-63: the same where something was sent to a node that is gone."""
    saver, clock = InMemorySaver(), FakeClock()

    def broken(_: State) -> dict[str, Any]:
        raise ConnectionError("down")

    builder = a_builder(State)
    builder.add_node("plan", says("plan"))
    builder.add_node("work", broken)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda _: [Send("work", {})], ["work"])
    with a_guard(clock) as opened:
        old = guard(builder, guard=opened, checkpointer=saver, **INLINE)
        with pytest.raises(ConnectionError):
            old.invoke({"log": []}, of_thread("7"))
        with pytest.raises(GraphChanged, match="was left at work"):
            guard(line("plan"), guard=opened, checkpointer=saver, **INLINE).invoke(None, of_thread("7"))


def test_threads_do_not_see_each_other() -> None:
    """S1-43: each thread has its own count, money and values."""
    with a_guard() as opened:
        graph = guard(line("a"), guard=opened, checkpointer=InMemorySaver(), steps=1, costs={"a": "0.10"}, **INLINE)
        for thread in ("7", "8"):
            values = graph.invoke({"log": [thread]}, of_thread(thread))
            assert (values["log"], str(values.spent)) == ([thread, "a"], "0.1")


def test_without_a_thread_each_invoke_is_its_own() -> None:
    """S1-03: without a thread there is nothing to go on with: each invoke is a piece of work of its own."""
    with a_guard() as opened:
        graph = guard(line("a", "b"), guard=opened, steps=2, **INLINE)
        for _ in range(3):
            assert graph.invoke({"log": []})["log"] == ["a", "b"]
        units = {entry.unit for entry in opened.governor.store.last_entries(limit=100)}
        assert [len(exits(opened, unit)) for unit in units] == [1, 1, 1]


def test_what_runs_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """S1-43: of too many threads those that are over are forgotten first; one that runs keeps its limits."""
    monkeypatch.setattr("flyball.guard.SESSIONS_MAX", 3)
    with a_guard() as opened:
        graph = guard(endless(), guard=opened, steps=5, **INLINE)
        runs = graph.stream({"log": []}, of_thread("runs"))
        next(runs)
        for thread in range(10):
            with pytest.raises(StepLimit):
                graph.invoke({"log": []}, of_thread(str(thread)))
        with pytest.raises(StepLimit, match="6/5"):
            list(runs)
        plain = opened.governor.panel.policies_of("nobody")
        assert opened.governor.panel.policies_of("board@0") == plain
        assert opened.governor.panel.policies_of("board@9") != plain
