"""OpenTelemetry: spans of the GenAI conventions become steps, after the fact."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Status, StatusCode, Tracer
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.usage import UsageLimits

from flyball.config.settings import ModelPrice
from flyball.config.settings import Prices as PriceSettings
from flyball.integrations.opentelemetry import GenAISpans
from flyball.runtimes.agent.context import Context
from flyball.runtimes.prices import Prices
from flyball.runtimes.refusal import Refused
from tests.integrations.drivers import TASK, pydantic_agent
from tests.integrations.model_stub import CALLS_MAX, GIVES_UP, INPUT_TOKENS, OUTPUT_TOKENS, model_stub
from tests.integrations.scene import CIRCLE, MADE_BY_DEFAULT, NORMAL, UNIT, House, a_guard, events, reasons, spent


@contextmanager
def tracing(**options: Any) -> Iterator[tuple[TracerProvider, GenAISpans]]:
    """A provider of tracers with the processor; ended after the block."""
    provider, spans = TracerProvider(shutdown_on_exit=False), GenAISpans(**options)
    provider.add_span_processor(spans)
    try:
        yield provider, spans
    finally:
        provider.shutdown()


def tool_span(tracer: Tracer, arguments: str | None, result: str | None, *, name: str = "look_up") -> None:
    """As a framework writes it."""
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    with tracer.start_as_current_span(f"execute_tool {name}", attributes=attributes) as span:
        if arguments is not None:
            span.set_attribute("gen_ai.tool.call.arguments", arguments)
        if result is not None:
            span.set_attribute("gen_ai.tool.call.result", result)


def made(guard: Any) -> list[dict[str, Any]]:
    """The steps in the journal."""
    return [work for event in events(guard) for work in event["event"].get("done", ())]


async def _agent(guard: Any, stub: Any, house: House, provider: TracerProvider, **options: Any) -> str:
    """A real agent whose framework writes spans and knows nothing of flyball."""
    instrumentation = Instrumentation(settings=InstrumentationSettings(tracer_provider=provider))
    async with guard.watch(UNIT, **options):
        agent = pydantic_agent(stub, house, instrumentation)
        result = await agent.run(TASK, usage_limits=UsageLimits(request_limit=None))
        return str(result.output)


def test_a_circle_is_stopped_from_outside() -> None:
    """A span cannot refuse, but its run is ended: the coroutine is cancelled, and whoever started it gets the refusal.
    The journal names where the circle began."""
    house = House()
    with a_guard() as guard, model_stub(CIRCLE) as stub, tracing() as (provider, _):
        with pytest.raises(Refused) as raised:
            asyncio.run(_agent(guard, stub, house, provider))
        assert raised.value.code == "going_in_circles"
        assert MADE_BY_DEFAULT <= len(house.looked) < CALLS_MAX
        assert "since step 1" in reasons(guard, "going_in_circles")[0]
        exited = events(guard)[-1]["event"]
        assert (exited["cause"], exited["error"]) == ("stopped", "going_in_circles")


def test_an_agent_is_ended_too() -> None:
    """Inside an agent the spans find its run, and it is ended and not started again."""
    house = House()
    with a_guard() as guard, model_stub(CIRCLE) as stub, tracing() as (provider, _):
        settings = InstrumentationSettings(tracer_provider=provider)

        @guard.agent(UNIT)
        async def research(ctx: Context) -> None:
            agent = pydantic_agent(stub, house, Instrumentation(settings=settings))
            await agent.run(TASK, usage_limits=UsageLimits(request_limit=None))

        guard.run()
        assert len(house.looked) < CALLS_MAX
        exits = [event["event"] for event in events(guard) if event["event"]["event"] == "exited"]
        assert [exited["error"] for exited in exits] == ["going_in_circles"]


def test_without_the_processor_it_goes_on() -> None:
    """The same agent, watched but with spans that nobody reads, goes on until the model gives up."""
    house = House()
    with a_guard() as guard, model_stub(CIRCLE) as stub:
        assert asyncio.run(_agent(guard, stub, house, TracerProvider(shutdown_on_exit=False))) == GIVES_UP
        assert len(house.looked) == CALLS_MAX


def test_a_normal_run_is_untouched_and_counted() -> None:
    """Ten calls of a tool and eleven of a model are so many steps, with what the model used."""
    house = House()
    prices = Prices(PriceSettings(models={"stub-1": ModelPrice(input=Decimal(10), output=Decimal(100))}))
    with a_guard() as guard, model_stub(NORMAL) as stub, tracing(prices=prices) as (provider, spans):
        options = {"budget": {"usd": 1, "tokens": 1_000_000}, "budget_by": "unit"}
        assert asyncio.run(_agent(guard, stub, house, provider, **options)) == "It is in room 10."
        assert spans.force_flush()
        patterns = [work["pattern"] for work in made(guard)]
        assert (patterns.count("look_up"), patterns.count("model")) == (10, 11)
        assert spent(guard, "budget_tokens") == 11 * (INPUT_TOKENS + OUTPUT_TOKENS)
        assert spent(guard, "budget") == 11 * 2_000
        assert not reasons(guard, "repeating")


def test_a_budget_ends_the_run() -> None:
    """What was used is known after the call; the run that used more than it has is told to finish, and its next own
    step is refused."""
    with a_guard() as guard, tracing() as (provider, spans):
        tracer = provider.get_tracer("test")
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.usage.input_tokens": 90,
            "gen_ai.usage.output_tokens": 10,
        }
        with guard.watch(UNIT, budget={"tokens": 100}) as ctx:
            tracer.start_span("chat", attributes=attributes).end()
            assert spans.force_flush()
            with pytest.raises(Refused) as raised, ctx.step("look_up"):
                pass
        assert raised.value.code == "cost_budget_exceeded"


def test_a_thread_finds_its_next_step_refused() -> None:
    """Nobody can interrupt a thread, but what it asks is refused, and `check` raises."""
    with a_guard() as guard, tracing() as (provider, spans):
        tracer = provider.get_tracer("test")
        with guard.watch(UNIT) as ctx:
            for _ in range(MADE_BY_DEFAULT):
                tool_span(tracer, '{"place": "attic"}', "nothing")
            assert spans.force_flush()
            with pytest.raises(Refused, match="a circle of one step since step 1"):
                ctx.check()
            with pytest.raises(Refused), ctx.step("look_up"):
                pass


@pytest.mark.parametrize(
    ("spans", "stopped"),
    [
        ([('{"a": 1, "b": 2}', "same"), ('{"b": 2,"a": 1}', "same")] * 2, True),
        ([("not json", "same")] * 4, True),
        ([('{"n": 1}', "one"), ('{"n": 2}', "two"), ('{"n": 3}', "three"), ('{"n": 4}', "four")], False),
        ([(None, None)] * 8, False),
        ([("{}", "at 12:00:01"), ("{}", "at 12:00:02"), ("{}", "at 12:00:03"), ("{}", "at 12:00:04")], True),
    ],
    ids=["another order", "no JSON", "new ground", "without contents", "times differ"],
)
def test_what_is_a_circle(spans: list[tuple[str | None, str | None]], stopped: bool) -> None:
    """Arguments are compared by meaning, results without times; spans without contents show no circle."""
    with a_guard() as guard, tracing() as (provider, processor):
        with guard.watch(UNIT):
            for arguments, result in spans:
                tool_span(provider.get_tracer("test"), arguments, result)
            assert processor.force_flush()
        assert bool(reasons(guard, "going_in_circles")) is stopped


def test_a_span_that_failed_is_an_error() -> None:
    """By its status, or by the type of an error."""
    base = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look_up"}
    with a_guard() as guard, tracing() as (provider, spans):
        tracer = provider.get_tracer("test")
        with guard.watch(UNIT):
            by_status = tracer.start_span("execute_tool", attributes=base)
            by_status.set_status(Status(StatusCode.ERROR, "the light is out"))
            by_status.end()
            tracer.start_span("execute_tool", attributes={**base, "error.type": "timeout"}).end()
            tracer.start_span("execute_tool", attributes=base).end()
            assert spans.force_flush()
        assert [work.get("error", False) for work in made(guard)] == [True, True, False]


def test_polling_is_declared() -> None:
    """A tool that is meant to be asked again and again may be."""
    with a_guard() as guard, tracing(polling=["wait_for_build"]) as (provider, spans):
        with guard.watch(UNIT):
            for _ in range(2 * MADE_BY_DEFAULT):
                tool_span(provider.get_tracer("test"), "{}", "still building", name="wait_for_build")
            assert spans.force_flush()
        assert not reasons(guard, "going_in_circles")


def test_a_chant_is_found_in_messages() -> None:
    """What a model says stands in its span as messages with parts."""
    says = '[{"role": "assistant", "parts": [{"type": "text", "content": "Let me think."}]}]'
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": says}
    with a_guard() as guard, tracing() as (provider, spans):
        with guard.watch(UNIT):
            for _ in range(8):
                provider.get_tracer("test").start_span("chat", attributes=attributes).end()
            assert spans.force_flush()
        assert reasons(guard, "going_in_circles")


@pytest.mark.parametrize(
    "messages", ["not json", "[1]", '{"parts": 1}', '[{"parts": [{"type": "text"}]}]', "[]"], ids=repr
)
def test_messages_of_another_form_say_nothing(messages: str) -> None:
    """A span that is not as the conventions have it is a step all the same."""
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": messages}
    with a_guard() as guard, tracing() as (provider, spans):
        with guard.watch(UNIT):
            provider.get_tracer("test").start_span("chat", attributes=attributes).end()
            assert spans.force_flush()
        assert [work["pattern"] for work in made(guard)] == ["model"]


def test_spans_of_something_else_are_left_alone() -> None:
    """Neither spans outside of any run, nor those of no tool or model, are steps."""
    with a_guard() as guard, tracing() as (provider, spans):
        tracer = provider.get_tracer("test")
        tool_span(tracer, "{}", "outside")
        with guard.watch(UNIT):
            tracer.start_span("GET /", attributes={"http.request.method": "GET"}).end()
            tracer.start_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}).end()
        assert spans.force_flush()
        assert made(guard) == []


def test_a_span_belongs_to_the_run_that_it_was_begun_in() -> None:
    """Also when it is ended elsewhere, in a thread that knows nothing of the run."""
    with a_guard() as guard, tracing() as (provider, spans):
        with guard.watch(UNIT):
            span = provider.get_tracer("test").start_span("chat", attributes={"gen_ai.operation.name": "chat"})
            thread = threading.Thread(target=span.end)
            thread.start()
            thread.join()
            assert spans.force_flush()
        assert [work["pattern"] for work in made(guard)] == ["model"]


def test_shutdown_reports_what_is_left() -> None:
    """No step is lost because the program ends."""
    with a_guard() as guard, guard.watch(UNIT, budget={"tokens": 1_000}, budget_by="unit"):
        with tracing() as (provider, _):
            attributes: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.usage.output_tokens": 1}
            for _ in range(100):
                provider.get_tracer("test").start_span("chat", attributes=attributes).end()
        assert spent(guard, "budget_tokens") == 100
