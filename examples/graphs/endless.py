"""A graph that never ends by itself, ended by one of the five layers alone: the other four are raised out of its way.

    python examples/graphs/endless.py --only-layer 1      # or 2, 3, 4, 5

It prints which layer fired and why. The exit code is 0 only if it was that one.
"""

import argparse
import operator
import sys
import time
from contextlib import suppress
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

import flyball
from flyball.integrations.langgraph import GraphRefused, Outcome, guard

LAYERS = {1: "steps", 2: "preflight", 3: "rounds", 4: "time", 5: "money"}
OUT_OF_THE_WAY: dict[str, Any] = {"steps": 1_000_000, "timeout": 86_400.0, "budget": "1000000"}
"""What keeps the layers away that are not to be shown. Rounds cannot be raised above fifteen: a graph that reports none
has none."""
SECONDS = 2.0


class Talk(TypedDict, total=False):
    """The state."""

    visits: Annotated[int, operator.add]
    round: int
    should_stop: bool
    stop_reason: str | None


def work(_: Talk) -> Talk:
    """Work that is never done."""
    return {"visits": 1}


def talk(state: Talk) -> Talk:
    """Talk that never comes to a point: it says which round it is, and nothing else is ever new."""
    return {"visits": 1, "round": state.get("round", 0) + 1}


def block(_: Talk) -> Talk:
    """Does not move, and does not let itself be told to."""
    while True:
        with suppress(BaseException):
            time.sleep(3600)


def endless(node: Any) -> StateGraph[Talk]:
    """A way out is drawn, and a bug in the router never takes it."""
    graph = StateGraph(Talk)
    graph.add_node("work", node)
    graph.add_node("wrap_up", lambda _: {})
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda _: "work", ["work", "wrap_up"])
    graph.add_edge("wrap_up", END)
    return graph


def trap() -> StateGraph[Talk]:
    """Two circles that lead into each other, and no way out of either."""
    graph = StateGraph(Talk)
    for name in ("a", "b", "c"):
        graph.add_node(name, work)
    graph.add_edge(START, "a")
    graph.add_conditional_edges("a", lambda _: "b", ["b", "c"])
    graph.add_edge("b", "a")
    graph.add_edge("c", "a")
    return graph


GRAPHS: dict[int, tuple[StateGraph[Talk], dict[str, Any]]] = {
    1: (endless(work), {"steps": 55}),
    2: (trap(), {}),
    3: (endless(talk), {"rounds": 7}),
    4: (endless(block), {"timeout": SECONDS}),
    5: (endless(work), {"budget": "1.00", "costs": {"work": "0.03"}}),
}


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description="A graph that never ends, ended by one layer alone.")
    parser.add_argument("--only-layer", type=int, choices=LAYERS, required=True)
    wanted = parser.parse_args().only_layer
    graph, limits = GRAPHS[wanted]
    began = time.monotonic()
    with flyball.open("endless", scratch=True) as guard_:
        try:
            guarded = guard(graph, guard=guard_, name="endless", **{**OUT_OF_THE_WAY, **limits})
        except ValueError as trapped:
            print(f"{type(trapped).__name__}: {trapped}")
            return _told(wanted, 2, "it was never begun")
        outcome = _outcome(guarded)
    print(f"after {time.monotonic() - began:.1f} s, {outcome.get('visits', 0)} visits, {outcome.spent} USD")
    return _told(wanted, outcome.layer, "; ".join(f"{reason.code}: {reason.text}" for reason in outcome.reasons))


def _outcome(graph: Any) -> Outcome:
    try:
        ended: Outcome = graph.invoke({"visits": 0})
    except GraphRefused as refused:
        print(f"{type(refused).__name__}: {refused}")
        return refused.outcome or Outcome()
    return ended


def _told(wanted: int, fired: int | None, why: str) -> int:
    print(f"layer {fired} ({LAYERS.get(fired or 0, 'none of them')}) ended it: {why}")
    if fired == wanted:
        return 0
    print(f"but it should have been layer {wanted}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
