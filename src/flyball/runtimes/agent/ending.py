"""How a run of a Python function ended: what its exception says, as a cause with a fingerprint.

An error and a time-out are failures, and are followed by another run. To be out of money, quota or memory is to starve,
and waits. To give up is a decision of the agent's own, and is never followed by another run.
"""

import sys
import traceback
from collections.abc import Mapping
from typing import Final

from flyball.core.decision import Decision, Verb
from flyball.core.event import DETAIL_MAX, Cause
from flyball.core.failure import FINGERPRINT_VERSION, fingerprint
from flyball.errors import FlyballError
from flyball.policies.budget import OVER_BUDGET
from flyball.runtimes.driver import OVERDUE, Ending
from flyball.runtimes.refusal import OutOfBudget, Refused

ERROR_MAX: Final = 200
"""Characters of an error as people read it in one line."""

GAVE_UP: Final = "gave_up"


class GaveUp(BaseException):
    """The agent ends itself, and does not want to be started again. Not an `Exception`: no handler is meant for it."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why)
        self.why = why


class Starved(FlyballError):
    """Something that the agent needs is used up: quota, credits, disk. It is no bug, so it is waited for."""

    remedy = "Raise the quota or free the resource; the agent asks again by itself."


Causes = Mapping[type[BaseException], Cause]
"""Which causes some exceptions are, besides the usual ones."""

_USUAL: Final[Causes] = {
    GaveUp: Cause.STOPPED,
    OutOfBudget: Cause.STARVED,
    Starved: Cause.STARVED,
    MemoryError: Cause.STARVED,
    TimeoutError: Cause.TIMEOUT,
}


def ending_of(unit: str, error: BaseException | None, causes: Causes) -> Ending:
    """How a run ended that nobody told to end."""
    if error is None:
        return Ending(Cause.DONE)
    if isinstance(error, GaveUp):
        return Ending(Cause.STOPPED, error=GAVE_UP, detail=error.why)
    if isinstance(error, Refused) and error.verb >= Verb.FINISH:
        return ending_of_told(unit, error, error.decision)
    cause = _cause(error, causes)
    name = _name(type(error))
    message = str(error)
    if isinstance(error, Refused):
        name = error.code
    mark = fingerprint(unit, name, message=message, frames=_frames(error))
    text = f"{name}: {message}" if message and not isinstance(error, Refused) else name
    return Ending(cause, mark, FINGERPRINT_VERSION, text[:ERROR_MAX], detail=trace(error))


def ending_of_told(unit: str, error: BaseException | None, decision: Decision, where: str = "") -> Ending:
    """How a run ended that was told to: not by itself, but for its time, its money, or another reason."""
    reason = decision.primary
    code, policy = (reason.code, reason.policy) if reason else ("stopped", "")
    if error is None and decision.verb is Verb.FINISH and code != OVER_BUDGET:
        return Ending(Cause.DONE, error=code)
    cause = Cause.TIMEOUT if code in OVERDUE else Cause.STARVED if code == OVER_BUDGET else Cause.STOPPED
    detail = f"{reason.text}\n{where or (trace(error) if error is not None else '')}" if reason else where
    detail = detail.rstrip()[-DETAIL_MAX:]
    return Ending(cause, fingerprint(unit, code), FINGERPRINT_VERSION, code, detail=detail, policy=policy)


def ending_of_stopped(unit: str, where: str) -> Ending:
    """How a run ended that was ended from outside. Whoever did so knows why; here is where it was."""
    return Ending(Cause.STOPPED, fingerprint(unit, "stopped"), FINGERPRINT_VERSION, detail=where[-DETAIL_MAX:])


def trace(error: BaseException) -> str:
    """The stack trace; of a long one the end, where it says what happened."""
    return "".join(traceback.format_exception(error))[-DETAIL_MAX:]


def _cause(error: BaseException, causes: Causes) -> Cause:
    """The cause of the nearest of its types that has one."""
    for kind in type(error).__mro__:
        if kind in causes:
            return causes[kind]
        if kind in _USUAL:
            return _USUAL[kind]
    return Cause.ERROR


def _name(kind: type[BaseException]) -> str:
    """As tracebacks have it. The program's main module has another name where a process of an agent imported it."""
    unnamed = kind.__module__ in ("builtins", sys.modules["__main__"].__name__)
    return kind.__qualname__ if unnamed else f"{kind.__module__}.{kind.__qualname__}"


def _frames(error: BaseException) -> tuple[str, ...]:
    """Where it was raised, innermost last: file and function, because lines move."""
    found = traceback.extract_tb(error.__traceback__)
    return tuple(f"{frame.filename.rpartition('/')[2]}:{frame.name}" for frame in found)
