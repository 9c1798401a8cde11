"""No limit is got round by what is around a call: the config that a graph is bound to, that of the runnable which calls
it, a limit of LangGraph's own, or another guarded graph."""

from typing import Any, cast

import pytest
from langchain_core.runnables import RunnableLambda
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START
from langgraph.types import CachePolicy

from flyball.errors import FlyballError
from flyball.integrations.langgraph import StepLimit, guard
from tests.integrations.langgraph.scene import State, a_builder, a_guard, of_thread, says


def one_node() -> Any:
    builder = a_builder()
    builder.add_node("a", says("a"))
    builder.add_edge(START, "a")
    builder.add_edge("a", END)
    return builder


def test_thread_that_the_graph_is_bound_to() -> None:
    """S1-03: a graph that is bound to a thread has that thread's steps, over all invokes."""
    bound = one_node().compile(checkpointer=InMemorySaver()).with_config(of_thread("bound"))
    with a_guard() as own:
        graph = guard(bound, guard=own, name="g", isolation="inline", steps=3)
        for _ in range(3):
            graph.invoke({"log": []})
        with pytest.raises(StepLimit):
            graph.invoke({"log": []})
        assert graph.get_state(of_thread("bound")).values["log"] == ["a"] * 3


def test_thread_that_is_around_the_call() -> None:
    """S1-03: LangGraph takes the thread from the runnable that calls the graph; so its steps are counted, too."""
    with a_guard() as own:
        graph = guard(one_node(), guard=own, isolation="inline", steps=3, checkpointer=InMemorySaver())

        def call(given: Any) -> Any:
            return graph.invoke(given)

        calls = RunnableLambda(call)
        for _ in range(3):
            calls.invoke({"log": []}, of_thread("around"))
        with pytest.raises(StepLimit):
            calls.invoke({"log": []}, of_thread("around"))


def test_call_in_a_node_is_work_of_its_own() -> None:
    """A guarded graph that is called by a node, which does not say of which thread, is a new piece of work each time:
    side by side, too."""
    with a_guard() as own:
        inner = guard(one_node(), guard=own, name="inner", isolation="inline", steps=1)
        outer = a_builder()
        for name in ("left", "right"):
            outer.add_node(name, lambda _: {"log": inner.invoke({"log": []})["log"]})
            outer.add_edge(START, name)
        graph = guard(outer, guard=own, name="outer", isolation="inline", checkpointer=InMemorySaver())
        assert graph.invoke({"log": []}, of_thread("1"))["log"] == ["a", "a"]


def cached_loop() -> Any:
    """A loop that nobody leaves, and in which nothing is run but the first time."""
    builder = a_builder()
    for name in ("a", "b"):
        builder.add_node(name, lambda _: {"round": 0}, cache_policy=CachePolicy())
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_conditional_edges("b", lambda _: "a", ["a", END])
    return builder.compile(cache=InMemoryCache())


def endless_subgraph() -> Any:
    inner = a_builder()
    inner.add_node("a", says("a"))
    inner.add_edge(START, "a")
    inner.add_conditional_edges("a", lambda _: "a", ["a", END])
    outer = a_builder()
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    return outer.compile()


@pytest.mark.parametrize("endless", [cached_loop, endless_subgraph])
def test_limit_of_langgraph_is_not_above_ours(endless: Any) -> None:
    """S1-64: steps that only LangGraph counts (results from a cache, subgraphs) are bounded as ours are, whatever
    `recursion_limit` says."""
    with a_guard() as own:
        graph = guard(endless(), guard=own, isolation="inline", steps=20)
        with pytest.raises(GraphRecursionError, match="limit of 22 ") as raised:
            graph.invoke({}, {"recursion_limit": 5000})
    outcome = cast(Any, raised.value).outcome
    assert (outcome.layer, outcome.status) == (1, "stopped")


def test_lower_limit_of_langgraph_holds() -> None:
    """A lower limit than ours is the caller's own."""
    with a_guard() as own:
        graph = guard(endless_subgraph(), guard=own, isolation="inline")
        with pytest.raises(GraphRecursionError, match="limit of 5 "):
            graph.invoke({}, {"recursion_limit": 5})


@pytest.mark.parametrize("isolation", ["inline", "process"])
def test_graph_that_calls_itself(isolation: Any) -> None:
    """A guarded graph inside itself, and so on, ends; also where each would be one more process."""
    box: list[Any] = []

    def calls(state: State) -> Any:
        return box[0].invoke(state)

    builder = a_builder(State)
    builder.add_node("a", calls)
    builder.add_edge(START, "a")
    with a_guard() as own:
        box.append(guard(builder, guard=own, name="itself", isolation=isolation, timeout=60))
        with pytest.raises(FlyballError, match="16 guarded graphs run inside each other, and itself"):
            box[0].invoke({"log": []})


@pytest.mark.parametrize("isolation", ["inline", "process"])
def test_checkpointer_without_a_thread(isolation: Any) -> None:
    """Bad input: LangGraph's own error says that there is no thread."""
    with a_guard() as own:
        graph = guard(one_node(), guard=own, isolation=isolation, checkpointer=InMemorySaver())
        with pytest.raises(ValueError, match="thread_id"):
            graph.invoke({"log": []})
