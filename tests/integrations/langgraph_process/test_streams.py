"""What a guarded graph streams, in the program and in a process of its own, is what the graph streams without a guard:
also for those who want to see everything."""

import asyncio
import re
from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState

from flyball.integrations.langgraph import guard
from tests.integrations.langgraph.scene import a_builder, a_guard, of_thread

GIVEN: Any = {"messages": [("user", "hello")]}
NEW = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[\d:.+]+|0\.\d{10,}")
"""What is different in each run: ids, instants, dice."""


def chat() -> Any:
    def answer(state: Any) -> Any:
        model = GenericFakeChatModel(messages=iter([AIMessage("hello brave new world")]))
        return {"messages": [model.invoke(state["messages"])]}

    async def answer_soon(state: Any) -> Any:
        model = GenericFakeChatModel(messages=iter([AIMessage("hello brave new world")]))
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = a_builder(MessagesState)
    builder.add_node("first", answer)
    builder.add_node("second", answer_soon)
    return builder


def sync_chat() -> Any:
    builder = chat()
    builder.nodes.pop("second")
    builder.add_edge(START, "first")
    return builder.compile(checkpointer=InMemorySaver())


def async_chat() -> Any:
    builder = chat()
    builder.nodes.pop("first")
    builder.add_edge(START, "second")
    return builder.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("isolation", ["inline", "process"])
@pytest.mark.parametrize("mode", ["debug", "checkpoints", "tasks", ["debug", "messages", "values", "updates"]])
def test_modes(mode: Any, isolation: Any) -> None:
    """The chunks are the same, and nothing of the guard is in them."""
    bare = list(sync_chat().stream(GIVEN, of_thread("1"), stream_mode=mode))
    with a_guard() as own:
        graph = guard(sync_chat(), guard=own, isolation=isolation)
        guarded = list(graph.stream(GIVEN, of_thread("1"), stream_mode=mode))
    assert NEW.sub("_", repr(guarded)) == NEW.sub("_", repr(bare))


async def events_of(graph: Any) -> list[tuple[Any, ...]]:
    """What is told of a run: that it began, streamed, ended."""
    return [
        (event["event"], event["name"], event["tags"], len(event["parent_ids"]), sorted(event["data"]))
        async for event in graph.astream_events(GIVEN, of_thread("1"), version="v2")
    ]


@pytest.mark.parametrize("isolation", ["inline", "process"])
def test_events(isolation: Any) -> None:
    """The events are the same: each token of a model, and each chunk of a node, is one."""
    bare = asyncio.run(events_of(async_chat()))
    with a_guard() as own:
        guarded = asyncio.run(events_of(guard(async_chat(), guard=own, isolation=isolation)))
    assert guarded == bare
    assert [kind for kind, *_ in bare].count("on_chat_model_stream") >= 7
