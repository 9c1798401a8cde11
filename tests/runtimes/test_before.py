"""What is known of units before they are started."""

import pytest

from flyball.config.units import Unit
from flyball.core.codec import encode
from flyball.core.event import Cause, Revise
from flyball.policies.restart import State as Restarts
from flyball.policies.revision import State as Revisions
from flyball.runtimes.before import is_again, revised, revision_key


@pytest.mark.parametrize(
    ("last", "ended_for", "after_done", "again"),
    [
        (None, "", True, False),
        (Cause.ERROR, "", False, True),
        (Cause.TIMEOUT, "", False, True),
        (Cause.STARVED, "", False, True),
        (Cause.LOST, "", False, True),
        (Cause.STOPPED, "", True, False),
        (Cause.STOPPED, "cost_budget_exceeded", False, True),
        (Cause.DONE, "", True, True),
        (Cause.DONE, "", False, False),
    ],
)
def test_is_again(last: Cause | None, ended_for: str, after_done: bool, again: bool) -> None:
    """A start that nobody asked for is a restart, and counted as one. Whether one after a clean end is, depends on who
    starts it: a daemon, or a program that a person runs anew."""
    stored = encode(Restarts(last=last, ended_for=ended_for))
    assert is_again(stored, after_done=after_done) is again


@pytest.mark.parametrize("after_done", [True, False])
def test_the_first_start(after_done: bool) -> None:
    """Of a unit that never ran nothing is stored: its start is no restart."""
    assert not is_again(None, after_done=after_done)


def test_revised() -> None:
    """Told is what is new and what changed, and which of it changed; what is as it was is not told."""
    units = [Unit(name=name, command=("true",), labels={"user": "ann"}) for name in ("new", "same", "other")]
    stored = {revision_key(name): encode(Revisions(revision="1")) for name in ("same", "other", "gone")}
    asked = revised(zip(units, ["1", "1", "2"], strict=True), stored)
    assert asked == [
        (Revise(unit="new", labels={"user": "ann"}, revision="1"), False),
        (Revise(unit="other", labels={"user": "ann"}, revision="2"), True),
    ]
