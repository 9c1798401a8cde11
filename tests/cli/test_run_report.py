"""The exit code of `flyball run`, and how to go on: the whole table, without running anything."""

import pytest

from flyball.cli.run_report import exit_code, ways_on
from flyball.core.decision import PROCEED, Decision, Reason, finish, hold, stop, wait
from flyball.core.event import Cause, Exited
from flyball.core.time import FOREVER
from flyball.runtimes.foreground import Outcome

ENDED = finish(Reason("restart", "ended", "no other follows", "To run it again: `flyball start`."))
BROKE = finish(Reason("budget", "cost_budget_exceeded", "spent", "Raise the budget."))
QUARANTINED = hold(Reason("quarantine", "quarantined", "six times", "Look, then `flyball reset abcdef01`."))
HALTED = hold(Reason("flapping", "halted", "five flaps", "Look, then `flyball resume`."))
STORM = hold(Reason("storm", "restart_storm_detected", "a storm", "Look, then `flyball resume`."))
STOPPED = stop(Reason("manual", "stopped", "by ann", "To go on: `flyball resume`."))


def outcome(decision: Decision, cause: Cause | None = None, *, by: int | None = None, **exited: object) -> Outcome:
    """How it was over: the answer, the last exit, the signal that flyball itself got."""
    last = Exited(unit="x", cause=cause, **exited) if cause is not None else None  # type: ignore[arg-type]  # by name
    return Outcome(decision, last, by)


@pytest.mark.parametrize(
    ("over", "code", "how"),
    [
        (outcome(ENDED, Cause.DONE, code=0), 0, ""),
        (outcome(ENDED, Cause.ERROR, code=7), 7, "the same line again"),
        (outcome(ENDED, Cause.ERROR, signal=9), 137, "the same line again"),
        (outcome(ENDED, Cause.ERROR), 126, "the same line again"),
        (outcome(ENDED, Cause.TIMEOUT, signal=15), 124, "the same line again"),
        (outcome(ENDED, Cause.STARVED, code=1), 69, "the same line again"),
        (outcome(BROKE, Cause.ERROR, code=3), 69, "a higher --budget"),
        (outcome(ENDED, Cause.STOPPED, error="cost_budget_exceeded", signal=15), 69, "a higher --budget"),
        (outcome(ENDED, Cause.STOPPED, code=0), 75, "the same line again"),
        (outcome(QUARANTINED, Cause.ERROR, code=3), 75, "flyball reset abcdef01; the same line again"),
        (outcome(HALTED, Cause.ERROR, code=3), 75, "flyball resume x; the same line again"),
        (outcome(STORM), 75, "flyball resume; the same line again"),
        (outcome(STOPPED, Cause.STOPPED), 75, "flyball resume x; the same line again"),
        (outcome(wait(FOREVER, Reason("p", "c", "t")), by=2), 130, "the same line again"),
        (outcome(ENDED, Cause.STOPPED, by=15, signal=15), 143, "the same line again"),
        (Outcome(PROCEED, holder="host/12/34"), 75, "flyball stop x"),
    ],
)
def test_over(over: Outcome, code: int, how: str) -> None:
    """Each way to be over has its exit code and says how to go on."""
    assert exit_code(over) == code
    said = "; ".join(ways_on("x", over))
    assert how in said
    assert bool(said) is bool(how)
