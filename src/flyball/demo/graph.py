"""A LangGraph graph that never ends by itself: a program of its own, on the same state folder as the daemon.

A way out is drawn, and a bug in the router never takes it. It is used as it is: that it ends is the guard's doing.
"""

import operator
import sys
from typing import Annotated, Final, TypedDict

from langgraph.graph import END, START, StateGraph

import flyball
from flyball.integrations.langgraph import GraphRefused, guard

NAME, THREAD = "board", "strategy"
UNIT: Final = f"{NAME}@{THREAD}"
"""What that thread of the graph is called as a unit."""


class Talk(TypedDict, total=False):
    """The state."""

    said: Annotated[int, operator.add]


def speak(state: Talk) -> Talk:  # noqa: ARG001 - LangGraph calls it so
    """One more word, and nothing is settled."""
    return {"said": 1}


def endless() -> StateGraph[Talk]:
    """The graph."""
    graph = StateGraph(Talk)
    graph.add_node("speak", speak)
    graph.add_node("decide", lambda _: {})
    graph.add_edge(START, "speak")
    graph.add_conditional_edges("speak", lambda _: "speak", ["speak", "decide"])
    graph.add_edge("decide", END)
    return graph


def main() -> int:
    """Run it until one of the five layers ends it."""
    with flyball.open("demo") as opened:
        try:
            board = guard(endless(), guard=opened, name=NAME, user="bob")
            outcome = board.invoke({"said": 0}, {"configurable": {"thread_id": THREAD}})
        except GraphRefused as refused:
            print(f"refused: {refused}")
            return 0
    print(f"ended by layer {outcome.layer}: {outcome.stop_reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
