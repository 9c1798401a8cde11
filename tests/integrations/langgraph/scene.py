"""What the tests of guarded graphs share: a guard that keeps nothing, some graphs, and the four ways to run one."""

import asyncio
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

import flyball
from flyball.config import Settings
from flyball.core.codec import decode_body
from flyball.core.event import AnyEvent, Exited, Resume, Start, Stepped
from flyball.guard import Guard
from flyball.testing.clock import FakeClock

AnyBuilder = Any
"""A StateGraph. What its nodes may be is too much for a type checker."""
Run = Callable[[Any, Any, RunnableConfig | None], Any]


class State(TypedDict, total=False):
    """What the nodes pass on."""

    log: Annotated[list[str], operator.add]
    round: int
    convergence: float
    agreement: float
    should_stop: bool
    stop_reason: str


def a_builder(schema: Any = State, **options: Any) -> AnyBuilder:
    """A graph without nodes."""
    return StateGraph(schema, **options)


@contextmanager
def a_guard(clock: FakeClock | None = None, **settings: Any) -> Iterator[Guard]:
    """A guard whose store is gone after the block, on that clock."""
    with flyball.open("program", settings=Settings(**settings), scratch=True) as guard:
        if clock is not None:
            guard.governor.clock = clock
        yield guard


def of_thread(thread: str, **more: Any) -> RunnableConfig:
    """The config of a thread."""
    return {"configurable": {"thread_id": thread}, **more}  # type: ignore[typeddict-item]  # whatever the test wants


def says(name: str, **update: Any) -> Callable[[State], dict[str, Any]]:
    """A node that logs its name, and writes that."""
    return lambda _: {"log": [name], **update}


def counts(ran: list[str]) -> Callable[[State], dict[str, Any]]:
    """A node that notes that it ran, and writes nothing."""

    def node(_: State) -> dict[str, Any]:
        ran.append("x")
        return {}

    return node


def endless(**nodes: Callable[[State], Any]) -> AnyBuilder:
    """Two nodes that lead to each other for ever, by a conditional edge that could lead to `end` and never does."""
    builder = a_builder()
    for name in ("ping", "pong", "end"):
        builder.add_node(name, nodes.get(name, says(name)))
    builder.add_edge(START, "ping")
    builder.add_edge("ping", "pong")
    builder.add_conditional_edges("pong", lambda _: "ping", ["ping", "end"])
    builder.add_edge("end", END)
    return builder


def next_round(state: State) -> dict[str, Any]:
    """A node that counts rounds."""
    return {"log": ["pong"], "round": state.get("round", 0) + 1}


def line(*names: str, **nodes: Callable[[State], Any]) -> AnyBuilder:
    """Nodes one after the other."""
    builder = a_builder()
    for name in names:
        builder.add_node(name, nodes.get(name, says(name)))
    for start, end in zip((START, *names), (*names, END), strict=True):
        builder.add_edge(start, end)
    return builder


def by_invoke(graph: Any, given: Any, config: RunnableConfig | None = None) -> Any:
    """The values."""
    return graph.invoke(given, config)


def by_ainvoke(graph: Any, given: Any, config: RunnableConfig | None = None) -> Any:
    """The values, in a loop."""
    return asyncio.run(graph.ainvoke(given, config))


def by_stream(graph: Any, given: Any, config: RunnableConfig | None = None) -> Any:
    """The last values of the stream."""
    chunks = list(graph.stream(given, config, stream_mode="values"))
    return chunks[-1] if chunks else None


def by_astream(graph: Any, given: Any, config: RunnableConfig | None = None) -> Any:
    """The last values of the stream, in a loop."""

    async def run() -> list[Any]:
        return [chunk async for chunk in graph.astream(given, config, stream_mode="values")]

    chunks = asyncio.run(run())
    return chunks[-1] if chunks else None


WAYS: dict[str, Run] = {"invoke": by_invoke, "ainvoke": by_ainvoke, "stream": by_stream, "astream": by_astream}


def history(guard: Guard, unit: str) -> list[AnyEvent]:
    """What happened to a piece of work, as the journal has it."""
    bodies = [decode_body(entry.body) for entry in guard.governor.store.last_entries(limit=1000, unit=unit)]
    return [body.event for body in bodies if not body.event.asks or body.decision.proceeds]


def exits(guard: Guard, unit: str) -> list[Exited]:
    """How its runs ended."""
    return [event for event in history(guard, unit) if isinstance(event, Exited)]


def starts(guard: Guard, unit: str) -> list[str]:
    """How its runs began."""
    return [type(event).__name__ for event in history(guard, unit) if isinstance(event, Start | Resume)]


def reports(guard: Guard, unit: str) -> list[Stepped]:
    """What it reported of its steps and of their parts."""
    return [event for event in history(guard, unit) if isinstance(event, Stepped)]


def steps(guard: Guard, unit: str) -> int:
    """Supersteps that are on record."""
    return sum(work.times for event in reports(guard, unit) if not event.part for work in event.done)


def only_unit(guard: Guard) -> str:
    """The one piece of work that there is."""
    [unit] = {entry.unit for entry in guard.governor.store.last_entries(limit=1000) if "@" in entry.unit}
    return unit
