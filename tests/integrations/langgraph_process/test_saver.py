"""The stand-ins for checkpointer, store and cache do what those do themselves."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.memory import InMemoryStore

from flyball.errors import FlyballError
from flyball.integrations.langgraph.saver import CACHE, SAVER, STORE, RemoteCache, RemoteSaver, RemoteStore, services
from tests.integrations.langgraph_process.lines import PickledLine

THREADS: Final = ("one", "two")
CHANNELS: Final = ("draft", "votes")


@contextmanager
def remote(saver: BaseCheckpointSaver[Any]) -> Iterator[RemoteSaver]:
    """A stand-in for that checkpointer."""
    line = PickledLine(services(saver, None, None, loop=None))
    try:
        yield RemoteSaver(line, saver)
    finally:
        line.close()


@contextmanager
def in_memory() -> Iterator[BaseCheckpointSaver[Any]]:
    yield InMemorySaver()


@contextmanager
def in_sqlite() -> Iterator[BaseCheckpointSaver[Any]]:
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        yield SqliteSaver(connection)
    finally:
        connection.close()


def config_of(thread: str, checkpoint: str | None = None) -> RunnableConfig:
    """The config by which LangGraph asks, with things in it that are of this process alone."""
    configurable: dict[str, Any] = {
        "thread_id": thread,
        "checkpoint_ns": "",
        "__pregel_send": lambda value: value,
        "client": threading.Lock(),
        "kept": "with the metadata",
    }
    if checkpoint is not None:
        configurable["checkpoint_id"] = checkpoint
    return {"configurable": configurable, "metadata": {"user": "ann"}, "callbacks": [threading.Lock()]}  # type: ignore[list-item]  # any object of this process


def checkpoint_of(number: int, values: dict[str, Any]) -> Checkpoint:
    """A checkpoint with a number for its id."""
    return {
        "v": 4,
        "id": f"{number:08}",
        "ts": "2026-01-01T00:00:00+00:00",
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, number),
        "versions_seen": {"writer": dict.fromkeys(values, number)},
        "updated_channels": None,
    }


VALUES = st.dictionaries(
    st.sampled_from(CHANNELS),
    st.recursive(
        st.none() | st.integers(-5, 5) | st.text(max_size=5) | st.binary(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    ),
)
Deeds = list[tuple[str, str, dict[str, Any]]]
DEEDS: st.SearchStrategy[Deeds] = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(THREADS), VALUES),
        st.tuples(st.just("write"), st.sampled_from(THREADS), VALUES),
        st.tuples(st.just("delete"), st.sampled_from(THREADS), st.just({})),
    ),
    max_size=12,
)


def live_through(saver: BaseCheckpointSaver[Any], deeds: Deeds) -> None:
    """Do all of that with a checkpointer."""
    newest: dict[str, str | None] = dict.fromkeys(THREADS)
    for number, (deed, thread, values) in enumerate(deeds, 1):
        config = config_of(thread, newest[thread])
        if deed == "put":
            checkpoint = checkpoint_of(number, values)
            saver.put(config, checkpoint, {"source": "loop", "step": number}, checkpoint["channel_versions"])
            newest[thread] = checkpoint["id"]
        elif deed == "delete":
            saver.delete_thread(thread)
            newest[thread] = None
        elif newest[thread] is not None:
            saver.put_writes(config, list(values.items()), f"task {number}", "~path")


def all_of(saver: BaseCheckpointSaver[Any]) -> list[list[CheckpointTuple] | CheckpointTuple | None]:
    """All that can be read of it."""
    found: list[list[CheckpointTuple] | CheckpointTuple | None] = []
    for thread in THREADS:
        found.append(saver.get_tuple(config_of(thread)))
        listed = list(saver.list(config_of(thread)))
        found += [listed, *(saver.get_tuple(each.config) for each in listed)]
        found.append(list(saver.list(config_of(thread), filter={"step": 3}, limit=2)))
        if listed:
            found.append(list(saver.list(config_of(thread), before=listed[0].config)))
    return found


@pytest.mark.parametrize("kind", [in_memory, in_sqlite])
@settings(max_examples=40)
@given(deeds=DEEDS)
def test_any_history(kind: Callable[[], Any], deeds: Deeds) -> None:
    """Whatever is kept through the stand-in is what the checkpointer would have kept itself, and reads the same
    through either (S1-06)."""
    with kind() as direct, kind() as behind, remote(behind) as stand_in:
        live_through(direct, deeds)
        live_through(stand_in, deeds)
        assert all_of(stand_in) == all_of(direct)
        assert all_of(behind) == all_of(direct)


def test_metadata_is_kept() -> None:
    """What people give with a run is kept with its checkpoints, as without flyball; objects of the process are not."""
    saver = InMemorySaver()
    with remote(saver) as stand_in:
        stand_in.put(config_of("one"), checkpoint_of(1, {}), {"source": "loop", "step": 1}, {})
    found = saver.get_tuple(config_of("one"))
    assert found is not None
    assert found.metadata == {"source": "loop", "step": 1, "user": "ann", "kept": "with the metadata"}


def test_versions_are_the_checkpointers_own() -> None:
    """The next version of a channel is made as the checkpointer makes it, without asking the program."""

    class Line:
        def call(self, service: str, *args: Any) -> Any:
            raise AssertionError("not asked")

        async def call_soon(self, service: str, *args: Any) -> Any:
            raise AssertionError("not asked")

        def post(self, service: str, *args: Any) -> None:
            raise AssertionError("not asked")

        def posted(self) -> None:
            raise AssertionError("not asked")

    stand_in = RemoteSaver(Line(), InMemorySaver())
    first = stand_in.get_next_version(None, None)
    assert isinstance(first, str)
    assert first < stand_in.get_next_version(first, None)


def test_an_old_checkpointer() -> None:
    """A checkpointer that was written before nodes had paths is not given any."""
    given: list[tuple[Any, ...]] = []

    class Old(InMemorySaver):
        def put_writes(self, config: Any, writes: Any, task_id: str) -> None:  # type: ignore[override]  # as it once was
            given.append((writes, task_id))

    with remote(Old()) as stand_in:
        stand_in.put_writes(config_of("one", "1"), [("draft", 1)], "task", "~path")
    assert given == [([("draft", 1)], "task")]


def test_strict_types_are_the_graphs_own() -> None:
    """Where LangGraph is strict about the types that it reads, the program's checkpointer is told of them."""
    asked: list[set[tuple[str, ...]]] = []

    class Strict(InMemorySaver):
        def with_allowlist(self, extra_allowlist: Any) -> "Strict":
            asked.append(set(extra_allowlist))
            return self

    with remote(Strict()) as stand_in:
        narrow = stand_in.with_allowlist([("a", "B")]).with_allowlist([("c", "D")])
        assert narrow.get_tuple(config_of("one")) is None
        assert narrow.get_tuple(config_of("one")) is None
    assert asked == [{("a", "B"), ("c", "D")}]


def test_coroutines_are_run_in_the_programs_loop() -> None:
    """A checkpointer that is bound to the program's loop is used in that loop (S1-06)."""

    async def live() -> None:
        async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
            line = PickledLine(services(saver, None, None, loop=asyncio.get_running_loop()))
            stand_in = RemoteSaver(line, saver)
            await stand_in.aput(config_of("one"), checkpoint_of(1, {"draft": 1}), {"step": 1}, {"draft": 1})
            await stand_in.aput_writes(config_of("one", f"{1:08}"), [("votes", 2)], "task", "~path")
            found = await stand_in.aget_tuple(config_of("one"))
            assert found == await saver.aget_tuple(config_of("one"))
            assert found is not None
            assert found.pending_writes == [("task", "votes", 2)]
            assert [each async for each in stand_in.alist(config_of("one"))] == [found]
            await stand_in.adelete_thread("one")
            assert await saver.aget_tuple(config_of("one")) is None
            line.close()

    asyncio.run(live())


def test_what_a_checkpointer_cannot_do_it_says_itself() -> None:
    """A checkpointer that knows no coroutines says so, as it does without flyball."""

    async def live() -> None:
        with in_sqlite() as saver:
            line = PickledLine(services(saver, None, None, loop=asyncio.get_running_loop()))
            try:
                with pytest.raises(NotImplementedError, match="AsyncSqliteSaver"):
                    await RemoteSaver(line, saver).aget_tuple(config_of("one"))
            finally:
                line.close()

    asyncio.run(live())


def test_a_loop_that_has_ended() -> None:
    """Work for a loop that does not run any more is given up with a clear error, not waited for."""
    loop = asyncio.new_event_loop()
    serve = services(InMemorySaver(), None, None, loop=loop)[SAVER]
    with pytest.raises(FlyballError, match="has ended"):
        serve(frozenset(), "aget_tuple", (config_of("one"),), {})
    loop.run_until_complete(asyncio.sleep(0))  # the coroutine that waited there
    loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        serve(frozenset(), "aget_tuple", (config_of("one"),), {})


def test_nothing_else_can_be_called() -> None:
    """The process can have nothing done in the program but what it is there for."""
    with pytest.raises(FlyballError, match="no '__init__'"):
        services(InMemorySaver(), None, None, loop=None)[SAVER](frozenset(), "__init__", (), {})


def test_a_store() -> None:
    """LangGraph's store, in threads and in coroutines."""
    store = InMemoryStore()
    line = PickledLine(services(None, store, None, loop=None))
    stand_in = RemoteStore(line, store)
    stand_in.put(("people", "ann"), "likes", {"tea": True})

    async def live() -> None:
        await stand_in.aput(("people", "ben"), "likes", {"tea": False})
        found = await stand_in.aget(("people", "ann"), "likes")
        assert found is not None
        assert found.value == {"tea": True}
        assert await stand_in.alist_namespaces(prefix=("people",)) == store.list_namespaces(prefix=("people",))

    asyncio.run(live())
    assert stand_in.search(("people",)) == store.search(("people",))
    assert len(stand_in.search(("people",), filter={"tea": False})) == 1
    stand_in.delete(("people", "ann"), "likes")
    assert store.get(("people", "ann"), "likes") is None
    line.close()


def test_a_cache() -> None:
    """LangGraph's cache, in threads and in coroutines."""
    cache: InMemoryCache[Any] = InMemoryCache()
    line = PickledLine(services(None, None, cache, loop=None))
    stand_in = RemoteCache(line, cache)
    one, two = (("node",), "one"), (("node",), "two")
    stand_in.set({one: ([("draft", 1)], None)})

    async def live() -> None:
        await stand_in.aset({two: ([("draft", 2)], 60)})
        assert await stand_in.aget([one, two]) == cache.get([one, two])
        await stand_in.aclear([("other",)])

    asyncio.run(live())
    assert len(stand_in.get([one, two])) == 2
    stand_in.clear()
    assert cache.get([one, two]) == {}
    line.close()


def test_only_what_there_is_is_served() -> None:
    """A graph without a checkpointer, store or cache has no such service."""
    assert services(None, None, None, loop=None) == {}
    assert set(services(InMemorySaver(), InMemoryStore(), InMemoryCache(), loop=None)) == {SAVER, STORE, CACHE}
