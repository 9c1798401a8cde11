"""Quarantine: a unit that failed the same way too often is held until a person looks at it."""

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Cause, Start
from flyball.core.failures import FAILURES_MAX
from flyball.core.time import DAY, FOREVER, HOUR
from flyball.policies.quarantine import Quarantine
from tests.policies.walk import Walk


def failed(times: int, *, policy: Quarantine | None = None, kind: str = "broken") -> Walk:
    """A unit that failed so often."""
    walk = Walk(policy or Quarantine())
    for _ in range(times):
        walk.start()
        walk.pass_(1)
        walk.fail(kind=kind)
    return walk


@pytest.mark.parametrize(("times", "verb"), [(0, Verb.PROCEED), (5, Verb.PROCEED), (6, Verb.HOLD), (7, Verb.HOLD)])
def test_held_at_the_sixth(times: int, verb: Verb) -> None:
    """Five failures of a kind pass, the sixth holds; the next start is refused. (S0-11, S0-13)"""
    walk = failed(times)
    assert walk.says().verb is verb
    assert walk.start().verb is verb


def test_kinds_are_counted_by_themselves() -> None:
    """Five of one and five of another hold nobody. (S0-05)"""
    walk = failed(5, kind="a")
    for _ in range(5):
        walk.fail(kind="b")
    assert walk.says().proceeds
    assert walk.fail(kind="a").codes == ("quarantined",)


@pytest.mark.parametrize("years", [0, 1, 100])
def test_does_not_expire(years: int) -> None:
    """Not by time (S0-09), not by a clean exit, not by a failure of another kind."""
    walk = failed(6)
    walk.pass_span(years * 365 * DAY)
    assert walk.says().verb is Verb.HOLD
    assert walk.end().verb is Verb.HOLD
    assert walk.end(cause=Cause.STOPPED).verb is Verb.HOLD
    assert walk.fail(kind="other").verb is Verb.HOLD
    assert walk.says().until == FOREVER


def test_a_long_life_does_not_leave_it() -> None:
    """A run that was alive when the sixth failure came lives two days and fails: counts start anew, the hold stays."""
    walk = failed(6)
    walk.state = walk.policy.evolve(walk.state, Start(unit="shop", run="old"), walk.now)
    walk.pass_span(2 * DAY)
    assert walk.fail(kind="other").verb is Verb.HOLD
    assert walk.state.failures["other"].count == 1


@pytest.mark.parametrize(("cause", "forgotten"), [(Cause.DONE, True), (Cause.STOPPED, False)])
def test_a_success_before_the_sixth_forgets(cause: Cause, forgotten: bool) -> None:
    """In a row means without a success between; being stopped is none."""
    walk = failed(5)
    walk.start()
    walk.end(cause=cause)
    assert walk.forgot() is forgotten
    assert walk.fail().proceeds is forgotten


@pytest.mark.parametrize(
    ("uptime", "healthy_after", "held"),
    [(DAY - 1, DAY, True), (DAY, DAY, False), (HOUR, HOUR, False), (HOUR - 1, HOUR, True), (400 * DAY, 0, True)],
)
def test_lived_time_counts_as_a_success(uptime: int, healthy_after: int, held: bool) -> None:
    """So much lived time between failures, and it is never held; with 0 it is, however long each run lasted."""
    walk = Walk(Quarantine(healthy_after=healthy_after))
    for _ in range(6):
        walk.pass_(3600)  # a wait, which is not lived
        walk.start()
        walk.pass_span(uptime)
        walk.fail()
    assert (walk.says().verb is Verb.HOLD) is held


@pytest.mark.parametrize(
    ("how", "free"),
    [
        ({}, True),
        ({"fingerprint": "broken"}, True),
        ({"fingerprint": "other"}, False),
        ({"policies": ["quarantine"]}, True),
        ({"policies": ["manual"]}, False),
        ({"scope": "fleet"}, False),
    ],
    ids=repr,
)
def test_who_releases_it(how: dict[str, object], free: bool) -> None:
    """A person who names it, its scope, or its failure. (S0-37, S0-38)"""
    walk = failed(6)
    walk.release(**how)  # type: ignore[arg-type]  # keywords of release, handed on
    assert walk.says().proceeds is free
    assert walk.forgot() is free


def test_a_change_clears_it() -> None:
    """The selector is fixed, the revision changes, it may start fresh. (S0-20, S0-42)"""
    walk = failed(6)
    walk.revise("b")
    assert walk.start().proceeds
    assert walk.forgot()


def test_held_kinds_are_never_dropped() -> None:
    """Failing in many other ways does not push the one out that holds."""
    walk = failed(6, kind="the one")
    for number in range(3 * FAILURES_MAX):
        walk.pass_(1).fail(kind=f"k{number}")
    assert "the one" in walk.state.failures
    assert len(walk.state.failures) == FAILURES_MAX
    assert walk.says().verb is Verb.HOLD


def test_bounded_when_every_kind_holds() -> None:
    """With all places taken by kinds that hold, one more is not remembered: it is held as it is."""
    walk = Walk(Quarantine(failures_max=1))
    for number in range(FAILURES_MAX + 5):
        walk.fail(kind=f"k{number}")
    assert len(walk.state.failures) == FAILURES_MAX


def test_text_has_the_numbers() -> None:
    """Which failure, how often, within which time, and the limit."""
    reason = failed(6).says().reasons[0]
    assert reason.text == "6 failures of broken (broken) within 5 s; the limit is 6"
    assert "flyball reset broken" in reason.remedy
