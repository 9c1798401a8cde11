"""Layer 3 reads the round and the other gauges whatever a graph's state is made of, and however a node writes to it."""

import asyncio
import logging
import operator
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

import pytest
from langgraph.graph import END, START
from langgraph.types import Command
from pydantic import BaseModel
from typing_extensions import TypedDict

from flyball.integrations.langgraph import guard
from tests.integrations.langgraph.scene import a_builder, a_guard

ROUNDS = 40
"""Rounds after which these graphs end by themselves: far above the limit of 7."""


class Plain(TypedDict, total=False):
    """Each write replaces the last."""

    round: Any
    convergence: Any


class Added(TypedDict, total=False):
    """What is written is added up."""

    round: Annotated[int, operator.add]


class Model(BaseModel):
    """A state that is checked."""

    round: int = 0


@dataclass(slots=True)
class Record:
    """A state that is an object."""

    round: int = 0


def rounds_of(schema: Any, writes: Callable[[int], Any]) -> Any:
    """A graph that goes on for many rounds; in each it writes that."""
    made = [0]

    def speak(_: Any) -> Any:
        made[0] += 1
        return writes(made[0])

    builder = a_builder(schema)
    builder.add_node("speak", speak)
    builder.add_node("judge", lambda _: None)
    builder.add_edge(START, "speak")
    builder.add_edge("speak", "judge")
    builder.add_conditional_edges("judge", lambda _: "speak" if made[0] < ROUNDS else END, ["speak", END])
    return builder


@pytest.mark.parametrize(
    ("schema", "writes"),
    [
        pytest.param(Plain, lambda n: {"round": n}, id="dict"),
        pytest.param(Plain, lambda n: {"round": Decimal(n)}, id="decimal"),
        pytest.param(Plain, lambda n: {"round": Fraction(n)}, id="fraction"),
        pytest.param(Plain, lambda n: Command(update={"round": n}), id="command"),
        pytest.param(Plain, lambda n: Command(update=[("round", n)]), id="command_pairs"),
        pytest.param(Plain, lambda n: [Command(update={"round": n})], id="commands"),
        pytest.param(Added, lambda _: {"round": 1}, id="reducer"),
        pytest.param(Added, lambda _: Command(update={"round": 1}), id="reducer_command"),
        pytest.param(Model, lambda n: Model(round=n), id="pydantic"),
        pytest.param(Model, lambda n: Command(update=Model(round=n)), id="pydantic_command"),
        pytest.param(Record, Record, id="dataclass"),
    ],
)
def test_rounds_are_read(schema: Any, writes: Callable[[int], Any]) -> None:
    """S1-12: the round is counted in every form in which LangGraph takes it from a node."""
    with a_guard() as own:
        graph = guard(rounds_of(schema, writes), guard=own, isolation="inline", steps=1000)
        result = graph.invoke({"round": 0})
    assert (result.layer, result.stop_reason, int(result["round"])) == (3, "max_rounds", 7)


def test_rounds_are_read_where_somebody_listens() -> None:
    """S1-12: nodes whose events somebody wants are run as streams, which do not say what was written: it is read all
    the same."""

    async def events_of(graph: Any) -> list[str]:
        return [event["event"] async for event in graph.astream_events({"round": 0}, version="v2")]

    with a_guard() as own:
        graph = guard(rounds_of(Plain, lambda n: {"round": n}), guard=own, isolation="inline", steps=1000)
        assert "on_chain_stream" in asyncio.run(events_of(graph))
    assert graph.last is not None
    assert (graph.last.layer, graph.last.stop_reason) == (3, "max_rounds")


def test_round_that_leaves_a_subgraph() -> None:
    """S1-12: a subgraph that ends with a command to the graph around it writes there, too."""
    inner = a_builder(Plain)
    inner.add_node(
        "speak", lambda state: Command(graph=Command.PARENT, goto="judge", update={"round": state["round"] + 1})
    )
    inner.add_edge(START, "speak")
    outer = a_builder(Plain)
    outer.add_node("talk", inner.compile(), destinations=("judge",))
    outer.add_node("judge", lambda _: None)
    outer.add_edge(START, "talk")
    outer.add_conditional_edges("judge", lambda state: "talk" if state["round"] < ROUNDS else END, ["talk", END])
    with a_guard() as own:
        graph = guard(outer, guard=own, isolation="inline", steps=1000, costs={"talk": "0.01"}, budget="1")
        result = graph.invoke({"round": 0})
    assert (result.layer, result.stop_reason, result["round"]) == (3, "max_rounds", 7)


def test_what_was_added_up_before_is_no_round_of_this_run() -> None:
    """A sum that is in the state when the run begins is not what the run did: one round more is one round more."""
    with a_guard() as own:
        builder = rounds_of(Added, lambda _: {"round": 1})
        graph = guard(builder, guard=own, isolation="inline", steps=1000)
        result = graph.invoke({"round": 5})
    assert (result.stop_reason, result["round"]) == ("max_rounds", 7)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), 10**400, -1])
def test_round_that_cannot_be(broken: Any) -> None:
    """S1-19: a number that is no round is a ValueError, and no other error."""
    with a_guard() as own:
        graph = guard(rounds_of(Plain, lambda _: {"round": broken}), guard=own, isolation="inline", steps=1000)
        with pytest.raises(ValueError, match="round"):
            graph.invoke({"round": 0})


@pytest.mark.parametrize(
    ("key", "value"), [("round", "3"), ("convergence", "0.9"), ("convergence", float("nan")), ("convergence", 10**400)]
)
def test_what_is_no_number(key: str, value: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A gauge that cannot be read does not break the graph, but is not passed over in silence: it is said once."""
    with a_guard() as own, caplog.at_level(logging.WARNING, logger="flyball"):
        graph = guard(rounds_of(Plain, lambda _: {key: value}), guard=own, isolation="inline", steps=1000)
        assert graph.invoke({}).layer is None
    said = [record.getMessage() for record in caplog.records if "no number" in record.getMessage()]
    assert len(said) == 1
    assert key in said[0]
    assert len(said[0]) < 300
