"""A graph that runs in a process of its own is used as any graph is, and can be killed."""

import asyncio
import contextlib
import inspect
import logging
import operator
import os
import pickle
import signal
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.callbacks import BaseCallbackHandler, UsageMetadataCallbackHandler
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.config import get_store, get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import RunControl
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy, Command, interrupt

from flyball.core.decision import Verb
from flyball.core.event import Cause, Held
from flyball.core.time import HOUR
from flyball.guard import Guard
from flyball.integrations.langgraph import CannotCross, GraphDied, Stopped, TimedOut, guard, process
from flyball.runtimes.agent import block
from flyball.runtimes.refusal import Refused
from flyball.testing.clock import FakeClock
from tests.integrations.langgraph.scene import a_guard, exits, of_thread, starts
from tests.integrations.langgraph_process import graphs
from tests.integrations.langgraph_process.graphs import Node, Notes, line_of, note
from tests.integrations.langgraph_process.scene import children, is_alive, wait_for

ENOUGH: dict[str, Any] = {"notes": [], "limit": 6}
WRITTEN = ["thought", "wrote"] * 3


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told to end and does not is killed soon."""
    monkeypatch.setattr(process, "GRACE", 0.5)


@pytest.fixture
def guarding() -> Iterator[Guard]:
    with a_guard() as guard:
        yield guard


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """After each test no process is left that it started; one that was killed a moment ago may still be on its way."""
    before = children()
    yield
    wait_for(lambda: not children() - before)


# The same as without.


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stream_mode": "values"},
        {"stream_mode": ["updates", "values", "custom"]},
        {"stream_mode": "values", "version": "v2"},
        {"stream_mode": "updates", "subgraphs": True},
    ],
    ids=str,
)
def test_the_stream_is_the_same(guarding: Guard, options: dict[str, Any]) -> None:
    """Whatever is asked for, the chunks are those of the graph without a guard, in threads and in coroutines."""
    bare = graphs.counting().compile()
    guarded = guard(graphs.counting(), guard=guarding)
    expected = list(bare.stream(ENOUGH, **options))
    assert list(guarded.stream(ENOUGH, **options)) == expected

    async def read() -> list[Any]:
        return [chunk async for chunk in guarded.astream(ENOUGH, **options)]

    assert asyncio.run(read()) == expected


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"version": "v2"},
        {"stream_mode": "updates"},
        {"stream_mode": ["updates", "values"]},
        {"output_keys": "limit"},
    ],
    ids=str,
)
@pytest.mark.parametrize("asks", [False, True], ids=["ends", "is interrupted"])
def test_the_result_is_the_same(guarding: Guard, options: dict[str, Any], asks: bool) -> None:
    """Whatever a result is made of, it is that of the graph without a guard; interrupts are in it."""

    def may_ask(state: Notes) -> Notes:
        return {"notes": [interrupt("what?")]} if asks else {"notes": ["second"]}

    builder = line_of(("first", note("first")), ("second", may_ask))
    bare = builder.compile(checkpointer=InMemorySaver())
    guarded = guard(builder, guard=guarding, checkpointer=InMemorySaver())

    def plain(result: Any) -> Any:
        """Ids of interrupts are made anew each time."""
        return repr(result).partition(", id=")[0]

    config, given = of_thread("one"), {"notes": [], "limit": 3}
    expected = plain(bare.invoke(given, config, **options))
    assert plain(guarded.invoke(given, config, **options)) == expected
    assert plain(asyncio.run(guarded.ainvoke(given, of_thread("two"), **options))) == expected


@contextlib.asynccontextmanager
async def async_sqlite(folder: Path) -> AsyncIterator[Any]:
    async with AsyncSqliteSaver.from_conn_string(str(folder / "kept.sqlite")) as saver:
        yield saver


@contextlib.asynccontextmanager
async def in_memory(folder: Path) -> AsyncIterator[Any]:
    yield InMemorySaver()


@pytest.mark.parametrize("kind", [in_memory, async_sqlite])
def test_checkpointers_in_coroutines(guarding: Guard, kind: Callable[[Path], Any], tmp_path: Path) -> None:
    """A checkpointer of the program's own loop keeps what the process says, and the state is read from it."""

    async def live() -> None:
        async with kind(tmp_path) as saver:
            guarded = guard(graphs.counting(), guard=guarding, checkpointer=saver)
            result = await guarded.ainvoke(ENOUGH, of_thread("one"))
            assert result["notes"] == WRITTEN
            state = await guarded.aget_state(of_thread("one"))
            assert state.values["notes"] == WRITTEN
            assert len([each async for each in guarded.aget_state_history(of_thread("one"))]) == 8
            again = await guarded.ainvoke({"notes": ["more"]}, of_thread("one"))
            assert again["notes"] == [*WRITTEN, "more", "thought", "wrote"]

    asyncio.run(live())


@pytest.mark.parametrize("memory", [True, False])
def test_checkpointers_in_threads(guarding: Guard, memory: bool, tmp_path: Path) -> None:
    """A checkpointer with an open connection, or with nothing but memory, keeps what the process says."""
    with contextlib.closing(sqlite3.connect(tmp_path / "kept.sqlite", check_same_thread=False)) as connection:
        saver: Any = InMemorySaver() if memory else SqliteSaver(connection)
        guarded = guard(graphs.counting(), guard=guarding, checkpointer=saver)
        assert guarded.invoke(ENOUGH, of_thread("one"))["notes"] == WRITTEN
        assert guarded.get_state(of_thread("one")).values["notes"] == WRITTEN
        assert guarded.invoke({"notes": []}, of_thread("one"))["notes"] == [*WRITTEN, "thought", "wrote"]
        guarded.update_state(of_thread("one"), {"notes": ["by hand"]})
        assert guarded.get_state(of_thread("one")).values["notes"][-1] == "by hand"


def test_a_checkpointer_of_a_loop_that_is_blocked(guarding: Guard, tmp_path: Path) -> None:
    """Where a checkpointer cannot be used, it says so itself, as without a guard; nothing hangs."""

    async def live() -> None:
        async with async_sqlite(tmp_path) as saver:
            guarded = guard(graphs.counting(), guard=guarding, checkpointer=saver)
            with pytest.raises(asyncio.InvalidStateError, match="Synchronous calls"):
                guarded.invoke(ENOUGH, of_thread("one"))

    asyncio.run(live())


def test_chunks_come_when_they_are_made(guarding: Guard, tmp_path: Path) -> None:
    """A chunk is there before the graph goes on."""

    def waits(state: Notes) -> Notes:
        wait_for((tmp_path / "read").exists)
        return {"notes": ["second"]}

    stream = guard(line_of(("first", note("first")), ("second", waits)), guard=guarding).stream({"notes": []})
    assert next(stream) == {"first": {"notes": ["first"]}}
    (tmp_path / "read").touch()
    assert next(stream) == {"second": {"notes": ["second"]}}
    assert list(stream) == []


def test_what_a_node_says_itself(guarding: Guard) -> None:
    """A node's own stream writer is heard, in order."""

    def says(state: Notes) -> Notes:
        for number in range(3):
            get_stream_writer()({"part": number})
        return {}

    guarded = guard(line_of(("says", says)), guard=guarding)
    assert list(guarded.stream({"notes": []}, stream_mode="custom")) == [{"part": 0}, {"part": 1}, {"part": 2}]


def test_tokens(guarding: Guard) -> None:
    """The tokens of a model come one by one, and a handler of the program counts them."""
    usage: Any = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    message = AIMessage("one two", usage_metadata=usage, response_metadata={"model_name": "stub-1"})
    model = GenericFakeChatModel(messages=iter([message]))
    counts = UsageMetadataCallbackHandler()

    def asks(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("asks", asks)
    graph.add_edge(START, "asks")
    stream = guard(graph, guard=guarding).stream(
        {"messages": [("user", "say")]}, {"callbacks": [counts]}, stream_mode="messages"
    )
    assert [chunk.content for chunk, _ in stream if chunk.content] == ["one", " ", "two"]
    assert (
        counts.usage_metadata == {}
    )  # a model that streams tells its usage with the last chunk, and this one does not


def test_handlers(guarding: Guard) -> None:
    """A handler is called in the program, for the nodes of the graph, in threads and in coroutines."""

    class Hears(BaseCallbackHandler):
        def __init__(self) -> None:
            self.heard: list[str] = []
            self.process: set[int] = set()

        def on_chain_start(self, serialized: Any, inputs: Any, *, name: str = "", **named: Any) -> None:
            self.heard.append(name)
            self.process.add(os.getpid())

    hears, hears_soon = Hears(), Hears()
    guarded = guard(line_of(("first", note("first"))), guard=guarding)
    guarded.invoke({"notes": []}, {"callbacks": [hears]})
    asyncio.run(guarded.ainvoke({"notes": []}, {"callbacks": [hears_soon]}))
    assert hears.heard == hears_soon.heard == ["LangGraph", "first"]
    assert hears.process == hears_soon.process == {os.getpid()}


def test_store_and_cache(guarding: Guard) -> None:
    """What a node keeps in LangGraph's store and cache is kept in the program's."""
    store, cache = InMemoryStore(), InMemoryCache[Any]()

    def keeps(state: Notes) -> Notes:
        get_store().put(("people",), "ann", {"process": os.getpid()})
        return {"notes": ["kept"]}

    graph = StateGraph(Notes)
    graph.add_node("keeps", keeps, cache_policy=CachePolicy())
    graph.add_edge(START, "keeps")
    guarded = guard(graph.compile(store=store, cache=cache), guard=guarding)
    assert guarded.invoke({"notes": []})["notes"] == ["kept"]
    kept = store.get(("people",), "ann")
    assert kept is not None
    assert kept.value["process"] != os.getpid()
    store.delete(("people",), "ann")
    assert guarded.invoke({"notes": []})["notes"] == ["kept"]
    assert store.get(("people",), "ann") is None  # from the cache


def test_a_guard_is_there_in_nodes(guarding: Guard) -> None:
    """What nodes do with the guard itself, by guarded calls and reservations, is judged in the program."""

    @guarding.call("fetch")
    def fetch(what: str) -> str:
        return f"{what} by {os.getpid() != program}"

    program = os.getpid()

    def works(state: Notes) -> Notes:
        with guarding.reserve("0.05") as money:
            money.settle("0.02")
        return {"notes": [fetch("it")]}

    guarded = guard(line_of(("works", works)), guard=guarding, budget="0.10")
    result = guarded.invoke({"notes": []}, of_thread("one"))
    assert result["notes"] == ["it by True"]
    assert str(result.spent) == "0.02"


def test_a_part_of_another_graph(guarding: Guard) -> None:
    """A guarded graph may be a node of another graph, and keeps its own work."""
    inner = guard(graphs.counting(), guard=guarding, name="inner")

    def outer_node(state: Notes) -> Notes:
        return {"notes": inner.invoke(ENOUGH)["notes"]}

    outer = line_of(("outer", outer_node)).compile(checkpointer=InMemorySaver())
    assert outer.invoke({"notes": []}, of_thread("one"))["notes"] == WRITTEN


def test_memory_of_the_program_is_not_changed(guarding: Guard) -> None:
    """A node sees the program as it was when the run began, and changes only its own copy."""
    seen: list[str] = ["before"]

    def looks(state: Notes) -> Notes:
        seen.append("inside")
        return {"notes": list(seen)}

    guarded = guard(line_of(("looks", looks)), guard=guarding)
    assert guarded.invoke({"notes": []})["notes"] == ["before", "inside"]
    assert seen == ["before"]


# Interrupts.


def test_interrupts(guarding: Guard) -> None:
    """A graph that waits for a person is paused, and goes on with the answer, as a resume."""

    def asks(state: Notes) -> Notes:
        return {"notes": [f"told {interrupt('what?')}"]}

    guarded = guard(
        line_of(("first", note("first")), ("asks", asks)), guard=guarding, name="asks", checkpointer=InMemorySaver()
    )
    waiting = guarded.invoke({"notes": []}, of_thread("one"))
    assert [each.value for each in waiting["__interrupt__"]] == ["what?"]
    assert waiting.status == "paused"
    done = guarded.invoke(Command(resume="yes"), of_thread("one"))
    assert done["notes"] == ["first", "told yes"]
    assert starts(guarding, "asks@one") == ["Start", "Resume"]


# Errors.


class Strange(Exception):
    """An exception that cannot be made anew from what it passes on."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what} ({code})")
        self.code = code


def test_errors_of_nodes(guarding: Guard) -> None:
    """What a node raises is raised here, of the same type and with what it carries, and with the place where it was
    raised; the run is reported as failed."""

    def fails(state: Notes) -> Notes:
        raise Strange("no", 7)

    guarded = guard(line_of(("fails", fails)), guard=guarding, name="fails")
    with pytest.raises(Strange, match=r"no \(7\)") as caught:
        guarded.invoke({"notes": []}, of_thread("one"))
    assert caught.value.code == 7
    assert any("in fails" in text for text in caught.value.__notes__)
    (left,) = exits(guarding, "fails@one")
    assert left.cause is Cause.ERROR
    assert left.fingerprint
    assert guarded.last is not None
    assert guarded.last.status == "failed"

    async def soon() -> None:
        with pytest.raises(Strange, match=r"no \(7\)"):
            await guarded.ainvoke({"notes": []})

    asyncio.run(soon())


def test_an_error_that_cannot_be_passed_on(guarding: Guard) -> None:
    """An exception of a class that is known to its function alone arrives as its text."""

    def fails(state: Notes) -> Notes:
        class Hidden(Exception):
            pass

        raise Hidden("somewhere")

    with pytest.raises(RuntimeError, match="Hidden: somewhere"):
        guard(line_of(("fails", fails)), guard=guarding).invoke({"notes": []})


@pytest.mark.parametrize("checkpointer", [None, InMemorySaver()], ids=["none", "kept"])
def test_what_cannot_cross(guarding: Guard, checkpointer: Any) -> None:
    """A state that cannot be pickled is refused with an error that names the value, and says what to do."""

    class State(TypedDict, total=False):
        connection: Any

    graph = StateGraph(State)
    graph.add_node("opens", lambda _: {"connection": threading.Lock()})
    graph.add_edge(START, "opens")
    guarded = guard(graph, guard=guarding, checkpointer=checkpointer)
    with pytest.raises(CannotCross, match=r"\['connection'\].* it is a _thread\.lock") as caught:
        guarded.invoke({}, of_thread("one") if checkpointer else None)
    assert 'isolation="inline"' in caught.value.remedy
    inline = guard(graph, guard=guarding, isolation="inline")
    assert isinstance(inline.invoke({})["connection"], type(threading.Lock()))


def test_control_cannot_cross(guarding: Guard) -> None:
    """What would be in vain is refused."""
    with pytest.raises(CannotCross, match="control"):
        guard(graphs.counting(), guard=guarding).invoke(ENOUGH, control=RunControl())


# A process that ends by itself.


@pytest.mark.parametrize(
    ("node", "how"),
    [(graphs.exits, "with exit code 3"), (graphs.is_killed, "by SIGKILL"), (graphs.crashes, "by SIGSEGV")],
    ids=["exits", "is killed", "crashes"],
)
def test_a_process_that_dies(guarding: Guard, node: Node, how: str, tmp_path: Path) -> None:
    """If the process dies, that is an error which says how; what was kept is kept, and the next invoke is a resume
    that goes on from there."""

    def dies_once(state: Notes) -> Notes:
        if (tmp_path / "died").exists():
            return {"notes": ["second"]}
        (tmp_path / "died").touch()
        return dict(node(state))  # type: ignore[return-value]  # it does not return

    guarded = guard(
        line_of(("first", note("first")), ("second", dies_once)),
        guard=guarding,
        name="dies",
        checkpointer=InMemorySaver(),
    )
    with pytest.raises(GraphDied, match=how) as caught:
        guarded.invoke({"notes": []}, of_thread("one"), durability="sync")
    assert "resume" in caught.value.remedy
    (left,) = exits(guarding, "dies@one")
    assert (left.cause, left.progress) == (Cause.ERROR, True)
    assert left.fingerprint
    assert guarded.get_state(of_thread("one")).next == ("second",)
    assert guarded.invoke(None, of_thread("one"))["notes"] == ["first", "second"]
    assert starts(guarding, "dies@one") == ["Start", "Resume"]


def test_a_process_that_dies_in_a_coroutine(guarding: Guard) -> None:
    """The same for coroutines."""

    async def live() -> None:
        with pytest.raises(GraphDied, match="by SIGKILL"):
            await guard(line_of(("dies", graphs.is_killed)), guard=guarding).ainvoke({"notes": []})

    asyncio.run(live())


# Time.


class Late:
    """A guard on a clock that the test moves, as soon as a node is reached."""

    def __init__(self, folder: Path, clock: FakeClock, guarding: Guard) -> None:
        self.guarding, self._clock, self._there = guarding, clock, folder / "there"

    def reached(self, node: Node) -> Node:
        """The same node; it says that it was reached."""

        def says(state: Notes) -> Any:
            self._there.touch()
            return node(state)

        async def says_soon(state: Notes) -> Any:
            self._there.touch()
            return await node(state)

        return says_soon if inspect.iscoroutinefunction(node) else says

    @contextlib.contextmanager
    def passes(self) -> Iterator[None]:
        """Two hours pass when it is."""

        def move() -> None:
            wait_for(self._there.exists)
            self._clock.move(2 * HOUR)

        mover = threading.Thread(target=move)
        mover.start()
        yield
        mover.join()


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Late]:
    monkeypatch.setattr(block, "LOOKS_APART", 0.05)
    monkeypatch.setattr(process, "GRACE", 0.3)
    clock = FakeClock()
    with a_guard(clock) as guarding:
        yield Late(tmp_path, clock, guarding)


@pytest.mark.parametrize("node", graphs.SYNC_HANGS, ids=lambda node: node.__name__)
def test_a_node_that_hangs(late: Late, node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a node does instead of ending, its time-out is one: the run is ended, the last checkpoint is kept, and
    it is said where it hung (S1-21, S1-23, S1-24, S1-25, S1-42, S1-50)."""
    guarded = guard(
        line_of(("first", note("first")), ("hangs", late.reached(node))),
        guard=late.guarding,
        name="hangs",
        checkpointer=InMemorySaver(),
    )
    with late.passes(), caplog.at_level(logging.ERROR), pytest.raises(TimedOut) as caught:
        guarded.invoke({"notes": []}, of_thread("one"), durability="sync")
    assert isinstance(caught.value, TimeoutError)
    assert node.__name__ in caplog.text
    assert guarded.last is not None
    assert (guarded.last.status, guarded.last.layer) == ("timed_out", 4)
    (left,) = exits(late.guarding, "hangs@one")
    assert (left.cause, left.policy, left.progress) == (Cause.TIMEOUT, "deadline", True)
    assert node.__name__ in left.detail
    state = guarded.get_state(of_thread("one"))
    assert (state.values["notes"], state.next) == (["first"], ("hangs",))


@pytest.mark.parametrize("node", graphs.ASYNC_HANGS, ids=lambda node: node.__name__)
def test_a_coroutine_that_hangs(late: Late, node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """The same for coroutines, also one that swallows its cancellation, or blocks its loop."""

    async def live() -> None:
        guarded = guard(
            line_of(("first", note("first")), ("hangs", late.reached(node))),
            guard=late.guarding,
            name="hangs",
            checkpointer=InMemorySaver(),
        )
        with late.passes(), caplog.at_level(logging.ERROR), pytest.raises(TimedOut):
            await guarded.ainvoke({"notes": []}, of_thread("one"), durability="sync")
        assert node.__name__ in caplog.text
        (left,) = exits(late.guarding, "hangs@one")
        assert (left.cause, left.policy) == (Cause.TIMEOUT, "deadline")
        assert (await guarded.aget_state(of_thread("one"))).next == ("hangs",)

    asyncio.run(live())


def test_what_a_node_started_is_gone(late: Late, tmp_path: Path) -> None:
    """Processes that a node started are ended with it, also one that left its session."""
    (tmp_path / "started").mkdir()
    starts_two = graphs.starts_processes(tmp_path / "started")

    def hangs(state: Notes) -> Notes:
        threading.Thread(target=starts_two, args=(state,)).start()
        wait_for(lambda: len(list((tmp_path / "started").iterdir())) == 2)
        return dict(late.reached(graphs.sleeps)(state))  # type: ignore[return-value]  # it does not return

    with late.passes(), pytest.raises(TimedOut):
        guard(line_of(("hangs", hangs)), guard=late.guarding).invoke({"notes": []})
    started = [int(path.name) for path in (tmp_path / "started").iterdir()]
    assert len(started) == 2
    assert not [pid for pid in started if is_alive(pid)]


def test_a_coroutine_closes_what_it_opened(late: Late, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coroutine that is told to end is cancelled, and has time to clean up."""
    monkeypatch.setattr(process, "GRACE", 30)

    async def holds(state: Notes) -> Notes:
        try:
            await asyncio.sleep(graphs.FOR_EVER)
        finally:
            (tmp_path / "closed").touch()
        return {}

    with late.passes(), pytest.raises(TimedOut):
        asyncio.run(guard(line_of(("holds", late.reached(holds))), guard=late.guarding).ainvoke({"notes": []}))
    assert (tmp_path / "closed").exists()


def test_in_time(guarding: Guard) -> None:
    """What is done in time is not touched."""
    result = guard(graphs.counting(), guard=guarding).invoke(ENOUGH)
    assert (result["notes"], result.status, result.layer) == (WRITTEN, "completed", None)


def test_after_a_timeout_it_can_be_resumed(late: Late, tmp_path: Path) -> None:
    """After a time-out the partial result can be seen, and the work goes on later (S1-63)."""

    def slow_once(state: Notes) -> Notes:
        if not (tmp_path / "was slow").exists():
            (tmp_path / "was slow").touch()
            late.reached(graphs.sleeps)(state)
        return {"notes": ["second"]}

    guarded = guard(
        line_of(("first", note("first")), ("second", slow_once)),
        guard=late.guarding,
        name="slow",
        checkpointer=InMemorySaver(),
    )
    with late.passes(), pytest.raises(TimedOut):
        guarded.invoke({"notes": []}, of_thread("one"), durability="sync")
    assert guarded.get_state(of_thread("one")).values["notes"] == ["first"]
    with late.passes():  # and with it the cooldown
        pass
    assert guarded.invoke(None, of_thread("one"))["notes"] == ["first", "second"]
    assert starts(late.guarding, "slow@one") == ["Start", "Resume"]


# Whoever reads goes away.


def endless() -> StateGraph[Any, Any, Any, Any]:
    """Says something again and again, and never ends."""

    class Count(TypedDict):
        count: Annotated[int, operator.add]

    graph = StateGraph(Count)
    graph.add_node("counts", lambda _: {"count": 1})
    graph.add_edge(START, "counts")
    graph.add_conditional_edges("counts", lambda _: "counts", ["counts", END])
    return graph


def test_a_reader_that_breaks_off(guarding: Guard) -> None:
    """When a stream is not read any further, the run is ended and reported as stopped."""
    guarded = guard(endless(), guard=guarding, name="endless", steps=10**6)
    for chunk in guarded.stream({"count": 0}, of_thread("one")):
        assert chunk == {"counts": {"count": 1}}
        break
    wait_for(lambda: exits(guarding, "endless@one"))
    (left,) = exits(guarding, "endless@one")
    assert left.cause is Cause.STOPPED


def test_a_coroutine_that_breaks_off(guarding: Guard) -> None:
    """The same for coroutines: a stream that is closed, and a task that is cancelled."""

    async def live() -> None:
        guarded = guard(endless(), guard=guarding, name="endless", steps=10**6)
        stream: Any = guarded.astream({"count": 0}, of_thread("closed"))
        async for _ in stream:
            break
        await stream.aclose()
        task = asyncio.ensure_future(guarded.ainvoke({"count": 0}, of_thread("cancelled")))
        await asyncio.to_thread(wait_for, children)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(live())
    for thread in ("closed", "cancelled"):
        (left,) = exits(guarding, f"endless@{thread}")
        assert left.cause is Cause.STOPPED


def test_a_person_stops_it(guarding: Guard, tmp_path: Path) -> None:
    """A person's word is heard soon, and ends the process, whatever that does (S1-60)."""

    def hangs(state: Notes) -> Notes:
        (tmp_path / "there").touch()
        return dict(graphs.sleeps(state))  # type: ignore[return-value]  # it does not return

    guarded = guard(line_of(("hangs", hangs)), guard=guarding, name="hangs")
    raised: list[BaseException] = []

    def run() -> None:
        try:
            guarded.invoke({"notes": []}, of_thread("one"))
        except Refused as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for((tmp_path / "there").exists)
    guarding.governor.submit(Held(unit="hangs@one", verb=Verb.STOP, by="ann"))
    thread.join(30)
    assert not thread.is_alive()
    (error,) = raised
    assert isinstance(error, Stopped)
    assert "ann" in str(error)
    (left,) = exits(guarding, "hangs@one")
    assert (left.cause, left.policy) == (Cause.STOPPED, "manual")


def test_the_parent_can_be_interrupted(guarding: Guard) -> None:
    """Ctrl-C while a graph runs ends its process, and is passed on."""
    guarded = guard(line_of(("sleeps", graphs.sleeps)), guard=guarding, name="sleeps")
    before = children()

    def interrupts() -> None:
        wait_for(lambda: children() - before)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupts)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        guarded.invoke({"notes": []}, of_thread("one"))
    thread.join()
    (left,) = exits(guarding, "sleeps@one")
    assert left.cause is Cause.STOPPED


def test_messages_can_be_pickled() -> None:
    """Errors of the process itself arrive as what they are."""
    died = pickle.loads(pickle.dumps(GraphDied("dead")))  # noqa: S301 - made here
    assert isinstance(died, GraphDied)
