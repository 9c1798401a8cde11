"""Budgets of everybody: what each may spend, has spent and has reserved. Read from the states of budgets alone. A
program may have budgets whose limits nobody here knows; what is stored of them is shown without."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from flyball.control.context import Args, Context, bounded
from flyball.core.codec import readable_state
from flyball.core.policy import Key
from flyball.core.time import Instant, seconds
from flyball.governor import Governor
from flyball.policies import Budget
from flyball.policies.budget import State

BUDGETS_MAX: Final = 1_000
"""Budgets in one answer: more than anybody reads."""
BUDGET: Final = Budget().name
"""What the names of all budgets have in them."""


@dataclass(frozen=True, slots=True)
class Account:
    """One budget, as it stands now."""

    key: Key
    policy: Budget | None
    """None: nobody here knows its limit."""
    state: State

    @property
    def unit(self) -> str:
        """Whose it is, if it is one unit's, or one run's."""
        match self.key.by:
            case "unit":
                return self.key.subject
            case "run":
                return self.key.subject.rpartition("/")[0]
        return ""

    @property
    def limit(self) -> int | None:
        """What may be spent now: that of the settings, and what a person added."""
        return None if self.policy is None else self.policy.limit + self.state.raised

    @property
    def share(self) -> float:
        """How much of it is used: 1.0 is all."""
        return (self.state.spent + self.state.reserved) / self.limit if self.limit else 0.0


def budgets(context: Context, args: Args) -> Any:
    """Those that anything was spent of, and the fleet's own; what is used up most comes first."""
    limit = bounded(args, "limit", BUDGETS_MAX)
    now = context.look().now
    found = sorted(accounts(context.governor, now), key=lambda one: (-one.share, one.key))
    return {
        "budgets": [
            {
                "unit": one.unit,
                "meter": one.policy.meter if one.policy is not None else one.state.meter,
                "by": one.key.by,
                "subject": one.key.subject,
                "spent": one.state.spent,
                "reserved": one.state.reserved,
                "limit": one.limit,
                "raised": one.state.raised,
                "every": seconds(one.policy.every) if one.policy is not None else 0.0,
            }
            for one in found[:limit]
        ],
        "left_out": max(0, len(found) - limit),
        "at": seconds(now),
    }


def accounts(governor: Governor, now: Instant) -> Iterator[Account]:
    """All budgets that anything is known of, and those of the fleet."""
    shared = {(p.name, p.by): p for p, _ in governor.panel.standing() if isinstance(p, Budget)}
    names = {name for name, _ in shared} | {BUDGET}
    stored = {key: data for name in sorted(names) for key, data in governor.store.states(name).items()}
    of_the_fleet = {Key(name, by, ""): b"{}" for name, by in shared if by == "fleet"}
    for key, data in (of_the_fleet | stored).items():
        state = readable_state(State, data)
        if state is None:
            continue
        policy = _policy(governor, key, shared)
        yield Account(key, policy, state if policy is None else policy.current(state, now))


def _policy(governor: Governor, key: Key, shared: Mapping[tuple[str, str], Budget]) -> Budget | None:
    """The budget that the state is of. Units may have limits of their own."""
    if key.by not in ("unit", "run"):
        return shared.get((key.policy, key.by))
    unit = key.subject if key.by == "unit" else key.subject.rpartition("/")[0]
    own = governor.panel.policies_of(unit)
    return next((p for p in own if isinstance(p, Budget) and (p.name, p.by) == (key.policy, key.by)), None)
