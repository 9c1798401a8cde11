"""What the five layers cost a LangGraph graph: a step of the guarded graph beside one of the bare graph, in one run.

The graph is two nodes that do nothing but count, so that all that is measured is LangGraph and the guard. Bare and
guarded take turns. What a step costs is what a long call takes longer than a short one. What is once a call (leave to
begin, the lease, the exit; and a fork, in a process of its own) has rows by itself.
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

SHORT, LONG = 40, 440
"""Steps of a call."""
CALLS = 15
"""Calls of each, of which the best counts."""
NODES = 10_000
"""Of the graph that is looked through before it runs."""


class Counted(TypedDict):
    """What the nodes pass on."""

    count: int
    most: int


def ping_pong() -> StateGraph[Any, Any, Any, Any]:
    """Two nodes that lead to each other, as often as the call says."""
    builder = StateGraph(Counted)
    builder.add_node("ping", lambda state: {"count": state["count"] + 1})
    builder.add_node("pong", lambda state: {"count": state["count"] + 1})
    builder.add_edge(START, "ping")
    builder.add_edge("ping", "pong")
    builder.add_conditional_edges(
        "pong", lambda state: "ping" if state["count"] < state["most"] else END, ["ping", END]
    )
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


def once(graph: Any, steps: int) -> Callable[[], object]:
    """One call, on a thread of its own."""
    return lambda: graph.invoke(
        {"count": 0, "most": steps}, {"configurable": {"thread_id": uuid.uuid4().hex}, "recursion_limit": steps + 1}
    )


def compared(*graphs: Any) -> list[tuple[float, float]]:
    """Of each graph the microseconds of a step, and the milliseconds that are once a call."""
    works = [once(graph, steps) for graph in graphs for steps in (SHORT, LONG)]
    times = best_of_each(works, CALLS)
    found = []
    for short, long in zip(times[::2], times[1::2], strict=True):
        step = (long - short) / (LONG - SHORT)
        found.append((step * 1e6, (short - SHORT * step) * 1e3))
    return found


def rows() -> list[Row]:
    """All rows of this file."""
    with tempfile.TemporaryDirectory() as folder, flyball.open("bench", state_dir=Path(folder, "state")) as opened:
        savers = [
            SqliteSaver(sqlite3.connect(Path(folder, f"{name}.db"), check_same_thread=False))
            for name in ("a", "b", "c")
        ]
        limits: dict[str, Any] = {"guard": opened, "steps": 10**6}
        (bare, bare_once), (inline, inline_once), (apart, apart_once) = compared(
            ping_pong().compile(),
            guard(ping_pong(), name="inline", isolation="inline", **limits),
            guard(ping_pong(), name="apart", **limits),
        )
        (bare_kept, _), (inline_kept, _), (apart_kept, _) = compared(
            ping_pong().compile(checkpointer=savers[0]),
            guard(ping_pong(), name="inline", isolation="inline", checkpointer=savers[1], **limits),
            guard(ping_pong(), name="apart", checkpointer=savers[2], **limits),
        )
        for saver in savers:
            saver.conn.close()
    chain = long_chain()
    preflight = min(seconds(lambda: validate_graph_acyclic(chain)) for _ in range(5))
    few, kept = 1.15 * bare, 1.05 * bare_kept
    return [
        Row("a guarded step, inline", inline, "bare", bare, "us", "at most 1.15 x", inline <= few),
        Row("a guarded step, in a process of its own", apart, "bare", bare, "us", "at most 1.15 x", apart <= few),
        Row("with SqliteSaver, inline", inline_kept, "bare", bare_kept, "us", "at most 1.05 x", inline_kept <= kept),
        Row(
            "with SqliteSaver, in a process", apart_kept, "bare", bare_kept, "us", "at most 1.05 x", apart_kept <= kept
        ),
        Row("once a call, inline", inline_once, "bare", bare_once, "ms", "-", True),
        Row("once a call, in a process", apart_once, "bare", bare_once, "ms", "-", True),
        Row(f"preflight of {NODES} nodes", preflight * 1e3, "0.2 s", 200.0, "ms", "below", preflight < 0.2),
    ]


if __name__ == "__main__":
    print(*rows(), sep="\n")
