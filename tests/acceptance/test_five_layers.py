"""Five layers end a real graph of LangGraph that would never end: each of them by itself, the other four out of the
way.

Out of the way means: limits so wide that no test reaches them, as anybody can set them; for rounds, a graph that does
not say which round it is in; for preflight, which nobody can switch off, a graph that it cannot see through, or, in one
test, no preflight.
"""

import operator
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from typing_extensions import TypedDict

from flyball.core.event import Cause
from flyball.guard import Guard
from flyball.integrations.langgraph import GraphDied, GraphRefused, TimedOut, entry, guard, process, spent
from tests.integrations.langgraph.scene import a_guard, exits, of_thread, starts, steps

WIDE: Final[dict[str, Any]] = {"steps": 10**9, "timeout": 10**9, "budget": "1000000"}
"""Layers 1, 4 and 5 out of the way. Layer 3 is, where nobody says which round it is."""

FAR: Final = 500
"""Steps after which a graph has shown that nothing ends it: no layer's own limit is as far away."""

FOR_EVER: Final = 10**6

Builder = StateGraph[Any, Any, Any, Any]


class State(TypedDict, total=False):
    """What the nodes pass on."""

    visits: Annotated[int, operator.add]
    round: int


@pytest.fixture
def guarding() -> Iterator[Guard]:
    with a_guard() as guard:
        yield guard


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told to end and does not is killed soon."""
    monkeypatch.setattr(process, "GRACE", 0.5)


def visit(state: State) -> State:
    return {"visits": 1}


def routing_bug(**nodes: Any) -> Builder:
    """Two nodes, and a way out that is never taken."""
    graph = StateGraph(State)
    graph.add_node("ask", nodes.get("ask", visit))
    graph.add_node("answer", nodes.get("answer", visit))
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "answer")
    graph.add_conditional_edges("answer", lambda _: "ask", ["ask", END])
    return graph


def two_traps() -> Builder:
    """Two circles, each of which has a way out: into the other."""
    graph = StateGraph(State)
    for name in ("ask", "answer", "object", "insist"):
        graph.add_node(name, visit)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "answer")
    graph.add_conditional_edges("answer", lambda _: "object", ["ask", "object"])
    graph.add_edge("object", "insist")
    graph.add_conditional_edges("insist", lambda _: "ask", ["object", "ask"])
    return graph


def debate() -> Builder:
    """A round after the other, without agreement."""
    return routing_bug(answer=lambda state: {"visits": 1, "round": state.get("round", 0) + 1})


def hangs(state: State) -> State:
    time.sleep(FOR_EVER)
    return {}


def pays(cost: str) -> Callable[[State], State]:
    """A node that spends that."""

    def node(state: State) -> State:
        spent(cost)
        return {"visits": 1}

    return node


ISOLATIONS = pytest.mark.parametrize("isolation", ["process", "inline"])


# Each by itself.


@ISOLATIONS
def test_steps_alone(guarding: Guard, isolation: Any) -> None:
    """S1-01, S1-02, S1-03, S1-04, S1-47: a routing bug: two nodes for ever. Layer 1 lets 55 steps pass, and the 56th is
    an error that people know."""
    wide = {**WIDE, "steps": 55}
    graph = guard(routing_bug(), guard=guarding, name="bug", isolation=isolation, **wide)
    with pytest.raises(GraphRecursionError) as caught:
        graph.invoke({"visits": 0}, of_thread("one"))
    assert isinstance(caught.value, GraphRefused)
    assert graph.last is not None
    assert (graph.last.layer, graph.last.status, graph.last.stop_reason) == (1, "stopped", "max_steps")
    assert graph.last["visits"] == steps(guarding, "bug@one") == 55
    (left,) = exits(guarding, "bug@one")
    assert (left.cause, left.policy) == (Cause.STOPPED, "steps")


@pytest.mark.parametrize("build", [two_traps], ids=["two traps"])
def test_preflight_alone(guarding: Guard, build: Callable[[], Builder]) -> None:
    """S1-01, S1-02, S1-07, S1-09, S1-47: two traps that lead into each other: layer 2 does not let the graph be made,
    and draws them; nothing runs."""
    with pytest.raises(ValueError, match=r"trap: .*ask.*answer") as caught:
        guard(build(), guard=guarding, **WIDE)
    assert "END" in str(caught.value)
    assert not guarding.governor.live_runs()


@ISOLATIONS
@pytest.mark.parametrize(("rounds", "made", "why"), [(7, 7, "max_rounds"), (15, 15, "hard_cap_15_rounds")])
def test_rounds_alone(guarding: Guard, isolation: Any, rounds: int, made: int, why: str) -> None:
    """S1-01, S1-02, S1-12, S1-13, S1-18, S1-47: rounds without agreement: layer 3 ends it after as many as are allowed,
    and never after more than 15."""
    graph = guard(debate(), guard=guarding, name="debate", rounds=rounds, isolation=isolation, **WIDE)
    result = graph.invoke({"visits": 0}, of_thread("one"))
    assert (result.layer, result.stop_reason, result.status) == (3, why, "completed")
    assert result["round"] == made
    (left,) = exits(guarding, "debate@one")
    assert (left.cause, left.error) == (Cause.DONE, why)


def test_time_alone(guarding: Guard) -> None:
    """S1-01, S1-02, S1-21, S1-24, S1-42, S1-47: a node that blocks: layer 4 ends it after its time, and what was kept
    is kept."""
    wide = {**WIDE, "timeout": 2}
    graph = guard(routing_bug(answer=hangs), guard=guarding, name="blocks", checkpointer=InMemorySaver(), **wide)
    began = time.monotonic()
    with pytest.raises(TimeoutError) as caught:
        graph.invoke({"visits": 0}, of_thread("one"), durability="sync")
    assert 2 <= time.monotonic() - began < 30
    assert isinstance(caught.value, TimedOut)
    assert graph.last is not None
    assert (graph.last.layer, graph.last.status) == (4, "timed_out")
    assert graph.get_state(of_thread("one")).values == {"visits": 1}
    (left,) = exits(guarding, "blocks@one")
    assert (left.cause, left.policy) == (Cause.TIMEOUT, "deadline")


@ISOLATIONS
def test_money_alone(guarding: Guard, isolation: Any) -> None:
    """S1-01, S1-02, S1-28, S1-33, S1-47: an endless loop that pays: layer 5 ends it before the step that could cost
    more than there is."""
    wide = {**WIDE, "budget": "0.50"}
    graph = guard(
        routing_bug(answer=pays("0.07")),
        guard=guarding,
        name="pays",
        costs={"answer": "0.08"},
        isolation=isolation,
        **wide,
    )
    result = graph.invoke({"visits": 0}, of_thread("one"))
    assert (result.layer, result.stop_reason, result.status) == (5, "cost_budget_exceeded", "budget_exceeded")
    assert result.spent == Decimal("0.49")  # seven times; 0.49 and 0.08 would be more than 0.50
    (left,) = exits(guarding, "pays@one")
    assert (left.cause, left.policy) == (Cause.STOPPED, "budget")


# Without any.


@pytest.mark.parametrize("kind", ["steps", "preflight", "rounds", "money"])
def test_without_any_it_does_not_end(guarding: Guard, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1-02, S1-44: the very same graphs, with their own layer out of the way too, go on far beyond where it ended
    them."""
    if kind == "preflight":
        monkeypatch.setattr(entry, "validate_graph_acyclic", lambda _: None)
    options: dict[str, Any] = {"costs": {"answer": "0.08"}} if kind == "money" else {}
    if kind == "rounds":
        options["round_key"] = "not_told"
    builders: dict[str, Callable[[], Builder]] = {
        "steps": routing_bug,
        "preflight": two_traps,
        "rounds": debate,
        "money": lambda: routing_bug(answer=pays("0.07")),
    }
    graph = guard(builders[kind](), guard=guarding, name="endless", isolation="inline", **options, **WIDE)
    made = 0
    for _ in graph.stream({"visits": 0}, of_thread("one")):
        made += 1
        if made >= FAR:
            break
    assert made == FAR
    assert graph.last is None or graph.last.layer is None


def test_without_any_it_hangs(guarding: Guard, tmp_path: Path) -> None:
    """S1-02: a node that blocks does so until its process is killed, if no layer ends it."""
    there = tmp_path / "there"

    def waits(state: State) -> State:
        there.write_text(str(os.getpid()))
        return hangs(state)

    graph = guard(routing_bug(answer=waits), guard=guarding, name="blocks", **WIDE)
    raised: list[BaseException] = []

    def read() -> None:
        try:
            graph.invoke({"visits": 0}, of_thread("one"))
        except GraphDied as died:
            raised.append(died)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(2)
    assert reader.is_alive()
    os.kill(int(there.read_text()), signal.SIGKILL)
    reader.join(30)
    assert len(raised) == 1


# Several ways round a layer.


@ISOLATIONS
def test_a_fan_out_that_pays(guarding: Guard, isolation: Any) -> None:
    """S1-28, S1-45: branches that pay at the same time share one budget: what is spent is never above it, and exact."""
    ran: list[str] = []

    def pays_and_tells(state: State) -> State:
        ran.append("x")
        spent("0.03")
        return {"visits": 1}

    graph = StateGraph(State)
    graph.add_node("plan", visit)
    graph.add_node("work", pays_and_tells)
    graph.add_node("next", visit)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda _: [Send("work", {}) for _ in range(40)], ["work"])
    graph.add_edge("work", "next")
    graph.add_conditional_edges("next", lambda _: "plan", ["plan", END])
    wide = {**WIDE, "budget": "1.00"}
    guarded = guard(graph, guard=guarding, name="fan", costs={"work": "0.03"}, isolation=isolation, **wide)
    result = guarded.invoke({"visits": 0}, of_thread("one"))
    assert (result.layer, result.status) == (5, "budget_exceeded")
    assert result.spent == Decimal("0.99")  # 33 of the 40
    if isolation == "inline":
        assert len(ran) == 33


@ISOLATIONS
def test_a_resume_in_a_loop(guarding: Guard, isolation: Any) -> None:
    """S1-44: who invokes it again and again after it failed gets as many resumes as there are, and no more."""

    def fails(state: State) -> State:
        raise ConnectionError("not today")

    graph = guard(
        routing_bug(answer=fails),
        guard=guarding,
        name="again",
        isolation=isolation,
        checkpointer=InMemorySaver(),
        resumes=1,
        **WIDE,
    )
    for given in ({"visits": 0}, None):
        with pytest.raises(ConnectionError):
            graph.invoke(given, of_thread("one"))
    for _ in range(3):
        with pytest.raises(GraphRefused) as caught:
            graph.invoke(None, of_thread("one"))
        assert caught.value.code == "max_resume_attempts_exceeded"
    assert starts(guarding, "again@one") == ["Start", "Resume"]
