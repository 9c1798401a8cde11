"""A program with guarded calls, on a clock that the test moves. Whoever sleeps moves it; nobody waits."""

import asyncio
from collections.abc import Callable
from typing import Any

from flyball.config import Settings, load
from flyball.core.codec import decode_body
from flyball.core.event import Event
from flyball.core.policy import AnyPolicy, Key
from flyball.core.time import span
from flyball.governor import Governor
from flyball.runtimes.calls import Calls
from flyball.store import Store
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock

UNIT = "program"


class Stage:
    """A governor, the calls of a program, and all that was slept."""

    def __init__(self, store: Store | None = None, *policies: AnyPolicy, run: str = "host/1/1") -> None:
        self.clock = FakeClock()
        self.store = store or MemoryStore()
        self.governor = Governor([], self.store, self.clock)
        self.governor.panel.put(UNIT, policies)
        self.settings: Settings = load(env={})
        self.slept: list[float] = []
        self.calls = self.another(run)

    def another(self, run: str) -> Calls:
        """The same program in another process, as far as the governor can tell."""
        return Calls(
            self.governor, UNIT, self.settings, self.put, run=run, sleep=self.sleep, sleep_soon=self.sleep_soon
        )

    def put(self, policy: AnyPolicy) -> None:
        known = self.governor.panel.policies_of(UNIT)
        if policy not in known:
            self.governor.panel.put(UNIT, (*known, policy))

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.move(span(seconds))

    async def sleep_soon(self, seconds: float) -> None:
        self.sleep(seconds)
        await asyncio.sleep(0)

    def events(self, kind: str) -> list[Any]:
        """The events of that kind that were journalled, in order."""
        found: list[Event] = [
            decode_body(entry.body).event for entry in self.store.entries(limit=100_000) if entry.event == kind
        ]
        return found

    def state(self, policy: str, by: str, subject: str) -> bytes | None:
        return self.store.states().get(Key(policy, by, subject))


class Broken(Exception):
    """What is called is down."""


class Fickle:
    """Fails so often as it is told, then works; in every colour."""

    def __init__(self, failures: int = 0, error: Callable[[], BaseException] = Broken) -> None:
        self.failures = failures
        self.error = error
        self.made = 0

    def __call__(self) -> int:
        self.made += 1
        if self.failures:
            self.failures -= 1
            raise self.error()
        return self.made
