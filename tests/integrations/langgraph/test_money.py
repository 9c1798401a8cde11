"""Layer 5: the worst case is reserved before a node runs, and what it really cost is settled when it ends."""

import asyncio
import operator
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any

import pytest
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START
from langgraph.types import Send
from typing_extensions import TypedDict

from flyball.core.codec import decode_state
from flyball.core.event import Cause, Step
from flyball.core.policy import Key
from flyball.errors import FlyballError
from flyball.guard import Guard
from flyball.integrations.langgraph import guard, spent
from flyball.policies.budget import State as Money
from flyball.runtimes.refusal import OutOfBudget
from tests.integrations.langgraph.scene import (
    WAYS,
    Run,
    State,
    a_builder,
    a_guard,
    counts,
    endless,
    exits,
    history,
    line,
    next_round,
    of_thread,
    only_unit,
    says,
)

INLINE: dict[str, Any] = {"isolation": "inline", "name": "board"}

PRICES: dict[str, Any] = {"prices": {"models": {"oracle": {"input": "10", "output": "100"}}}}
"""A call with 1000 tokens of input and 100 of output costs two cents."""

USED = {"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100}

every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())


def money(opened: Guard, unit: str) -> Money:
    """What is known of its money."""
    key = Key("budget", "unit", unit)
    record = opened.governor.store.read([key]).records.get(key)
    return decode_state(Money, record) if record is not None else Money()


def oracle(usage: Any = USED, name: str = "oracle") -> Callable[[State], dict[str, Any]]:
    """A node that calls a model once."""
    answer = AIMessage("yes", usage_metadata=usage, response_metadata={"model_name": name})
    model = FakeMessagesListChatModel(responses=[answer])

    def node(_: State) -> dict[str, Any]:
        model.invoke("well?")
        return {"log": ["asked"]}

    return node


def says_that_it_cost(amount: str) -> Callable[[State], dict[str, Any]]:
    """A node that says itself what it cost."""

    def node(_: State) -> dict[str, Any]:
        spent(amount)
        return {"log": ["paid"]}

    return node


# What a node costs.

COSTS: dict[str, tuple[Callable[[State], dict[str, Any]], str]] = {
    "S1-34: nobody says what: the worst case": (says("a"), "0.10"),
    "it says so itself": (says_that_it_cost("0.03"), "0.03"),
    "nothing": (says_that_it_cost("0"), "0"),
    "more than the worst case: all of it counts": (says_that_it_cost("0.25"), "0.25"),
    "a call of a model": (oracle(), "0.02"),
    "a call of which nobody knows the tokens": (oracle(usage=None), "0.10"),
    "a call of a model without a price": (oracle(name="stranger"), "0.10"),
}


@every_way
@pytest.mark.parametrize(("node", "cost"), COSTS.values(), ids=COSTS.keys())
def test_a_node_with_a_worst_case(way: Run, node: Callable[[State], dict[str, Any]], cost: str) -> None:
    """S1-28, S1-34, S1-45: its worst case is reserved; what it really cost is what counts."""
    with a_guard(**PRICES) as opened:
        graph = guard(line("a", a=node), guard=opened, costs={"a": "0.10"}, **INLINE)
        way(graph, {"log": []}, None)
        assert graph.last is not None
        assert graph.last.spent == Decimal(cost)
        assert money(opened, only_unit(opened)).reserved == 0


def test_the_reservation_is_on_record_before_the_node_runs() -> None:
    """S1-34: while the node runs, its worst case is reserved."""
    seen: list[int] = []
    with a_guard() as opened:

        def node(_: State) -> dict[str, Any]:
            seen.append(money(opened, "board@7").reserved)
            return {}

        guard(line("a", a=node), guard=opened, costs={"a": "0.10"}, **INLINE).invoke({"log": []}, of_thread("7"))
        assert seen == [100_000]


def test_a_node_that_fails_cost_its_worst_case() -> None:
    """S1-45: what failed may have spent anything."""

    def broken(_: State) -> dict[str, Any]:
        spent("0.01")
        raise ConnectionError("down")

    with a_guard() as opened:
        graph = guard(line("a", a=broken), guard=opened, costs={"a": "0.10"}, **INLINE)
        with pytest.raises(ConnectionError):
            graph.invoke({"log": []}, of_thread("7"))
        assert money(opened, "board@7") == Money(spent=100_000)


def test_calls_of_models_are_parts() -> None:
    """S1-28: in a node without a worst case each call of a model reserves its own, and is no step."""
    with a_guard(**PRICES) as opened:
        graph = guard(line("a", a=oracle()), guard=opened, worst_case="0.05", steps=1, **INLINE)
        assert str(graph.invoke({"log": []}, of_thread("7")).spent) == "0.02"
        asked = [event for event in history(opened, "board@7") if isinstance(event, Step) and event.part]
        assert [(step.pattern, step.cost) for step in asked] == [("model", {"usd": 50_000})]


def test_spent_without_a_worst_case() -> None:
    """S1-45: a node that nobody gave a worst case reports a fact, which counts."""
    with a_guard() as opened:
        graph = guard(line("a", "b", a=says_that_it_cost("0.03")), guard=opened, **INLINE)
        assert str(graph.invoke({"log": []}).spent) == "0.03"


def test_spent_outside_of_a_graph() -> None:
    """Outside of any run it is an error: nobody would count it."""
    with pytest.raises(FlyballError, match="outside of any run"):
        spent("0.01")


# Too little of it.


@every_way
def test_the_free_tier(way: Run) -> None:
    """S1-29, S1-33, S1-35, S1-36, S1-38: rounds at 0.20 each on the free tier: two are paid for, then comes the
    synthesis, with what there is; never more than 0.50 is spent."""
    with a_guard() as opened:
        graph = guard(
            endless(pong=next_round),
            guard=opened,
            tier="free",
            costs={"pong": "0.20", "end": "0.10"},
            kept_back="0.10",
            wrap_up="end",
            **INLINE,
        )
        values = way(graph, {"log": []}, of_thread("7"))
        assert values["log"] == ["ping", "pong", "ping", "pong", "ping", "end"]
        assert values["stop_reason"] == "cost_budget_exceeded"
        assert graph.last is not None
        assert (graph.last.layer, graph.last.status, str(graph.last.spent)) == (5, "budget_exceeded", "0.5")
        [exited] = exits(opened, "board@7")
        assert (exited.cause, exited.error, exited.policy) == (Cause.STOPPED, "cost_budget_exceeded", "budget")


def test_the_wrap_up_has_no_money() -> None:
    """S1-35: where nothing was kept back the wrap-up may not spend either, and it ends with what there is."""
    with a_guard() as opened:
        graph = guard(
            endless(pong=next_round),
            guard=opened,
            budget="0.40",
            costs={"pong": "0.20", "end": "0.10"},
            wrap_up="end",
            **INLINE,
        )
        values = graph.invoke({"log": []})
        assert values["log"] == ["ping", "pong", "ping", "pong"]
        assert (values.status, str(values.spent)) == ("budget_exceeded", "0.4")


def test_kept_back_money_is_for_the_wrap_up_alone() -> None:
    """S1-35: models that the wrap-up calls, and what it reserves itself, may use what was kept back."""
    with a_guard(**PRICES) as opened:

        def end(state: State) -> dict[str, Any]:
            oracle()(state)
            with opened.reserve("0.05") as reserved:
                reserved.settle("0.05")
            return {"log": ["end"]}

        graph = guard(
            endless(pong=says("pong", agreement=1.0), end=end),
            guard=opened,
            budget="0.10",
            kept_back="0.10",
            worst_case="0.05",
            wrap_up="end",
            **INLINE,
        )
        values = graph.invoke({"log": []})
        assert (values["log"][-1], str(values.spent)) == ("end", "0.07")


def test_a_model_that_cannot_be_paid_for() -> None:
    """S1-34: the call is not made, the node is skipped, and the graph finishes."""
    with a_guard(**PRICES) as opened:
        graph = guard(endless(pong=oracle()), guard=opened, budget="0.10", worst_case="0.05", wrap_up="end", **INLINE)
        values = graph.invoke({"log": []})
        assert values["log"].count("asked") == 3  # 0.02 each, and 0.05 are to be left before the call
        assert values["log"][-1] == "end"
        assert (values.stop_reason, str(values.spent)) == ("cost_budget_exceeded", "0.06")


def test_a_node_that_hides_the_refusal() -> None:
    """S1-02: a node that swallows the refusal does not save the run: it finishes before the next step."""
    with a_guard() as opened:

        def pong(_: State) -> dict[str, Any]:
            try:
                with opened.reserve("0.30"):
                    return {"log": ["paid"]}
            except OutOfBudget:
                spent("0.30")
                return {"log": ["hidden"]}

        values = guard(endless(pong=pong), guard=opened, budget="0.50", wrap_up="end", **INLINE).invoke({"log": []})
        assert values["log"] == ["ping", "paid", "ping", "hidden", "end"]
        assert str(values.spent) == "0.6"


class Wide(TypedDict):
    """Results of many at once."""

    log: Annotated[list[str], operator.add]


@pytest.mark.parametrize("soon", [False, True], ids=["threads", "coroutines"])
def test_a_fan_out_shares_one_budget(soon: bool) -> None:
    """S1-28, S1-45: of 40 that spend at once, as many run as are paid for; not a millionth more is spent."""
    running, most = [0], [0]
    lock = threading.Lock()

    def work(_: Any) -> dict[str, Any]:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        spent("0.07")
        with lock:
            running[0] -= 1
        return {"log": ["work"]}

    async def work_soon(state: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        return work(state)

    builder = a_builder(Wide)
    builder.add_node("plan", lambda _: {"log": ["plan"]})
    builder.add_node("work", work_soon if soon else work)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda _: [Send("work", {}) for _ in range(40)], ["work"])
    with a_guard() as opened:
        graph = guard(builder, guard=opened, budget="0.50", costs={"work": "0.07"}, **INLINE)
        values = asyncio.run(graph.ainvoke({"log": []})) if soon else graph.invoke({"log": []})
        assert values["log"].count("work") == 7
        assert str(values.spent) == "0.49"
        assert values.stop_reason == "cost_budget_exceeded"


def test_money_goes_on_over_runs() -> None:
    """S1-28: the budget is the thread's: a second invoke has what the first left, and no more."""
    ran: list[str] = []
    with a_guard() as opened:
        graph = guard(
            line("a", a=counts(ran)),
            guard=opened,
            budget="0.30",
            costs={"a": "0.20"},
            checkpointer=InMemorySaver(),
            **INLINE,
        )
        assert graph.invoke({"log": []}, of_thread("7")).status == "completed"
        assert graph.invoke({"log": []}, of_thread("7")).status == "budget_exceeded"
        assert len(ran) == 1


def test_other_meters() -> None:
    """S1-28: what is counted may be something else than money."""
    with a_guard() as opened:
        graph = guard(
            line("a", "b"),
            guard=opened,
            budget={"searches": 1},
            costs={"a": {"searches": 1}, "b": {"searches": 1}},
            **INLINE,
        )
        values = graph.invoke({"log": []})
        assert (values["log"], values.layer, values.status) == (["a"], 5, "budget_exceeded")


def test_a_user_s_budget() -> None:
    """S1-59: the user's budget counts over all his threads; who has none left is not begun."""
    with a_guard(budget={"per_user": "0.30"}) as opened:
        graph = guard(line("a"), guard=opened, user="ann", costs={"a": "0.20"}, **INLINE)
        assert graph.invoke({"log": []}).status == "completed"
        assert graph.invoke({"log": []}).status == "budget_exceeded"


@every_way
def test_the_last_cent(way: Run) -> None:
    """S1-28: a graph that spends its last cent in its last node came to its own end: nothing is left to wrap up."""
    with a_guard() as opened:
        graph = guard(
            line("a", "end", "b"),
            guard=opened,
            budget="0.20",
            costs=dict.fromkeys("ab", "0.10"),
            wrap_up="end",
            **INLINE,
        )
        assert way(graph, {"log": []}, None)["log"] == ["a", "end", "b"]
        assert graph.last is not None
        assert (graph.last.status, graph.last.stop_reason, str(graph.last.spent)) == ("completed", None, "0.2")
        assert exits(opened, only_unit(opened))[0].cause is Cause.DONE
