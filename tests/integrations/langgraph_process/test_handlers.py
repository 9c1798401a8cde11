"""Handlers that a program gave are called in the program."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.callbacks import (
    AsyncCallbackHandler,
    BaseCallbackHandler,
    CallbackManager,
    UsageMetadataCallbackHandler,
)
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.callbacks import GraphCallbackHandler

from flyball.integrations.langgraph.handlers import HANDLERS, all_of, passed_on, service
from tests.integrations.langgraph_process.lines import PickledLine


class Hears(BaseCallbackHandler):
    """Notes what it hears of models."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_llm_start(self, serialized: dict[str, Any], prompts: list[str], **named: Any) -> None:
        self.heard.append("model")

    def on_llm_new_token(self, token: Any, **named: Any) -> None:
        self.heard.append(str(token))


class HearsSoon(AsyncCallbackHandler):
    """The same as a coroutine."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def on_chat_model_start(self, serialized: Any, messages: Any, **named: Any) -> None:
        await asyncio.sleep(0)
        self.heard.append("chat model")


def through(handlers: Sequence[BaseCallbackHandler]) -> tuple[PickledLine, list[BaseCallbackHandler]]:
    """The stand-ins of these handlers."""
    line = PickledLine({HANDLERS: service(handlers, loop=None)})
    found = passed_on(line, list(handlers), handlers)
    assert isinstance(found, list)
    return line, found


def model(text: str) -> GenericFakeChatModel:
    usage: Any = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    message = AIMessage(text, usage_metadata=usage, response_metadata={"model_name": "stub-1"})
    return GenericFakeChatModel(messages=iter([message]))


def test_models() -> None:
    """A handler of the program hears of a model, token by token, in order; one that knows only plain models hears of a
    chat model as of one; and the usual counter of tokens counts."""
    hears, soon, counts = Hears(), HearsSoon(), UsageMetadataCallbackHandler()
    line, stand_ins = through([hears, soon, counts])
    assert (
        "".join(str(chunk.content) for chunk in model("one two").stream("say", {"callbacks": stand_ins})) == "one two"
    )
    model("well").invoke("say", {"callbacks": stand_ins})
    assert hears.heard == ["model", "one", " ", "two", "model"]
    assert soon.heard == ["chat model", "chat model"]
    assert counts.usage_metadata["stub-1"]["total_tokens"] == 5
    line.close()


@pytest.mark.parametrize("strict", [True, False])
def test_one_that_raises(strict: bool) -> None:
    """What a handler raises is heard where it is wanted so, and only there."""

    class Says(BaseCallbackHandler):
        raise_error = strict

        def on_llm_start(self, serialized: Any, prompts: Any, **named: Any) -> None:
            raise PermissionError("not this one")

    line, stand_ins = through([Says()])
    if strict:
        with pytest.raises(PermissionError, match="not this one"):
            model("no").invoke("say", {"callbacks": stand_ins})
    else:
        assert model("yes").invoke("say", {"callbacks": stand_ins}).content == "yes"
    line.close()


def test_what_is_not_heard_is_not_passed_on() -> None:
    """Events that a handler does nothing at, or ignores, cost nothing."""

    class Deaf(Hears):
        ignore_llm = True

    line = PickledLine({})  # any call would fail
    handlers = [Deaf(), BaseCallbackHandler(), GraphCallbackHandler()]
    stand_ins = passed_on(line, list(handlers), handlers)
    assert model("well").invoke("say", {"callbacks": stand_ins}).content == "well"
    line.close()


def test_managers() -> None:
    """What runs inside something else has a manager instead of a list: its handlers are passed on likewise."""
    local, inherited = Hears(), Hears()
    manager = CallbackManager(handlers=[local, inherited], inheritable_handlers=[inherited])
    handlers = all_of(manager)
    assert handlers == [local, inherited]
    line = PickledLine({HANDLERS: service(handlers, loop=None)})
    found = passed_on(line, manager, handlers)
    assert isinstance(found, CallbackManager)
    assert len(found.inheritable_handlers) == 1
    found.on_llm_start({}, ["say"])
    assert (local.heard, inherited.heard) == (["model"], ["model"])
    assert passed_on(line, None, []) is None
    assert all_of(None) == []
    line.close()
