"""Decisions: five verbs, a time, and reasons. Decisions join; nothing here raises a refusal.

`a | b` is associative, commutative and idempotent: the stricter verb wins, all reasons are kept. So the order in which
policies are asked never matters, and asking one more can only make the answer more careful.
"""

import enum
from typing import Final

import msgspec

from flyball.core.time import FOREVER, Instant


class Verb(enum.IntEnum):
    """What a runtime has to do, from lax to strict."""

    PROCEED = 0
    """Go on. `until` is a lease: ask again before then."""
    WAIT = 1
    """Start nothing (or: do not make this call) before `until`, then ask again."""
    FINISH = 2
    """End in order, deliver what there is, no further run by itself. After `until` it becomes STOP."""
    STOP = 3
    """End the run now; it has to be gone by `until`."""
    HOLD = 4
    """End it and refuse every start until released, at the latest at `until`."""


# Looked up once: on Python 3.11 every look-up through the enumeration's class is a call.
_PROCEED, _WAIT, _FINISH, _STOP, _HOLD = Verb


class Reason(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """Why: the code is for machines and keeps its meaning, the text has the numbers, the remedy is for a person."""

    policy: str
    code: str
    text: str
    remedy: str = ""
    verb: Verb = Verb.PROCEED
    """What this reason alone comes to. Set by the functions below."""


class Allowance(msgspec.Struct, frozen=True):
    """So many steps, and so much of each meter, that may be used without asking.

    In one policy's answer it is headroom: the most that it could grant now. In the governor's answer to a `Step` it is
    what was granted: counted already, so that it can be used up without asking again.
    """

    steps: int
    money: dict[str, int] = {}

    def __and__(self, other: "Allowance") -> "Allowance":
        """The smaller of both. A meter that only one of them names is bounded by that one."""
        money = dict(self.money)
        for meter, amount in other.money.items():
            money[meter] = min(amount, money.get(meter, amount))
        return Allowance(min(self.steps, other.steps), money)


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """A verdict with its time and all its reasons. A PROCEED with a reason is a nudge, for the worker to read."""

    verb: Verb = _PROCEED
    until: Instant = FOREVER
    reasons: tuple[Reason, ...] = ()
    allowance: Allowance | None = None

    def __or__(self, other: "Decision") -> "Decision":
        if self is other or other is PROCEED:
            return self
        if self is PROCEED:
            return other
        winner = self if _strictness(self) >= _strictness(other) else other
        if self.allowance is None or other.allowance is None:
            allowance = self.allowance or other.allowance
        else:
            allowance = self.allowance & other.allowance
        return Decision(winner.verb, winner.until, _union(self.reasons, other.reasons), allowance)

    @property
    def proceeds(self) -> bool:
        """Leave is given."""
        return self.verb is _PROCEED

    @property
    def primary(self) -> Reason | None:
        """The one reason to name where there is room for one: of the strictest verb, the first by its code."""
        return min(self.reasons, key=lambda reason: (-reason.verb, reason.code), default=None)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of its reasons: what makes two refusals the same refusal."""
        return tuple(reason.code for reason in self.reasons)


def _strictness(decision: Decision) -> tuple[int, int]:
    """A total order, so that joining is taking the larger. A WAIT or HOLD is stricter the longer it lasts; a lease, and
    the time to be gone by, are stricter the sooner they end."""
    lasting = decision.verb is _WAIT or decision.verb is _HOLD
    return decision.verb, decision.until if lasting else -decision.until


def _union(these: tuple[Reason, ...], those: tuple[Reason, ...]) -> tuple[Reason, ...]:
    if not those or these == those:
        return these
    if not these:
        return those
    return tuple(sorted({*these, *those}))


PROCEED: Final = Decision()
"""Nothing against it, and no need to ask again."""


def proceed(until: Instant = FOREVER, *, nudge: Reason | None = None, allowance: Allowance | None = None) -> Decision:
    """Go on; ask again before `until`."""
    return Decision(_PROCEED, until, (nudge,) if nudge else (), allowance)


def refuse(verb: Verb, reason: Reason, until: Instant = FOREVER) -> Decision:
    """Any verb but PROCEED, with its reason."""
    return Decision(verb, until, (Reason(reason.policy, reason.code, reason.text, reason.remedy, verb),))


def wait(until: Instant, reason: Reason) -> Decision:
    """Not before `until`."""
    return refuse(_WAIT, reason, until)


def finish(reason: Reason, by: Instant = FOREVER) -> Decision:
    """End in order and deliver what there is."""
    return refuse(_FINISH, reason, by)


def stop(reason: Reason, by: Instant = FOREVER) -> Decision:
    """End the run now."""
    return refuse(_STOP, reason, by)


def hold(reason: Reason, until: Instant = FOREVER) -> Decision:
    """Refuse every start until a person releases it."""
    return refuse(_HOLD, reason, until)
