"""One run of a guarded graph: the graph as it is, and, where it was told to finish, its wrap-up. Knows nothing of
processes: it runs where its caller is, or in a child, on whatever governor it is given.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from flyball.core.decision import PROCEED, Decision, Reason, Verb, stop
from flyball.governor import Governor
from flyball.integrations.langgraph.errors import Ended, GraphRefused, refusal_of
from flyball.integrations.langgraph.gate import SHOULD_STOP, Supersteps
from flyball.integrations.langgraph.money import GraphCallbacks
from flyball.integrations.langgraph.nodes import RUN, AnyGraph, Plan, on
from flyball.integrations.langgraph.outcome import Report
from flyball.integrations.missing import missing
from flyball.runtimes.agent.context import Context

try:
    from langchain_core.runnables.config import ensure_config
    from langgraph.errors import GraphRecursionError
except ImportError:
    raise missing("LangGraph", "langgraph") from None

STOP_REASON: Final = "stop_reason"
"""The key of a state that says why the graph stops."""

BEYOND: Final = 2
"""By so much LangGraph's own limit of steps is above ours, unless a lower one is given: ours counts over all runs of
the work, and is to be the one that speaks."""

CONF: Final = "configurable"


class AnyRun(Protocol):
    """What `GuardedGraph` needs of a run: `GraphRun` is one, and so is `process.ProcessRun`, which is made with the
    same arguments and has a `GraphRun` in a child. Made per run; nothing begins before the stream is read."""

    @property
    def report(self) -> Report:
        """What happened, once the stream has ended or raised."""

    def tell(self, decision: Decision) -> None:
        """The run is to finish (the graph wraps up) or to stop. Any thread. STOP: a child is ended."""

    def stream(self, given: Any, config: Any, **kwargs: Any) -> Iterator[Any]:
        """The chunks. Raises a GraphRefused where it is stopped, or what a node raised."""

    def astream(self, given: Any, config: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        """The same for coroutines."""


class GraphRun:
    """A run of a graph. Make one per run, then read `stream` or `astream` to its end; `report` says what happened.

    `told` hears what the governor answered to the graph's own steps, where that ends the run. What is heard elsewhere
    (by whoever keeps the lease) is passed in by `tell`. A child that cannot use the program's checkpointer, store and
    cache gives its own.
    """

    def __init__(
        self,
        plan: Plan,
        governor: Governor,
        unit: str,
        run: str,
        *,
        labels: Mapping[str, str],
        told: Callable[[Decision], None],
        checkpointer: Any = None,
        store: Any = None,
        cache: Any = None,
    ) -> None:
        self._plan = plan
        self._governor = governor
        self._unit = unit
        self._parts = {"checkpointer": checkpointer, "store": store, "cache": cache}
        self._graph = on(plan.graph, **self._parts)
        # Money is reserved call by call: what an allowance held of it would be refused to another part of the graph.
        self.context = Context(governor, unit, run, labels=labels, part=True, steps_max=1, told=self.tell)
        self.gate = Supersteps(
            governor,
            self.context,
            gauges=plan.options.gauges,
            folded=plan.folded,
            reads=self._read,
            steps_max=plan.steps_max,
            rounds_max=plan.rounds_max,
            goes_its_own_way=not plan.options.wrap_up,
            heard=told,
        )
        options = plan.options
        self.callbacks = GraphCallbacks(self.context, worst_case=options.worst_case, prices=options.prices)
        self.reads: Callable[[Any, bool], Any] | None = None
        self.report = Report()

    def tell(self, decision: Decision) -> None:
        """From outside, in any thread: the run is to finish or to stop. A node that is at work is not interrupted."""
        self.gate.hear(decision)
        if decision.verb >= Verb.STOP:
            self.context.end(decision)

    def _read(self, key: str) -> Any:
        """That key of the state, as it is at the superstep at hand."""
        return self.reads([key], False).get(key) if self.reads is not None else None

    def interrupted(self) -> None:
        """A node waits for a person."""
        self.report.interrupted = True

    # Threads.

    def stream(self, given: Any, config: Any, **kwargs: Any) -> Iterator[Any]:
        """The same chunks as LangGraph's own `stream`, of both phases. Raises a GraphRefused where it is stopped."""
        config = self._configured(config)
        try:
            yield from self._graph.stream(given, config, **kwargs)
            second = self._second(config)
            if second is not None:
                graph, given, config = second
                yield from graph.stream(given, config, **kwargs)
            self._look(kwargs, lambda: self._graph.get_state(config).next)
        except Ended as ended:
            raise self._refusal(ended.decision) from ended.__cause__
        except GraphRecursionError as error:
            self._too_long(error)
            raise
        finally:
            self._note()
            self._close()

    # Coroutines.

    async def astream(self, given: Any, config: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        """`stream`, for coroutines."""
        config = self._configured(config)
        try:
            async for chunk in self._graph.astream(given, config, **kwargs):
                yield chunk
            second = self._second(config)
            if second is not None:
                graph, given, config = second
                async for chunk in graph.astream(given, config, **kwargs):
                    yield chunk
            if self._may_pause(kwargs):
                state = await self._graph.aget_state(config)
                self._look(kwargs, lambda: state.next)
        except Ended as ended:
            raise self._refusal(ended.decision) from ended.__cause__
        except GraphRecursionError as error:
            self._too_long(error)
            raise
        finally:
            self._note()
            # Whoever reads the stream may be gone, and its loop with him: so this waits for nothing there.
            await asyncio.to_thread(self._close)

    # Both.

    def _configured(self, config: Any) -> Any:
        """The configuration, by which the nodes find this run."""
        given = (config or {}).get("recursion_limit") or (self._graph.config or {}).get("recursion_limit")
        most = self._plan.steps_max + BEYOND
        merged = ensure_config(config)
        if self._graph.checkpointer and not merged["configurable"] and not (self._graph.config or {}).get(CONF):
            return merged  # LangGraph says itself that there is no thread
        return {
            **merged,
            "configurable": {**merged["configurable"], RUN: self},
            # Not above ours: nodes whose results come from a cache, and those of subgraphs, are counted only there.
            "recursion_limit": min(given or most, most),
        }

    def _second(self, config: Any) -> tuple[AnyGraph, Any, Any] | None:
        """The second phase, if the graph was told to finish and has a node that wraps up: what is run, with what."""
        gate = self.gate
        if not gate.skipped or gate.wraps_up:
            return None
        reason = gate.verdict.primary
        code = reason.code if reason is not None else ""
        node = self._plan.options.wraps_up_with(code)
        if node is None:
            return None
        self._note()
        graph = on(self._plan.wrap_ups[node], **self._parts)
        said = {SHOULD_STOP: True, STOP_REASON: code}
        given = {key: value for key, value in said.items() if key in graph.channels}
        if not graph.checkpointer and isinstance(self.report.values, dict):
            given = {**self.report.values, **given}
        configurable = {key: value for key, value in config["configurable"].items() if key != "checkpoint_id"}
        gate.wrap_up()
        return graph, given, {**config, "configurable": configurable}

    def _may_pause(self, kwargs: Mapping[str, Any]) -> bool:
        """Whether it may have ended at a breakpoint, of which no node knows."""
        points = (
            kwargs.get("interrupt_before") or self._graph.interrupt_before_nodes,
            kwargs.get("interrupt_after") or self._graph.interrupt_after_nodes,
        )
        return any(points) and bool(self._graph.checkpointer) and not self.report.interrupted

    def _look(self, kwargs: Mapping[str, Any], following: Callable[[], tuple[str, ...]]) -> None:
        if self._may_pause(kwargs) and following():
            self.report.interrupted = True

    def _refusal(self, decision: Decision) -> GraphRefused:
        return refusal_of(decision, self._governor.clock.now(), f"{self._unit} may not go on")

    def _too_long(self, error: GraphRecursionError) -> None:
        """LangGraph's own limit is the first layer, too."""
        if not isinstance(error, GraphRefused):
            text = str(error).partition("\n")[0]
            self.gate.hear(stop(Reason("steps", "max_steps", text, "Look at why it does not end.")))

    def _note(self) -> None:
        """What there is, for whoever asks when it is over."""
        report, gate = self.report, self.gate
        if self.reads is not None:
            channels = self._graph.stream_channels_asis
            report.values = self.reads(channels if isinstance(channels, str) else list(channels), False)
        came_to_its_end = gate.verdict.verb is Verb.FINISH and not gate.skipped and not gate.wraps_up
        report.verdict, report.steps = PROCEED if came_to_its_end else gate.verdict, gate.made
        report.progress = bool(self._graph.checkpointer) and gate.made > 1

    def _close(self) -> None:
        self.gate.close()
        self.context.close_and_wait(clean=False)
