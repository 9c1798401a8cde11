"""Orders and answers that others wrote into the store: heard at once by whoever runs units itself, without a daemon.

Whoever gives an order writes it into the journal, and the file of the store changes. That change is what is waited for
(inotify); where the system does not tell of it, the file is looked at now and then.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from flyball.errors import StoreError
from flyball.store import Store

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
        head = self._store.read(()).seq
        entries = self._store.entries(after=self._seen, limit=ENTRIES_MAX, events=self._events)
        full = len(entries) == ENTRIES_MAX
        self._seen = entries[-1].seq if full else max(head, entries[-1].seq if entries else 0)
        if entries:
            self._ring()
        return full

    def _look_at_file(self) -> tuple[int, int]:
        try:
            found = self._file.stat()
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_size)


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
