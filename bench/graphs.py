"""What the five layers cost a LangGraph graph: a step of the guarded graph beside one of the bare graph, in one run.

The graph is two nodes that do nothing but count, so that all that is measured is LangGraph and the guard. Bare and
guarded take turns. A call in a process of its own costs a fork more, once a call: that is a row by itself.
"""

import sqlite3
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

import flyball
from bench.measure import Row, best_of_each, seconds
from flyball.integrations.langgraph import guard, validate_graph_acyclic

STEPS = 200
"""Steps of one call."""
CALLS = 15
"""Calls of each, of which the best counts."""
NODES = 10_000
"""Of the graph that is looked through before it runs."""


class Counted(TypedDict):
    """What the nodes pass on."""

    count: int


def ping_pong() -> StateGraph[Any, Any, Any, Any]:
    """Two nodes that lead to each other for so many steps."""
    builder = StateGraph(Counted)
    builder.add_node("ping", lambda state: {"count": state["count"] + 1})
    builder.add_node("pong", lambda state: {"count": state["count"] + 1})
    builder.add_edge(START, "ping")
    builder.add_edge("ping", "pong")
    builder.add_conditional_edges("pong", lambda state: "ping" if state["count"] < STEPS else END, ["ping", END])
    return builder


def long_chain() -> StateGraph[Any, Any, Any, Any]:
    """Thousands of nodes, with a way back from every tenth."""
    builder = StateGraph(Counted)
    for number in range(NODES):
        builder.add_node(f"n{number}", lambda state: state)
    builder.add_edge(START, "n0")
    for number in range(NODES - 1):
        if number % 10:
            builder.add_edge(f"n{number}", f"n{number + 1}")
        else:
            ways = [f"n{number + 1}", f"n{number // 2}"]
            builder.add_conditional_edges(f"n{number}", lambda _: "", ways)
    builder.add_edge(f"n{NODES - 1}", END)
    return builder


def once(graph: Any) -> Callable[[], object]:
    """One call, on a thread of its own."""
    return lambda: graph.invoke(
        {"count": 0}, {"configurable": {"thread_id": uuid.uuid4().hex}, "recursion_limit": STEPS + 1}
    )


def rows() -> list[Row]:
    """All rows of this file: microseconds a step, and milliseconds for what is once."""
    with tempfile.TemporaryDirectory() as folder, flyball.open("bench", state_dir=Path(folder, "state")) as opened:
        limits: dict[str, Any] = {"guard": opened, "steps": 10**6, "isolation": "inline"}
        saver = SqliteSaver(sqlite3.connect(Path(folder, "a.db"), check_same_thread=False))
        other = SqliteSaver(sqlite3.connect(Path(folder, "b.db"), check_same_thread=False))
        bare, kept = ping_pong().compile(), ping_pong().compile(checkpointer=saver)
        guarded = guard(ping_pong(), name="bare", **limits)
        guarded_kept = guard(ping_pong(), name="kept", checkpointer=other, **limits)
        times = best_of_each([once(graph) for graph in (bare, guarded)], CALLS)
        kept_times = best_of_each([once(graph) for graph in (kept, guarded_kept)], CALLS)
        apart = guard(ping_pong(), name="apart", **{**limits, "isolation": "process"})
        process, inline = best_of_each([once(apart), once(guarded)], CALLS)
        saver.conn.close()
        other.conn.close()
    chain = long_chain()
    preflight = min(seconds(lambda: validate_graph_acyclic(chain)) for _ in range(5))
    own, ours = (time / STEPS * 1e6 for time in times)
    own_kept, ours_kept = (time / STEPS * 1e6 for time in kept_times)
    return [
        Row("a guarded step", ours, "bare LangGraph", own, "us", "at most 1.15 x", ours <= 1.15 * own),
        Row(
            "a guarded step with SqliteSaver",
            ours_kept,
            "bare LangGraph with SqliteSaver",
            own_kept,
            "us",
            "at most 1.05 x",
            ours_kept <= 1.05 * own_kept,
        ),
        Row(f"preflight of {NODES} nodes", preflight * 1e3, "0.2 s", 200.0, "ms", "below", preflight < 0.2),
        Row(
            f"a call of {STEPS} steps in a process of its own",
            process * 1e3,
            "the same inline",
            inline * 1e3,
            "ms",
            "-",
            True,
        ),
    ]


if __name__ == "__main__":
    print(*rows(), sep="\n")
