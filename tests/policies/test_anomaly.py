"""Anomaly: far more than the unit's own past is told of, once; it never refuses."""

import random

import pytest

from flyball.core.event import Cause, Work
from flyball.core.time import HOUR
from flyball.policies.anomaly import Anomaly
from tests.policies.walk import Walk

CENT = 10_000


def at_work(policy: Anomaly | None = None) -> Walk:
    """A unit, at the beginning of a period."""
    policy = policy or Anomaly()
    walk = Walk(policy)
    walk.now = (walk.now // policy.every + 1) * policy.every
    return walk


def hour(walk: Walk, *cents: int) -> list[str]:
    """One period in which so much is spent, step by step; the codes that were said in it."""
    began, codes = walk.now, []
    for spent in cents:
        walk.now += HOUR // (len(cents) + 1)
        asked = walk.step(cost={"usd": spent * CENT})
        reported = walk.stepped(Work(used={"usd": spent * CENT}))
        assert asked.proceeds, "it never refuses"
        assert reported.proceeds, "it never refuses"
        codes += [*asked.codes, *reported.codes]
    walk.now = began + HOUR
    return codes


TOLD = ["spend_anomaly"]


def test_told_once_and_at_once() -> None:
    """After a steady past, the step that goes beyond four times the usual is told of; the next ones are not."""
    walk = at_work()
    for _ in range(6):
        assert hour(walk, 10, 10, 10) == []
    assert hour(walk, 60, 50, 40, 40) == TOLD
    walk.now -= HOUR
    assert hour(walk, 100) == []


def test_says_how_much() -> None:
    """The text has the numbers."""
    walk = at_work()
    for _ in range(6):
        hour(walk, 50)
    reason = walk.stepped(Work(used={"usd": 1_000 * CENT})).reasons[0]
    assert reason.text == "10.00 USD spent within 1 h: 20.0 times its usual 0.50 USD"
    assert walk.says().reasons == (reason,)
    assert walk.stepped(Work()).reasons == ()


@pytest.mark.parametrize("periods", [0, 1, 5])
def test_a_short_past_says_nothing(periods: int) -> None:
    """What is usual is not known yet."""
    walk = at_work()
    for _ in range(periods):
        hour(walk, 10)
    assert hour(walk, 10_000) == []


def test_an_episode_is_told_of_once() -> None:
    """Three wild hours in a row are one episode; after a calm one the next is news again."""
    walk = at_work()
    for _ in range(10):
        hour(walk, 30)
    assert hour(walk, 1_000) == TOLD
    assert hour(walk, 1_000, 1_000) == []
    assert hour(walk, 1_000) == []
    assert hour(walk, 30) == []
    assert hour(walk, 2_000) == TOLD


def test_rest_ends_an_episode() -> None:
    """An hour in which nothing is spent is a calm one."""
    walk = at_work()
    for _ in range(8):
        hour(walk, 30)
    assert hour(walk, 1_000) == TOLD
    hour(walk)
    assert hour(walk, 1_000) == TOLD


def test_rest_is_not_learned_from() -> None:
    """A unit that works one hour a day is judged by its hours of work."""
    walk = at_work()
    for _ in range(20):
        hour(walk, 100)
        walk.now += 23 * HOUR
    assert hour(walk, 300) == []
    assert hour(walk, 600) == TOLD


def test_one_wild_hour_is_not_the_new_usual_but_a_day_is() -> None:
    """It is learned from up to the mark only; what lasts becomes usual."""
    walk = at_work()
    for _ in range(10):
        hour(walk, 30)
    hour(walk, 100_000)
    hour(walk, 30)
    assert hour(walk, 1_000) == TOLD
    for _ in range(24):
        hour(walk, 1_000)
    assert hour(walk, 1_100) == []
    assert hour(walk, 9_000) == TOLD


def test_pennies_are_no_news() -> None:
    """Ten times next to nothing is next to nothing."""
    walk = at_work()
    for _ in range(10):
        hour(walk, 1)
    assert hour(walk, 10) == []
    assert hour(walk, 11) == TOLD


@pytest.mark.parametrize("seed", range(20))
def test_ordinary_ups_and_downs(seed: int) -> None:
    """A unit whose hours differ by a factor of three is left alone for half a year; ten times that is told of."""
    dice, walk = random.Random(seed), at_work()
    for _ in range(6):
        hour(walk, dice.randint(50, 150))
    assert [hour(walk, dice.randint(50, 150)) for _ in range(24 * 180)].count(TOLD) == 0
    assert hour(walk, 1_000) == TOLD


def test_runs_and_restarts_do_not_matter() -> None:
    """It is about the unit: what it knows survives exits, and being written down (as Walk does each time)."""
    walk = at_work()
    for _ in range(8):
        walk.start()
        hour(walk, 30)
        walk.end(cause=Cause.ERROR)
    walk.start()
    assert hour(walk, 500) == TOLD


def test_a_person_can_make_it_forget() -> None:
    """This is how it should be from now on."""
    walk = at_work()
    for _ in range(8):
        hour(walk, 30)
    walk.release()
    assert walk.forgot()
    assert hour(walk, 500) == []
