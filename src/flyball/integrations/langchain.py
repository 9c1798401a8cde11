"""LangChain and LangGraph: a callback handler that makes a step of each call of a tool or a model.

    graph.invoke(state, config={"callbacks": [Callbacks()]})

Callbacks can be told, not asked: an exception is the only way to say no, and it counts only where `raise_error` is set
and the handler is synchronous (what a coroutine raises is swallowed wherever synchronous code calls it). So there is
one handler, synchronous, which async code calls in a thread. What a tool node turns into a message instead of passing
it on does not save the run: the next call of the model is refused, and that is passed on.
"""

import contextlib
from typing import Any, Final
from uuid import UUID

from flyball.errors import FlyballError
from flyball.integrations.feed import Adapter, Usage, as_one_of, for_model, is_of_call
from flyball.integrations.missing import missing
from flyball.runtimes.agent.step import StepBlock
from flyball.runtimes.refusal import Refused

try:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, LLMResult
except ImportError:
    raise missing("LangChain", "langchain") from None

try:
    from langgraph.prebuilt.tool_node import ToolInvocationError

    HANDED_ON: type[Exception] | None = ToolInvocationError
    """What a tool node makes a message for the model of, unless it is told otherwise."""
except ImportError:
    HANDED_ON = None

INPUT: Final = "input_tokens"
OUTPUT: Final = "output_tokens"


class Callbacks(Adapter, BaseCallbackHandler):
    """Given to a call as one of its callbacks. What it takes is said at `Adapter`."""

    raise_error = True

    # Tools.

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool is about to be called."""
        name = (serialized or {}).get("name") or kwargs.get("name") or "tool"
        try:
            self._begin(run_id, self._feed.tool(name, input_str if inputs is None else inputs))
        except Refused as refused:
            if HANDED_ON is None or not is_of_call(refused):
                raise
            told = as_one_of(refused, HANDED_ON)
            told.message = for_model(refused)  # type: ignore[attr-defined]  # what a tool node reads
            raise told from None

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """It was called. What the governor has to say to the agent is added to what the model will read."""
        step = self._feed.take(run_id)
        if step is None:
            return
        message = output if isinstance(output, ToolMessage) else None
        step.result(
            output if message is None else message.content, error=message is not None and message.status == "error"
        )
        self._end(step)
        if message is not None and step.nudge:
            _add(message, step.nudge)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """It failed."""
        self._failed(error, run_id)

    # Models.

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """A model is about to be called."""
        self._begin(run_id, self._feed.model())

    def on_llm_start(self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **kwargs: Any) -> None:
        """A model that is no chat model is about to be called."""
        self._begin(run_id, self._feed.model())

    def on_llm_new_token(self, token: str | list[str | dict[str, Any]], **kwargs: Any) -> None:
        """It speaks, so the run is alive. A stream may be read elsewhere, where the run is not known."""
        with contextlib.suppress(FlyballError):
            self._feed.context.beat()

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """It answered."""
        step = self._feed.take(run_id)
        if step is not None:
            generations = [generation for batch in response.generations for generation in batch]
            self._feed.answered(step, "\n".join(generation.text for generation in generations), _usage(response))
            self._end(step)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """It failed."""
        self._failed(error, run_id)

    # Both.

    def _begin(self, run_id: UUID, step: StepBlock) -> None:
        step.__enter__()
        self._feed.keep(run_id, step)

    def _end(self, step: StepBlock, error: BaseException | None = None) -> None:
        step.__exit__(type(error) if error is not None else None, error, None)

    def _failed(self, error: BaseException, run_id: UUID) -> None:
        step = self._feed.take(run_id)
        if step is not None:
            self._end(step, error)


def _usage(response: LLMResult) -> Usage | None:
    for batch in response.generations:
        for generation in batch:
            message = generation.message if isinstance(generation, ChatGeneration) else None
            if isinstance(message, AIMessage) and message.usage_metadata:
                report = message.usage_metadata
                model = message.response_metadata.get("model_name", "")
                return Usage(model, report, report[INPUT] + report[OUTPUT])
    output = response.llm_output or {}
    used = output.get("token_usage")
    return Usage(output.get("model_name", ""), used, used.get("total_tokens", 0)) if used else None


def _add(message: ToolMessage, text: str) -> None:
    """The graph passes this very object on to the model."""
    if isinstance(message.content, str):
        message.content = f"{message.content}\n\n{text}"
    else:
        message.content = [*message.content, {"type": "text", "text": text}]
