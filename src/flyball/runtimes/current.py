"""Which run the code at hand belongs to: whatever is called inside a run finds it here, and its steps count there."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final, Protocol, TypeVar

from flyball.runtimes.allowance import OVER, RunSteps
from flyball.runtimes.refusal import refusal


class Running(Protocol):
    """A run of a unit, as seen from inside."""

    @property
    def unit(self) -> str:
        """The name of the unit."""

    @property
    def run(self) -> str:
        """The run's id."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The unit's labels."""

    @property
    def steps(self) -> RunSteps:
        """Its steps."""


R = TypeVar("R", bound=Running)

CURRENT: Final[ContextVar[Running | None]] = ContextVar("flyball_run", default=None)


def running() -> Running | None:
    """The run that the code at hand belongs to; None outside of any. Refused where that run has ended: a task that it
    left behind must not act in its name."""
    run = CURRENT.get()
    return None if run is None else live(run)


def live(run: R) -> R:
    """That run, if it has not ended; else it is Refused."""
    if run.steps.over:
        raise refusal(OVER, 0, f"{run.unit} may not go on")
    return run
