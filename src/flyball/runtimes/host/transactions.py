"""Transactions on the records of hosts, from within a loop: what is written depends on what is found there, and on the
store's time. Nothing here waits for a thread."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from flyball.core.codec import encode_body
from flyball.core.decision import PROCEED
from flyball.core.event import Event
from flyball.core.host import HostRecord, decode
from flyball.core.policy import Key
from flyball.core.time import Instant
from flyball.governor import Governor, Rows
from flyball.runtimes.bridge import bring
from flyball.store import Draft, Line, Snapshot

Aside = Callable[..., Coroutine[Any, Any, Any]]
"""How a call that takes long, or waits for the store, is kept from the loop, as `asyncio.to_thread` does it."""
Records = Mapping[Key, bytes]
Change = Callable[[Records, Instant], Rows | None]
"""What becomes of the records at that instant. None: nothing, and nothing is reported."""


async def transact(governor: Governor, keys: Sequence[Key], change: Change, fact: Event | None = None) -> bool:
    """Change the records, with a line in the journal if there is a fact to report (which no policy hears). Whether that
    was done."""
    done = False

    def draft(snapshot: Snapshot) -> Draft | None:
        nonlocal done
        now = governor.clock.now()
        if now < snapshot.at:
            now = governor.clock.catch_up(snapshot.at)
        rows = change(snapshot.records, now)
        done = rows is not None
        if rows is None:
            return None
        if fact is None:
            return Draft(now, rows, None)
        kind = type(fact).__name__.lower()
        return Draft(now, rows, Line(fact.unit, kind, "proceed", encode_body(fact, PROCEED)))

    await bring(governor.store.transact_soon(keys, draft, sync=fact is not None))
    return done


async def look(governor: Governor, keys: Sequence[Key]) -> tuple[Records, Instant]:
    """What is there, and the store's time."""
    found: tuple[Records, Instant] = ({}, 0)

    def seen(records: Records, now: Instant) -> None:
        nonlocal found
        found = (records, now)

    await transact(governor, keys, seen)
    return found


def readable(data: bytes | None) -> HostRecord | None:
    """The record of a host; None: there is none, or it cannot be read."""
    if data is None:
        return None
    try:
        return decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
