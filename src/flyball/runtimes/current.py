"""Which run the code at hand belongs to: whatever is called inside a run finds it here, and its steps count there."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final, Protocol

from flyball.runtimes.allowance import RunSteps


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


CURRENT: Final[ContextVar[Running | None]] = ContextVar("flyball_run", default=None)
