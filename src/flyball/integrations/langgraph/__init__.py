"""LangGraph under five layers, none of which can be switched off: steps, preflight, rounds, time and money.

    graph = guard(builder, name="research", budget="0.50", wrap_up="synthesise")
    result = graph.invoke(state, {"configurable": {"thread_id": "42"}})

It is used as the graph is: `invoke`, `ainvoke`, `stream`, `astream`, with any checkpointer.
"""

from flyball.integrations.langgraph.entry import guard
from flyball.integrations.langgraph.errors import (
    GraphChanged,
    GraphRefused,
    OverBudget,
    StepLimit,
    Stopped,
    TimedOut,
)
from flyball.integrations.langgraph.guarded import GuardedGraph
from flyball.integrations.langgraph.inside import CannotCross
from flyball.integrations.langgraph.money import spent
from flyball.integrations.langgraph.outcome import Outcome
from flyball.integrations.langgraph.process import GraphDied
from flyball.integrations.langgraph.shape import validate_graph_acyclic

__all__ = [
    "CannotCross",
    "GraphChanged",
    "GraphDied",
    "GraphRefused",
    "GuardedGraph",
    "Outcome",
    "OverBudget",
    "StepLimit",
    "Stopped",
    "TimedOut",
    "guard",
    "spent",
    "validate_graph_acyclic",
]
