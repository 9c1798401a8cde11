"""Refusals as exceptions, for Python code that asks leave: a decision that is no leave, raised where it was asked for.

Inside the core a refusal is a value. Here it leaves the block that must not run, and carries the decision with it.
"""

from flyball.core.decision import Decision, Reason, Verb
from flyball.core.time import FOREVER, SECOND, Instant
from flyball.errors import FlyballError
from flyball.policies.budget import OVER_BUDGET
from flyball.policies.loop import LOOP_DETECTED


class Refused(FlyballError):
    """Leave was not given. `decision` has everything; `reason` is the one to name; `remedy` says what to do."""

    def __init__(self, decision: Decision, now: Instant, what: str = "") -> None:
        self.decision = decision
        self.reason = decision.primary or Reason("", "refused", "refused")
        self.retry_after = _seconds(decision, now)
        """Seconds until it is worth asking again; None where that is not known, or never."""
        texts = "; ".join(reason.text for reason in decision.reasons) or self.reason.text
        super().__init__(f"{what}: {texts}" if what else texts, remedy=self.reason.remedy)

    def __reduce__(self) -> tuple[object, ...]:
        """As it is, and not made anew from its text: it may cross from the process that it was raised in."""
        return _same, (type(self), self.args, self.__dict__)

    @property
    def verb(self) -> Verb:
        """What to do: WAIT and ask again, FINISH in order, or STOP."""
        return self.decision.verb

    @property
    def code(self) -> str:
        """The stable name of the reason."""
        return self.reason.code


class OutOfBudget(Refused):
    """There is not enough money, or of another meter, for the worst case of what was asked for."""


class CircuitOpen(Refused):
    """What it would call is down: nobody asks it before `retry_after`."""


class SafetyError(Refused):
    """Loop detected: the same was done too often within too short a time."""


def refusal(decision: Decision, now: Instant, what: str = "") -> Refused:
    """The exception for a decision that is no leave."""
    codes = decision.codes
    if OVER_BUDGET in codes:
        return OutOfBudget(decision, now, what)
    if "circuit_open" in codes or "circuit_half_open" in codes:
        return CircuitOpen(decision, now, what)
    if LOOP_DETECTED in codes:
        return SafetyError(decision, now, what)
    return Refused(decision, now, what)


def _same(kind: type[Refused], args: tuple[object, ...], attributes: dict[str, object]) -> Refused:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


def _seconds(decision: Decision, now: Instant) -> float | None:
    lasting = decision.verb in (Verb.WAIT, Verb.HOLD) and decision.until < FOREVER
    return max(0, decision.until - now) / SECOND if lasting else None
