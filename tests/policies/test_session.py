"""Session: what is not done is resumed, and not before its time."""

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Cause, Exited, Released, Resume, Start
from flyball.core.time import HOUR, MINUTE
from flyball.policies.session import Session, State
from tests.policies.walk import Walk


def paused(walk: Walk, pause: str, resume_at: int = 0) -> None:
    walk.tell(Start(unit="u", run="r"))
    walk.tell(Exited(unit="u", run="r", cause=Cause.STOPPED, pause=pause, resume_at=resume_at))


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.DONE])
def test_unfinished_work_is_not_begun_anew(cause: Cause) -> None:
    """Whatever ended the last run: work that is not done can only be resumed."""
    walk = Walk(Session())
    walk.tell(Start(unit="u", run="r"))
    walk.tell(Exited(unit="u", run="r", cause=cause))
    refused = walk.tell(Start(unit="u", run="r"))
    assert (refused.verb, refused.codes) == (Verb.STOP, ("not_done_yet",))
    assert walk.tell(Resume(unit="u", run="r")).proceeds


def test_done_work_is_not_resumed() -> None:
    """What was never begun, or is done, has nothing to go on from. (S2-17)"""
    walk = Walk(Session())
    assert walk.tell(Resume(unit="u", run="r")).codes == ("not_paused",)
    walk.tell(Start(unit="u", run="r"))
    walk.tell(Exited(unit="u", run="r", cause=Cause.DONE))
    assert walk.tell(Resume(unit="u", run="r")).codes == ("not_paused",)
    assert walk.forgot()


def test_waits_for_its_time() -> None:
    """A pause lasts as long as it said, and one that said nothing a minute; then its fields are cleared. (S2-19)"""
    walk = Walk(Session())
    paused(walk, "rate_limit", resume_at=walk.now + HOUR)
    refused = walk.tell(Resume(unit="u", run="r"))
    assert (refused.verb, refused.codes) == (Verb.WAIT, ("waits_to_resume",))
    assert walk.state.pause == "rate_limit"  # a refusal clears nothing (S2-18)
    walk.now = refused.until
    assert walk.tell(Resume(unit="u", run="r")).proceeds
    assert walk.state == State(begun=True)
    at = walk.now
    walk.tell(Exited(unit="u", run="r", cause=Cause.STOPPED, pause="session_limit"))
    assert walk.tell(Resume(unit="u", run="r")).until == at + MINUTE


def test_person_ends_a_pause() -> None:
    """What was paused for a person waits for one; what waits for a time goes on earlier if a person says so."""
    for pause, verb in (("person", Verb.HOLD), ("usage_limit", Verb.WAIT)):
        walk = Walk(Session())
        paused(walk, pause, resume_at=walk.now + HOUR)
        assert walk.tell(Resume(unit="u", run="r")).verb is verb
        walk.now += 0 if verb is Verb.WAIT else 10 * HOUR
        assert walk.tell(Resume(unit="u", run="r")).verb is verb
        walk.tell(Released(unit="u", policies=("session",)))
        assert walk.tell(Resume(unit="u", run="r")).proceeds
