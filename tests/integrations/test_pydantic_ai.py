"""Pydantic AI: what is special about a capability."""

import asyncio
from collections.abc import AsyncIterable
from typing import Any

import pytest
from pydantic_ai import ModelRetry
from pydantic_ai.usage import UsageLimits

from flyball.integrations.pydantic_ai import Capability
from flyball.runtimes.refusal import Refused
from tests.integrations.drivers import TASK, pydantic_agent
from tests.integrations.model_stub import INPUT_TOKENS, OUTPUT_TOKENS, model_stub
from tests.integrations.scene import CIRCLE, MADE_BY_DEFAULT, NORMAL, SAYS, UNIT, House, a_guard, events, spent

UNLIMITED = UsageLimits(request_limit=None)


async def _ignore(_: Any, stream: AsyncIterable[Any]) -> None:
    async for _event in stream:
        pass


def test_streamed_requests_are_steps_too() -> None:
    """Where the answers of the model are streamed, the same is counted and stopped."""
    house = House()

    async def watched() -> None:
        async with guard.watch(UNIT, budget={"tokens": 1_000_000}, budget_by="unit"):
            agent = pydantic_agent(stub, house, Capability())
            await agent.run(TASK, usage_limits=UNLIMITED, event_stream_handler=_ignore)

    with a_guard() as guard, model_stub(CIRCLE) as stub:
        with pytest.raises(Refused) as raised:
            asyncio.run(watched())
        assert raised.value.code == "going_in_circles"
        assert len(house.looked) == MADE_BY_DEFAULT
        assert all(request["stream"] for request in stub.requests)
        assert spent(guard, "budget_tokens") == stub.calls * (INPUT_TOKENS + OUTPUT_TOKENS)


def test_from_a_thread() -> None:
    """`run_sync` finds the run of the thread that it is called in."""
    house = House()
    with a_guard() as guard, model_stub(NORMAL) as stub:
        with guard.watch(UNIT):
            said = pydantic_agent(stub, house, Capability()).run_sync(TASK).output
        assert said == "It is in room 10."
        assert events(guard)[-1]["event"]["cause"] == "done"


def test_a_tool_that_asks_for_another_try_has_failed() -> None:
    """What a tool raises is an error in the journal, also where the model is to try again; and such tries end."""
    house = House()

    def look_up(place: str, deep: bool = False) -> str:
        house.looked.append(place)
        raise ModelRetry("look again")

    async def watched() -> None:
        async with guard.watch(UNIT):
            agent = pydantic_agent(stub, House(), Capability())
            with agent.override(tools=[look_up]):
                await agent.run(TASK, usage_limits=UNLIMITED, retries=100)

    with a_guard() as guard, model_stub(CIRCLE) as stub:
        with pytest.raises(Refused):
            asyncio.run(watched())
        assert len(house.looked) == MADE_BY_DEFAULT
        done = [work for event in events(guard) for work in event["event"].get("done", ())]
        assert all(work.get("error") for work in done if work["pattern"] == "look_up")
        assert stub.was_told(SAYS) == 1
