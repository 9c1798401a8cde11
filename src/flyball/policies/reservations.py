"""Reservations: who holds what. It never objects; it remembers, of each run of a unit, what it reserved and has not
settled.

Budgets know only sums, and those of a user, a tree or the fleet are sums over many units. When a run dies, what it had
reserved counts as spent until a person settles it, so it must be known what that was: here, by unit, because a unit has
few runs however large the fleet is. The labels are kept too: they say whose budgets it concerns.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from flyball.core.decision import PROCEED, Decision
from flyball.core.event import Amounts, Event, Exited, Settled, Step, Stepped
from flyball.core.policy import Gate
from flyball.core.policy import State as PolicyState
from flyball.core.time import Instant

HELD_MAX: Final = 64
"""Holders remembered for one unit. Of more than this the oldest is forgotten: what it holds stays reserved, and only
releasing the budget frees it. One that dies a day with money in hand takes two months to get there."""


class Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one run holds, under one set of labels."""

    run: str
    amounts: dict[str, int]
    labels: dict[str, str] = {}
    ended: bool = False
    """The run exited: nobody will settle it but a person."""


class State(PolicyState, frozen=True):
    """All holders, the one that changed last at the end."""

    held: tuple[Held, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """Who holds what."""

    NAME: ClassVar = "reservations"
    name: str = NAME
    by: str = "unit"
    at: Gate = Gate.STEP

    def wakes(self, event: Event) -> bool:
        return isinstance(event, Step)

    def initial(self) -> State:
        return State()

    def evolve(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case Step(cost=cost, steps=steps) if cost:
                return _changed(state, event, {meter: amount * steps for meter, amount in cost.items()})
            case Stepped() if state.held:
                freed = dict(event.returned)
                for work in event.done:
                    for meter, amount in work.reserved.items():
                        freed[meter] = freed.get(meter, 0) + amount
                return _changed(state, event, {meter: -amount for meter, amount in freed.items()}) if freed else state
            case Settled(reserved=reserved) if state.held:
                return _changed(state, event, {meter: -amount for meter, amount in reserved.items()})
            case Exited(run=run) if any(held.run == run for held in state.held):
                return State(
                    tuple(
                        Held(held.run, held.amounts, held.labels, True) if held.run == run else held
                        for held in state.held
                    )
                )
        return state

    def decide(self, state: State, now: Instant) -> Decision:
        return PROCEED


def _changed(state: State, event: Event, change: Amounts) -> State:
    """With so much more, or less, in the hands of the event's run. Who holds nothing is not remembered."""
    labels = dict(event.labels)
    mine = next((held for held in state.held if held.run == event.run and held.labels == labels), None)
    others = [held for held in state.held if held is not mine]
    amounts = dict(mine.amounts) if mine else {}
    for meter, amount in change.items():
        amounts[meter] = amounts.get(meter, 0) + amount
    amounts = {meter: amount for meter, amount in amounts.items() if amount > 0}
    if amounts:
        others.append(Held(event.run, amounts, labels, mine is not None and mine.ended))
    return State(tuple(others[-HELD_MAX:]))
