"""A program with sessions, on a clock that moves when something waits."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from flyball.config import Settings
from flyball.core.codec import decode_body, decode_state
from flyball.core.event import AnyEvent, Event, Exited, Resume, Start
from flyball.core.policy import Key
from flyball.core.time import SECOND, Instant
from flyball.governor import Governor
from flyball.guard import Guard
from flyball.policies.limit import State as Count
from flyball.runtimes.session.context import SessionContext
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock

NAME = "work"

Function = Callable[[SessionContext], Any]


class Scene:
    """One program on one store. `again` is the program run anew, on what the last one left."""

    def __init__(self, store: MemoryStore | None = None, clock: FakeClock | None = None, **settings: Any) -> None:
        self.store = store or MemoryStore()
        self.clock = clock or FakeClock()
        self.settings = Settings.model_validate(settings)
        self.governor = Governor(self.settings.policies(), self.store, self.clock)
        self.guard = Guard(self.settings, self.governor, name="program", sleep=self.sleep)
        self.slept: list[float] = []

    def again(self) -> "Scene":
        return Scene(self.store, self.clock)

    async def sleep(self, poked: asyncio.Event, until: Instant) -> None:
        self.slept.append((until - self.clock.now()) / SECOND)
        self.clock.set(max(self.clock.now(), until))

    def events(self, kind: type[Event] = Event, unit: str = NAME) -> Sequence[AnyEvent]:
        """What was granted or happened."""
        bodies = [decode_body(entry.body) for entry in self.store.entries(limit=1_000_000) if entry.unit == unit]
        granted = [body.event for body in bodies if not body.event.asks or body.decision.proceeds]
        return [event for event in granted if isinstance(event, kind)]

    def exits(self, unit: str = NAME) -> list[str]:
        """How its runs ended."""
        return [event.pause or event.cause.value for event in self.events(Exited, unit) if isinstance(event, Exited)]

    def starts(self, unit: str = NAME) -> list[str]:
        """How its runs began."""
        return ["resume" if isinstance(event, Resume) else "start" for event in self.events(Start, unit)]

    def count(self, policy: str, unit: str = NAME) -> int:
        """What a limit has counted."""
        key = Key(policy, "unit", unit)
        data = self.store.read([key]).records.get(key)
        return decode_state(Count, data).count if data is not None else 0

    def known(self) -> dict[Key, bytes]:
        """All that is stored, but for refusals, which are noted so that they are told once."""
        return {key: data for key, data in self.store.states().items() if key.policy != "refused"}


def awaited(function: Callable[..., Any]) -> Callable[[SessionContext], Awaitable[Any]]:
    """A plain function as a coroutine: its stages are entered by `with` there too."""

    async def coroutine(session: SessionContext) -> Any:
        return function(session)

    return coroutine


def either(kind: str, function: Function) -> Function:
    """The function as a plain one, or as a coroutine."""
    return function if kind == "thread" else awaited(function)
