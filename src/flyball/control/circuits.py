"""Circuits: the breakers, by the name that people know them by: `fleet`, `provider:x`.

By one label there may be two breakers: one at the starts of units, one at guarded calls. What their users share is the
same, so for people they are one circuit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from flyball.control.shapes import BreakerView
from flyball.core.codec import readable_state
from flyball.core.event import Released
from flyball.core.time import Instant, later, seconds
from flyball.governor import Governor
from flyball.policies import Breaker
from flyball.policies.breaker import State

FLEET: Final = "fleet"
CLOSED: Final = "closed"
WORDS: Final = (CLOSED, "half-open", "open")
"""What a circuit is, the strictest last."""


@dataclass(frozen=True, slots=True)
class Circuit:
    """One that knows of failures."""

    view: BreakerView
    policies: tuple[str, ...]
    """The names of its breakers."""
    units: tuple[str, ...]
    """Units that stand under them, one for each is enough: an order to close it is heard by who stands under it."""

    def closing(self, **said: Any) -> list[Released]:
        """The orders that close it. `said`: who gives them, and what else an order says of itself."""
        view = self.view
        labels = {view.by: view.subject} if view.by != FLEET else {}
        return [
            Released(unit=unit, scope=view.by, labels=labels, policies=self.policies, **said) for unit in self.units
        ]


def known(governor: Governor, now: Instant) -> list[Circuit]:
    """All circuits that know of a failure: those that are not closed, and those that count."""
    breakers: dict[tuple[str, str], tuple[Breaker, str]] = {}
    for policy, unit in governor.panel.standing():
        if isinstance(policy, Breaker):
            breakers.setdefault((policy.name, policy.by), (policy, unit))
    found: dict[tuple[str, str], list[tuple[Breaker, str, State]]] = {}
    for name in sorted({name for name, _ in breakers}):
        for key, data in governor.store.states(name).items():
            state = readable_state(State, data)
            if state is not None and (name, key.by) in breakers:
                found.setdefault((key.by, key.subject), []).append((*breakers[name, key.by], state))
    return [_circuit(by, subject, parts, now) for (by, subject), parts in sorted(found.items())]


def _circuit(by: str, subject: str, parts: Sequence[tuple[Breaker, str, State]], now: Instant) -> Circuit:
    ends = [later(state.opened_at, policy.recovery) for policy, _, state in parts if state.opened_at is not None]
    until = max(ends, default=0)
    view = BreakerView(
        name=by if by == FLEET else f"{by}:{subject}",
        by=by,
        subject=subject,
        state=WORDS[bool(ends) + (until > now)],
        until=seconds(until) if until > now else None,
    )
    return Circuit(view, tuple(policy.name for policy, _, _ in parts), tuple(sorted({unit for _, unit, _ in parts})))
