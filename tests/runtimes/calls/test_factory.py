"""What can be said of a call: its money, its labels, its policies; and what is refused, with a clear word."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from flyball.core.policy import AnyPolicy
from flyball.errors import FlyballError
from flyball.policies import Breaker, Budget, Loop
from flyball.runtimes.refusal import OutOfBudget
from tests.runtimes.calls.stage import UNIT, Broken, Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.calls.close()


def policies(stage: Stage) -> list[AnyPolicy]:
    return list(stage.governor.panel.policies_of(UNIT))


def test_each_attempt_is_a_step(stage: Stage) -> None:
    """Its pattern is the call's name; labels say which call, and under which breaker and limits it stands."""
    stage.calls("fetch", breaker="provider:x", cost="0.01", budget=1)(lambda: None)()
    step = stage.events("step")[0]
    assert (step.unit, step.run, step.pattern) == (UNIT, "host/1/1", "fetch")
    assert step.labels == {"call": "fetch", "provider": "x", "call:fetch": UNIT}
    assert step.cost == {"usd": 10_000}


def test_policies_are_put_once(stage: Stage) -> None:
    """Two calls under one breaker stand under one policy, whose numbers are those of the settings."""
    for _ in range(2):
        stage.calls("one", breaker="provider:x", loop=(10, 5), cost=1, budget=5)
    stage.calls("two", breaker="provider:y")
    breaker, budget, loop = policies(stage)
    assert isinstance(breaker, Breaker)
    assert (breaker.name, breaker.by, breaker.failures_max, breaker.units_min) == ("call_breaker", "provider", 5, 1)
    assert isinstance(budget, Budget)
    assert (budget.name, budget.by, budget.limit) == ("call_budget", "call:one", 5_000_000)
    assert isinstance(loop, Loop)
    assert (loop.name, loop.by, loop.repeats_max, loop.window) == ("call_loop", "call:one", 10, 5_000_000)


def test_a_breaker_of_its_own(stage: Stage) -> None:
    """`breaker=True`: what fails here stops only this call of this program."""

    def broken() -> None:
        raise Broken

    made = stage.calls("fetch", breaker=True)(broken)
    for _ in range(5):
        with pytest.raises(Broken):
            made()
    assert stage.state("call_breaker", "call:fetch", UNIT)
    stage.calls("other", breaker=True)(lambda: None)()


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("", {}, "no name for a call"),
        ("a b", {}, "no name for a call"),
        ("a:b", {}, "no name for a call"),
        ("x" * 81, {}, "no name for a call"),
        ("fetch", {"breaker": "x"}, "no label for a breaker"),
        ("fetch", {"breaker": "run:x"}, "no label for a breaker"),
        ("fetch", {"breaker": "provider:"}, "no label for a breaker"),
        ("fetch", {"loop": (1, 60)}, r"a loop of \(1, 60\)"),
        ("fetch", {"loop": (10, 0)}, r"a loop of \(10, 0\)"),
        ("fetch", {"loop": 5}, "a loop of 5"),
        ("fetch", {"loop": (5,)}, "a loop of"),
        ("fetch", {"loop": ("a", 1)}, "a loop of"),
        ("fetch", {"loop": (5, float("inf"))}, "a loop of"),
        ("fetch", {"failures": "OSError"}, "failures is 'OSError'"),
        ("fetch", {"used": 5}, "used is 5"),
        ("fetch", {"wait": -1}, "wait is -1"),
        ("fetch", {"wait": float("inf")}, "wait is inf"),
        ("fetch", {"budget": 1}, "needs the worst case"),
        ("fetch", {"budget": {"tokens": 1}, "cost": 1}, "budget of tokens needs the worst case"),
    ],
)
def test_what_makes_no_sense_is_refused(stage: Stage, name: str, options: dict[str, Any], text: str) -> None:
    """With what is wrong and what to write; and nothing was put."""
    with pytest.raises(FlyballError, match=text) as caught:
        stage.calls(name, **options)
    assert caught.value.remedy
    assert policies(stage) == []


@pytest.mark.parametrize("cost", [-1, "much", {"tokens": 1.5}, True])
def test_what_is_no_amount_is_refused(stage: Stage, cost: Any) -> None:
    """Amounts are exact."""
    with pytest.raises(ValueError, match="should"):
        stage.calls("fetch", cost=cost)


def test_two_limits_for_one_call_are_refused(stage: Stage) -> None:
    """One of them would never hold."""
    stage.calls("fetch", cost=1, budget=5)
    with pytest.raises(FlyballError, match="another call_budget"):
        stage.calls("fetch", cost=1, budget=6)


@pytest.mark.parametrize(
    ("cost", "limit", "many"),
    [
        (0.1, 0.3, 3),
        ("0.1", Decimal("0.35"), 3),
        ({"tokens": 100}, {"tokens": 1_000}, 10),
        ({"usd": "0.01", "tokens": 100}, {"usd": 1, "tokens": 250}, 2),
        ({"usd": "0.01", "tokens": 100}, {"usd": "0.01", "tokens": 9_999}, 1),
    ],
)
def test_amounts(stage: Stage, cost: Any, limit: Any, many: int) -> None:
    """Money without rounding, tokens counted whole; the budget that is used up first refuses."""
    made = stage.calls("fetch", cost=cost, budget=limit)(lambda: None)
    for _ in range(many):
        made()
    with pytest.raises(OutOfBudget):
        made()


def test_cost_of_the_arguments(stage: Stage) -> None:
    """A worst case that depends on the call is asked for each time, and refused each by itself."""
    call = stage.calls("ask", cost=lambda tokens, **_: {"tokens": tokens}, budget={"tokens": 100})

    @call
    def ask(tokens: int, *, model: str = "") -> int:
        return tokens

    assert ask(60, model="m") == 60
    with pytest.raises(OutOfBudget):
        ask(41)
    assert ask(40) == 40
    assert [step.cost for step in stage.events("step") if step.steps == 1][:2] == [{"tokens": 60}, {"tokens": 41}]


@pytest.mark.parametrize("given", [None, {}, {"usd": "0.01"}], ids=str)
def test_cost_that_leaves_out_what_is_bounded(stage: Stage, given: Any) -> None:
    """A worst case that is not known is not nothing: without it the call is not made."""
    made = stage.calls("ask", cost=lambda: given, budget={"tokens": 100})(lambda: pytest.fail("it was called"))
    with pytest.raises(FlyballError, match="says nothing of tokens"):
        made()
    assert stage.events("step") == []


def test_failures_cannot_be_judged(stage: Stage) -> None:
    """Where the function that is to judge an error fails itself, the attempt is told as one that failed, and costs."""
    made = stage.calls("ask", cost="0.50", budget=1, breaker="provider:x", failures=lambda error: bool(error.args[1]))(
        lambda: int("x")
    )
    for _ in range(2):
        with pytest.raises(IndexError):
            made()
    assert [work.error for event in stage.events("stepped") for work in event.done] == [True, True]
    with pytest.raises(OutOfBudget):
        made()


def test_used_of_the_result(stage: Stage) -> None:
    """What it really cost is settled, so that more fits into the budget than worst cases."""
    made = stage.calls("ask", cost="0.50", used=lambda result: result, budget=1)(lambda: "0.10")
    for _ in range(6):
        made()
    with pytest.raises(OutOfBudget):
        made()


def test_used_cannot_be_computed(stage: Stage) -> None:
    """The error is the caller's, and the worst case counts."""

    @stage.calls("ask", cost="0.50", used=lambda result: result["cost"], budget=1)
    def ask() -> dict[str, Any]:
        return {}

    for _ in range(2):
        with pytest.raises(KeyError):
            ask()
    with pytest.raises(OutOfBudget):
        ask()


def test_spent_inside(stage: Stage) -> None:
    """From inside a function, a block or an attempt; the last word counts, and an error does not change it."""
    call = stage.calls("ask", cost="0.50", budget=1)

    @call
    def ask() -> None:
        call.spent("0.30")
        call.spent("0.01")
        raise Broken

    with pytest.raises(Broken):
        ask()
    with call as attempt:
        attempt.spent("0.02")
    for tried in call:
        with tried:
            tried.spent("0.03")
    stage.calls.report()
    used = [work.used["usd"] for event in stage.events("stepped") for work in event.done]
    assert sum(used) == 60_000


def test_spent_in_a_generator(stage: Stage) -> None:
    """Between two items the reader's code runs, which is not inside the call."""
    call = stage.calls("stream", cost="0.50", budget=1)

    @call
    def stream() -> Iterator[int]:
        yield 1
        call.spent("0.01")
        yield 2

    items = stream()
    next(items)
    with pytest.raises(FlyballError, match="not being called"):
        call.spent("9.99")
    assert list(items) == [2]
    stage.calls.report()
    assert stage.events("stepped")[-1].done[0].used == {"usd": 10_000}


def test_spent_outside_is_refused(stage: Stage) -> None:
    """There is no attempt that it could belong to; nor is it that of another call."""
    call, other = stage.calls("ask", cost=1), stage.calls("other", cost=1)
    with pytest.raises(FlyballError, match="not being called"):
        call.spent(1)
    with other, pytest.raises(FlyballError, match="not being called"):
        call.spent(1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"retry": 3}, "cannot be repeated"),
        ({"cost": lambda: 1}, "no arguments and no result"),
        ({"cost": 1, "used": lambda _: 1}, "no arguments and no result"),
    ],
)
def test_a_block_cannot_do_everything(stage: Stage, options: dict[str, Any], text: str) -> None:
    """What needs a function is refused with what to write instead, before anything is asked."""
    call = stage.calls("fetch", **options)
    with pytest.raises(FlyballError, match=text), call:
        pass
    assert stage.events("step") == []


def test_blocks_inside_each_other(stage: Stage) -> None:
    """Each has its own attempt, also of the same call."""
    call, other = stage.calls("one", cost="0.01"), stage.calls("two", cost="0.10")
    with call as outer, other, call as inner:
        inner.spent("0.001")
        outer.spent("0.002")
    stage.calls.report()
    used: dict[str, int] = {}
    for event in stage.events("stepped"):
        for work in event.done:
            used[work.pattern] = used.get(work.pattern, 0) + work.used["usd"]
    assert used == {"one": 3_000, "two": 100_000}


def test_only_functions_are_decorated(stage: Stage) -> None:
    """What cannot be called cannot be guarded."""
    with pytest.raises(TypeError, match="cannot be called"):
        stage.calls("fetch")(3)  # type: ignore[arg-type]  # that is the point
