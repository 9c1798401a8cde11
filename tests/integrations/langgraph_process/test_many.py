"""Many sessions at once, in threads and in coroutines: all end, the money is exact, and none sees another's."""

import asyncio
import operator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Annotated, Any, Final, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from flyball.core.codec import decode_state
from flyball.core.event import Cause
from flyball.core.policy import Key
from flyball.guard import Guard
from flyball.integrations.langgraph import GuardedGraph, guard, spent
from flyball.policies.budget import State as Spent
from tests.integrations.langgraph.scene import a_guard, exits, of_thread
from tests.integrations.langgraph_process.scene import children

pytestmark = pytest.mark.slow

ROUNDS: Final = 3
BRANCHES: Final = 3
MICRO: Final = Decimal("0.000001")


class State(TypedDict, total=False):
    """What one session knows."""

    session: int
    endless: bool
    seen: Annotated[list[int], operator.add]


def session_graph() -> Any:
    """Some branches side by side, each of which pays a few millionths; and that again, three times or for ever."""
    graph: Any = StateGraph(State)

    def plan(state: State) -> State:
        return {"seen": [state["session"]]}

    def work(state: State) -> State:
        spent(f"{(1 + state['session']) * MICRO:f}")
        return {"seen": [state["session"]]}

    def goes_on(state: State) -> str:
        return "plan" if state["endless"] or len(state["seen"]) < ROUNDS * (1 + BRANCHES) else END

    graph.add_node("plan", plan)
    graph.add_node("work", work)
    graph.add_node("look", lambda _: {})
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda state: [Send("work", state) for _ in range(BRANCHES)], ["work"])
    graph.add_edge("work", "look")
    graph.add_conditional_edges("look", goes_on, ["plan", END])
    return graph


@pytest.mark.parametrize(
    ("isolation", "sessions"), [("inline", 100), ("process", 20)], ids=["100 here", "20 in processes"]
)
def test_many(isolation: Any, sessions: int) -> None:
    """Every third would never end, and is stopped; the others come to their end. What each has spent is exact to the
    millionth, and each has seen itself alone (S1-43, S1-44, S1-45)."""
    with a_guard() as guarding:
        graph = guard(
            session_graph(),
            guard=guarding,
            name="session",
            isolation=isolation,
            checkpointer=InMemorySaver(),
            steps=12,
            costs={"work": "0.01"},
            budget="100",
        )
        with ThreadPoolExecutor(sessions // 2) as threads:
            halves = [threads.submit(_in_thread, graph, number) for number in range(0, sessions, 2)]
            ended = asyncio.run(_in_loop(graph, range(1, sessions, 2)))
            ended |= dict(half.result() for half in halves)
        assert len(ended) == sessions
        for number, kind in ended.items():
            endless = number % 3 == 0
            assert kind is (GraphRecursionError if endless else None)
            unit = f"session@{number}"
            (left,) = exits(guarding, unit)
            assert left.cause is (Cause.STOPPED if endless else Cause.DONE)
            values = graph.get_state(of_thread(str(number))).values
            assert set(values["seen"]) == {number}
            rounds = 4 if endless else ROUNDS  # twelve steps are four rounds of three
            assert len(values["seen"]) == rounds * (1 + BRANCHES)
            assert _spent(guarding, unit) == rounds * BRANCHES * (1 + number)
    assert not children()


def _spent(guarding: Guard, unit: str) -> int:
    """In millionths."""
    key = Key("budget", "unit", unit)
    return decode_state(Spent, guarding.governor.store.read([key]).records[key]).spent


def _given(number: int) -> State:
    return {"session": number, "endless": number % 3 == 0, "seen": []}


def _in_thread(graph: GuardedGraph, number: int) -> tuple[int, type[BaseException] | None]:
    try:
        graph.invoke(_given(number), of_thread(str(number)))
    except GraphRecursionError:
        return number, GraphRecursionError
    return number, None


async def _in_loop(graph: GuardedGraph, numbers: range) -> dict[int, type[BaseException] | None]:
    async def one(number: int) -> tuple[int, type[BaseException] | None]:
        try:
            await graph.ainvoke(_given(number), of_thread(str(number)))
        except GraphRecursionError:
            return number, GraphRecursionError
        return number, None

    return dict(await asyncio.gather(*(one(number) for number in numbers)))
