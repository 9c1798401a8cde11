"""OpenAI Agents SDK: hooks that make a step of each call of a tool or a model, and of each hand-over.

    await Runner.run(hooks.guarded(agent), "…", hooks=hooks)

What a hook raises ends the run; the SDK passes it on as it is only if it is one of its own exceptions, so a refusal is
made one. A hook cannot give a tool's result in its place. Guardrails of tools can: `guarded` puts one on each tool of
an agent, so that a refused call is answered with the reason and the agent may do something else. Without it a refused
call ends the run.
"""

import dataclasses
from typing import Any

from flyball.integrations.feed import HANDOFF, Adapter, Usage, as_one_of, for_model, is_of_call
from flyball.integrations.missing import missing
from flyball.runtimes.agent.step import StepBlock
from flyball.runtimes.refusal import Refused

try:
    from agents import (
        Agent,
        AgentsException,
        FunctionTool,
        ItemHelpers,
        ModelResponse,
        RunContextWrapper,
        RunHooks,
        Tool,
        ToolGuardrailFunctionOutput,
        ToolInputGuardrail,
        ToolInputGuardrailData,
        TResponseInputItem,
    )
    from agents.models import get_default_model
    from openai.types.responses import ResponseOutputMessage
except ImportError:
    raise missing("OpenAI Agents", "openai-agents") from None


class Hooks(Adapter, RunHooks[Any]):
    """Given to a run as its hooks. What it takes is said at `Adapter`."""

    def guarded(self, agent: Agent[Any]) -> Agent[Any]:
        """A copy of the agent whose function tools answer a refused call with the reason. Agents that it can hand over
        to are as they were: guard each."""
        guardrail: ToolInputGuardrail[Any] = ToolInputGuardrail(self._before_tool, name="flyball")
        tools: list[Tool] = [
            dataclasses.replace(tool, tool_input_guardrails=[*(tool.tool_input_guardrails or ()), guardrail])
            if isinstance(tool, FunctionTool)
            else tool
            for tool in agent.tools
        ]
        return agent.clone(tools=tools)

    async def _before_tool(self, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        try:
            await self._begin(_key(data.context, data.context.tool_name), self._tool(data.context))
        except Refused as refused:
            if not is_of_call(refused):
                raise
            return ToolGuardrailFunctionOutput.reject_content(for_model(refused), output_info=refused.code)
        return ToolGuardrailFunctionOutput.allow()

    # Tools.

    async def on_tool_start(self, context: RunContextWrapper[Any], agent: Any, tool: Tool) -> None:
        """A tool is about to be called. Where a guardrail has asked already, this finds its step."""
        key = _key(context, tool.name)
        step = self._feed.take(key)
        if step is not None:
            self._feed.keep(key, step)
        else:
            await self._begin(key, self._tool(context, tool.name))

    async def on_tool_end(self, context: RunContextWrapper[Any], agent: Any, tool: Tool, result: object) -> None:
        """It was called. What failed comes as a text too, and is judged as one."""
        step = self._feed.take(_key(context, tool.name))
        if step is not None:
            step.result(result)
            await step.__aexit__(None, None, None)

    async def on_handoff(self, context: RunContextWrapper[Any], from_agent: Any, to_agent: Any) -> None:
        """One agent hands over to another. Agents that hand over to each other for ever go round in a circle."""
        step = self._feed.context.step(HANDOFF, call=[from_agent.name, to_agent.name])
        await _enter(step)
        await step.__aexit__(None, None, None)

    # Models.

    async def on_llm_start(
        self,
        context: RunContextWrapper[Any],
        agent: Agent[Any],
        system_prompt: str | None,
        input_items: list[TResponseInputItem],
    ) -> None:
        """A model is about to be called. What the governor has to say to the agent is added to what it will read."""
        step = self._feed.model()
        await self._begin(_key(context, agent.name), step)
        if step.nudge:
            input_items.append({"role": "user", "content": step.nudge})

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse) -> None:
        """It answered."""
        step = self._feed.take(_key(context, agent.name))
        if step is not None:
            said = [item for item in response.output if isinstance(item, ResponseOutputMessage)]
            text = "\n".join(ItemHelpers.extract_text(message) or "" for message in said)
            self._feed.answered(step, text, _usage(agent, response))
            await step.__aexit__(None, None, None)

    # Both.

    def _tool(self, context: Any, name: str = "") -> StepBlock:
        return self._feed.tool(name or context.tool_name, getattr(context, "tool_arguments", None))

    async def _begin(self, key: tuple[int, str], step: StepBlock) -> None:
        await _enter(step)
        self._feed.keep(key, step)


async def _enter(step: StepBlock) -> None:
    try:
        await step.__aenter__()
    except Refused as refused:
        raise as_one_of(refused, AgentsException) from None


def _key(context: RunContextWrapper[Any], name: str) -> tuple[int, str]:
    """Each call of a function tool has a context of its own; the calls of a model have the agent's."""
    return id(context), name


def _usage(agent: Agent[Any], response: ModelResponse) -> Usage | None:
    usage = response.usage
    if not usage.total_tokens:
        return None
    # The response does not say which model it is of; nor do hooks see one that the run was given instead.
    model = agent.model if agent.model is not None else get_default_model()
    return Usage(model if isinstance(model, str) else str(getattr(model, "model", "")), usage, usage.total_tokens)
