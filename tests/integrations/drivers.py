"""The same agent in each framework, against the stub: it may look things up and wait for a build.

A driver runs it to its end, with the framework's adapter or without, and gives what the agent said at last.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    Tool,
    function_tool,
)
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool, StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from openai import AsyncOpenAI
from pydantic import SecretStr
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from flyball.guard import Guard
from flyball.integrations.langchain import Callbacks
from flyball.integrations.openai_agents import Hooks
from flyball.integrations.pydantic_ai import Capability
from flyball.runtimes.agent.context import Context
from tests.integrations.model_stub import ModelStub
from tests.integrations.scene import UNIT, House

TURNS_MAX = 500
"""So many turns a framework itself allows: far more than the stub does."""

TASK = "Find the key."


@dataclass(frozen=True)
class Driver:
    """How an agent of one framework is run."""

    name: str
    begin: Callable[[ModelStub, House, Any], Awaitable[str] | str]
    adapter: Callable[..., Any]
    threaded: bool = False

    def run(self, stub: ModelStub, house: House, adapter: Any = None) -> str:
        """To its end, outside of any run."""
        if self.threaded:
            return cast(str, self.begin(stub, house, adapter))
        return asyncio.run(self.soon(stub, house, adapter))

    def run_watched(self, guard: Guard, stub: ModelStub, house: House, *, budget: Any = None, **options: Any) -> str:
        """With the adapter, as a run."""
        if self.threaded:
            with guard.watch(UNIT, budget=budget, budget_by="unit"):
                return self.run(stub, house, self.adapter(**options))

        async def watched() -> str:
            async with guard.watch(UNIT, budget=budget, budget_by="unit"):
                return await self.soon(stub, house, self.adapter(**options))

        return asyncio.run(watched())

    def run_as_agent(self, guard: Guard, stub: ModelStub, house: House) -> None:
        """With the adapter, as an agent that is supervised."""
        if self.threaded:

            @guard.agent(UNIT)
            def in_thread(ctx: Context) -> None:
                self.run(stub, house, self.adapter())
        else:

            @guard.agent(UNIT)
            async def in_loop(ctx: Context) -> None:
                await self.soon(stub, house, self.adapter())

        guard.run()

    async def soon(self, stub: ModelStub, house: House, adapter: Any) -> str:
        """As a part of something that runs already."""
        return await cast("Awaitable[str]", self.begin(stub, house, adapter))


# LangChain and LangGraph.


def lang_graph(
    stub: ModelStub, house: House, *, streaming: bool = False, handle_tool_errors: bool | None = None
) -> Any:
    """A graph of a model and its tools."""
    tools: list[BaseTool] = [
        StructuredTool.from_function(house.look_up),
        StructuredTool.from_function(house.wait_for_build),
    ]
    model = ChatOpenAI(
        model="stub-1", base_url=stub.url, api_key=SecretStr("none"), max_retries=0, streaming=streaming
    ).bind_tools(tools)

    def call(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    async def call_soon(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    node = ToolNode(tools) if handle_tool_errors is None else ToolNode(tools, handle_tool_errors=handle_tool_errors)
    graph = StateGraph(MessagesState)
    graph.add_node("model", _both(call, call_soon))
    graph.add_node("tools", node)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


def _both(call: Any, call_soon: Any) -> Any:
    return RunnableLambda(call, afunc=call_soon)


def _config(callbacks: Callbacks | None) -> RunnableConfig:
    return {"callbacks": [] if callbacks is None else [callbacks], "recursion_limit": TURNS_MAX}


def run_graph(stub: ModelStub, house: House, callbacks: Callbacks | None, **options: Any) -> str:
    """In a thread."""
    state = lang_graph(stub, house, **options).invoke({"messages": [HumanMessage(TASK)]}, _config(callbacks))
    return str(state["messages"][-1].content)


async def run_graph_soon(stub: ModelStub, house: House, callbacks: Callbacks | None, **options: Any) -> str:
    """In a coroutine."""
    graph = lang_graph(stub, house, **options)
    state = await graph.ainvoke({"messages": [HumanMessage(TASK)]}, _config(callbacks))
    return str(state["messages"][-1].content)


# OpenAI Agents.


def openai_agent(stub: ModelStub, house: House, *, responses: bool) -> Agent[Any]:
    """An agent on one of both protocols."""
    client = AsyncOpenAI(base_url=stub.url, api_key="none", max_retries=0)
    model = OpenAIResponsesModel("stub-1", client) if responses else OpenAIChatCompletionsModel("stub-1", client)
    tools: list[Tool] = [function_tool(house.look_up), function_tool(house.wait_for_build)]
    return Agent(name="finder", model=model, tools=tools)


async def run_openai_agent(agent: Agent[Any], hooks: Hooks | None) -> str:
    """To its end."""
    config = RunConfig(tracing_disabled=True)
    result = await Runner.run(agent, TASK, hooks=hooks, max_turns=TURNS_MAX, run_config=config)
    return str(result.final_output)


async def _chat_agent(stub: ModelStub, house: House, hooks: Hooks | None) -> str:
    agent = openai_agent(stub, house, responses=False)
    return await run_openai_agent(agent if hooks is None else hooks.guarded(agent), hooks)


async def _responses_agent(stub: ModelStub, house: House, hooks: Hooks | None) -> str:
    agent = openai_agent(stub, house, responses=True)
    return await run_openai_agent(agent if hooks is None else hooks.guarded(agent), hooks)


# Pydantic AI.


def pydantic_agent(stub: ModelStub, house: House, *capabilities: Any) -> PydanticAgent[None, str]:
    """An agent with its tools."""
    model = OpenAIChatModel("stub-1", provider=OpenAIProvider(base_url=stub.url, api_key="none"))
    tools: list[PydanticTool[None]] = [PydanticTool(house.look_up), PydanticTool(house.wait_for_build)]
    return PydanticAgent(model, tools=tools, capabilities=capabilities)


async def run_pydantic_agent(stub: ModelStub, house: House, capability: Capability | None) -> str:
    """To its end."""
    agent = pydantic_agent(stub, house, *([] if capability is None else [capability]))
    result = await agent.run(TASK, usage_limits=UsageLimits(request_limit=None))
    return result.output


DRIVERS = [
    Driver("langgraph in a thread", run_graph, Callbacks, threaded=True),
    Driver("langgraph in a coroutine", run_graph_soon, Callbacks),
    Driver("openai agents, chat", _chat_agent, Hooks),
    Driver("openai agents, responses", _responses_agent, Hooks),
    Driver("pydantic ai", run_pydantic_agent, Capability),
]
