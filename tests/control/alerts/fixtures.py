"""A fleet in simulated time, and channels that remember what they were given."""

import asyncio
from collections.abc import Callable
from typing import Any

from flyball.config import Settings
from flyball.config.alerts import Alerts, Ntfy
from flyball.control.alerts.channel import ChannelError, Message
from flyball.control.alerts.service import AlertService
from flyball.core.event import Cause, Event, Exited, Start
from flyball.core.time import SECOND, Span
from flyball.governor import Governor
from flyball.store import Store
from flyball.store.memory import MemoryStore
from flyball.testing.clock import START_OF_TIME
from flyball.testing.loop import SimulatedLoop


async def inline(work: Callable[[], Any]) -> Any:
    """In the loop itself: time is simulated, so nothing may happen in another thread."""
    return work()


class Remembers:
    """A channel that takes everything, or fails as it is told."""

    def __init__(self, name: str = "phone", *, changes: bool = True) -> None:
        self.name = name
        self.sent: list[tuple[Message, str | None]] = []
        self.at: list[int] = []
        """When each was."""
        self.shown: dict[str, Message] = {}
        """What people see: a message that is changed takes the place of the one before."""
        self.fails: ChannelError | None = None
        self.lasts = 0.0
        self.changes = changes
        self.closed = False
        self.tries = 0

    async def send(self, message: Message, previous: str | None) -> str:
        self.tries += 1
        await asyncio.sleep(self.lasts)
        if self.fails is not None:
            raise self.fails
        self.sent.append((message, previous))
        self.at.append(START_OF_TIME + round(asyncio.get_running_loop().time() * SECOND))
        id_ = previous if previous is not None and self.changes else f"{self.name}-{len(self.sent)}"
        self.shown[id_] = message
        return id_ if self.changes else ""

    async def close(self) -> None:
        self.closed = True

    @property
    def pushed(self) -> list[Message]:
        """Those that made a phone ring."""
        return [message for message, previous in self.sent if previous is None]

    @property
    def titles(self) -> list[str]:
        return [message.title for message, _ in self.sent]


def alerts(*names: str, **more: Any) -> Alerts:
    """Settings with these channels."""
    return Alerts(channels=tuple(Ntfy(name=name, topic="t") for name in names or ("phone",)), **more)


class Site:
    """A governor, a store and the service, all in simulated time."""

    def __init__(
        self, loop: SimulatedLoop, *channels: Remembers, settings: Alerts | None = None, store: Store | None = None
    ) -> None:
        self.loop = loop
        self.channels = channels or (Remembers(),)
        self.settings = settings or alerts(*(channel.name for channel in self.channels))
        self.store = store or MemoryStore()
        self.governor = Governor(Settings().policies(), self.store, loop)
        self._runs = 0
        self._task: asyncio.Task[None] | None = None
        self.begin()

    @property
    def phone(self) -> Remembers:
        return self.channels[0]

    def begin(self) -> None:
        """Start the service, as a daemon does."""
        self.service = AlertService(self.governor, self.settings, self.channels, every=600.0, do=inline)
        self._task = self.loop.create_task(self.service.run())

    async def end(self) -> None:
        """End it in order."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def passes(self, length: Span) -> None:
        """Let so much time pass."""
        await asyncio.sleep(length / SECOND)

    def submit(self, *events: Event) -> None:
        for event in events:
            self.governor.submit(event)
        self.service.poke()

    def fail(self, unit: str, error: str = "Boom", **more: Any) -> None:
        """One failing run."""
        self._runs += 1
        run = f"r{self._runs}"
        self.governor.submit(Start(unit=unit, run=run, holder="h"))
        given = {"cause": Cause.ERROR, "error": error, "fingerprint": f"{abs(hash((unit, error))):016x}"[:16], **more}
        self.submit(Exited(unit=unit, run=run, **given))

    def done(self, unit: str) -> None:
        """One good run."""
        self._runs += 1
        self.governor.submit(Start(unit=unit, run=f"r{self._runs}", holder="h"))
        self.submit(Exited(unit=unit, run=f"r{self._runs}", cause=Cause.DONE))

    def quarantine(self, unit: str, error: str = "Boom") -> None:
        """Fail until it is held: the starts are refused meanwhile, and the exits count."""
        for _ in range(6):
            self.fail(unit, error)
