"""What holds for every adapter that can refuse: real frameworks, a local model, and the same agent in each of them."""

from decimal import Decimal

import pytest

from flyball.config.settings import ModelPrice
from flyball.config.settings import Prices as PriceSettings
from flyball.core.decision import Verb
from flyball.errors import FlyballError
from flyball.runtimes.prices import Prices
from flyball.runtimes.refusal import OutOfBudget, Refused
from tests.integrations.drivers import DRIVERS, Driver
from tests.integrations.model_stub import (
    CALLS_MAX,
    GIVES_UP,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    Reply,
    always,
    each,
    model_stub,
)
from tests.integrations.scene import (
    CAUTIOUS,
    CIRCLE,
    MADE_BY_DEFAULT,
    NORMAL,
    REFUSES,
    SAYS,
    House,
    a_guard,
    events,
    reasons,
    spent,
)

pytestmark = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)

TOKENS = INPUT_TOKENS + OUTPUT_TOKENS


def test_a_circle_is_told_of_and_stopped(driver: Driver) -> None:
    """An agent that makes the same call for ever is told after the third and stopped after the fourth; whoever started
    it gets the refusal, and the journal says where the circle began."""
    house = House()
    with a_guard() as guard, model_stub(CIRCLE) as stub:
        with pytest.raises(Refused) as raised:
            driver.run_watched(guard, stub, house)
        assert raised.value.verb is Verb.STOP
        assert raised.value.code == "going_in_circles"
        assert len(house.looked) == MADE_BY_DEFAULT
        assert stub.calls == MADE_BY_DEFAULT
        assert stub.was_told(SAYS) == 1
        assert all("since step 1" in text and "look_up" in text for text in reasons(guard, "going_in_circles"))
        exited = events(guard)[-1]["event"]
        assert (exited["event"], exited["cause"], exited["error"]) == ("exited", "stopped", "going_in_circles")


def test_without_the_adapter_it_goes_on(driver: Driver) -> None:
    """The same agent without the adapter goes on until the model gives up."""
    house = House()
    with model_stub(CIRCLE) as stub:
        assert driver.run(stub, house) == GIVES_UP
        assert len(house.looked) == CALLS_MAX


def test_a_refused_call_is_answered_with_the_reason(driver: Driver) -> None:
    """By the cautious profile the fifth call is refused, and the model reads why; the sixth ends the run."""
    house = House()
    with a_guard(**CAUTIOUS) as guard, model_stub(CIRCLE) as stub:
        with pytest.raises(Refused) as raised:
            driver.run_watched(guard, stub, house)
        assert raised.value.code == "going_in_circles"
        assert len(house.looked) == 4
        assert stub.calls == 6
        assert stub.was_told(REFUSES) == 1
        assert len(reasons(guard, "repeated_call")) == 2


def test_who_takes_the_hint_goes_on(driver: Driver) -> None:
    """After a refused call the agent may do something else, and end well."""
    house = House()
    same, other = (
        Reply(tool="look_up", arguments={"place": "attic"}),
        Reply(tool="look_up", arguments={"place": "hall"}),
    )
    with a_guard(**CAUTIOUS) as guard, model_stub(each(*[same] * 5, other, Reply(text="In the hall."))) as stub:
        assert driver.run_watched(guard, stub, house) == "In the hall."
        assert stub.was_told(REFUSES) > 0
        assert house.looked == ["attic"] * 4 + ["hall"]
        assert events(guard)[-1]["event"]["cause"] == "done"


def test_a_normal_run_is_untouched(driver: Driver) -> None:
    """Ten different calls and an answer: nothing is added, refused or stopped."""
    house = House()
    with a_guard() as guard, model_stub(NORMAL) as stub:
        assert driver.run_watched(guard, stub, house) == "It is in room 10."
        assert house.looked == [f"room {number}" for number in range(1, 11)]
        assert stub.was_told(SAYS) == 0
        assert not reasons(guard, "repeating")
        done = [work for event in events(guard) for work in event["event"].get("done", ())]
        assert [work["pattern"] for work in done].count("model") == 11
        assert [work["pattern"] for work in done].count("look_up") == 10
        assert events(guard)[-1]["event"]["cause"] == "done"


def test_arguments_in_another_order_are_the_same_call(driver: Driver) -> None:
    """What a call means is compared, not how it is written."""
    house = House()
    turns = [{"place": "attic", "deep": True}, {"deep": True, "place": "attic"}]
    script = each(*(Reply(tool="look_up", arguments=turns[number % 2]) for number in range(CALLS_MAX)))
    with a_guard() as guard, model_stub(script) as stub:
        with pytest.raises(Refused):
            driver.run_watched(guard, stub, house)
        assert len(house.looked) == MADE_BY_DEFAULT


def test_what_models_use_counts(driver: Driver) -> None:
    """Tokens and money are counted after each call of a model; the first call beyond the budget is refused."""
    prices = Prices(PriceSettings(models={"stub-1": ModelPrice(input=Decimal(10), output=Decimal(100))}))
    house = House()
    with a_guard() as guard, model_stub(NORMAL) as stub:
        with pytest.raises(OutOfBudget):
            driver.run_watched(guard, stub, house, budget={"usd": "0.005", "tokens": 1_000_000}, prices=prices)
        # 100 tokens at 10 and 10 at 100 dollars a million: 0.002 dollars a call.
        assert stub.calls == 3
        assert spent(guard, "budget") == 3 * 2_000
        assert spent(guard, "budget_tokens") == 3 * TOKENS
        assert events(guard)[-1]["event"]["error"] == "cost_budget_exceeded"


def test_with_a_worst_case_the_budget_is_not_overspent(driver: Driver) -> None:
    """What may be spent is reserved before the call, so it is the last call within the budget that is the last."""
    house = House()
    with a_guard() as guard, model_stub(NORMAL) as stub:
        with pytest.raises(OutOfBudget):
            driver.run_watched(guard, stub, house, budget={"tokens": 3 * TOKENS - 1}, worst_case={"tokens": TOKENS})
        assert stub.calls == 2
        assert spent(guard, "budget_tokens") == 2 * TOKENS


@pytest.mark.parametrize("declared", [True, False])
def test_polling_is_declared(driver: Driver, declared: bool) -> None:
    """A tool that is asked until something changes may be, if that is said; otherwise it is a circle."""
    house = House()
    script = each(*[Reply(tool="wait_for_build")] * 20, Reply(text="Built."))
    with a_guard() as guard, model_stub(script) as stub:
        if declared:
            assert driver.run_watched(guard, stub, house, polling={"wait_for_build"}) == "Built."
            assert house.waited == 20
        else:
            with pytest.raises(Refused):
                driver.run_watched(guard, stub, house)
            assert house.waited == MADE_BY_DEFAULT


def test_a_chant_is_a_circle(driver: Driver) -> None:
    """A model that says the same with each new call gets nowhere by saying it: what counts is what the calls bring, and
    the same call with the same words is stopped as soon as without."""
    house = House()
    with a_guard() as guard, model_stub(always(Reply("Let me look.", "look_up", {"place": "attic"}))) as stub:
        with pytest.raises(Refused):
            driver.run_watched(guard, stub, house)
        assert len(house.looked) == MADE_BY_DEFAULT


def test_a_model_that_fails_ends_the_run_with_its_own_error(driver: Driver) -> None:
    """What the framework raises is raised, and the run counts as failed."""
    with a_guard() as guard, model_stub(always(Reply(status=500))) as stub:
        with pytest.raises(Exception, match="the model failed") as raised:
            driver.run_watched(guard, stub, House())
        assert not isinstance(raised.value, FlyballError)
        assert events(guard)[-1]["event"]["cause"] == "error"


def test_outside_of_any_run_it_says_what_to_do(driver: Driver) -> None:
    """An adapter that finds no run does not let the agent run unguarded."""
    with model_stub(NORMAL) as stub:
        with pytest.raises(FlyballError, match="there is no run here") as raised:
            driver.run(stub, House(), driver.adapter())
        assert "guard.watch" in raised.value.remedy
        assert stub.calls == 0


def test_a_worst_case_that_cannot_be_is_refused_at_once(driver: Driver) -> None:
    """Not at the first call of a model."""
    with pytest.raises(ValueError, match="tokens"):
        driver.adapter(worst_case={"tokens": 1.5})


def test_calls_side_by_side_are_each_a_step(driver: Driver) -> None:
    """Three calls in one turn are three steps, however the framework makes them."""
    house = House()
    script = each(Reply(tool="look_up", arguments={"place": "attic"}, times=3), Reply(text="Nothing."))
    with a_guard() as guard, model_stub(script) as stub:
        assert driver.run_watched(guard, stub, house) == "Nothing."
        assert house.looked == ["attic"] * 3
        done = [work for event in events(guard) for work in event["event"].get("done", ())]
        assert [work["pattern"] for work in done].count("look_up") == 3


def test_an_agent_is_stopped_and_not_started_again(driver: Driver) -> None:
    """Inside an agent the adapter finds its run by itself, and what goes round in circles is ended for good."""
    house = House()
    with a_guard() as guard, model_stub(CIRCLE) as stub:
        driver.run_as_agent(guard, stub, house)
        assert len(house.looked) == MADE_BY_DEFAULT
        exits = [event["event"] for event in events(guard) if event["event"]["event"] == "exited"]
        assert [(exited["cause"], exited["error"]) for exited in exits] == [("stopped", "going_in_circles")]
