"""What is worth a line."""

import pytest

from flyball.control.news import News
from flyball.core.decision import PROCEED, Decision, Reason, hold, stop
from flyball.core.event import Beat, Cause, Event, Exited, Start

REFUSED = hold(Reason("p", "held", "held", ""))
OTHER = stop(Reason("p", "stopped", "stopped", ""))


@pytest.mark.parametrize(
    ("before", "event", "decision", "news"),
    [
        (None, Start(unit="u"), REFUSED, True),
        (REFUSED, Start(unit="u"), REFUSED, False),
        (OTHER, Start(unit="u"), REFUSED, True),
        (REFUSED, Start(unit="u"), PROCEED, True),
        (PROCEED, Start(unit="u"), PROCEED, True),
        (None, Beat(unit="u"), PROCEED, False),
        (None, Beat(unit="u"), OTHER, True),
        (None, Beat(unit="u", stuck="here"), PROCEED, True),
        (REFUSED, Exited(unit="u", cause=Cause.DONE), REFUSED, True),
    ],
)
def test_news(before: Decision | None, event: Event, decision: Decision, news: bool) -> None:
    """Not a sign of life, and not the same refusal of a start once more; everything else."""
    heard = News()
    if before is not None:
        heard.hear("u", Start(unit="u"), before)
    assert heard.hear("u", event, decision) is news


def test_of_each() -> None:
    """What was said of one unit says nothing of another, nor of itself once it was forgotten."""
    heard = News()
    assert heard.hear("u", Start(unit="u"), REFUSED)
    assert heard.hear("v", Start(unit="v"), REFUSED)
    heard.forget("u")
    assert heard.hear("u", Start(unit="u"), REFUSED)
    assert not heard.hear("v", Start(unit="v"), REFUSED)
