"""What the stall policy saves and loses on recorded agent runs, beside the detectors that known agents have built in.

    python bench/stall.py RUNS.jsonl.gz [--json]
    python bench/stall.py --growth

A detector watches a run step by step, as it was recorded, and may say stop. A stop after step t is a *lost win* if a
later step reaches a higher reward than all steps up to t; otherwise the later steps are *saved*. Lost wins are given as
a share of the fires (stops with steps left), saved steps as a share of all steps that lie after a run's last gain.

Ours is the whole set of policies that an agent stands under, asked as the governor asks them (a test shows that both
answer alike). The others are written anew from what their projects say of their rules. Each figure is given for all
runs and for two halves of them (by a hash of the run's name): what holds in one half only is luck.
"""

import argparse
import hashlib
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from flyball.config import load
from flyball.core.decision import Verb
from flyball.core.event import Start, Stepped, Work
from flyball.core.panel import Panel
from flyball.core.policy import AnyPolicy
from flyball.errors import FlyballError
from flyball.policies import Stall
from flyball.replay.journal import Weighing
from flyball.replay.lines import Lines
from flyball.replay.recorded import BEGIN, LASTS, RecordedRun, judge, read

GROWTH_STEPS: Final = 1_000_000
SAMPLE_STEPS: Final = 2_000
"""Steps that are timed at each end."""


class Detector(Protocol):
    """Watches one run."""

    def stops(self, work: Work) -> bool:
        """Whether the run is to be stopped after this step."""
        ...


class Ours:
    """All policies of an agent."""

    def __init__(self, panel: Panel) -> None:
        self._weighing = Weighing(panel)
        self._at = BEGIN
        self._weighing.submit(Start(unit="agent", run="1"), self._at)

    def stops(self, work: Work) -> bool:
        self._at += LASTS
        return self._weighing.submit(Stepped(unit="agent", run="1", done=(work,)), self._at).verb >= Verb.FINISH


class OpenHands:
    """Four times the same call with the same result; three times the same call, each an error; or two pairs of call and
    result that take turns for six steps."""

    def __init__(self) -> None:
        self._last: deque[Work] = deque(maxlen=6)

    def stops(self, work: Work) -> bool:
        self._last.append(work)
        last = [(one.call, one.result) for one in self._last]
        same_pairs = len(last) >= 4 and len(set(last[-4:])) == 1
        calls = list(self._last)[-3:]
        same_failures = len(calls) == 3 and len({one.call for one in calls}) == 1 and all(one.error for one in calls)
        turns = len(last) == 6 and len(set(last[::2])) == 1 and len(set(last[1::2])) == 1
        return same_pairs or same_failures or turns


class GeminiCli:
    """Five times in a row the same call."""

    def __init__(self) -> None:
        self._call = ""
        self._times = 0

    def stops(self, work: Work) -> bool:
        self._times = self._times + 1 if work.call == self._call else 1
        self._call = work.call
        return self._times >= 5


@dataclass
class Score:
    """What a detector came to on some runs."""

    runs: int = 0
    fires: int = 0
    lost: int = 0
    saved: int = 0
    idle: int = 0
    """Steps after the last gain: all that could be saved."""

    def add(self, run: RecordedRun, end: int | None) -> None:
        """A run that was stopped after so many steps, or not at all."""
        self.runs += 1
        self.idle += len(run.steps) - run.last_gain
        if end is None or end >= len(run.steps):
            return
        self.fires += 1
        if run.last_gain > end:
            self.lost += 1
        else:
            self.saved += len(run.steps) - end

    @property
    def lost_percent(self) -> float:
        return 100 * self.lost / self.fires if self.fires else 0.0

    @property
    def saved_percent(self) -> float:
        return 100 * self.saved / self.idle if self.idle else 0.0

    def data(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "fires": self.fires,
            "lost": self.lost,
            "lost_percent": round(self.lost_percent, 4),
            "saved": self.saved,
            "saved_percent": round(self.saved_percent, 3),
        }


Ends = Callable[[RecordedRun, Sequence[Work]], int | None]
"""After how many steps a run is stopped."""


@dataclass
class Row:
    """One detector, on all runs and on each half of them."""

    name: str
    ends: Ends
    all: Score = field(default_factory=Score)
    halves: tuple[Score, Score] = field(default_factory=lambda: (Score(), Score()))


def half_of(run: RecordedRun) -> int:
    """Which half of the runs one belongs to."""
    return hashlib.blake2b(f"{run.source}\n{run.run}".encode(), digest_size=1).digest()[0] & 1


def watched(make: Callable[[], Detector]) -> Ends:
    """A detector that watches, and does nothing but stop."""

    def ends(_: RecordedRun, works: Sequence[Work]) -> int | None:
        detector = make()
        return next((number for number, work in enumerate(works, 1) if detector.stops(work)), None)

    return ends


def agent_policies(**settings: Any) -> tuple[AnyPolicy, ...]:
    """The default policies of an agent, with other numbers for the stall policy."""
    policies = load(env={}).policies("agent")
    return tuple(replace(policy, **settings) if isinstance(policy, Stall) else policy for policy in policies)


def cautious_policies() -> tuple[AnyPolicy, ...]:
    """With `stall.profile: cautious`."""
    return load(env={"FLYBALL_STALL__PROFILE": "cautious"}).policies("agent")


def ours(policies: Sequence[AnyPolicy]) -> Ends:
    panel = Panel(policies)
    return watched(lambda: Ours(panel))


def obeyed(policies: Sequence[AnyPolicy]) -> Ends:
    """As it is in use: each call asks first, and one that is refused is not made."""
    panel = Panel(policies)
    return lambda run, works: judge(panel, run, works).ended_at


def rows() -> list[Row]:
    """Everything that is compared."""
    stops = {at: {"nudge_at": min(4, at), "refuse_at": min(5, at), "stop_at": at} for at in (4, 5, 7, 8, 10)}
    return [
        Row("stop at 4", ours(agent_policies(**stops[4]))),
        Row("stop at 5", ours(agent_policies(**stops[5]))),
        Row("default: nudge 4, refuse 5, stop 6", ours(agent_policies())),
        Row("default, refused calls not made", obeyed(agent_policies())),
        Row("stop at 7", ours(agent_policies(**stops[7]))),
        Row("stop at 8", ours(agent_policies(**stops[8]))),
        Row("cautious: stop 8, 4 circles", ours(cautious_policies())),
        Row("stop at 10", ours(agent_policies(**stops[10]))),
        Row("OpenHands' stuck detector", watched(OpenHands)),
        Row("Gemini CLI's loop detection", watched(GeminiCli)),
    ]


def measure(path: str, skip: bool = False) -> list[Row]:
    """All detectors on all runs of a file that say how far they got."""
    compared = rows()
    with closing(Lines(path)) as lines:
        for run in read(lines, skip=skip):
            if not run.rated:
                continue
            works, half = run.works(), half_of(run)
            for row in compared:
                end = row.ends(run, works)
                row.all.add(run, end)
                row.halves[half].add(run, end)
    return compared


def table(compared: Sequence[Row]) -> list[str]:
    """The figures as lines."""
    whole = compared[0].all
    lines = [
        f"{whole.runs:,} runs, {whole.idle:,} steps after their last gain",
        "",
        f"{'':<36}{'fires':>7}{'lost':>6}{'lost %':>9}{'saved %':>9}   {'halves: lost % / saved %'}",
    ]
    for row in compared:
        score = row.all
        halves = "   ".join(f"{half.lost_percent:.3f} / {half.saved_percent:.1f}" for half in row.halves)
        shares = f"{score.lost_percent:>9.3f}{score.saved_percent:>9.2f}"
        lines.append(f"{row.name:<36}{score.fires:>7,}{score.lost:>6}{shares}   {halves}")
    return lines


# What a step costs as a run grows long.


def growth(steps: int = GROWTH_STEPS) -> tuple[float, float]:
    """Seconds that a step costs after 100 steps, and after so many; the least of some samples each. A third of the
    steps repeat something, so that nothing stays empty."""
    policy = Stall(nudge_at=10**9, refuse_at=10**9, stop_at=10**9, repeats_max=10**9, same_error_max=10**9)
    state, number = policy.initial(), 0

    def go(count: int) -> float:
        nonlocal state, number
        begun = time.perf_counter()
        for _ in range(count):
            number += 1
            name = f"{number - 3 if number % 3 == 0 else number:016x}"
            work = Work(pattern="tool", call=name, result=name, error=number % 5 == 0)
            state = policy.evolve(state, Stepped(unit="agent", run="1", done=(work,)), BEGIN)
            policy.decide(state, BEGIN)
        return (time.perf_counter() - begun) / count

    go(100)
    early = min(go(SAMPLE_STEPS // 10) for _ in range(10))
    while number < steps:
        go(min(100_000, steps - number))
    return early, min(go(SAMPLE_STEPS // 10) for _ in range(10))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench/stall.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", nargs="?", help="recorded runs, one JSON object a line, plain or gzipped; - is stdin")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--skip-broken", action="store_true", help="leave broken lines out")
    parser.add_argument("--growth", action="store_true", help="what a step costs at the 100th and the 1,000,000th")
    given = parser.parse_args(arguments)
    if given.file is None and not given.growth:
        parser.error("a file of recorded runs, or --growth")
    data: dict[str, Any] = {}
    if given.file is not None:
        try:
            compared = measure(given.file, given.skip_broken)
        except FlyballError as error:
            print(f"error: {error}\n{error.remedy}", file=sys.stderr)
            return 2
        data["detectors"] = {
            row.name: {**row.all.data(), "halves": [half.data() for half in row.halves]} for row in compared
        }
        if not given.json:
            print("\n".join(table(compared)))
    if given.growth:
        early, late = growth()
        data["growth"] = {"early_us": early * 1e6, "late_us": late * 1e6, "ratio": late / early}
        if not given.json:
            print(f"a step: {early * 1e6:.1f} us at the 100th, {late * 1e6:.1f} us at the {GROWTH_STEPS:,}th:", end=" ")
            print(f"{late / early:.2f} x")
    if given.json:
        print(json.dumps(data, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
