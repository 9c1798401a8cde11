"""Exclusive: one live run per unit, as long as its lease is renewed."""

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Beat, Cause, Resume, Start, Step, Stepped
from flyball.core.time import MINUTE, SECOND
from flyball.policies.exclusive import Exclusive
from tests.policies.walk import Walk


@pytest.mark.parametrize("runs_max", [1, 2, 3])
def test_so_many_at_a_time(runs_max: int) -> None:
    """One more waits, leaves no trace, and goes when one has ended. (S2-37)"""
    walk = Walk(Exclusive(runs_max=runs_max, lease=60 * SECOND))
    for number in range(runs_max):
        assert walk.start(run=f"r{number}").proceeds
    refused = walk.start(run="next")
    assert (refused.verb, refused.codes) == (Verb.WAIT, ("already_running",))
    assert refused.reasons[0].text == f"{runs_max} live already, {runs_max} allowed at a time"
    assert set(walk.state.runs) == {f"r{number}" for number in range(runs_max)}
    walk.end(run="r0")
    assert walk.start(run="next").proceeds


@pytest.mark.parametrize("kind", [Start, Resume])
@pytest.mark.parametrize("run", ["r1", ""])
def test_the_same_run_twice(kind: type[Start], run: str) -> None:
    """Two that ask under one id are still two: one is admitted. (S2-37)"""
    walk = Walk(Exclusive(runs_max=2, lease=60 * SECOND))
    assert walk.tell(kind(unit="shop", run=run, holder="one")).proceeds
    refused = walk.tell(kind(unit="shop", run=run, holder="two"))
    assert (refused.verb, refused.codes) == (Verb.WAIT, ("already_running",))
    assert walk.state.runs[run].holder == "one"


@pytest.mark.parametrize("cause", list(Cause))
def test_any_exit_frees_the_place(cause: Cause) -> None:
    """However it ended; the exit of another run does not."""
    walk = Walk(Exclusive(lease=60 * SECOND))
    walk.start(run="r1")
    walk.end(run="r9", cause=cause)
    assert not walk.forgot()
    walk.end(run="r1", cause=cause)
    assert walk.forgot()


def test_proceed_is_a_lease() -> None:
    """It says until when it has to be heard of again."""
    walk = Walk(Exclusive(lease=60 * SECOND))
    assert walk.start().until == walk.now + MINUTE


@pytest.mark.parametrize(
    "sign", [Step(unit="shop", run="r1"), Stepped(unit="shop", run="r1"), Beat(unit="shop", run="r1")]
)
@pytest.mark.parametrize(("after", "renewed"), [(20 * SECOND - 1, False), (20 * SECOND, True), (90 * SECOND, True)])
def test_signs_of_life_renew_it(sign: Beat, after: int, renewed: bool) -> None:
    """Steps, reports and beats, once a third of it is used up; before that nothing is written. Even one that ran out is
    renewed as long as nobody reported it as lost."""
    walk = Walk(Exclusive(lease=60 * SECOND))
    walk.start(run="r1")
    before = walk.state
    assert walk.pass_span(after).tell(sign).proceeds
    assert (walk.state != before) is renewed
    if renewed:
        assert walk.state.runs["r1"].until == walk.now + MINUTE


def test_who_wakes_up_too_late_is_told() -> None:
    """A run that was given up as lost, and has been replaced, is refused its next step; the other one is not."""
    walk = Walk(Exclusive(lease=60 * SECOND))
    walk.start(run="old")
    walk.pass_(61).end(run="old", cause=Cause.LOST)
    walk.start(run="new")
    refused = walk.tell(Step(unit="shop", run="old"))
    assert (refused.verb, refused.codes) == (Verb.STOP, ("run_not_live",))
    assert walk.tell(Step(unit="shop", run="new")).proceeds
    assert set(walk.state.runs) == {"new"}


def test_a_wait_is_until_the_lease_ends() -> None:
    """Then the one that is not heard of is lost; and a wait never ends in the past."""
    walk = Walk(Exclusive(lease=60 * SECOND))
    lease = walk.start(run="r1").until
    assert walk.start(run="r2").until == lease
    walk.now = lease + 5
    assert walk.start(run="r2").until == walk.now + 1


def test_labels_are_kept() -> None:
    """So that its loss is reported to everybody whom the run concerned."""
    walk = Walk(Exclusive(lease=60 * SECOND))
    walk.tell(Start(unit="shop", run="r1", labels={"provider": "p"}, holder="h"))
    walk.pass_(30).beat()
    live = next(iter(walk.state.runs.values()))
    assert (live.holder, live.labels) == ("h", {"provider": "p"})
