"""Layer 2, preflight: a graph is looked at before it runs, and one that cannot end is refused, with the trap drawn.

The edges are read from what was declared, in linear time: plain edges, path maps of conditional edges, destinations of
commands. A conditional edge without a path map can go anywhere, as LangGraph itself draws it. A plain edge is always
followed, so a node that has one comes to an end only if that leads to one: an edge to END beside it is no way out.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from flyball.core.preflight import find_trap
from flyball.integrations.missing import missing

try:
    from langgraph.constants import END
    from langgraph.graph import StateGraph
    from langgraph.pregel import Pregel
except ImportError:
    raise missing("LangGraph", "langgraph") from None

ANYWHERE: Final = "(anywhere)"
"""Where a conditional edge leads of which nobody said where. One place for all of them keeps the walk linear."""

DEPTH_MAX: Final = 16
"""How deep graphs may lie in each other, be looked at, and run. LangGraph itself gives up long before."""


def validate_graph_acyclic(graph: Any) -> None:
    """ValueError, which draws the trap, if there is a node from which no end can be reached; also in subgraphs."""
    _check(graph, "the graph", 0)


def _check(graph: Any, what: str, depth: int) -> None:
    builder = graph if isinstance(graph, StateGraph) else getattr(graph, "builder", None)
    if not isinstance(builder, StateGraph) or depth > DEPTH_MAX:
        return  # nothing is declared: whatever writes to no channel ends
    trap = find_trap(edges_of(builder), [END])
    if trap is not None:
        raise ValueError(
            f"{what} has a trap: {trap}. Give one of these nodes an edge that leads on to END, or a conditional edge "
            "that can."
        )
    for name, node in builder.nodes.items():
        inner: Any = node.runnable
        if isinstance(inner, Pregel):
            _check(inner, f"the subgraph {name!r}", depth + 1)


def edges_of(builder: "StateGraph[Any, Any, Any, Any]") -> Mapping[str, Iterable[str]]:
    """Where each node can lead to, so far as it matters for coming to an end."""
    always: dict[str, dict[str, None]] = {}
    perhaps: dict[str, dict[str, None]] = {name: {} for name in builder.nodes}
    for start, end in builder.edges:
        (always if end != END else perhaps).setdefault(start, {})[end] = None
    for starts, end in builder.waiting_edges:
        for start in starts:
            perhaps.setdefault(start, {})[end] = None
    for start, branches in builder.branches.items():
        for branch in branches.values():
            targets = (ANYWHERE,) if branch.ends is None else branch.ends.values()
            perhaps.setdefault(start, {}).update(dict.fromkeys(targets))
    for name, node in builder.nodes.items():
        perhaps[name].update(dict.fromkeys(node.ends or ()))
        if not perhaps[name] and name not in always:
            perhaps[name][END] = None  # it leads nowhere: there the run ends
    return {**perhaps, **always, ANYWHERE: (*builder.nodes, END)}
