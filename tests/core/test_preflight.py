"""Preflight: from every node an end must be reachable."""

from collections.abc import Iterator, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.preflight import find_trap

Graph = Mapping[str, Sequence[str]]

ACCEPTED: dict[str, tuple[Graph, tuple[str, ...]]] = {
    "S1-10: a circle with a way out": (
        {"facilitator": ["persona"], "persona": ["check"], "check": ["facilitator", "vote"], "vote": []},
        ("vote",),
    ),
    "a straight line": ({"a": ["b"], "b": ["end"]}, ("end",)),
    "a self loop with a way out": ({"a": ["a", "end"]}, ("end",)),
    "an unreachable part that ends": ({"a": ["end"], "island": ["end"]}, ("end",)),
    "several ends": ({"a": ["b", "c"], "b": [], "c": []}, ("b", "c")),
    "an end that leads on": ({"a": ["end"], "end": ["a"]}, ("end",)),
    "an end nobody leads to": ({"end": []}, ("end", "other")),
    "nothing": ({}, ()),
}

REJECTED: dict[str, tuple[Graph, tuple[str, ...], set[str]]] = {
    "S1-11: A to B to C to A": ({"A": ["B"], "B": ["C"], "C": ["A"]}, (), {"A", "B", "C"}),
    "S1-11: an end elsewhere": ({"A": ["B"], "B": ["A"], "X": ["end"]}, ("end",), {"A", "B"}),
    "two circles that lead into each other": (
        {"A": ["B", "X"], "B": ["A"], "X": ["A"], "start": ["A", "end"]},
        ("end",),
        {"A", "B", "X"},
    ),
    "a self loop": ({"a": ["a"]}, ("end",), {"a"}),
    "a dead end": ({"a": ["b", "end"], "b": []}, ("end",), {"b"}),
    "a dead end that is only named as a target": ({"a": ["b", "end"]}, ("end",), {"b"}),
    "an unreachable trap": ({"a": ["end"], "x": ["y"], "y": ["x"]}, ("end",), {"x", "y"}),
    "a road into a trap": ({"a": ["x"], "x": ["y"], "y": ["x"], "b": ["end"]}, ("end",), {"a", "x", "y"}),
    "no ends at all": ({"a": ["b"], "b": []}, (), {"a", "b"}),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    """Whatever can end from everywhere may run."""
    assert find_trap(*ACCEPTED[name]) is None


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(name: str) -> None:
    """Otherwise the trap is named: all its nodes, and no other."""
    edges, ends, nodes = REJECTED[name]
    trap = find_trap(edges, ends)
    assert trap is not None
    assert set(trap.nodes) == nodes
    assert set(trap.circle) <= nodes
    assert all(node in str(trap) for node in trap.circle)


@pytest.mark.parametrize(
    ("edges", "circle", "text"),
    [
        ({"A": ["B"], "B": ["C"], "C": ["A"]}, ("A", "B", "C"), "A -> B -> C -> A"),
        ({"a": ["x"], "x": ["y"], "y": ["x"]}, ("x", "y"), "x -> y -> x"),
        ({"a": []}, ("a",), "a leads nowhere"),
        pytest.param(
            {"a": ["b"], "b": []},
            ("b",),
            "b leads nowhere",
        ),
        pytest.param(
            {"a": ["a"]},
            ("a",),
            "a -> a",
        ),
    ],
)
def test_names_the_circle(edges: Graph, circle: tuple[str, ...], text: str) -> None:
    """A person is shown where it goes round, or where it ends in nothing."""
    trap = find_trap(edges, ())
    assert trap is not None
    assert trap.circle == circle
    assert text in str(trap)


@given(
    st.dictionaries(st.integers(0, 8), st.lists(st.integers(0, 8), max_size=3), max_size=9), st.sets(st.integers(0, 8))
)
def test_as_a_walk_from_each_node_finds(edges: dict[int, list[int]], ends: set[int]) -> None:
    """Exactly those nodes are stuck from which a plain walk reaches no end; and the circle is one."""
    nodes = {*edges, *(target for targets in edges.values() for target in targets)}
    stuck = {node for node in nodes if not _walk(edges, node) & ends}
    trap = find_trap(edges, ends)
    assert (set(trap.nodes) if trap else set()) == stuck
    if trap and edges.get(trap.circle[0]):
        following = (*trap.circle[1:], trap.circle[0])
        assert all(after in edges[node] for node, after in zip(trap.circle, following, strict=True))


def _walk(edges: dict[int, list[int]], start: int) -> set[int]:
    seen, frontier = {start}, [start]
    while frontier:
        for target in edges.get(frontier.pop(), ()):
            if target not in seen:
                seen.add(target)
                frontier.append(target)
    return seen


class Counted(list[int]):
    """Targets that count how often one of them is looked at."""

    looked = 0

    def __iter__(self) -> Iterator[int]:
        for target in super().__iter__():
            Counted.looked += 1
            yield target


@pytest.mark.parametrize("trapped", [False, True])
@pytest.mark.parametrize("size", [1_000, 10_000])
def test_linear(size: int, trapped: bool) -> None:
    """Each edge is looked at once (once more where a circle is drawn), however large and long the graph is."""
    edges = {node: Counted([(node + 1) % size, (node * 7) % size]) for node in range(size)}
    Counted.looked = 0
    trap = find_trap(edges, [] if trapped else [size - 1])
    assert (trap is not None) is trapped
    assert 2 * size <= Counted.looked <= 3 * size
