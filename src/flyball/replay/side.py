"""One side of a comparison: what was done, or would have been, and what it came to. Sums alone: they do not grow with
the history, but for the first so many cases."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from flyball.core.decision import Decision, Verb
from flyball.core.event import Amounts, Work
from flyball.core.time import Instant

CASES_MAX: Final = 1_000
"""Cases that are listed: the first. More than a person reads; the sums have them all."""
SLICES: Final = 64
"""Parts of the history that are counted apart, for a chart: as many as fit into a line."""


class Case(NamedTuple):
    """Something that was not let go on as it was."""

    unit: str
    run: str
    verb: str
    policy: str
    code: str
    text: str
    at: Instant | None
    """When, where it is known."""
    step: int | None
    """After how many finished steps, where they are counted."""
    saved_steps: int = 0
    lost: bool = False
    """A later step of the recorded run got further than all that were made."""


@dataclass(slots=True)
class Side:
    """Sums of one side."""

    name: str
    starts: int = 0
    starts_refused: int = 0
    """Held, stopped or finished."""
    starts_put_off: int = 0
    """Told to wait."""
    steps: int = 0
    spent: Counter[str] = field(default_factory=Counter)
    nudged: int = 0
    calls_refused: int = 0
    ended: int = 0
    """Runs that were told to stop or finish."""
    held: int = 0
    let_go: int = 0
    """Runs that were refused or ended in the record, but not here. What would have followed is not known."""
    saved_starts: int = 0
    saved_steps: int = 0
    saved: Counter[str] = field(default_factory=Counter)
    fires: int = 0
    """Runs that were ended with recorded steps left."""
    lost: int = 0
    reasons: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Policy, code and verb."""
    cases: list[Case] = field(default_factory=list)
    slices: list[int] = field(default_factory=lambda: [0] * SLICES)

    def made(self, done: Iterable[Work]) -> None:
        """Steps that were made."""
        for work in done:
            if not work.refused:
                self.steps += work.times
                self.spent.update(work.used)

    def not_made(self, done: Iterable[Work]) -> None:
        """Steps that were recorded and would not have been made."""
        for work in done:
            if not work.refused:
                self.save(work.times, work.used)

    def save(self, steps: int, amounts: Amounts) -> None:
        """So much would not have been used."""
        self.saved_steps += steps
        self.saved.update(amounts)

    def note(self, decision: Decision) -> None:
        """Count the reasons of a decision: those of the verb that it came to."""
        for reason in decision.reasons:
            if reason.verb is decision.verb:
                self.reasons[reason.policy, reason.code, decision.verb.name.lower()] += 1

    def list_case(self, case: Case) -> None:
        """Remember a case, if there is room."""
        if len(self.cases) < CASES_MAX:
            self.cases.append(case)


def case_of(unit: str, run: str, decision: Decision, at: Instant | None, step: int | None) -> Case:
    """The case that a decision makes."""
    reason = decision.primary
    policy, code, text = (reason.policy, reason.code, reason.text) if reason else ("", "", "")
    return Case(unit, run, Verb(decision.verb).name.lower(), policy, code, text, at, step)
