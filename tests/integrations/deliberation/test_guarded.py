"""The nodes under a guard: what they say is done, also by a graph that does not listen."""

import operator
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from flyball.guard import Guard, Isolation
from flyball.integrations.deliberation import check_convergence, cost_guard, lexical
from flyball.integrations.langgraph import guard, spent
from tests.integrations.scene import a_guard, reasons

APART = ("buy the firm", "paint every roof", "sing old songs")
MODES = pytest.mark.parametrize("isolation", ["inline", "process"])


class Talk(TypedDict, total=False):
    """A state."""

    round: int
    contributions: Annotated[list[dict[str, Any]], operator.add]
    visited: Annotated[list[str], operator.add]
    should_stop: bool
    stop_reason: str | None


@pytest.fixture
def opened() -> Iterator[Guard]:
    with a_guard() as guard:
        yield guard


def talk(*, listens: bool, alike: bool = False) -> StateGraph[Talk]:
    """Facilitator, cost guard, persona, check; it listens to its own nodes or does not."""

    def persona(state: Talk) -> Talk:
        spent("0.15")
        number = state.get("round", 0) + 1
        texts = ("buy it",) * 3 if alike else tuple(f"{text} {number}" for text in APART)
        return {"contributions": [{"round": number, "text": text} for text in texts], "visited": ["persona"]}

    def stops(state: Talk) -> bool:
        return listens and bool(state.get("should_stop"))

    graph = StateGraph(Talk)
    graph.add_node("facilitator", lambda _: {"visited": ["facilitator"]})
    graph.add_node("cost_guard", cost_guard({"persona": "0.15"}))
    graph.add_node("persona", persona)
    graph.add_node("check", check_convergence(measure=lexical))
    graph.add_node("vote", lambda _: {"visited": ["vote"]})
    graph.add_node("synthesise", lambda _: {"visited": ["synthesise"]})
    graph.add_edge(START, "facilitator")
    graph.add_edge("facilitator", "cost_guard")
    graph.add_conditional_edges(
        "cost_guard", lambda state: "synthesise" if stops(state) else "persona", ["persona", "synthesise"]
    )
    graph.add_edge("persona", "check")
    graph.add_conditional_edges(
        "check", lambda state: "vote" if stops(state) else "facilitator", ["facilitator", "vote"]
    )
    graph.add_edge("vote", "synthesise")
    graph.add_edge("synthesise", END)
    return graph


def ended(opened: Guard, graph: StateGraph[Talk], isolation: Isolation, **options: Any) -> Any:
    guarded = guard(
        graph,
        guard=opened,
        name="board",
        checkpointer=InMemorySaver(),
        wrap_up={"": "vote", "cost_budget_exceeded": "synthesise"},
        costs={"persona": "0.15"},
        isolation=isolation,
        **options,
    )
    return guarded.invoke({"visited": []}, {"configurable": {"thread_id": "1"}})


@MODES
@pytest.mark.parametrize("listens", [True, False])
def test_money(opened: Guard, listens: bool, isolation: Isolation) -> None:
    """S1-28, S1-34, S1-35, S1-36, S1-38: on the free tier the fourth round is not begun; the synthesis is made of what
    there is, also where the graph does not listen to its cost guard."""
    outcome = ended(opened, talk(listens=listens), isolation, tier="free")
    assert (outcome.status, outcome.stop_reason, outcome.layer) == ("budget_exceeded", "cost_budget_exceeded", 5)
    assert outcome.spent == Decimal("0.45")
    assert outcome["visited"] == ["facilitator", "persona"] * 3 + ["facilitator", "synthesise"]
    assert reasons(opened, "cost_budget_exceeded", "board@1")


@MODES
@pytest.mark.parametrize("listens", [True, False])
@pytest.mark.parametrize("alike", [False, True])
def test_rounds(opened: Guard, alike: bool, listens: bool, isolation: Isolation) -> None:
    """S1-12, S1-15, S1-17, S1-20: what the check says is done, also where the graph does not listen to it: it votes."""
    reason, rounds = ("consensus", 1) if alike else ("max_rounds", 7)
    outcome = ended(opened, talk(listens=listens, alike=alike), isolation, budget="10")
    assert (outcome.status, outcome.stop_reason, outcome.layer) == ("completed", reason, 3)
    assert (outcome["round"], outcome["stop_reason"]) == (rounds, reason)
    assert outcome["visited"] == ["facilitator", "persona"] * rounds + ["vote", "synthesise"]


def test_broken_counter(opened: Guard) -> None:
    """S1-19: a graph whose round goes back is broken, and told so."""
    graph = StateGraph(Talk)
    graph.add_node("forget", lambda state: {"round": max(0, state.get("round", 0) - 2)})
    graph.add_node("check", check_convergence(measure=lexical))
    graph.add_edge(START, "check")
    graph.add_edge("check", "forget")
    graph.add_conditional_edges("forget", lambda _: "check", ["check", END])
    with pytest.raises(ValueError, match="the round went back from 1 to 0"):
        guard(graph, guard=opened, name="board", isolation="inline").invoke({})
