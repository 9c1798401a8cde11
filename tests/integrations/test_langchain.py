"""LangChain and LangGraph: what is special about callbacks."""

import asyncio
import subprocess
import sys

import pytest
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from flyball.integrations.langchain import Callbacks
from flyball.runtimes.refusal import OutOfBudget, Refused
from tests.integrations.drivers import TASK, lang_graph, run_graph, run_graph_soon
from tests.integrations.model_stub import INPUT_TOKENS, OUTPUT_TOKENS, model_stub
from tests.integrations.scene import CIRCLE, MADE_BY_DEFAULT, NORMAL, SAYS, UNIT, House, a_guard, events, spent

TOKENS = INPUT_TOKENS + OUTPUT_TOKENS


@pytest.mark.parametrize("soon", [False, True], ids=["in a thread", "in a coroutine"])
def test_a_tool_node_that_swallows_errors_does_not_save_the_run(soon: bool) -> None:
    """Where a node makes messages of all exceptions, also of a refusal, the next call of the model is refused."""
    house = House()

    def run() -> None:
        with guard.watch(UNIT):
            run_graph(stub, house, Callbacks(), handle_tool_errors=True)

    async def run_soon() -> None:
        async with guard.watch(UNIT):
            await run_graph_soon(stub, house, Callbacks(), handle_tool_errors=True)

    with a_guard() as guard, model_stub(CIRCLE) as stub:
        with pytest.raises(Refused) as raised:
            asyncio.run(run_soon()) if soon else run()
        assert raised.value.code == "going_in_circles"
        assert len(house.looked) == MADE_BY_DEFAULT
        assert stub.calls == MADE_BY_DEFAULT


def test_a_tool_that_fails_is_an_error_in_the_journal() -> None:
    """The same error again and again is a circle, and the model is not told twice: it read the error itself."""
    house = House(broken=True)
    with a_guard() as guard, model_stub(CIRCLE) as stub:
        with pytest.raises(Refused), guard.watch(UNIT):
            run_graph(stub, house, Callbacks(), handle_tool_errors=True)
        assert len(house.looked) == MADE_BY_DEFAULT
        assert stub.was_told("the light is out") == 3
        done = [work for event in events(guard) for work in event["event"].get("done", ())]
        assert all(work.get("error") for work in done if work["pattern"] == "look_up")


def test_an_error_that_the_graph_passes_on_is_raised() -> None:
    """Without such a node the tool's own error ends the run, as it does without the adapter."""
    with a_guard() as guard, model_stub(CIRCLE) as stub:
        with pytest.raises(ValueError, match="the light is out"), guard.watch(UNIT):
            run_graph(stub, House(broken=True), Callbacks())
        assert events(guard)[-1]["event"]["cause"] == "error"


def test_streams_count_too() -> None:
    """A model that streams is counted when its stream is over."""
    house = House()
    with a_guard() as guard, model_stub(NORMAL) as stub:
        with pytest.raises(OutOfBudget), guard.watch(UNIT, budget={"tokens": 3 * TOKENS}, budget_by="unit"):
            list(
                lang_graph(stub, house, streaming=True).stream(
                    {"messages": [HumanMessage(TASK)]}, {"callbacks": [Callbacks()]}, stream_mode="messages"
                )
            )
        assert stub.calls == 3
        assert all(request["stream"] for request in stub.requests)
        assert spent(guard, "budget_tokens") == 3 * TOKENS


def test_a_model_alone_is_guarded_too() -> None:
    """No graph is needed: a chain or a model takes the same callbacks."""
    with a_guard() as guard, model_stub(NORMAL) as stub:
        with guard.watch(UNIT, budget={"tokens": TOKENS}) as ctx:
            callbacks = Callbacks(ctx)
            model = ChatOpenAI(model="stub-1", base_url=stub.url, api_key=SecretStr("none"), callbacks=[callbacks])
            model.invoke(TASK)
            with pytest.raises(OutOfBudget):
                model.invoke(TASK)
        assert stub.calls == 1


def test_a_nudge_is_added_to_what_the_tool_said() -> None:
    """The model reads the tool's result first, then the nudge."""
    with a_guard() as guard, model_stub(CIRCLE) as stub:
        with pytest.raises(Refused), guard.watch(UNIT):
            run_graph(stub, House(), Callbacks())
        last = stub.requests[-1]["messages"][-1]
        assert last["role"] == "tool"
        assert last["content"].startswith(f"nothing in the attic\n\n{SAYS}")


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [
        ("langchain", "langchain_core", "langchain"),
        ("openai_agents", "agents", "openai-agents"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
        ("opentelemetry", "opentelemetry.sdk", "opentelemetry"),
    ],
)
def test_without_its_library_an_adapter_says_what_to_install(module: str, library: str, extra: str) -> None:
    """An adapter whose framework is not there is no traceback of somebody else's."""
    code = f"""
import sys
sys.modules[{library!r}] = None
from flyball.errors import FlyballError
try:
    import flyball.integrations.{module}
except FlyballError as error:
    print(error.remedy)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == f"Install it: pip install 'flyball-governor[{extra}]'"
