"""What is said of a workflow where it is defined, checked there and then; and which session each execution of it is."""

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from flyball.config import Settings
from flyball.config.build import budget_name, get_tier_limit
from flyball.config.money import micro
from flyball.config.units import Unit
from flyball.core.amounts import MONEY, amount_text
from flyball.core.name import IN_WORDS, NAME_MAX, is_name, name_from
from flyball.core.policy import AnyPolicy
from flyball.errors import FlyballError
from flyball.policies import Budget
from flyball.runtimes.agent.ending import Causes
from flyball.runtimes.agent.options import check_seconds
from flyball.runtimes.allowance import SHARE, STEPS_MAX
from flyball.runtimes.amounts import Given, whole
from flyball.runtimes.session.options import session_unit

EXECUTOR: Final = "executor"
"""The label that says which executor of DBOS runs it. Whoever takes over from a dead one finds its runs by this."""

BELT_ABOVE: Final = 5
"""So many recoveries more than resumes DBOS allows. One more is needed to be refused with the reason; and a recovery
that dies before it asked, or while it waits for a cooldown, is counted by DBOS alone. Above that, something is wrong
that flyball does not see, and DBOS ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a workflow is guarded."""

    name: str
    deadline: float | None = None
    steps: int | None = None
    resumes: int | None = None
    budget: Given | None = None
    tier: str | None = None
    labels: Mapping[str, str] | None = None
    user: str = ""
    tree: str = ""
    causes: Causes | None = None
    wait: float | None = None
    allowance: int | None = None

    def check(self, settings: Settings) -> None:
        """FlyballError says what is wrong, before anything runs."""
        if not isinstance(self.name, str) or not is_name(self.name):
            remedy = f'Give it one: `@guarded.workflow(unit="…")`. A name has {IN_WORDS}.'
            raise FlyballError(f"{self.name!r} is no name for a workflow under a guard", remedy=remedy)
        if self.wait is not None:
            check_seconds(self.name, "wait", self.wait, "from")
        given = self.allowance
        if given is not None and (not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= STEPS_MAX):
            remedy = f"Give a whole number from 1 to {STEPS_MAX}, or leave it out."
            raise FlyballError(f"{self.name}: allowance is {given!r}", remedy=remedy)
        self.unit("0", "")
        self.policies(settings)

    def unit(self, workflow: str, executor: str) -> Unit:
        """The session that the workflow with that id is, where that executor runs it."""
        unit = session_unit(
            unit_name(self.name, workflow),
            deadline=self.deadline,
            steps=self.steps,
            resumes=self.resumes,
            version="",
            labels=self.labels,
            user=self.user,
            tree=self.tree,
            causes=self.causes,
        )
        return dataclasses.replace(unit, labels={**unit.labels, EXECUTOR: executor})

    def policies(self, settings: Settings) -> list[AnyPolicy]:
        """The safeguards that these options ask for, over those that the settings give every session."""
        limits, kept_back = dict(whole(self.budget, "budget")), micro(settings.budget.kept_back)
        if self.tier is not None and MONEY not in limits:
            limits[MONEY] = get_tier_limit(self.tier, settings)
        if limits.get(MONEY, kept_back) < kept_back:
            back = amount_text(MONEY, kept_back)
            text = f"budget is {amount_text(MONEY, limits[MONEY])}, and {back} of it is kept back for the last step"
            raise FlyballError(text, remedy="Raise the budget, or lower `budget.kept_back`.")
        return [
            Budget(limit=limit, meter=meter, by="unit", name=budget_name(meter), kept_back=kept_back * (meter == MONEY))
            for meter, limit in limits.items()
        ]

    def resumes_max(self, settings: Settings) -> int:
        """How often it may be resumed."""
        recovery = settings.daemon.session_recovery
        if not recovery.enabled:
            return 0
        return recovery.max_resume_attempts if self.resumes is None else self.resumes

    def steps_at_once(self, settings: Settings) -> int:
        """How many steps that cost nothing are asked for at once. A crash counts those as used that were not made, so
        it is a small part of what the workflow has."""
        if self.allowance is not None:
            return self.allowance
        most = settings.graph.recursion_limit if self.steps is None else self.steps
        return max(1, min(STEPS_MAX, most // SHARE))


def unit_name(name: str, workflow: str) -> str:
    """The name of the session that a workflow is. Two workflows never share one: where the id does not fit into a name
    as it is, a part of its hash is added."""
    plain = f"{name}@{workflow}"
    if is_name(plain) and "@" not in name:
        return plain
    mark = hashlib.blake2b(f"{len(name)}:{plain}".encode(), digest_size=6).hexdigest()
    return f"{name_from(plain, 'workflow')[: NAME_MAX - len(mark) - 1]}-{mark}"
