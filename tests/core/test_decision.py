"""Decisions: the stricter one wins, nothing is lost."""

import pytest

from flyball.core.codec import encode
from flyball.core.decision import PROCEED, Allowance, Decision, Reason, Verb, finish, hold, proceed, stop, wait
from flyball.core.time import FOREVER

A, B = Reason("a", "x", "text", "remedy"), Reason("b", "y", "text", "remedy")


@pytest.mark.parametrize(
    ("one", "two", "verb", "until"),
    [
        (PROCEED, wait(5, A), Verb.WAIT, 5),
        (wait(5, A), wait(9, B), Verb.WAIT, 9),
        (wait(FOREVER, A), finish(B), Verb.FINISH, FOREVER),
        (finish(A, by=5), finish(B, by=9), Verb.FINISH, 5),
        (finish(A), stop(B, by=9), Verb.STOP, 9),
        (stop(A, by=5), stop(B, by=9), Verb.STOP, 5),
        (stop(A, by=5), hold(B), Verb.HOLD, FOREVER),
        (hold(A, until=5), hold(B, until=9), Verb.HOLD, 9),
        (proceed(5), proceed(9), Verb.PROCEED, 5),
        (proceed(5), PROCEED, Verb.PROCEED, 5),
    ],
)
def test_the_stricter_one_wins(one: Decision, two: Decision, verb: Verb, until: int) -> None:
    """The stricter verb; the longer wait or hold, the sooner end of a lease or of a time to be gone by."""
    for joined in (one | two, two | one):
        assert (joined.verb, joined.until) == (verb, until)
        assert set(joined.reasons) == {*one.reasons, *two.reasons}


def test_reasons_are_sorted_and_once() -> None:
    """All reasons, each once, in an order that does not depend on who was asked first."""
    assert [reason.policy for reason in (stop(B) | hold(A) | stop(B)).reasons] == ["a", "b"]
    assert (stop(B) | hold(A)).codes == ("x", "y")


@pytest.mark.parametrize(
    ("one", "two", "both"),
    [
        (Allowance(3), Allowance(5), Allowance(3)),
        (Allowance(3, {"usd": 9}), Allowance(5), Allowance(3, {"usd": 9})),
        (Allowance(3, {"usd": 9}), Allowance(3, {"usd": 4, "tokens": 1}), Allowance(3, {"usd": 4, "tokens": 1})),
    ],
)
def test_the_smaller_allowance(one: Allowance, two: Allowance, both: Allowance) -> None:
    """Of steps and of each meter there is as much as the tighter of both gives."""
    assert one & two == both == two & one
    assert (proceed(allowance=one) | proceed(allowance=two)).allowance == both
    assert (proceed(allowance=one) | PROCEED).allowance == one


def test_a_nudge_proceeds() -> None:
    """A reason alone does not refuse."""
    assert proceed(nudge=A).proceeds
    assert not wait(5, A).proceeds


def test_nothing_against_it_is_nothing_to_write() -> None:
    """The commonest answer costs two bytes in the journal."""
    assert encode(PROCEED) == b"{}"


def test_primary_is_the_strictest() -> None:
    """Where there is room for one reason, it is that of the strictest verb; among those, the first by its code."""
    assert PROCEED.primary is None
    primary = (stop(A) | hold(B) | wait(9, A)).primary
    assert primary is not None
    assert (primary.code, primary.verb) == ("y", Verb.HOLD)
    tied = (stop(B) | stop(A)).primary
    assert tied is not None
    assert tied.code == "x"
