"""Preflight: what can be known before anything runs. From every node of a graph an end must be reachable; and what is
certain to follow from each other must not follow in a circle.

"Every cycle has an edge out" is not enough: two cycles can lead into each other and nowhere else. So the rule is
reachability: one walk backward from the ends finds every node that can finish; the rest is the trap. Both take linear
time.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

N = TypeVar("N", bound=Hashable)


class Trap(NamedTuple, Generic[N]):
    """Nodes that can never reach an end, and one circle among them, or the dead end that they run into."""

    nodes: tuple[N, ...]
    circle: tuple[N, ...]
    closed: bool
    """It is a circle; otherwise the one node of it leads nowhere."""

    def __str__(self) -> str:
        if not self.closed:
            where = f"{self.circle[0]} leads nowhere"
        else:
            where = "the circle is " + " -> ".join(str(node) for node in (*self.circle, self.circle[0]))
        return f"no end can be reached from {', '.join(str(node) for node in self.nodes)}; {where}"


def find_trap(edges: Mapping[N, Iterable[N]], ends: Iterable[N]) -> Trap[N] | None:
    """The trap in a graph, if there is one. `edges` maps a node to those it can lead to; `ends` are nodes at which the
    work is over. A node that leads nowhere and is no end is a trap too."""
    before: dict[N, list[N]] = {}
    nodes: dict[N, None] = {}
    for node, targets in edges.items():
        nodes.setdefault(node)
        for target in targets:
            nodes.setdefault(target)
            before.setdefault(target, []).append(node)
    reaching = set(ends)
    frontier = list(reaching)
    while frontier:
        for node in before.get(frontier.pop(), ()):
            if node not in reaching:
                reaching.add(node)
                frontier.append(node)
    stuck = [node for node in nodes if node not in reaching]
    if not stuck:
        return None
    return Trap(tuple(stuck), *_circle(edges, stuck[0]))


def _circle(edges: Mapping[N, Iterable[N]], start: N) -> tuple[tuple[N, ...], bool]:
    """Follow first edges from a stuck node until one repeats: everything it leads to is stuck too."""
    seen: dict[N, int] = {}
    path: list[N] = []
    node = start
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        following = next(iter(edges.get(node, ())), None)
        if following is None:
            return (node,), False
        node = following
    return tuple(path[seen[node] :]), True


def find_circle(edges: Mapping[N, Iterable[N]]) -> tuple[N, ...]:
    """The first circle there is, each node of it once; none: empty. `edges` maps a node to those that follow it."""
    done: set[N] = set()
    for first in edges:
        path = {first: iter(edges[first])} if first not in done else {}
        while path:
            node, others = next(reversed(path.items()))
            other = next(others, None)
            if other is None:
                done.add(node)
                del path[node]
            elif other in path:
                nodes = [*path]
                return tuple(nodes[nodes.index(other) :])
            elif other not in done:
                path[other] = iter(edges.get(other, ()))
    return ()
