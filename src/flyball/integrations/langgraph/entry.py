"""Where a graph is guarded: its options are checked, its shape is looked at, and it is compiled if it is not yet."""

import threading
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal

from flyball.integrations.guarding import Guarding
from flyball.integrations.langgraph.guarded import GuardedGraph
from flyball.integrations.langgraph.nodes import planned
from flyball.integrations.langgraph.options import SETTINGS, Default, check
from flyball.integrations.langgraph.shape import validate_graph_acyclic
from flyball.integrations.missing import missing
from flyball.runtimes.amounts import Given
from flyball.runtimes.prices import Prices

try:
    from langgraph.graph import StateGraph
    from langgraph.pregel import Pregel
except ImportError:
    raise missing("LangGraph", "langgraph") from None

_opening = threading.Lock()
_opened: list[Guarding] = []
"""The guard of this process, for graphs that were given none."""


def guard(
    graph: Any,
    *,
    guard: Guarding | None = None,
    name: str | None = None,
    steps: int | Default = SETTINGS,
    rounds: int | Default = SETTINGS,
    timeout: float | Default = SETTINGS,
    budget: Given | None = None,
    tier: str | None = None,
    kept_back: Given | None = None,
    user: str = "",
    tree: str = "",
    resumes: int | Default = SETTINGS,
    costs: Mapping[str, Given] | None = None,
    worst_case: Given | None = None,
    prices: Prices | None = None,
    wrap_up: str | Mapping[str, str] | None = None,
    round_key: str = "round",
    convergence_key: str = "convergence",
    agreement_key: str = "agreement",
    isolation: Literal["process", "inline"] = "process",
    work: Literal["thread", "turn"] = "thread",
    wait: float = 30.0,
    checkpointer: Any = None,
) -> GuardedGraph:
    """A graph (a StateGraph, or one that is compiled) under all five layers.

    1. `steps` (55) of one piece of work, which is a thread: counted over all its runs. With `work="turn"` a run that is
       done starts the count anew, as a chat needs it.
    2. Preflight: ValueError, which draws it, if there is a trap in the graph.
    3. `rounds` (7; 5 to 15), read from the key `round_key` of what nodes write; so are `convergence_key` and
       `agreement_key`.
    4. `timeout` (3600 seconds) of one run. By `isolation="process"` the run is in a process of its own, which is
       killed; "inline" it is not, and a node that blocks cannot be ended.
    5. `budget`, or that of the `tier`, of one piece of work. `costs` are the worst cases of nodes, `worst_case` is that
       of each call of a model elsewhere, `prices` say what calls cost, `kept_back` is for the wrap-up.

    When it is told to finish (rounds, consensus, money, a person) it goes on at the node `wrap_up`, which may depend on
    the reason. A thread that is not done is resumed, at most `resumes` times (3); a cooldown is waited for as long as
    `wait` seconds. What is not given is as the settings of the guard say; without a `guard`, one is opened.
    """
    compiled = graph
    if isinstance(graph, StateGraph):
        validate_graph_acyclic(graph)
        compiled = graph.compile(checkpointer=checkpointer)
    elif not isinstance(graph, Pregel):
        raise ValueError(f"{type(graph).__name__} is no graph: give a StateGraph, or one that is compiled")
    else:
        validate_graph_acyclic(graph)
        if checkpointer is not None:
            compiled = graph.copy({"checkpointer": checkpointer})
    guarding = guard if guard is not None else _own_guard()
    options = check(
        {
            "name": name or _name_of(compiled),
            "steps": steps,
            "rounds": rounds,
            "timeout": timeout,
            "budget": budget,
            "tier": tier,
            "kept_back": kept_back,
            "user": user,
            "tree": tree,
            "resumes": resumes,
            "costs": costs,
            "worst_case": worst_case,
            "prices": prices or Prices(guarding.settings.prices),
            "wrap_up": wrap_up,
            "round_key": round_key,
            "convergence_key": convergence_key,
            "agreement_key": agreement_key,
            "isolation": isolation,
            "work": work,
            "wait": wait,
        },
        [node for node in compiled.nodes if not node.startswith("__")],
    )
    return GuardedGraph(planned(compiled, options, guarding.settings), guarding)


def _name_of(compiled: Any) -> str:
    """What the graph is called, if anything."""
    return "graph" if compiled.name in ("LangGraph", None) else str(compiled.name)


def _own_guard() -> Guarding:
    with _opening:
        if not _opened:
            # As any program does it: an integration does not know how a guard is put together.
            _opened.append(import_module("flyball").open())
        return _opened[0]
