"""What the page of comparisons says of others is so, in the versions that are installed."""

import inspect
import time
from pathlib import Path
from typing import Any, TypedDict

import pytest
import tenacity
from dbos import DBOS
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy as NodeRetries
from temporalio.common import RetryPolicy

PAGE = " ".join((Path(__file__).parents[1] / "docs" / "comparison.md").read_text().split())


class State(TypedDict):
    n: int


def endless(made: list[int]) -> "StateGraph[Any]":
    """Two nodes that lead to each other and nowhere else."""

    def step(state: State) -> State:
        made.append(1)
        return {"n": state["n"] + 1}

    graph: StateGraph[Any] = StateGraph(State)
    for name, then in (("a", "b"), ("b", "a")):
        graph.add_node(name, step)
        graph.add_edge(name, then)
    graph.add_edge(START, "a")
    return graph


def slow(_: State) -> State:
    time.sleep(0.6)
    return {"n": 1}


def one_node(**options: Any) -> "StateGraph[Any]":
    graph: StateGraph[Any] = StateGraph(State)
    graph.add_node("slow", slow, **options)
    graph.add_edge(START, "slow")
    graph.add_edge("slow", END)
    return graph


def test_langgraph_counts_one_call() -> None:
    """A graph without a way out compiles; its limit is of one call, and the next one on the same thread gets as many
    again."""
    made: list[int] = []
    graph = endless(made).compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}, "recursion_limit": 10}
    with pytest.raises(GraphRecursionError):
        graph.invoke({"n": 0}, config)
    first = len(made)
    with pytest.raises(GraphRecursionError):
        graph.invoke(None, config)
    assert first == 10
    assert len(made) >= 2 * first


def test_langgraph_without_a_limit() -> None:
    """The limit if none is given is the one that the page names."""
    made: list[int] = []
    with pytest.raises(GraphRecursionError):
        endless(made).compile().invoke({"n": 0})
    assert f"{len(made):,} if none is given" in PAGE


def test_langgraph_cannot_end_what_blocks() -> None:
    """`step_timeout` is an error that comes when a plain function has returned; a timeout of such a node is refused."""
    graph = one_node().compile()
    graph.step_timeout = 0.1
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        graph.invoke({"n": 0})
    assert time.monotonic() - began >= 0.5
    with pytest.raises(ValueError, match="only supported for async nodes"):
        one_node(timeout=0.1).compile()


def test_defaults_of_retries() -> None:
    """Temporal has no limit on attempts, DBOS recovers 100 times, a node of LangGraph has 3 attempts, tenacity neither
    stops nor waits."""
    assert RetryPolicy().maximum_attempts == 0
    assert inspect.signature(DBOS.workflow).parameters["max_recovery_attempts"].default == 100
    assert NodeRetries().max_attempts == 3
    default = inspect.signature(tenacity.Retrying.__init__).parameters
    assert default["stop"].default is tenacity.stop_never
    assert "up to 100 times" in PAGE
