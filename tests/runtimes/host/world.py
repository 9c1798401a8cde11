"""Hosts of one fleet in virtual time: one store, the truth about time, and what each host takes for it."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, cast

from flyball.config.plan import HostPlan
from flyball.core.codec import decode_body
from flyball.core.event import Event
from flyball.core.policy import Key
from flyball.core.time import SECOND, Instant, Span
from flyball.errors import StoreError
from flyball.governor import Governor
from flyball.policies import Exclusive
from flyball.runtimes.host.lease import Lease
from flyball.runtimes.host.others import Others
from flyball.store import Clock, Drafter, Entry, Store
from flyball.store.memory import MemoryStore

LEASE: Span = 10 * SECOND
BOOT: Instant = 5_000 * SECOND
"""What the boot clock says at the beginning: something else than the store's."""


async def at_once(work: Callable[..., Any], *args: Any) -> Any:
    """Instead of a thread: in virtual time nothing waits."""
    return work(*args)


class Link:
    """What one host has of the store that all share."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.trouble = ""
        """`away`: it says that it fails; `silent`: it does not answer; `broken`: it has a bug."""
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        if self.trouble:
            raise ZeroDivisionError if self.trouble == "broken" else StoreError("the store is away")
        return getattr(self.store, name)

    def transact_soon(self, keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> "Future[Entry | None]":
        """As the store does it, if it is there."""
        self.writes += 1
        if self.trouble == "broken":
            raise ZeroDivisionError
        if self.trouble == "away":
            failed: Future[Entry | None] = Future()
            failed.set_exception(StoreError("the store is away"))
            return failed
        return Future() if self.trouble else self.store.transact_soon(keys, draft, sync=sync)

    def as_store(self) -> Store:
        """It is one, by the store behind it."""
        return cast("Store", self)


class World:
    """All of them."""

    def __init__(self, clock: Clock, boot: Callable[[], Instant]) -> None:
        self.store = MemoryStore()
        self.clock, self.boot = clock, boot

    def governor(self) -> tuple[Governor, Link]:
        link = Link(self.store)
        return Governor([Exclusive()], link.as_store(), self.clock), link

    def lease(self, holder: str, lease: Span = LEASE, **more: Any) -> tuple[Lease, Link]:
        governor, link = self.governor()
        return Lease(governor, HostPlan(lease=lease), holder, clock_boot=self.boot, aside=at_once, **more), link

    def others(self, holder: str) -> tuple[Others, Link]:
        governor, link = self.governor()
        return Others(governor, holder, clock_boot=self.boot, aside=at_once), link

    def events(self, *kinds: str) -> list[Event]:
        """What the journal has of these kinds."""
        return [decode_body(entry.body).event for entry in self.store.entries(events=kinds)]
