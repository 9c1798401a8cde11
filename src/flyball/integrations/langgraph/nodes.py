"""A compiled graph whose nodes ask leave: a copy of it, in which each node is wrapped as a whole, with what it writes
and where it leads. So a node that is skipped writes nothing and leads nowhere, and everything that LangGraph knows of
it (retries, caches, subgraphs, what it is given) is as it was.
"""

import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol

from flyball.config import Settings
from flyball.core.decision import Verb
from flyball.errors import FlyballError
from flyball.integrations.langgraph.errors import Ended, GraphRefused
from flyball.integrations.langgraph.gate import SHOULD_STOP, Supersteps
from flyball.integrations.langgraph.money import ACCOUNT, CALLBACKS, Account, GraphCallbacks
from flyball.integrations.langgraph.options import Options
from flyball.integrations.missing import missing
from flyball.runtimes.agent.context import Context
from flyball.runtimes.agent.step import StepBlock
from flyball.runtimes.amounts import Given, whole
from flyball.runtimes.current import CURRENT
from flyball.runtimes.refusal import Refused

try:
    from langchain_core.runnables import Runnable, RunnableConfig
    from langgraph.channels.binop import BinaryOperatorAggregate
    from langgraph.constants import START
    from langgraph.errors import GraphInterrupt, ParentCommand
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.pregel import Pregel
    from langgraph.pregel._read import PregelNode
    from langgraph.pregel._write import ChannelWrite, ChannelWriteEntry, ChannelWriteTupleEntry
except ImportError:
    raise missing("LangGraph", "langgraph") from None

RUN: Final = "__pregel_flyball_run"
"""Where a node finds its run in the configuration. Names that begin so are LangGraph's own business: they are in no
checkpoint, in no trace, and in no chunk of a stream."""

READ: Final = "__pregel_read"
"""Where LangGraph keeps the function that reads the channels."""

AnyGraph = Pregel[Any, Any, Any, Any]
Node = Callable[..., Awaitable[Any]]


class Host(Protocol):
    """A run of a graph, as its nodes see it."""

    gate: Supersteps
    context: Context
    callbacks: GraphCallbacks
    reads: Any
    """Reads the channels as they are at the superstep at hand."""

    def interrupted(self) -> None:
        """A node waits for a person."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A graph that is guarded, and how."""

    graph: AnyGraph
    """The compiled graph, its nodes wrapped."""
    options: Options
    wrap_ups: Mapping[str, AnyGraph]
    """The same graph, entered at another node: at each that wraps up."""
    steps_max: int
    rounds_max: int
    folded: tuple[str, ...]
    """The gauges that are made of all that was written to them, by a reducer: not what a node writes, but what the
    state has is their value."""


def planned(graph: AnyGraph, options: Options, settings: Settings) -> Plan:
    """That graph, guarded."""
    gated = copy.copy(graph)
    gauges = [key for key in (*options.gauges, SHOULD_STOP) if key in graph.channels]
    gated.nodes = {name: _gated(name, node, options.costs.get(name), gauges) for name, node in graph.nodes.items()}
    return Plan(
        gated,
        options,
        {node: _entered_at(gated, node) for node in set(options.wrap_up.values())},
        options.steps_max(settings),
        options.rounds_max(settings),
        tuple(key for key in options.gauges if isinstance(graph.channels.get(key), BinaryOperatorAggregate)),
    )


def on(graph: AnyGraph, **parts: Any) -> AnyGraph:
    """The same graph on another checkpointer, store or cache; what is None stays as it is."""
    other = copy.copy(graph)
    for name, part in parts.items():
        if part is not None:
            setattr(other, name, part)
    return other


def _gated(name: str, node: PregelNode, cost: Given | None, gauges: Iterable[str]) -> PregelNode:
    if name == START or node.node is None:
        return node
    gated = copy.copy(node)
    # What LangGraph computes once and keeps there: the node with all that it writes.
    gated.__dict__["node"] = GatedNode(name, node.node, cost, gauges)
    return gated


def _entered_at(graph: AnyGraph, node: str) -> AnyGraph:
    """The same graph, but it begins at that node. What it is given is written as it is."""
    if not isinstance(graph, CompiledStateGraph):
        raise ValueError("wrap_up needs a StateGraph: only there is known how to enter a node")
    written: list[Any] = [
        ChannelWriteTupleEntry(mapper=lambda given: list(given.items()) if isinstance(given, dict) else None),
        ChannelWriteEntry(f"branch:to:{node}", None),
    ]
    other = copy.copy(graph)
    start = copy.copy(graph.nodes[START])
    start.__dict__.pop("node", None)
    start.__dict__.pop("flat_writers", None)
    start.writers = [ChannelWrite(written)]
    other.nodes = {**graph.nodes, START: start}
    return other


class _Inside:
    """Inside a node: whatever is called there belongs to its run, and how it is left is noted."""

    __slots__ = ("_hears", "_here", "_host")

    def __init__(self, host: Host) -> None:
        self._host = host

    def __enter__(self) -> None:
        self._here, self._hears = CURRENT.set(self._host.context), CALLBACKS.set(self._host.callbacks)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        CURRENT.reset(self._here)
        CALLBACKS.reset(self._hears)
        if isinstance(error, GraphInterrupt):
            self._host.interrupted()
        elif isinstance(error, ParentCommand):
            self._host.gate.note(error.args[0])


class GatedNode(Runnable[Any, Any]):
    """A node that asks leave before it runs."""

    def __init__(self, name: str, inner: Runnable[Any, Any], cost: Given | None, gauges: Iterable[str]) -> None:
        """`gauges` are the keys of the state that matter."""
        self.name = self._node = name
        self._inner = inner
        self._gauges = tuple(gauges)
        self._cost = cost
        self._reserved = whole(cost)

    # Threads.

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002 - LangChain's
        """Run the node, if it may."""
        host, number = self._host(config)
        if not host.gate.enter(number, self._node):
            return None
        try:
            with _Inside(host):
                if self._cost is None:
                    update = self._inner.invoke(input, config, **kwargs)
                else:
                    with host.context.step(self._node, cost=self._cost) as step, self._accounted(host, step):
                        update = self._inner.invoke(input, config, **kwargs)
        except Refused as refused:
            return self._refused(host, refused)
        host.gate.note(update)
        return update

    # Coroutines.

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002 - LangChain's
        """`invoke`, without blocking the loop."""
        return await self._run_soon(self._inner.ainvoke, input, config, kwargs)

    async def astream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AsyncIterator[Any]:  # noqa: A002 - LangChain's
        """LangGraph reads nodes so where somebody listens to their events: then he hears of what they stream, too."""
        yield await self._run_soon(self._streamed, input, config, kwargs)

    async def _run_soon(self, node: Node, given: Any, config: RunnableConfig | None, kwargs: Mapping[str, Any]) -> Any:
        host, number = self._host(config)
        if not await host.gate.enter_soon(number, self._node):
            return None
        try:
            with _Inside(host):
                if self._cost is None:
                    update = await node(given, config, **kwargs)
                else:
                    async with host.context.step(self._node, cost=self._cost) as step:
                        with self._accounted(host, step):
                            update = await node(given, config, **kwargs)
        except Refused as refused:
            return self._refused(host, refused)
        host.gate.note(update)
        return update

    async def _streamed(self, given: Any, config: RunnableConfig | None, **kwargs: Any) -> Any:
        """Run the node as a stream. That does not say what the node wrote: the state is asked."""
        async for _ in self._inner.astream(given, config, **kwargs):
            pass
        reads = (config or {}).get("configurable", {})[READ]
        before = reads(list(self._gauges), False)
        return {key: value for key, value in reads(list(self._gauges), True).items() if value != before.get(key)}

    # Both.

    @contextmanager
    def _accounted(self, host: Host, step: StepBlock) -> Iterator[None]:
        """What is spent meanwhile is of the worst case that was reserved for the step."""
        account = Account(host.context)
        here = ACCOUNT.set(account)
        failed = True
        try:
            yield
            failed = False
        except ParentCommand:  # a subgraph that is left by a command has done its work
            failed = False
            raise
        finally:
            ACCOUNT.reset(here)
            account.settle(step, self._reserved, failed=failed)

    def _host(self, config: RunnableConfig | None) -> tuple[Host, int]:
        configurable = (config or {}).get("configurable", {})
        host: Host | None = configurable.get(RUN)
        if host is None:
            text = f"the node {self.name!r} belongs to a guarded graph, and is run without its guard"
            raise FlyballError(text, remedy="Run what `guard(graph)` returned: its invoke, stream, ainvoke or astream.")
        host.reads = configurable.get(READ)
        return host, (config or {})["metadata"]["langgraph_step"]

    def _refused(self, host: Host, refused: Refused) -> None:
        """Something inside the node was refused, and that ended the node. If it was this run's and is to end it, the
        node is skipped, or leaves the graph. Whatever else it is, is an error as any other."""
        if isinstance(refused, GraphRefused) or refused.verb < Verb.FINISH:
            raise refused
        host.gate.hear(refused.decision)
        if refused.verb >= Verb.STOP:
            raise Ended(host.gate.verdict) from refused
        host.gate.skip()
