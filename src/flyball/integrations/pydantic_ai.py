"""Pydantic AI: a capability that makes a step of each call of a tool or a model.

    agent = Agent("openai:…", capabilities=[Capability()])

It wraps the calls themselves, so leave is asked before and a refused call is answered with the reason: the model reads
it as a tool that failed, and may do something else. What ends the run is raised as it is.
"""

from typing import Any

from flyball.integrations.feed import Adapter, Usage, for_model, is_of_call
from flyball.integrations.missing import missing
from flyball.runtimes.agent.step import StepBlock
from flyball.runtimes.refusal import Refused

try:
    from pydantic_ai import RunContext, ToolDefinition, ToolFailed
    from pydantic_ai.capabilities import (
        AbstractCapability,
        ValidatedToolArgs,
        WrapModelRequestHandler,
        WrapToolExecuteHandler,
    )
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models import ModelRequestContext
except ImportError:
    raise missing("Pydantic AI", "pydantic-ai") from None


class Capability(Adapter, AbstractCapability[Any]):
    """Given to an agent as one of its capabilities. What it takes is said at `Adapter`."""

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """A call of a tool. What the governor has to say to the agent goes into the next request to the model."""
        step = self._feed.tool(call.tool_name, args)
        try:
            await step.__aenter__()
        except Refused as refused:
            if not is_of_call(refused):
                raise
            raise ToolFailed(for_model(refused)) from None
        try:
            result = await handler(args)
        except BaseException as error:
            await step.__aexit__(type(error), error, error.__traceback__)
            _tell(ctx, step)
            raise
        step.result(result)
        await step.__aexit__(None, None, None)
        _tell(ctx, step)
        return result

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        """A call of a model."""
        async with self._feed.model() as step:
            response = await handler(request_context)
            text = "\n".join(part.content for part in response.parts if isinstance(part, TextPart))
            self._feed.answered(step, text, _usage(response))
        return response


def _tell(ctx: RunContext[Any], step: StepBlock) -> None:
    if step.nudge:
        ctx.enqueue(step.nudge)


def _usage(response: ModelResponse) -> Usage | None:
    usage = response.usage
    if not usage.total_tokens:
        return None
    return Usage(response.model_name or "", usage, usage.total_tokens)
