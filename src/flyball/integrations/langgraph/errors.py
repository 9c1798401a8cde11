"""Refusals of a graph as exceptions that people know: the step limit is LangGraph's own, a time-out is Python's.

Each carries the `outcome`: what there was when it ended, and which layer ended it.
"""

from collections.abc import Mapping
from typing import Any, Final

from flyball.core.decision import Decision
from flyball.core.time import Instant
from flyball.errors import FlyballError
from flyball.integrations.langgraph.outcome import Outcome, layer_of
from flyball.integrations.missing import missing
from flyball.runtimes.refusal import OutOfBudget, Refused

try:
    from langgraph.errors import GraphBubbleUp, GraphRecursionError
except ImportError:
    raise missing("LangGraph", "langgraph") from None


class GraphRefused(Refused):
    """A graph was ended, or may not begin."""

    outcome: Outcome | None = None


class StepLimit(GraphRefused, GraphRecursionError):
    """Layer 1: the graph made all the steps that it may make."""


class TimedOut(GraphRefused, TimeoutError):
    """Layer 4: the graph ran for longer than it may."""


class OverBudget(GraphRefused, OutOfBudget):
    """Layer 5: there is no money for what the graph would do first."""


class Stopped(GraphRefused):
    """A person, or a policy that is none of the layers, ended the graph or does not let it begin."""


class GraphChanged(FlyballError, ValueError):
    """The thread was left by another version of the graph, at a node that is not there any more."""

    remedy = "Go on with the graph that it was begun with, choose an older checkpoint of it, or begin a new thread."


class Ended(GraphBubbleUp):
    """Leaves the graph from a node, past whatever retries or handles errors there. Never seen outside."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision)
        self.decision = decision


_KINDS: Final[Mapping[int | None, type[GraphRefused]]] = {1: StepLimit, 4: TimedOut, 5: OverBudget}


def refusal_of(decision: Decision, now: Instant, what: str) -> GraphRefused:
    """The exception for a decision that ends a graph, or does not let it begin."""
    return _KINDS.get(layer_of(decision), Stopped)(decision, now, what)


def graph_refusal(refused: Refused) -> GraphRefused:
    """The same refusal, as a graph's."""
    kind = _KINDS.get(layer_of(refused.decision), Stopped)
    error = kind.__new__(kind, *refused.args)
    error.args = refused.args
    error.__dict__.update(refused.__dict__)
    return error


def with_outcome(error: BaseException, outcome: Outcome) -> None:
    """Say in an exception what there was when it ended. Not every exception can be told."""
    holder: Any = error
    try:
        holder.outcome = outcome
    except AttributeError:  # it has slots
        return
