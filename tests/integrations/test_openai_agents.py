"""OpenAI Agents: what is special about hooks."""

import asyncio

import pytest
from agents import Agent, AgentsException, OpenAIChatCompletionsModel, RunConfig, Runner
from openai import AsyncOpenAI

from flyball.integrations.openai_agents import Hooks
from flyball.runtimes.refusal import Refused
from tests.integrations.drivers import TASK, TURNS_MAX, openai_agent, run_openai_agent
from tests.integrations.model_stub import ModelStub, Reply, model_stub
from tests.integrations.scene import CAUTIOUS, CIRCLE, MADE_BY_DEFAULT, REFUSES, SAYS, UNIT, House, a_guard, reasons


def test_a_refused_call_of_an_agent_that_is_not_guarded_ends_the_run() -> None:
    """Hooks alone cannot answer for a tool: the call is not made, and the run ends with the refusal as it is."""
    house = House()

    async def watched() -> None:
        async with guard.watch(UNIT):
            await run_openai_agent(openai_agent(stub, house, responses=False), Hooks())

    with a_guard(**CAUTIOUS) as guard, model_stub(CIRCLE) as stub:
        with pytest.raises(Refused, match=REFUSES) as raised:
            asyncio.run(watched())
        assert isinstance(raised.value, AgentsException)
        assert len(house.looked) == 4
        assert stub.calls == 5


def test_a_nudge_is_added_to_what_the_model_is_asked() -> None:
    """It stands at the end of the request, and in no other: it is no part of the conversation."""
    house = House()

    async def watched() -> None:
        async with guard.watch(UNIT):
            await run_openai_agent(openai_agent(stub, house, responses=True), Hooks())

    with a_guard() as guard, model_stub(CIRCLE) as stub:
        with pytest.raises(Refused):
            asyncio.run(watched())
        assert stub.requests[-1]["input"][-1]["content"].startswith(SAYS)
        assert stub.was_told(SAYS) == 1


def test_streamed_runs_are_stopped_too() -> None:
    """Who reads a stream of events gets the refusal there."""
    house = House()

    async def watched() -> None:
        async with guard.watch(UNIT):
            hooks = Hooks()
            agent = hooks.guarded(openai_agent(stub, house, responses=False))
            config = RunConfig(tracing_disabled=True)
            result = Runner.run_streamed(agent, TASK, hooks=hooks, max_turns=TURNS_MAX, run_config=config)
            async for _ in result.stream_events():
                pass

    with a_guard() as guard, model_stub(CIRCLE) as stub:
        with pytest.raises(Refused) as raised:
            asyncio.run(watched())
        assert raised.value.code == "going_in_circles"
        assert len(house.looked) == MADE_BY_DEFAULT
        assert all(request["stream"] for request in stub.requests)


def _pair(stub: ModelStub) -> Agent[None]:
    model = OpenAIChatCompletionsModel("stub-1", AsyncOpenAI(base_url=stub.url, api_key="none", max_retries=0))
    left: Agent[None] = Agent(name="left", model=model)
    right: Agent[None] = Agent(name="right", model=model, handoffs=[left])
    left.handoffs.append(right)
    return left


def test_agents_that_hand_over_to_each_other_go_round_in_a_circle() -> None:
    """A hand-over is a step. It has no result, so five rounds of it are what a circle takes."""

    async def watched() -> None:
        async with guard.watch(UNIT):
            await run_openai_agent(_pair(stub), Hooks())

    def there_and_back(number: int) -> Reply:
        return Reply(tool="transfer_to_right" if number % 2 else "transfer_to_left")

    with a_guard() as guard, model_stub(there_and_back) as stub:
        with pytest.raises(Refused) as raised:
            asyncio.run(watched())
        assert raised.value.code == "going_in_circles"
        assert stub.calls <= 2 * 6
        assert "a circle of 2 steps since step 1" in reasons(guard, "going_in_circles")[0]
