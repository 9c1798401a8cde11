"""A guard in simulated time, for agents that live for days."""

from collections.abc import Sequence
from typing import Any

from flyball.config import Settings
from flyball.core.codec import decode_body
from flyball.core.decision import Decision
from flyball.core.event import AnyEvent, Event, Exited, Start
from flyball.governor import Governor
from flyball.guard import Guard
from flyball.store.memory import MemoryStore
from flyball.testing.loop import SimulatedLoop


class Scene:
    """One program on one store. `again` is the program run anew, on what the last one left."""

    def __init__(self, store: MemoryStore | None = None, **settings: Any) -> None:
        self.loop = SimulatedLoop()
        self.store = store or MemoryStore()
        self.settings = Settings.model_validate(settings)
        self.governor = Governor(self.settings.policies(), self.store, self.loop)
        self.guard = Guard(self.settings, self.governor, name="program", sleep=self.loop.sleep)

    def run(self, *names: str) -> dict[str, Decision]:
        return self.loop.run(self.guard.supervise(*names))

    def events(self, unit: str, kind: type[Event] = Event) -> Sequence[AnyEvent]:
        bodies = [decode_body(entry.body) for entry in self.store.entries(limit=1_000_000) if entry.unit == unit]
        granted = [body.event for body in bodies if not body.event.asks or body.decision.proceeds]
        return [event for event in granted if isinstance(event, kind)]

    def starts(self, unit: str) -> int:
        """How often it was granted a start."""
        return len(self.events(unit, Start))

    def causes(self, unit: str) -> list[str]:
        """How its runs ended."""
        return [event.cause.value for event in self.events(unit) if isinstance(event, Exited)]
