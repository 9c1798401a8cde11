"""What a node spent is counted, also if it is said after the node has ended."""

import threading
from contextvars import copy_context
from decimal import Decimal
from typing import Any

import pytest
from langgraph.graph import START

from flyball.integrations.langgraph import guard, spent
from tests.integrations.langgraph.scene import a_builder, a_guard


@pytest.mark.parametrize("costs", [{"a": "0.05"}, {}], ids=["reserved", "not reserved"])
def test_said_by_a_thread_that_outlives_its_node(costs: Any) -> None:
    """S1-45: a thread that a node began says what it spent when the next node runs: nothing is lost."""
    ended, said = threading.Event(), threading.Event()

    def begins(_: Any) -> Any:
        def later() -> None:
            ended.wait(30)
            spent("0.30")
            said.set()

        threading.Thread(target=copy_context().run, args=(later,), daemon=True).start()
        spent("0.01")
        return {"log": ["a"]}

    def goes_on(_: Any) -> Any:
        ended.set()
        assert said.wait(30)
        return {"log": ["b"]}

    builder = a_builder()
    builder.add_node("a", begins)
    builder.add_node("b", goes_on)
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    with a_guard() as own:
        graph = guard(builder, guard=own, isolation="inline", costs=costs, budget="1")
        assert graph.invoke({"log": []}).spent == Decimal("0.31")
