"""Manual: what a person ordered stands until a person takes it back."""

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Booted, Cause, Held
from flyball.core.time import DAY, FOREVER
from flyball.policies.manual import Manual
from tests.policies.walk import Walk


@pytest.mark.parametrize(("verb", "code"), [(Verb.HOLD, "paused"), (Verb.STOP, "stopped"), (Verb.FINISH, "finishing")])
@pytest.mark.parametrize("by", ["unit", "fleet", "user"])
def test_an_order_stands(verb: Verb, code: str, by: str) -> None:
    """Through exits, boots and time; until it is taken back. (S1-60, S1-61)"""
    walk = Walk(Manual(by=by))
    decision = walk.hold(verb=verb, by="ann", note="too loud")
    assert (decision.verb, decision.codes, decision.until) == (verb, (code,), FOREVER)
    assert decision.reasons[0].text == f"{code} by ann: too loud"
    for cause in Cause:
        walk.end(cause=cause)
    walk.tell(Booted())
    walk.pass_span(900 * DAY)
    assert walk.start().verb is verb
    assert walk.step().verb is verb
    walk.release()
    assert walk.forgot()
    assert walk.start().proceeds


@pytest.mark.parametrize(
    ("first", "second", "stands"),
    [
        (Verb.FINISH, Verb.STOP, Verb.STOP),
        (Verb.STOP, Verb.HOLD, Verb.HOLD),
        (Verb.HOLD, Verb.FINISH, Verb.HOLD),
        (Verb.HOLD, Verb.STOP, Verb.HOLD),
    ],
)
def test_the_stricter_order_stands(first: Verb, second: Verb, stands: Verb) -> None:
    """A laxer one does not soften it."""
    walk = Walk(Manual())
    walk.hold(verb=first, by="ann")
    walk.hold(verb=second, by="bob")
    assert walk.says().verb is stands
    assert walk.state.ordered_by == ("bob" if stands is second else "ann")


@pytest.mark.parametrize(
    ("scope", "by", "heard"), [("unit", "unit", True), ("fleet", "unit", False), ("unit", "fleet", False)]
)
def test_only_its_own_scope(scope: str, by: str, heard: bool) -> None:
    """An order for the fleet is not one for the unit, and the other way round; the same for taking it back."""
    walk = Walk(Manual(by=by))
    walk.tell(Held(unit="shop", scope=scope))
    assert walk.forgot() is not heard
    walk.hold()
    walk.release(scope=scope)
    assert walk.forgot() is heard


@pytest.mark.parametrize("how", [{"policies": ["storm"]}, {"fingerprint": "abc"}], ids=repr)
def test_what_does_not_take_it_back(how: dict[str, object]) -> None:
    """To release another policy, or to forget one failure, is not to go on."""
    walk = Walk(Manual())
    walk.hold()
    walk.release(**how)  # type: ignore[arg-type]  # keywords of release, handed on
    assert walk.says().verb is Verb.HOLD


def test_a_change_does_not_take_it_back() -> None:
    """A person's order is not cleared by an agent that edits its own settings."""
    walk = Walk(Manual())
    walk.hold()
    walk.revise("b")
    assert walk.says().verb is Verb.HOLD


def test_the_latest_of_equal_orders_stands() -> None:
    """Whoever orders the same again says why it stands now."""
    walk = Walk(Manual())
    walk.hold(by="ann", note="first")
    walk.hold(by="bob", note="second")
    assert walk.says().reasons[0].text == "paused by bob: second"


@pytest.mark.parametrize(("verb", "granted"), [(Verb.FINISH, True), (Verb.STOP, False), (Verb.HOLD, False)])
def test_who_is_told_to_finish_may_wrap_up(verb: Verb, granted: bool) -> None:
    """The step that wraps up is granted, and no other; who is stopped or held has none."""
    walk = Walk(Manual())
    walk.hold(verb=verb)
    assert not walk.step().proceeds
    assert walk.step(last=True).proceeds is granted
    assert not walk.step().proceeds
