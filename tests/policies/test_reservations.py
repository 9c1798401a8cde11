"""Reservations: who holds what, and whose it was when they died."""

from typing import Any

from flyball.core.event import Cause, Event, Exited, Settled, Step, Stepped, Work
from flyball.policies.reservations import HELD_MAX, Held, Reservations
from tests.policies.walk import Walk

WHO: dict[str, Any] = {"unit": "shop", "run": "r1", "labels": {"user": "ann"}}


def held(*events: Event) -> tuple[Held, ...]:
    """Who holds what after these."""
    walk = Walk(Reservations())
    for event in events:
        assert walk.tell(event).proceeds
    found: tuple[Held, ...] = walk.state.held
    return found


ASKED = Step(**WHO, cost={"usd": 5, "tokens": 70})


def test_what_is_not_settled_is_held() -> None:
    """What a run reserved is known by run and labels, until it says what it used."""
    assert held(ASKED) == (Held("r1", {"usd": 5, "tokens": 70}, {"user": "ann"}),)
    assert held(ASKED, ASKED)[0].amounts == {"usd": 10, "tokens": 140}
    done = Stepped(**WHO, done=(Work(reserved={"usd": 5, "tokens": 70}, used={"usd": 1}),))
    assert held(ASKED, done) == ()
    assert held(ASKED, ASKED, done)[0].amounts == {"usd": 5, "tokens": 70}


def test_an_allowance() -> None:
    """Steps granted together are held together; what is returned is held no more."""
    granted = Step(**WHO, cost={"usd": 2}, steps=10)
    reported = Stepped(**WHO, done=(Work(reserved={"usd": 2}),), allowed=10, returned={"usd": 12})
    assert held(granted, reported)[0].amounts == {"usd": 6}


def test_other_labels_are_another_holder() -> None:
    """They concern other budgets, so they are settled by themselves."""
    other = Step(unit="shop", run="r1", labels={"user": "bob"}, cost={"usd": 9})
    assert [one.labels for one in held(ASKED, other)] == [{"user": "ann"}, {"user": "bob"}]


def test_the_dead() -> None:
    """Who exits with something in hand is known to be dead; a person settles it, and it is forgotten."""
    exited = Exited(**WHO, cause=Cause.LOST)
    assert [one.ended for one in held(ASKED, exited)] == [True]
    assert [one.ended for one in held(ASKED, Exited(unit="shop", run="r2", cause=Cause.LOST))] == [False]
    settled = Settled(**WHO, reserved={"usd": 5, "tokens": 70}, by="ann")
    assert held(ASKED, exited, settled) == ()
    assert held(ASKED, exited, settled, settled) == ()


def test_steps_that_cost_nothing_leave_nothing() -> None:
    """Most steps reserve nothing: they write nothing here."""
    assert held(Step(**WHO), Stepped(**WHO, done=(Work(),)), Exited(**WHO, cause=Cause.DONE)) == ()


def test_the_oldest_is_forgotten() -> None:
    """There is a bound; who changed last is kept."""
    steps = [Step(unit="shop", run=f"r{number}", cost={"usd": 1}) for number in range(HELD_MAX + 1)]
    runs = [one.run for one in held(steps[0], *steps[1:])]
    assert runs == [f"r{number}" for number in range(1, HELD_MAX + 1)]
    assert held(*steps[:-1], steps[0], steps[-1])[0].run == "r2"
