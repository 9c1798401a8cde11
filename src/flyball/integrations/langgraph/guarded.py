"""A guarded graph: used as the graph is, with all five layers on.

Each invoke is one run of a piece of work, the thread. What was begun and is not done is resumed, also where new input
is given, so no loop outside gets round the limits. Where the graph runs, here or in a process of its own, is not known
here: only that there is a run, which is read and can be told to end.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from types import TracebackType
from typing import Any, Final

from flyball.config.units import Unit
from flyball.core.amounts import MILLION
from flyball.core.codec import decode_state
from flyball.core.decision import Decision
from flyball.core.event import Cause, Event, Released
from flyball.core.failure import FINGERPRINT_VERSION, fingerprint
from flyball.core.policy import Key
from flyball.core.time import Instant, Span, span
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.integrations.guarding import Guarding
from flyball.integrations.langgraph.errors import GraphChanged, GraphRefused, graph_refusal, with_outcome
from flyball.integrations.langgraph.inline import InlineRun
from flyball.integrations.langgraph.money import depth
from flyball.integrations.langgraph.nodes import Plan
from flyball.integrations.langgraph.outcome import (
    BUDGET_EXCEEDED,
    COMPLETED,
    PAUSED,
    TIMED_OUT,
    Outcome,
    Report,
    layer_of,
    layers_of,
    status_of,
)
from flyball.integrations.langgraph.phases import STOP_REASON, AnyRun
from flyball.integrations.langgraph.shape import DEPTH_MAX
from flyball.integrations.missing import missing
from flyball.policies import Budget
from flyball.policies.budget import State as Spent
from flyball.policies.session import PERSON, Session
from flyball.runtimes.agent.block import Listener, Opening, WatchedBlock
from flyball.runtimes.agent.context import Context
from flyball.runtimes.current import CURRENT
from flyball.runtimes.driver import Ending
from flyball.runtimes.forked import clear as clear_forked
from flyball.runtimes.refusal import Refused
from flyball.runtimes.session.block import HEARS_EVERY
from flyball.runtimes.session.opening import known, opening

try:
    from langchain_core.runnables import Runnable, RunnableConfig
    from langgraph._internal._config import ensure_config
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
    from langgraph.pregel import Pregel
    from langgraph.types import Command, Send
except ImportError:
    raise missing("LangGraph", "langgraph") from None

log = logging.getLogger("flyball")

VALUES: Final = "values"
"""The stream of which LangGraph makes one result."""
CONF: Final = "configurable"

TO: Final = "branch:to:"
"""How LangGraph names the channel that leads to a node."""
TASKS: Final = "__pregel_tasks"
"""The channel of what was sent to nodes."""


class GraphBlock(WatchedBlock):
    """A run of a graph as a block: what its exit is depends on what the graph's own run says.

    The stream that a block is in is left between any two chunks, and may be closed elsewhere. So nothing is set here
    for the code at hand: the nodes do that for themselves.
    """

    graph_run: AnyRun | None = None

    def __init__(self, governor: Governor, unit: Unit, *, listener: Listener, opening: Opening, wait: Span) -> None:
        super().__init__(governor, unit, causes={}, listener=listener, opening=opening, wait=wait, told=self.heard)

    def attach(self, run: AnyRun) -> None:
        """That is the run. What was heard before is passed on."""
        self.graph_run = run
        if self._told is not None:
            run.tell(self._told)

    def heard(self, decision: Decision) -> None:
        """Whoever keeps the lease heard what ends the run."""
        if self.graph_run is not None:
            self.graph_run.tell(decision)

    def reported(self) -> Report:
        """What the run says of itself, with what was heard here."""
        report = self.graph_run.report if self.graph_run is not None else Report()
        if self._told is not None:
            report.verdict |= self._told
        return report

    def _begin(self, until: Instant) -> Context:
        context = super()._begin(until)
        CURRENT.reset(self._token)
        return context

    def _leave(self) -> None:
        self._closed.set()

    def _apart(self, until: Instant) -> float:
        return min(HEARS_EVERY, super()._apart(until))

    def _ending(self, error: BaseException | None) -> Ending:
        report, name = self.reported(), self._unit.name
        status, reason = status_of(report, error), report.verdict.primary
        if reason is not None and status in (COMPLETED, BUDGET_EXCEEDED):
            cause = Cause.DONE if status == COMPLETED else Cause.STOPPED
            mark = "" if cause.done else fingerprint(name, reason.code)
            return Ending(
                cause,
                mark,
                FINGERPRINT_VERSION if mark else 0,
                reason.code,
                detail=reason.text,
                policy=reason.policy,
                progress=report.progress,
            )
        if status == PAUSED:
            return Ending(Cause.STOPPED, error=PERSON, pause=PERSON, progress=report.progress)
        if reason is not None and self._told is None:
            self._told = report.verdict
        ending = super()._ending(error)
        return Ending(
            ending.cause,
            ending.fingerprint,
            ending.version,
            ending.error,
            detail=ending.detail,
            policy=ending.policy,
            progress=report.progress,
        )


class _Call:
    """One invoke: of which piece of work, and what came of it."""

    def __init__(self, graph: "GuardedGraph", given: Any, config: RunnableConfig | None) -> None:
        self.graph = graph
        self.given = given
        if depth() >= DEPTH_MAX:
            text = f"{DEPTH_MAX} guarded graphs run inside each other, and {graph.name} would be one more"
            raise FlyballError(text, remedy="Look at why it calls itself.")
        self.configurable = ensure_config(graph.plan.graph.config, config)[CONF]
        """As LangGraph sees it: with what the graph is bound to, and what is around the call."""
        thread = self.configurable.get("thread_id")
        if self.configurable.get("checkpoint_ns") and (config or {}).get(CONF, {}).get("thread_id") is None:
            thread = None  # a call in a node of another graph: work of its own, unless it is said whose
        self.is_thread = thread is not None
        self.unit = graph.unit_of(str(thread) if self.is_thread else uuid.uuid4().hex[:16])
        self.outcome: Outcome | None = None
        self.whole = False
        """Nobody reads its stream but to make one result of it."""

    def block(self) -> GraphBlock:
        """The run, as a block."""
        graph, governor = self.graph, self.graph.guard.governor
        listener = graph.define(self.unit, once=not self.is_thread)
        clear_forked(governor, self.unit.name)  # what a program left that was killed, before its run counts as lost
        if self._is_a_persons_word():
            state = known(governor, self.unit.name)
            if state.pause == PERSON and not state.let_go:
                governor.submit(
                    Released(unit=self.unit.name, labels=self.unit.labels, policies=(Session.NAME,), by="the program")
                )
        return GraphBlock(
            governor,
            self.unit,
            listener=listener,
            opening=lambda start: opening(governor, start),
            wait=span(graph.plan.options.wait),
        )

    def _is_a_persons_word(self) -> bool:
        """Whether it goes on where it waited for a person: with the answer, or after a breakpoint. In a chat each turn
        is somebody's word."""
        answers = isinstance(self.given, Command) and self.given.resume is not None
        return answers or self.given is None or self.graph.plan.options.work == "turn"


class _Watch:
    """Around a run: whatever leaves it is told as the graph's own, and the outcome is kept."""

    def __init__(self, call: _Call) -> None:
        self._call = call
        self.block: GraphBlock | None = None

    def __enter__(self) -> "_Watch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        told = graph_refusal(error) if isinstance(error, Refused) and not isinstance(error, GraphRefused) else error
        graph = self._call.graph
        report = self.block.reported() if self.block is not None else Report()
        if isinstance(told, GraphRefused) and not report.verdict.reasons:
            report.verdict = told.decision
        outcome = graph.outcome_of(self._call.unit.name, report, told)
        self._call.outcome = graph.last = outcome
        if told is not None:
            with_outcome(told, outcome)
        if told is not error and told is not None:
            raise told from error


class _Reader:
    """Stands for the graph where LangGraph makes a result of its stream: what a result is, it knows best."""

    def __init__(self, output_channels: Any, stream: Any) -> None:
        self.output_channels = output_channels
        self.stream = self.astream = stream


class GuardedGraph(Runnable[Any, Any]):
    """A graph under five layers. What is not here is the compiled graph's own."""

    def __init__(self, plan: Plan, guard: Guarding) -> None:
        self.plan = plan
        self.guard = guard
        self.name = plan.options.name
        self.last: Outcome | None = None
        """What the run that ended last came to; also where it raised."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "plan":
            raise AttributeError(name)
        return getattr(self.plan.graph, name)

    @property
    def graph(self) -> Pregel[Any, Any, Any, Any]:
        """The compiled graph, its nodes wrapped. It runs only by this guarded graph."""
        return self.plan.graph

    # What LangGraph knows better than what is inherited.

    @property
    def InputType(self) -> Any:  # noqa: N802 - LangChain's name
        """What it is given."""
        return self.plan.graph.InputType

    @property
    def OutputType(self) -> Any:  # noqa: N802 - LangChain's name
        """What it returns."""
        return self.plan.graph.OutputType

    def get_input_schema(self, config: RunnableConfig | None = None) -> Any:
        """What it is given, as a schema."""
        return self.plan.graph.get_input_schema(config)

    def get_output_schema(self, config: RunnableConfig | None = None) -> Any:
        """What it returns, as a schema."""
        return self.plan.graph.get_output_schema(config)

    def get_input_jsonschema(self, config: RunnableConfig | None = None) -> dict[str, Any]:
        """What it is given, as a JSON schema."""
        return self.plan.graph.get_input_jsonschema(config)

    def get_output_jsonschema(self, config: RunnableConfig | None = None) -> dict[str, Any]:
        """What it returns, as a JSON schema."""
        return self.plan.graph.get_output_jsonschema(config)

    @property
    def config_specs(self) -> Any:
        """What can be said in a configuration."""
        return self.plan.graph.config_specs

    def get_graph(self, config: RunnableConfig | None = None, *, xray: int | bool = False) -> Any:
        """The graph as LangGraph draws it."""
        return self.plan.graph.get_graph(config, xray=xray)

    # Runs.

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002 - LangChain's
        """Run the graph to its end. The result is an `Outcome`: the values, and why it stopped."""
        call = _Call(self, input, config)
        call.whole = kwargs.get("stream_mode", VALUES) == VALUES
        reader: Any = _Reader(
            self.plan.graph.output_channels,
            lambda given, config=None, **options: self._stream(call, given, config, options),
        )
        return self._result(call, Pregel.invoke(reader, input, config, **kwargs))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002 - LangChain's
        """`invoke`, for coroutines."""
        call = _Call(self, input, config)
        call.whole = kwargs.get("stream_mode", VALUES) == VALUES
        reader: Any = _Reader(
            self.plan.graph.output_channels,
            lambda given, config=None, **options: self._astream(call, given, config, options),
        )
        return self._result(call, await Pregel.ainvoke(reader, input, config, **kwargs))

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:  # noqa: A002 - LangChain's
        """LangGraph's own stream. What it came to is in `last`."""
        yield from self._stream(_Call(self, input, config), input, config, kwargs)

    async def astream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AsyncIterator[Any]:  # noqa: A002 - LangChain's
        """`stream`, for coroutines."""
        stream = self._astream(_Call(self, input, config), input, config, kwargs)
        try:
            async for chunk in stream:
                yield chunk
        finally:
            await stream.aclose()

    def _stream(self, call: _Call, given: Any, config: Any, kwargs: Mapping[str, Any]) -> Iterator[Any]:
        saver = self._saver(call)
        if saver is not None:
            self._check(call, saver.get_tuple(self._latest(call)))
        with _Watch(call) as watch:
            watch.block = block = call.block()
            with block as context:
                run = self._run(call, context)
                block.attach(run)
                yield from run.stream(given, config, **kwargs)

    async def _astream(
        self, call: _Call, given: Any, config: Any, kwargs: Mapping[str, Any]
    ) -> AsyncGenerator[Any, None]:
        saver = self._saver(call)
        if saver is not None:
            self._check(call, await saver.aget_tuple(self._latest(call)))
        with _Watch(call) as watch:
            watch.block = block = await asyncio.to_thread(call.block)
            async with block as context:
                run = self._run(call, context)
                block.attach(run)
                stream = run.astream(given, config, **kwargs)
                try:
                    async for chunk in stream:
                        yield chunk
                finally:
                    await stream.aclose()

    def _run(self, call: _Call, context: Context) -> AnyRun:
        kind: Any = InlineRun
        if self.plan.options.isolation == "process":
            from flyball.integrations.langgraph.process import ProcessRun  # noqa: PLC0415 - only where there is a child

            kind = partial(ProcessRun, whole=call.whole)
        unit = call.unit
        run: AnyRun = kind(
            self.plan, self.guard.governor, unit.name, context.run, labels=unit.labels, told=lambda _: None
        )
        return run

    # The piece of work.

    def unit_of(self, thread: str) -> Unit:
        """The piece of work that a thread is."""
        return self.plan.options.unit(self.guard.settings, thread)

    def define(self, unit: Unit, *, once: bool = False) -> Callable[[str, Event, Decision], None]:
        """Put it under the guard; it is a thread, or made once."""
        return self.guard.define_work(unit, *self.plan.options.policies(self.guard.settings, once=once))

    def _saver(self, call: _Call) -> BaseCheckpointSaver[Any] | None:
        saver = self.plan.graph.checkpointer
        return saver if call.is_thread and isinstance(saver, BaseCheckpointSaver) else None

    def _latest(self, call: _Call) -> RunnableConfig:
        return {"configurable": {"checkpoint_ns": "", **call.configurable}}

    def _check(self, call: _Call, kept: CheckpointTuple | None) -> None:
        """GraphChanged if the thread was left at a node that this graph does not have."""
        if kept is None:
            return
        values, nodes = kept.checkpoint["channel_values"], self.plan.graph.nodes
        there = [name.removeprefix(TO) for name in values if name.startswith(TO)]
        there += [sent.node for sent in values.get(TASKS) or () if isinstance(sent, Send)]
        gone = sorted({node for node in there if node not in nodes})
        if gone:
            raise GraphChanged(
                f"{call.unit.name} was left at {', '.join(gone)}, which this graph does not have: it has changed since"
            )

    # What came of it.

    def outcome_of(self, unit: str, report: Report, error: BaseException | None) -> Outcome:
        """The outcome of a run. Every layer that fired is logged."""
        verdict, graph = report.verdict, self.plan.graph
        outcome = Outcome(report.values if isinstance(report.values, dict) else {})
        reason = verdict.primary
        outcome.stop_reason = reason.code if reason is not None else None
        outcome.layer, outcome.reasons = layer_of(verdict), verdict.reasons
        outcome.status = status_of(report, error)
        outcome.spent = self._spent(unit)
        if reason is not None:
            said = {"should_stop": True, STOP_REASON: reason.code}
            outcome.update({key: value for key, value in said.items() if key in graph.channels})
        for layer in layers_of(verdict):
            texts = "; ".join(why.text for why in verdict.reasons if layer_of(Decision(reasons=(why,))) == layer)
            log.warning("%s: layer %s ended it: %s", unit, layer, texts)
        if outcome.status == TIMED_OUT:
            log.error("%s timed out", unit)
        return outcome

    def _spent(self, unit: str) -> Decimal:
        key = Key(Budget().name, "unit", unit)
        data = self.guard.governor.store.read([key]).records.get(key)
        return Decimal(decode_state(Spent, data).spent) / MILLION if data is not None else Decimal(0)

    def _result(self, call: _Call, values: Any) -> Any:
        """The values that LangGraph made of the stream, as an outcome, where they are a mapping."""
        outcome = call.outcome
        if outcome is None or not (values is None or type(values) is dict):
            return values
        said = {key: outcome[key] for key in ("should_stop", STOP_REASON) if outcome.stop_reason and key in outcome}
        if values is not None:
            outcome.clear()
            outcome.update(values)
        outcome.update(said)
        return outcome
