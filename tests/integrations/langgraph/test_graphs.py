"""Whatever LangGraph can do, a guarded graph can do: it is used as the graph is."""

import asyncio
import operator
import warnings
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState
from langgraph.prebuilt import create_react_agent
from langgraph.runtime import Runtime
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy, Command, RetryPolicy, Send
from langgraph.warnings import LangGraphDeprecatedSinceV10
from pydantic import BaseModel

from flyball.errors import FlyballError
from flyball.integrations.langgraph import GuardedGraph, Outcome, StepLimit, Stopped, guard
from tests.integrations.langgraph.scene import (
    WAYS,
    Run,
    State,
    a_builder,
    a_guard,
    endless,
    exits,
    line,
    of_thread,
    only_unit,
    reports,
    says,
    steps,
)

INLINE: dict[str, Any] = {"isolation": "inline", "name": "board"}


def guarded(graph: Any, opened: Any, **options: Any) -> GuardedGraph:
    """That graph, guarded here."""
    return guard(graph, guard=opened, **{**INLINE, **options})


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("soon", [False, True], ids=["plain nodes", "coroutines"])
def test_plain_and_async_nodes(way: Run, soon: bool) -> None:
    """S1-06: a graph of functions or coroutines gives what it gives without a guard, in each of the four ways."""

    async def later(_: State) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"log": ["later"]}

    if soon and way in (WAYS["invoke"], WAYS["stream"]):
        pytest.skip("LangGraph does not run coroutines so")
    builder = line("a", "b", **({"b": later} if soon else {}))
    with a_guard() as opened:
        assert way(guarded(builder, opened), {"log": []}, None) == way(builder.compile(), {"log": []}, None)


@pytest.mark.parametrize("mode", ["values", "updates", "debug", "custom", "messages", ["values", "updates"]], ids=str)
def test_stream_modes(mode: Any) -> None:
    """S1-06: each mode streams the same chunks as without a guard."""

    def talks(_: State) -> dict[str, Any]:
        get_stream_writer()("a word")
        return {"log": ["talks"]}

    def chunks(graph: Any) -> list[Any]:
        found = list(graph.stream({"log": []}, stream_mode=mode))
        return [{**chunk, "timestamp": "", "payload": ""} if mode == "debug" else chunk for chunk in found]

    builder = line("talks", "next", talks=talks)
    with a_guard() as opened:
        assert chunks(guarded(builder, opened)) == chunks(builder.compile())


def test_chunks_of_both_phases() -> None:
    """S1-17: what the wrap-up streams comes after the rest, in one stream."""
    with a_guard() as opened:
        graph = guarded(endless(pong=says("pong", agreement=1.0)), opened, wrap_up="end")
        chunks = list(graph.stream({"log": []}, stream_mode="updates"))
        assert [next(iter(chunk)) for chunk in chunks] == ["ping", "pong", "ping", "end"]
        assert chunks[2] == {"ping": None}  # it was skipped
        assert [mode for mode, _ in graph.stream({"log": []}, stream_mode=["values", "updates"])].count("updates") == 4


def test_versions_of_results() -> None:
    """S1-06: LangGraph's newer form of results is passed on as it is; other modes give their chunks."""
    with a_guard() as opened:
        graph = guarded(line("a"), opened)
        assert graph.invoke({"log": []}, version="v2").value == {"log": ["a"]}
        assert graph.invoke({"log": []}, stream_mode="updates") == [{"a": {"log": ["a"]}}]
        assert type(graph.invoke({"log": []})) is Outcome


def test_sends_and_commands() -> None:
    """S1-06: what is sent out runs side by side, and a command leads where it says."""

    def plan(_: State) -> Command[Literal["work"]]:
        return Command(update={"log": ["plan"]}, goto=[Send("work", {"log": [str(n)]}) for n in range(3)])

    builder = a_builder(State)
    builder.add_node("plan", plan)
    builder.add_node("work", lambda state: {"log": [f"did {state['log'][0]}"]})
    builder.add_edge(START, "plan")
    builder.add_edge("work", END)
    with a_guard() as opened:
        assert guarded(builder, opened).invoke({"log": []})["log"] == ["plan", "did 0", "did 1", "did 2"]
        assert steps(opened, only_unit(opened)) == 2


def test_gauges_in_a_command() -> None:
    """S1-15: what a command writes is read as any update is."""
    with a_guard() as opened:
        command: Command[Any] = Command(update={"log": ["pong"], "agreement": 1.0})
        graph = guarded(endless(pong=lambda _: command), opened, wrap_up="end")
        assert graph.invoke({"log": []}).stop_reason == "consensus"


@pytest.mark.parametrize("inside", [False, True], ids=["the graph's own step", "inside a node"])
def test_subgraphs(inside: bool) -> None:
    """S1-06: a subgraph is a node: one step, whatever goes on in it; its chunks are streamed where that is wanted."""
    inner = line("x", "y").compile()

    def calls(state: State) -> Any:
        return inner.invoke(state)

    builder = line("a", "team", **({"team": calls} if inside else {}))
    if not inside:
        builder.nodes["team"].runnable = inner
    with a_guard() as opened:
        graph = guarded(builder, opened)
        assert graph.invoke({"log": []})["log"] == builder.compile().invoke({"log": []})["log"]
        assert steps(opened, only_unit(opened)) == 2
        if not inside:
            namespaces = [len(namespace) for namespace, _ in graph.stream({"log": []}, subgraphs=True)]
            assert namespaces == [0, 1, 1, 0]


def test_an_endless_subgraph() -> None:
    """S1-04: it ends by LangGraph's own limit, which is set to ours, and that is layer 1 of the graph around it."""
    builder = line("a", "team")
    builder.nodes["team"].runnable = endless().compile()
    with a_guard() as opened:
        graph = guarded(builder, opened)
        with pytest.raises(RecursionError):
            graph.invoke({"log": []})
        assert graph.last is not None
        assert graph.last.layer == 1


def test_a_command_to_the_parent() -> None:
    """S1-06: a subgraph may lead the graph around it on."""
    inner = a_builder(State)
    inner.add_node("x", lambda _: Command(graph=Command.PARENT, goto="next", update={"log": ["x"]}))
    inner.add_edge(START, "x")
    builder = a_builder(State)
    builder.add_node("team", inner.compile(), destinations=("next",))
    builder.add_node("next", says("next"))
    builder.add_edge(START, "team")
    with a_guard() as opened:
        assert guarded(builder, opened).invoke({"log": []})["log"] == ["x", "next"]


@dataclass
class Whose:
    """What the nodes of a run may know."""

    name: str


def test_what_nodes_are_given() -> None:
    """S1-06: configuration, runtime, context and store reach the nodes as always."""
    seen: dict[str, Any] = {}

    def node(state: State, config: RunnableConfig, runtime: Runtime[Whose]) -> dict[str, Any]:
        assert runtime.store is not None
        runtime.store.put(("x",), "y", {"z": 1})
        seen.update(thread=config["configurable"]["thread_id"], who=runtime.context.name, tags=config["tags"])
        return {"log": ["node"]}

    builder = a_builder(State, context_schema=Whose)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    store = InMemoryStore()
    with a_guard() as opened:
        graph = guarded(builder.compile(store=store), opened)
        graph.invoke({"log": []}, of_thread("7", tags=["t"]), context=Whose("ann"))
    assert seen["thread"] == "7"
    assert seen["who"] == "ann"
    assert "t" in seen["tags"]
    assert store.get(("x",), "y") is not None


def test_messages() -> None:
    """S1-06: a state of messages, with its reducer."""
    builder = a_builder(MessagesState)
    builder.add_node("talk", lambda state: {"messages": [AIMessage(f"{len(state['messages'])} heard")]})
    builder.add_edge(START, "talk")
    with a_guard() as opened:
        graph = guarded(builder, opened, checkpointer=InMemorySaver(), work="turn")
        graph.invoke({"messages": [HumanMessage("hello")]}, of_thread("7"))
        values = graph.invoke({"messages": [HumanMessage("again")]}, of_thread("7"))
        assert [message.content for message in values["messages"]] == ["hello", "1 heard", "again", "3 heard"]


class Form(BaseModel):
    """A state that is a model."""

    log: Annotated[list[str], operator.add] = []
    round: int = 0


class Question(TypedDict):
    """What goes in: less than the state has."""

    log: Annotated[list[str], operator.add]


def test_states_that_are_models() -> None:
    """S1-06, S1-17: a state may be a pydantic model, and what goes in may be less than it has: it wraps up all the
    same, without a checkpointer, and tells only what the state has keys for."""
    builder = a_builder(Form, input_schema=Question)
    builder.add_node("ping", lambda state: {"log": ["ping"], "round": state.round + 1})
    builder.add_node("end", lambda state: {"log": [f"end after {state.round}"]})
    builder.add_edge(START, "ping")
    builder.add_conditional_edges("ping", lambda _: "ping", ["ping", "end"])
    with a_guard() as opened:
        values = guarded(builder, opened, wrap_up="end").invoke({"log": ["begun"]})
        assert values == {"log": ["begun", *["ping"] * 7, "end after 7"], "round": 7}
        assert values.stop_reason == "max_rounds"


def test_retries_and_caches() -> None:
    """S1-06: a node is retried as its policy says, in one step; what is cached is not run again."""
    tries: list[int] = []

    def flaky(_: State) -> dict[str, Any]:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("down")
        return {"log": ["flaky"]}

    builder = a_builder(State)
    policy = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False)
    builder.add_node("flaky", flaky, retry_policy=policy, cache_policy=CachePolicy(key_func=lambda _: "same"))
    builder.add_edge(START, "flaky")
    with a_guard() as opened:
        graph = guarded(builder.compile(cache=InMemoryCache()), opened)
        assert graph.invoke({"log": []})["log"] == ["flaky"]
        assert graph.invoke({"log": []})["log"] == ["flaky"]
        assert len(tries) == 3
        found = [steps(opened, unit) for unit in {e.unit for e in opened.governor.store.last_entries(limit=99)}]
        assert sorted(found) == [0, 1]


def test_the_functional_api() -> None:
    """S1-06: an entrypoint is guarded as a graph of one node; there is no shape to look at, and nothing to wrap up."""

    @task
    def double(number: int) -> int:
        return 2 * number

    @entrypoint()
    def flow(number: int) -> int:
        return double(double(number).result()).result()

    with a_guard() as opened:
        assert guarded(flow, opened).invoke(3) == 12
        with pytest.raises(ValueError, match="wrap_up needs a StateGraph"):
            guarded(flow, opened, wrap_up="flow")


class Scripted(FakeMessagesListChatModel):
    """A model that says what it is told to, and knows what tools are."""

    def bind_tools(self, *tools: Any, **options: Any) -> Any:
        return self


@tool
def look(place: str) -> str:
    """Look in a place."""
    return f"nothing in the {place}"


def looking(*places: str) -> list[BaseMessage]:
    """What a model says that looks in these places, one after the other."""
    calls = [
        {"name": "look", "args": {"place": place}, "id": str(n), "type": "tool_call"} for n, place in enumerate(places)
    ]
    return [AIMessage("", tool_calls=[call]) for call in calls]


def an_agent(*says_: BaseMessage) -> Any:
    """LangGraph's own agent, compiled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LangGraphDeprecatedSinceV10)
        return create_react_agent(Scripted(responses=list(says_)), [look])


@pytest.mark.parametrize("soon", [False, True], ids=["thread", "coroutine"])
def test_a_prebuilt_agent(soon: bool) -> None:
    """S1-06: LangGraph's own agent: its nodes are steps, its calls of tools and models are parts of them."""
    asked = {"messages": [HumanMessage("where?")]}
    with a_guard() as opened:
        graph = guarded(an_agent(*looking("attic"), AIMessage("It is not there.")), opened)
        values = asyncio.run(graph.ainvoke(asked)) if soon else graph.invoke(asked)
        assert [type(message).__name__ for message in values["messages"]][-2:] == ["ToolMessage", "AIMessage"]
        unit = only_unit(opened)
        assert steps(opened, unit) == 3
        parts = [work.pattern for event in reports(opened, unit) if event.part for work in event.done]
        assert parts == ["model", "look", "model"]


def test_an_agent_that_goes_in_circles() -> None:
    """S1-02: an agent that looks in the same place for ever is stopped for that, before its steps are used up."""
    with a_guard() as opened:
        graph = guarded(an_agent(*looking(*["attic"] * 50)), opened)
        with pytest.raises(Stopped) as raised:
            graph.invoke({"messages": [HumanMessage("where?")]})
        assert raised.value.code == "going_in_circles"
        assert graph.last is not None
        assert (graph.last.layer, graph.last.status) == (None, "stopped")


def test_callbacks_of_the_caller_are_heard_too() -> None:
    """S1-06: whoever listens to the graph goes on hearing it."""

    class Ear(BaseCallbackHandler):
        def __init__(self) -> None:
            self.names: list[str] = []

        def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
            self.names.append(kwargs.get("name") or "")

    ear = Ear()
    with a_guard() as opened:
        guarded(line("a", "b"), opened).invoke({"log": []}, {"callbacks": [ear]})
    assert [name for name in ear.names if name in ("a", "b")] == ["a", "b"]


def test_batches_and_events() -> None:
    """S1-06: what LangChain makes of invoke and stream (batches, events) works."""
    with a_guard() as opened:
        graph = guarded(line("a"), opened)
        assert graph.batch([{"log": ["1"]}, {"log": ["2"]}]) == [{"log": ["1", "a"]}, {"log": ["2", "a"]}]

        async def events() -> list[str]:
            return [event["event"] async for event in graph.astream_events({"log": []}, version="v2")]

        assert "on_chain_end" in asyncio.run(events())


def test_what_is_not_ours_is_the_graph_s() -> None:
    """S1-06: drawings, schemas and states are LangGraph's own."""
    builder = line("a", "b")
    with a_guard() as opened:
        graph = guarded(builder, opened, checkpointer=InMemorySaver())
        assert graph.get_graph().draw_mermaid() == builder.compile().get_graph().draw_mermaid()
        assert graph.get_input_jsonschema() == builder.compile().get_input_jsonschema()
        assert graph.builder is builder
        graph.invoke({"log": []}, of_thread("7"))
        graph.update_state(of_thread("7"), {"log": ["by hand"]})
        assert graph.get_state(of_thread("7")).values["log"] == ["a", "b", "by hand"]
        with pytest.raises(AttributeError):
            graph.no_such_thing  # noqa: B018 - it is the attribute that is asked for


def test_the_wrapped_graph_does_not_run_without_its_guard() -> None:
    """S1-64: nobody gets at the nodes without being counted."""
    with a_guard() as opened:
        graph = guarded(line("a"), opened)
        with pytest.raises(FlyballError, match="without its guard"):
            graph.graph.invoke({"log": []})


def test_the_graph_that_was_given_is_as_it_was() -> None:
    """S1-06: what was compiled before runs on as before, without a guard."""
    compiled = line("a").compile()
    with a_guard() as opened:
        guarded(compiled, opened)
        assert compiled.invoke({"log": []})["log"] == ["a"]


def test_a_guarded_graph_in_a_guarded_graph() -> None:
    """S1-43: it is a piece of work of its own, and what ends it is an error of the node that it is in."""
    with a_guard() as opened:
        inner = guarded(endless(), opened, name="inner", steps=3)

        def calls(state: State) -> Any:
            return inner.invoke(state)

        outer = guarded(line("a", "team", team=calls), opened)
        with pytest.raises(StepLimit, match="inner@"):
            outer.invoke({"log": []}, of_thread("7"))
        assert outer.last is not None
        assert exits(opened, "board@7")[0].error == "max_steps"


def test_a_graph_that_needs_no_guard_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """S1-06: without a guard one is opened, once."""
    import flyball
    from flyball.integrations.langgraph import entry

    with a_guard() as opened:
        calls: list[int] = []
        monkeypatch.setattr(entry, "_opened", [])

        def opens() -> Any:
            calls.append(1)
            return opened

        monkeypatch.setattr(flyball, "open", opens, raising=False)
        for _ in range(2):
            assert guard(line("a"), **INLINE).invoke({"log": []})["log"] == ["a"]
        assert calls == [1]
