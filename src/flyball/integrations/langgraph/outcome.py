"""What a run of a graph came to: its values, which layer ended it, and why.

`Report` is what the run itself knows, and crosses from a process of its own; `Outcome` is what the caller is given.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from flyball.core.decision import PROCEED, Decision, Reason
from flyball.policies.budget import OVER_BUDGET
from flyball.runtimes.driver import OVERDUE

COMPLETED: Final = "completed"
PAUSED: Final = "paused"
TIMED_OUT: Final = "timed_out"
BUDGET_EXCEEDED: Final = "budget_exceeded"
STOPPED: Final = "stopped"
FAILED: Final = "failed"

_LAYERS: Final[Mapping[str, int]] = {"steps": 1, "rounds": 3, "convergence": 3, "deadline": 4, "idle": 4, "budget": 5}
"""By the policy, not by the code as for people: a limit that somebody put on a whole tree has the code of the graph's
own, and is none of its layers. Layer 2 is preflight: it fires before there is a run."""


@dataclass(slots=True)
class Report:
    """What a run of a graph says of itself. It can be pickled if the values can."""

    values: Any = None
    """The last values that there were; None where none are known."""
    verdict: Decision = PROCEED
    """What ended it, if it was told to end."""
    interrupted: bool = False
    """It waits for a person (LangGraph's interrupts)."""
    progress: bool = False
    """It made at least one step whose result was kept."""
    steps: int = 0
    """Supersteps that it made."""


class Outcome(dict[str, Any]):
    """The values of a graph, and why it stopped."""

    stop_reason: str | None = None
    """The code of the reason that ended it; None: it came to its own end."""
    layer: int | None = None
    """Which of the five layers ended it; None: none of them."""
    status: str = COMPLETED
    """`completed`, `paused`, `timed_out`, `budget_exceeded`, `stopped` or `failed`."""
    reasons: tuple[Reason, ...] = ()
    """All reasons, where there were several."""
    spent: Decimal = Decimal(0)
    """What the whole piece of work has cost so far."""


def layer_of(decision: Decision) -> int | None:
    """Which layer a decision is of: that of its primary reason."""
    reason = decision.primary
    return _layer(reason) if reason is not None else None


def layers_of(decision: Decision) -> list[int]:
    """All layers that object."""
    return sorted({layer for reason in decision.reasons if (layer := _layer(reason)) is not None})


def status_of(report: Report, error: BaseException | None) -> str:
    """In one word how the run ended."""
    reason = report.verdict.primary
    if reason is not None:
        if reason.code in OVERDUE:
            return TIMED_OUT
        if reason.code == OVER_BUDGET:
            return BUDGET_EXCEEDED
        return STOPPED if error is not None else COMPLETED
    if error is not None:
        return FAILED if isinstance(error, Exception) else STOPPED
    return PAUSED if report.interrupted else COMPLETED


def _layer(reason: Reason) -> int | None:
    return _LAYERS.get("budget" if reason.policy.startswith("budget") else reason.policy)
