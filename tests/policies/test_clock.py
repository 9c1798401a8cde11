"""Clock: a supervisor that starts with a clock far from the journal's time pauses until a person confirms it."""

import pytest

from flyball.core.decision import Verb
from flyball.core.event import Booted
from flyball.core.time import DAY, HOUR, MINUTE
from flyball.policies.clock import Clock
from tests.policies.walk import Walk


@pytest.mark.parametrize(
    ("skew", "held"),
    [
        (0, False),
        (HOUR, False),
        (30 * DAY, False),
        (30 * DAY + 1, True),
        (-5 * MINUTE, False),
        (-5 * MINUTE - 1, True),
        (-9 * HOUR, True),
    ],
)
def test_how_far(skew: int, held: bool) -> None:
    """Five minutes back or thirty days ahead are still believed."""
    walk = Walk(Clock())
    decision = walk.tell(Booted(skew=skew))
    assert (decision.verb is Verb.HOLD) is held
    assert walk.start().proceeds is not held


@pytest.mark.parametrize(
    ("skew", "text"),
    [
        (31 * DAY, "at boot the clock was 31 d ahead of the journal's last entry"),
        (-HOUR, "at boot the clock was 1 h behind the journal's last entry"),
    ],
)
def test_text(skew: int, text: str) -> None:
    """How far, and in which direction."""
    decision = Walk(Clock()).tell(Booted(skew=skew))
    assert decision.codes == ("clock_jumped",)
    assert decision.reasons[0].text == text


def test_only_a_person_confirms_it() -> None:
    """Another boot at which nothing is wrong does not, and neither does time."""
    walk = Walk(Clock())
    walk.tell(Booted(skew=400 * DAY))
    walk.tell(Booted(skew=0))
    walk.pass_span(400 * DAY)
    walk.end()
    walk.release(scope="unit")
    walk.release(fingerprint="x")
    assert walk.says().verb is Verb.HOLD
    walk.release()
    assert walk.forgot()
