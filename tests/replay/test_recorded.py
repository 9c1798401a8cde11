"""Recorded runs before a panel: who is told, refused and ended, what that saves, and what it loses."""

import json
from typing import Any

import msgspec
import pytest

from flyball.config import load
from flyball.core.event import Start, Step, Stepped, Work
from flyball.core.panel import Panel
from flyball.governor import Governor
from flyball.policies import Budget, Deadline, Limit, Stall
from flyball.replay.recorded import BEGIN, LASTS, Runs, decode_run, judge
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock


def run_of(*steps: dict[str, Any], **more: Any) -> Any:
    """A run of these steps."""
    return decode_run(json.dumps({"steps": steps, **more}).encode())


def called(args: Any, result: Any = "same", **more: Any) -> dict[str, Any]:
    """One step."""
    return {"tool": "bash", "args": args, "result": result, **more}


def fate(run: Any, *policies: Any) -> Any:
    return judge(Panel(policies or (Stall(),)), run, run.works())


def test_a_circle() -> None:
    """Told after the third time, ended after the fourth; what was recorded after that is saved."""
    run = run_of(*[called("ls")] * 10, source="agent", run="7")
    found = fate(run)
    assert (found.nudged_at, found.refused_at, found.ended_at, found.made) == (3, None, 4, 4)
    runs = Runs("x", Panel([Stall()]))
    runs.hear(run, run.works())
    side = runs.side
    assert (side.starts, side.steps, side.saved_steps, side.nudged, side.ended, side.fires) == (1, 4, 6, 1, 1, 1)
    (case,) = side.cases
    assert (case.unit, case.run, case.verb, case.code, case.step) == ("agent", "7", "stop", "going_in_circles", 4)
    assert "since step 1" in case.text


def test_a_refused_call_is_not_made() -> None:
    """It insists, and is ended before the call; had it gone on otherwise, it would have lived."""
    steps = [called("a"), called("x", "e", error=True), called("a"), called("y", "e", error=True), called("a")]
    insists, heeds = run_of(*steps, called("a"), called("b")), run_of(*steps, called("b"), called("c", "new"))
    found = fate(insists)
    assert (found.refused_at, found.ended_at, found.made) == (6, 5, 5)
    found = fate(heeds)
    assert (found.refused_at, found.ended_at, found.made) == (None, None, 7)


def test_what_is_refused_but_not_ended_is_saved_too() -> None:
    """A cautious policy refuses twice; then the agent goes on with something else."""
    steps = [called("a"), called("x", "e", error=True), called("a"), called("y", "e", error=True), called("a")]
    run = run_of(*steps, called("a"), called("a"), called("b", "new", cost=2.0))
    runs = Runs("x", Panel([Stall(stop_at=9, repeats_max=9)]))
    runs.hear(run, run.works())
    assert (runs.side.calls_refused, runs.side.steps, runs.side.saved_steps, runs.side.ended) == (2, 6, 2, 0)
    assert dict(runs.side.spent) == {"usd": 2_000_000}


@pytest.mark.parametrize(
    ("rewards", "lost"),
    [((0, 0, 0, 0, 0), False), ((0, 0, 0, 0, 1), True), ((1, 0, 0, 0, 1), False), ((None,) * 5, False)],
)
def test_lost_wins(rewards: tuple[float | None, ...], lost: bool) -> None:
    """A later step that got further than all that were made."""
    run = run_of(*(called("ls", reward=reward) for reward in rewards))
    runs = Runs("x", Panel([Stall()]))
    runs.hear(run, run.works())
    assert (runs.side.lost, runs.side.fires) == (int(lost), 1)


@pytest.mark.parametrize(
    ("policy", "ended_at", "verb"),
    [
        (Limit(most=3), 3, "stop"),
        (Budget(limit=1_000_000), 2, "finish"),
        (Deadline(lasts_max=3 * LASTS), 3, "stop"),
    ],
    ids=["steps", "money", "time"],
)
def test_other_policies(policy: Any, ended_at: int, verb: str) -> None:
    """Whatever the settings have: limits, budgets (money where it is known), deadlines."""
    run = run_of(*(called(str(number), str(number), cost=0.5) for number in range(6)))
    found = fate(run, policy)
    assert (found.ended_at, found.decision.verb.name.lower()) == (ended_at, verb)


def test_times_that_are_known() -> None:
    """A step that says how long it took is taken at its word."""
    quick = run_of(*(called("ls", str(number), seconds=0.1) for number in range(150)))
    slow = run_of(*(called("ls", str(number)) for number in range(150)))
    policies = load(env={}).policies("agent")
    assert fate(slow, *policies).ended_at is None
    assert fate(quick, *policies).decision.codes == ("loop_detected",)


def test_arguments_of_any_form() -> None:
    """Objects with the same contents are the same call, in whatever order."""
    run = run_of(called({"a": 1, "b": [2]}), called({"b": [2], "a": 1}), called('{"a":1,"b":[2]}'))
    assert len({work.call for work in run.works()}) == 1
    assert len({work.result for work in run_of(called("x", {"n": 1}), called("x", '{"n":1}')).works()}) == 1


@pytest.mark.parametrize("seed", range(8))
def test_as_the_governor_says(seed: int) -> None:
    """The same fate as with a governor on a store, each call asked for first."""
    names = [(seed * 7 + number * number * (seed + 3)) % 5 for number in range(30)]
    run = run_of(*(called(f"c{name}", f"r{name % 3}", error=name % 2 == 0) for name in names))
    policies = load(env={}).policies("agent")
    clock = FakeClock(BEGIN)
    governor = Governor(policies, MemoryStore(), clock)
    governor.submit(Start(unit="agent", run="1", holder="replay"))
    ended = None
    for number, work in enumerate(run.works(), 1):
        asked = governor.submit(Step(unit="agent", run="1", pattern=work.pattern, call=work.call))
        refused = asked.verb == 1
        clock.move(LASTS)
        done = Work(pattern=work.pattern, call=work.call, refused=True) if refused else work
        told = governor.submit(Stepped(unit="agent", run="1", done=(done,))) if asked.verb <= 1 else asked
        if told.verb >= 2:
            ended = number - (refused or asked.verb > 1)
            break
    assert ended is not None
    assert fate(run, *policies).ended_at == ended


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "Input data was truncated"),
        ("[]", "Expected `object`, got `array`"),
        ("{}", "missing required field `steps`"),
        ('{"steps": [{"error": 1}]}', "Expected `bool`, got `int` - at `$.steps[0].error`"),
        ('{"steps": [{"cost": -1}]}', "cost is -1; allowed: 0 to 1000000"),
        ('{"steps": [{"seconds": 1e9}]}', "seconds is 1e+09; allowed: 0 to"),
    ],
)
def test_what_is_no_run(line: str, problem: str) -> None:
    """It says what is wrong, and where in the line."""
    with pytest.raises(msgspec.MsgspecError) as error:
        decode_run(line.encode())
    assert problem in str(error.value)
