"""Layer 2: a graph that cannot end is refused before it runs."""

import time
from collections.abc import Callable
from typing import Any, Literal

import pytest
from langgraph.graph import END, START
from langgraph.types import Command, Send

from flyball.integrations.langgraph import guard, validate_graph_acyclic
from tests.integrations.langgraph.scene import AnyBuilder, State, a_builder, a_guard, endless, says


def graph(*edges: tuple[str, str], **branches: list[str] | None) -> AnyBuilder:
    """Plain edges, and conditional ones by the node where they begin."""
    builder = a_builder(State)
    names = {name for edge in edges for name in edge} | set(branches)
    names |= {name for targets in branches.values() for name in targets or ()}
    for name in sorted(names - {START, END}):
        builder.add_node(name, says(name))
    for start, end in edges:
        builder.add_edge(start, end)
    for start, targets in branches.items():
        builder.add_conditional_edges(start, lambda _: END, targets)
    return builder


def commanded(destinations: Any) -> AnyBuilder:
    """A node that goes by command to one of these, and a second that goes back."""
    builder = a_builder(State)
    builder.add_node("a", says("a"), destinations=destinations)
    builder.add_node("b", says("b"), destinations=("a",))
    builder.add_edge(START, "a")
    return builder


def annotated() -> AnyBuilder:
    """Two nodes whose commands are declared by their types, and lead to each other."""

    def a(_: State) -> Command[Literal["b"]]:
        return Command(goto="b")

    def b(_: State) -> Command[Literal["a"]]:
        return Command(goto="a")

    builder = a_builder(State)
    builder.add_node("a", a)
    builder.add_node("b", b)
    builder.add_edge(START, "a")
    return builder


def nested(inner: AnyBuilder) -> AnyBuilder:
    """A graph with that one in it."""
    builder = a_builder(State)
    builder.add_node("team", inner.compile())
    builder.add_edge(START, "team")
    return builder


def fanned() -> AnyBuilder:
    """Work that is sent out."""
    builder = graph((START, "plan"), ("work", "end"), ("end", END))
    builder.add_conditional_edges("plan", lambda _: [Send("work", {})], ["work"])
    return builder


def joined() -> AnyBuilder:
    """Two nodes that are waited for."""
    builder = graph((START, "a"), (START, "b"), ("end", END))
    builder.add_edge(["a", "b"], "end")
    return builder


SAFE: dict[str, Callable[[], AnyBuilder]] = {
    "a line": lambda: graph((START, "a"), ("a", "b"), ("b", END)),
    "S1-10: a cycle with a way on to the vote": lambda: graph(
        (START, "facilitator"),
        ("facilitator", "persona"),
        ("persona", "check"),
        ("vote", END),
        check=["facilitator", "vote"],
    ),
    "a node that leads nowhere ends the run": lambda: graph((START, "a"), ("a", "b")),
    "a condition that can go anywhere": lambda: graph((START, "a"), ("a", "b"), b=None),
    "a command with a way out": lambda: commanded(("b", END)),
    "a fan-out": fanned,
    "two that are waited for": joined,
    "a safe graph in a graph": lambda: nested(endless()),
    "an endless one that could end": endless,
}

UNSAFE: dict[str, tuple[Callable[[], AnyBuilder], str]] = {
    "S1-11: A, B, C, A": (
        lambda: graph((START, "a"), ("a", "b"), ("b", "c"), ("c", "a")),
        "no end can be reached from .*a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c",
    ),
    "two traps that lead into each other": (
        lambda: graph((START, "a"), ("a", "b"), ("c", "d"), ("d", "c"), b=["a", "c"]),
        "no end can be reached from",
    ),
    "an edge to the end beside one that is always followed": (
        lambda: graph((START, "a"), ("a", "b"), ("b", "a"), ("b", END)),
        "a -> b -> a|b -> a -> b",
    ),
    "a way out beside an edge that is always followed": (
        lambda: graph((START, "a"), ("a", "a"), a=[END]),
        "a -> a",
    ),
    "commands": (lambda: commanded(("b",)), "a -> b -> a|b -> a -> b"),
    "commands by their types": (annotated, "a -> b -> a|b -> a -> b"),
    "in a subgraph": (
        lambda: nested(graph((START, "a"), ("a", "b"), ("b", "a"))),
        "the subgraph 'team' has a trap",
    ),
}


@pytest.mark.parametrize("build", SAFE.values(), ids=SAFE.keys())
def test_accepted(build: Callable[[], AnyBuilder]) -> None:
    """S1-07, S1-08, S1-10: a graph from whose every node an end can be reached is accepted, compiled or not."""
    validate_graph_acyclic(build())
    validate_graph_acyclic(build().compile())


@pytest.mark.parametrize(("build", "draws"), UNSAFE.values(), ids=UNSAFE.keys())
def test_rejected(build: Callable[[], AnyBuilder], draws: str) -> None:
    """S1-07, S1-09, S1-11: one with a trap is a ValueError that draws it, and is not guarded."""
    with pytest.raises(ValueError, match=draws):
        validate_graph_acyclic(build())
    with a_guard() as opened, pytest.raises(ValueError, match=draws):
        guard(build(), guard=opened)
    with a_guard() as opened, pytest.raises(ValueError, match=draws):
        guard(build().compile(), guard=opened)


def test_ten_thousand_nodes() -> None:
    """S1-07: looking takes linear time, also where every node can lead anywhere."""
    builder = a_builder(State)
    for number in range(10_000):
        builder.add_node(f"n{number}", says("n"))
    builder.add_edge(START, "n0")
    for number in range(10_000):
        builder.add_conditional_edges(f"n{number}", lambda _: END)
    before = time.process_time()
    validate_graph_acyclic(builder)
    assert time.process_time() - before < 2.0
