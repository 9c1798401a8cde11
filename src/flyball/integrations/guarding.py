"""What adapters of frameworks need of a guard: no more than this, so that none of them imports the guard itself."""

from collections.abc import Callable
from typing import Protocol

from flyball.config import Settings
from flyball.config.units import Unit
from flyball.core.decision import Decision
from flyball.core.event import Event
from flyball.core.policy import AnyPolicy
from flyball.governor import Governor


class Guarding(Protocol):
    """What is needed of a guard (`flyball.open()`)."""

    @property
    def settings(self) -> Settings:
        """The settings."""

    @property
    def governor(self) -> Governor:
        """Who decides."""

    def define_work(self, unit: Unit, *own: AnyPolicy) -> Callable[[str, Event, Decision], None]:
        """Put a piece of work under the guard."""
