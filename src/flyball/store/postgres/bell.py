"""The bell: a connection of its own that hears when anybody in the fleet has committed. It says no more than that: who
is woken reads the journal."""

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from flyball.errors import FlyballError
from flyball.store.postgres.link import Link
from flyball.store.postgres.trouble import Lost, Refused

log = logging.getLogger(__name__)

CHECK_EVERY: Final = 5.0
"""Seconds without a word after which the server is asked whether it is there: a cut link says nothing by itself."""

PAUSE_MIN: Final = 0.1
PAUSE_MAX: Final = 2.0
"""Seconds between attempts to connect again: twice as long each time."""


class Bell:
    """Calls `ring`, in a thread of its own, after commits that people or hosts may wait for; and when a connection that
    was lost is back, since something may have been missed."""

    def __init__(self, dsn: str, ring: Callable[[], None], place: str) -> None:
        self._dsn = dsn
        self._ring = ring
        self._place = place
        self._ended = threading.Event()
        self._here, self._there = socket.socketpair()
        """A word to the second is heard by the thread where it waits for the server."""
        self._thread = threading.Thread(target=self._run, name=f"flyball-bell {place}", daemon=True)
        self._link: Link | None = self._listen()
        self._thread.start()

    def end(self) -> None:
        """Ring no more. The thread ends soon; nobody waits for it here."""
        self._ended.set()
        with suppress(OSError):  # it has ended already
            self._here.send(b"\0")

    def join(self) -> None:
        """Wait for the end of the thread."""
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _listen(self) -> Link:
        link = Link(self._dsn)
        try:
            link.run("LISTEN flyball")
        except BaseException:
            link.close()
            raise
        return link

    def _run(self) -> None:
        pause = PAUSE_MIN
        while not self._ended.is_set():
            try:
                if self._link is None:
                    self._link = self._listen()
                    log.info("%s: connected again", self._place)
                    self._call()
                self._hear(self._link)
                pause = PAUSE_MIN
            except (Lost, Refused, FlyballError) as error:
                if self._link is not None:
                    log.warning("%s: nothing is heard from it (%s); trying again", self._place, error)
                    self._link.close()
                    self._link = None
                self._ended.wait(pause)
                pause = min(pause * 2, PAUSE_MAX)
        if self._link is not None:
            self._link.close()
        self._here.close()
        self._there.close()

    def _hear(self, link: Link) -> None:
        """Until the bell is not wanted any more, or the link breaks."""
        while not self._ended.is_set():
            if link.notices(CHECK_EVERY, self._there.fileno()):
                self._call()
            elif not self._ended.is_set():
                link.run("SELECT 1")

    def _call(self) -> None:
        try:
            self._ring()
        except Exception:
            log.exception("whoever was to be woken failed")
