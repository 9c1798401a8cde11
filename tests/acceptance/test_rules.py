"""Rules: what bounds them beside what bounds every unit."""

from flyball.core.decision import Verb
from flyball.core.event import Cause, Exited, Start
from flyball.core.time import MINUTE
from tests.acceptance.conftest import Supervise
from tests.acceptance.harness import UNIT

RULE = {"runtime": "rule"}


def test_starts_beyond_the_rate_wait(supervise: Supervise) -> None:
    """S0-03: All rules together start so often within a minute; the next start waits until the window has slid."""
    governor = supervise("rule", {"rule": {"max_runs_per_minute": 3}}).governor
    for number in range(3):
        assert governor.submit(Start(unit=f"{UNIT}-{number}", run="1", labels=RULE)).proceeds
        governor.submit(Exited(unit=f"{UNIT}-{number}", run="1", labels=RULE, cause=Cause.DONE))
    decision = governor.submit(Start(unit=UNIT, run="1", labels=RULE))
    assert (decision.verb, decision.codes) == (Verb.WAIT, ("rate_limited",))
    assert decision.until - governor.clock.now() <= MINUTE + 1
