"""The shape of a policy, and `weigh`, which asks all of them.

A policy is a frozen dataclass of settings with three pure methods. Its state is a frozen msgspec struct whose every
field has a default; `initial()` is the state that is never stored. A refusal is an answer, never an exception: what a
policy raises is a bug in it, answered as STOP, while the others are still asked.
"""

import enum
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from flyball.core.decision import PROCEED, Allowance, Decision, Reason, stop
from flyball.core.event import (
    Acknowledged,
    Answered,
    Asked,
    Beat,
    Event,
    Fired,
    Joined,
    Left,
    Ordered,
    Raised,
    Revise,
    Settled,
    Step,
    Stepped,
)
from flyball.core.time import Instant


class Gate(enum.IntEnum):
    """When a policy is asked."""

    CHANGE = 0
    """Only when a unit's definition changed: may that clear its failures?"""
    START = 1
    """At starts and resumes, and after whatever happens between runs. It does not hear of steps, which are many."""
    STEP = 2
    """At steps too."""


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of every policy's state."""


class Unreadable(State, frozen=True):
    """What stands in for a stored state that is none of its policy's: somebody changed it, or a later version wrote it.
    It is answered like a policy that fails."""

    problem: str


S = TypeVar("S", bound=State)


class Policy(Protocol[S]):
    """One safeguard."""

    @property
    def name(self) -> str:
        """The key of its states, with `by`; unique among the policies of one scope."""

    @property
    def by(self) -> str:
        """Whose state: "unit", "run", "fleet", or a label such as "provider", "user", "tree"."""

    @property
    def at(self) -> Gate:
        """When it is asked."""

    def wakes(self, event: Event) -> bool:
        """Whether such an event, by its kind and cause alone, can change its initial state. If not, it rests as long as
        nothing is stored: it stays as it is and has nothing to object, so it is not asked. A law checks that this is
        so, for every policy."""
        ...

    def initial(self) -> S:
        """What it knows when nothing has happened."""
        ...

    def evolve(self, state: S, event: Event, now: Instant) -> S:
        """What it knows after the event. Returns the very same object where nothing changed."""
        ...

    def decide(self, state: S, now: Instant) -> Decision:
        """What it says, from what it knows and the present alone."""
        ...


AnyPolicy = Policy[Any]


class Key(NamedTuple):
    """Where a policy's state is kept."""

    policy: str
    by: str
    subject: str


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What weighing an event came to: the answer, the changed states (by the policy's place), and what went wrong."""

    decision: Decision
    changed: Mapping[int, State]
    faults: Sequence[str]
    event: Event
    """As granted: a Step may have been granted fewer steps than it asked for."""


UNHEARD: Final = frozenset((Fired, Joined, Left, Acknowledged, Ordered))
"""Kinds of events that no policy is told of."""


def hears(gate: Gate, kind: type[Event]) -> bool:
    """Whether a policy with that gate is told of such events. Told means asked, except for `Revise`: all hear it (their
    failures are cleared), and only those at CHANGE answer. Nobody is told what fired: a start is asked for then, and of
    that they are. Nor what people have seen and asked for: what comes of that is told by events of its own."""
    if kind in UNHEARD:
        return False
    if issubclass(kind, Step | Stepped | Beat | Asked | Answered | Settled | Raised):
        return gate is Gate.STEP
    return gate is not Gate.CHANGE or kind is Revise


def weigh(policies: Sequence[AnyPolicy], states: Sequence[State | None], event: Event, now: Instant) -> Outcome:
    """Ask every policy of those that hear the event. `states` are theirs, in the same order; None is a policy at rest,
    which has nothing stored and is not woken by such an event.

    For a request that is refused `changed` is empty: it leaves no trace in any policy.
    """
    if type(event) is Step and event.steps > 1:
        event = _granted(policies, states, event, now)
    revises = type(event) is Revise
    decision = PROCEED
    changed: dict[int, State] = {}
    faults: list[str] = []
    for place, state in enumerate(states):
        if state is None:
            continue
        policy = policies[place]
        if type(state) is Unreadable:
            faults.append(state.problem)
            decision |= answer_of(policy, state, now)
            continue
        try:
            after = policy.evolve(state, event, now)
            if after is not state and after != state:
                changed[place] = after
            if revises and policy.at is not Gate.CHANGE:
                continue
            answer = policy.decide(after, now)
        except Exception as error:  # noqa: BLE001 - a policy that raises must not silence the others
            faults.append(traceback.format_exc())
            decision |= stop(_fault(policy, error))
            continue
        if answer is not PROCEED:
            decision = answer if decision is PROCEED else decision | answer
    if event.asks and decision.verb:
        changed = {}
    allowance = None
    if type(event) is Step and event.steps > 1 and not decision.verb:
        allowance = Allowance(event.steps, {meter: amount * event.steps for meter, amount in event.cost.items()})
    if decision.allowance is not allowance:
        decision = Decision(decision.verb, decision.until, decision.reasons, allowance)
    return Outcome(decision, changed, faults, event)


def _granted(policies: Sequence[AnyPolicy], states: Sequence[State | None], step: Step, now: Instant) -> Step:
    """The step request cut down to what every policy still has room for, though never below one step: if there is no
    room even for that, it is refused with its reason."""
    room = Allowance(step.steps)
    for policy, state in zip(policies, states, strict=True):
        if state is None or type(state) is Unreadable:
            continue
        try:
            answer = policy.decide(state, now)
        except Exception:  # noqa: BLE001, S112 - it is reported where the request itself is weighed
            continue
        if not answer.proceeds:  # it is refused anyway: for one step, not for many
            return msgspec.structs.replace(step, steps=1)
        if answer.allowance is not None:
            room &= answer.allowance
    steps = room.steps
    for meter, amount in step.cost.items():
        if amount > 0 and meter in room.money:
            steps = min(steps, room.money[meter] // amount)
    return msgspec.structs.replace(step, steps=max(1, steps))


def answer_of(policy: AnyPolicy, state: State, now: Instant) -> Decision:
    """What a policy says of a state that was read from a store."""
    if isinstance(state, Unreadable):
        text = f"the {policy.name} policy itself failed: its stored state cannot be read: {state.problem}"
        remedy = "Somebody changed the store, or a later flyball wrote it: restore a copy of it, or upgrade."
        return stop(Reason(policy.name, "policy_failed", text, remedy))
    try:
        return policy.decide(state, now)
    except Exception as error:  # noqa: BLE001 - whoever looks sees what the others say, and that this one failed
        return stop(_fault(policy, error))


def _fault(policy: AnyPolicy, error: Exception) -> Reason:
    return Reason(
        policy.name,
        "policy_failed",
        f"the {policy.name} policy itself failed: {type(error).__name__}: {error}",
        "This is a bug in the policy or in its settings: see the log for the stack trace, then `flyball check`.",
    )
