"""Orders and answers that others wrote into the store: heard at once by whoever runs units itself, without a daemon.

Whoever gives an order writes it into the journal, and the file of the store changes. That change is what is waited for
(inotify); where the system does not tell of it, the file is looked at now and then. A store that many hosts share has
no such file, and tells by itself.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from flyball.errors import StoreClosed, StoreError
from flyball.store import Entry, SharedStore, Store

log = logging.getLogger(__name__)

ORDERS: Final = ("held", "released", "answered")
SETTLES: Final = 0.02
"""Seconds between a change and the look at what it was: many changes at once are one look."""
LOOKS_MAX: Final = 7
"""Looks after a change, each after twice the time. The file is written first, then the disk is waited for, and only
then can the others read it: of that moment nobody tells. After 2.5 s even a slow disk has it."""
LOOK_EVERY: Final = 1.0
"""Seconds between looks where the system does not tell."""
ENTRIES_MAX: Final = 1_000
"""Orders read at a look. What is beyond them is read at the next."""

IN_MODIFY: Final = 0x2
CHUNK: Final = 65_536


class Bell(Protocol):
    """What rings, until it is closed."""

    def close(self) -> None:
        """Listen no more."""
        ...


def doorbell(store: Store, file: Path | None, ring: Callable[[], None], events: Sequence[str] = ORDERS) -> Bell:
    """Ring, in the running loop, when somebody gave an order or an answer, or for other kinds of events. `file` is the
    one that every commit changes, where there is such a file."""
    if isinstance(store, SharedStore):
        return SharedBell(store, lambda _: ring(), events)
    assert file is not None  # noqa: S101 - a store of one machine is a file
    return Doorbell(store, file, ring, events)


class SharedBell:
    """Hands over what others and we wrote into a store that many hosts share. It is read in another thread: a store out
    of reach must not keep the loop waiting. `heard` is called in the loop; the first time with nothing, for what was
    written until then may have been missed."""

    def __init__(
        self, store: SharedStore, heard: Callable[[Sequence[Entry]], None], events: Sequence[str] = ORDERS
    ) -> None:
        self._store, self._heard, self._events = store, heard, events
        self._loop = asyncio.get_running_loop()
        self._seen = -1
        """Not known yet: what was there before is no news."""
        self._rung = asyncio.Event()
        self._rung.set()
        self._unlisten = store.listen(self._told)
        self._task = self._loop.create_task(self._listen())

    def close(self) -> None:
        self._unlisten()
        self._task.cancel()

    def _told(self) -> None:
        """In the store's thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens
            self._loop.call_soon_threadsafe(self._rung.set)

    async def _listen(self) -> None:
        while True:
            # Steps and signs of life are told of to nobody: who wants to hear of everything looks now and then.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._rung.wait(), None if self._events else LOOK_EVERY)
            self._rung.clear()
            begins = self._seen < 0
            try:
                entries, full = await asyncio.to_thread(self._look)
            except StoreClosed:
                return
            except StoreError as error:  # it may pass, and then the store rings
                log.warning("orders cannot be looked for: %s", error)
                continue
            if full:
                self._rung.set()
            if entries or begins:
                self._heard(entries)

    def _look(self) -> tuple[Sequence[Entry], bool]:
        """What is new, and whether there may be more of it."""
        if self._seen < 0:
            self._seen = self._store.read(()).seq
            return (), False
        entries, self._seen = _unheard(self._store, self._seen, self._events)
        return entries, len(entries) == ENTRIES_MAX


class Doorbell:
    """Rings when somebody gave an order or an answer, or for other kinds of events. `file` is the one that every commit
    changes."""

    def __init__(self, store: Store, file: Path, ring: Callable[[], None], events: Sequence[str] = ORDERS) -> None:
        self._store, self._file, self._ring, self._events = store, file, ring, events
        self._loop = asyncio.get_running_loop()
        self._seen = store.read(()).seq
        self._timer: asyncio.TimerHandle | None = None
        self._looks = 0
        self._watch = _watched(file)
        self._stamp = self._look_at_file()
        if self._watch is None:
            self._timer = self._loop.call_later(LOOK_EVERY, self._look_again)
        else:
            self._loop.add_reader(self._watch, self._changed)

    def close(self) -> None:
        """Listen no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._loop.remove_reader(self._watch)
            os.close(self._watch)
            self._watch = None

    def _changed(self) -> None:
        assert self._watch is not None  # noqa: S101 - it is what called
        with contextlib.suppress(BlockingIOError):
            os.read(self._watch, CHUNK)
        self._looks = 0
        soon = self._loop.time() + SETTLES
        if self._timer is not None and self._timer.when() > soon:  # a late look at an earlier change
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(soon, self._look)

    def _look_again(self) -> None:
        stamp = self._look_at_file()
        if stamp != self._stamp:
            self._stamp = stamp
            self._look()
        self._timer = self._loop.call_later(LOOK_EVERY, self._look_again)

    def _look(self) -> None:
        try:
            full = self._heard()
        except StoreError as error:  # it may pass: the next change, or the next look, tries again
            log.warning("orders cannot be looked for: %s", error)
            full = False
        self._looks = 0 if full else self._looks + 1
        more = self._watch is not None and self._looks < LOOKS_MAX
        self._timer = self._loop.call_later(SETTLES * 2**self._looks, self._look) if more else None

    def _heard(self) -> bool:
        """Ring if there are orders that were not heard yet. Whether there may be more of them."""
        entries, self._seen = _unheard(self._store, self._seen, self._events)
        if entries:
            self._ring()
        return len(entries) == ENTRIES_MAX

    def _look_at_file(self) -> tuple[int, int]:
        try:
            found = self._file.stat()
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_size)


def _unheard(store: Store, seen: int, events: Sequence[str]) -> tuple[Sequence[Entry], int]:
    """Entries of these kinds after the one that was seen last; and which that is now."""
    head = store.read(()).seq
    entries = store.entries(after=seen, limit=ENTRIES_MAX, events=events) if head > seen else ()
    last = entries[-1].seq if entries else seen
    return entries, last if len(entries) == ENTRIES_MAX else max(head, last)


def _watched(file: Path) -> int | None:
    """A descriptor that is readable when the file was changed; None if the system has no such thing."""
    if not sys.platform.startswith("linux"):
        return None
    system = ctypes.CDLL(None, use_errno=True)
    descriptor: int = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:  # too many of them, or a sandbox
        return None
    if system.inotify_add_watch(descriptor, os.fsencode(file), IN_MODIFY) < 0:
        os.close(descriptor)
        return None
    return descriptor
