"""Runs that were recorded, by whatever agent: each put before a panel as if it happened now, call by call.

The agent is taken to do what it did: where a call is refused it goes on with its next one, though it might have heeded
the refusal or the nudge. So this says what is stopped and when, not what an agent would make of being told.

Each run is judged by itself: it is a unit of its own, that nothing happened to before.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from flyball.core.amounts import MONEY
from flyball.core.decision import Decision, Verb
from flyball.core.event import NOTHING, Amounts, Start, Step, Stepped, Work
from flyball.core.failure import call_fingerprint, result_fingerprint
from flyball.core.panel import Panel
from flyball.core.time import FOREVER, SECOND, Instant, Span
from flyball.replay.journal import Weighing
from flyball.replay.lines import Lines
from flyball.replay.side import SLICES, Side, case_of

LASTS: Final[Span] = 10 * SECOND
"""How long a step is taken to last where the record does not say: about as long as a model thinks."""
LASTS_MAX: Final = 30 * 86_400
"""Seconds that one step may have lasted."""
COST_MAX: Final = 1_000_000
"""What one step may have cost."""
BEGIN: Final[Instant] = 1_000_000_000 * SECOND
"""The instant at which every run begins: some instant is as good as another."""


class RecordedStep(msgspec.Struct, frozen=True):
    """One step: a call and what came of it."""

    tool: str = ""
    args: Any = ""
    result: Any = ""
    error: bool = False
    reward: float | None = None
    """How far the run had got after it, by whatever measure; where it was measured."""
    cost: float = 0.0
    """In USD."""
    seconds: float | None = None
    polling: bool = False
    world: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.cost <= COST_MAX:
            raise ValueError(f"cost is {self.cost:g}; allowed: 0 to {COST_MAX}")
        if self.seconds is not None and not 0 <= self.seconds <= LASTS_MAX:
            raise ValueError(f"seconds is {self.seconds:g}; allowed: 0 to {LASTS_MAX}")

    @property
    def used(self) -> Amounts:
        """What it cost, in millionths."""
        return {MONEY: round(self.cost * 1_000_000)} if self.cost else NOTHING

    def work(self) -> Work:
        """The step as a fact, with fingerprints as the library makes them."""
        return Work(
            pattern=self.tool,
            call=call_fingerprint(self.tool, _canonical(self.args)),
            result=result_fingerprint(_canonical(self.result)),
            world=self.world,
            error=self.error,
            polling=self.polling,
            reserved=self.used,
            used=self.used,
        )


class RecordedRun(msgspec.Struct, frozen=True):
    """One run, from its start to its end."""

    steps: list[RecordedStep]
    source: str = ""
    run: str = ""

    def works(self) -> "tuple[Work, ...]":
        """All of its steps as facts."""
        return tuple(step.work() for step in self.steps)

    @property
    def rated(self) -> bool:
        """Whether it says how far it got."""
        return any(step.reward is not None for step in self.steps)

    def best_of(self, numbers: Iterable[int]) -> float:
        """How far these steps got."""
        rewards = (self.steps[number - 1].reward for number in numbers)
        return max((reward for reward in rewards if reward is not None), default=-math.inf)

    @property
    def last_gain(self) -> int:
        """The number of the step that got further than all before it, for the last time."""
        best, last = -math.inf, 0
        for number, step in enumerate(self.steps, 1):
            if step.reward is not None and step.reward > best:
                best, last = step.reward, number
        return last


decode_run: Final = msgspec.json.Decoder(RecordedRun).decode


def read(lines: Lines, *, skip: bool = False) -> Iterator[RecordedRun]:
    """The runs of a file. BadLine for one that is none; `skip` leaves such lines out."""
    for number, line in lines:
        try:
            run = decode_run(line)
        except (msgspec.MsgspecError, RecursionError) as error:
            lines.leave_out(number, str(error), skip=skip)
            continue
        yield run


def _canonical(value: object) -> str:
    """A text as it is; anything else as JSON with its keys in order."""
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()


@dataclass(slots=True)
class Fate:
    """What would have become of a run."""

    made: int = 0
    """Steps up to its end that were made."""
    refused: frozenset[int] = frozenset()
    """The numbers of steps that were refused."""
    nudged_at: int | None = None
    refused_at: int | None = None
    ended_at: int | None = None
    """Recorded steps that lie before its end; None: it was not ended."""
    decision: Decision | None = None
    """What ended it."""


def judge(panel: Panel, run: RecordedRun, works: Sequence[Work]) -> Fate:
    """Put a run before the panel. `works` are its steps as facts: they are the same for every panel."""
    weighing = Weighing(panel)
    unit, name, at, fate = run.source or "agent", run.run or "1", BEGIN, Fate()
    refused = set()
    weighing.submit(Start(unit=unit, run=name, holder="replay"), at)
    for number, (step, work) in enumerate(zip(run.steps, works, strict=True), 1):
        fact = work
        request = Step(unit=unit, run=name, pattern=work.pattern, call=work.call, cost=work.reserved)
        answer = weighing.submit(request, at)
        if answer.verb is Verb.WAIT and answer.until < FOREVER:
            at = max(at, answer.until)
            answer = weighing.submit(request, at)
        if answer.verb is Verb.WAIT:
            refused.add(number)
            fate.refused_at = fate.refused_at or number
            fact = Work(pattern=work.pattern, call=work.call, refused=True)
        if answer.verb <= Verb.WAIT:
            at += LASTS if step.seconds is None else round(step.seconds * SECOND)
            answer = weighing.submit(Stepped(unit=unit, run=name, done=(fact,)), at)
            made = not fact.refused
        else:
            made = False
        if answer.verb >= Verb.FINISH:
            fate.ended_at, fate.decision = number if made else number - 1, answer
            break
        if answer.reasons:
            fate.nudged_at = fate.nudged_at or number
    end = len(run.steps) if fate.ended_at is None else fate.ended_at
    fate.refused = frozenset(refused)
    fate.made = end - sum(number <= end for number in refused)
    return fate


class Runs:
    """Sums over recorded runs under one panel."""

    def __init__(self, name: str, panel: Panel | None) -> None:
        self.side = Side(name)
        self._panel = panel
        """None: as it was recorded."""

    def hear(self, run: RecordedRun, works: Sequence[Work]) -> None:
        """One run more."""
        side = self.side
        fate = Fate(made=len(works)) if self._panel is None else judge(self._panel, run, works)
        end = len(works) if fate.ended_at is None else fate.ended_at
        side.starts += 1
        side.nudged += fate.nudged_at is not None
        side.calls_refused += len(fate.refused)
        made = [number for number in range(1, end + 1) if number not in fate.refused]
        side.made(works[number - 1] for number in made)
        side.not_made(work for number, work in enumerate(works, 1) if number > end or number in fate.refused)
        for number in made:
            side.slices[min(number, SLICES) - 1] += 1
        lost = run.rated and run.best_of(made) < run.best_of(range(1, len(works) + 1))
        side.lost += lost
        if fate.decision is None:
            return
        side.ended += 1
        side.fires += end < len(works)
        side.note(fate.decision)
        case = case_of(run.source, run.run, fate.decision, None, end)
        side.list_case(case._replace(saved_steps=len(works) - fate.made, lost=lost))
