"""The runs that this process looks after, and the orphans that come to it because it is a sub-reaper.

One for the whole process, because orphans come to the process, not to a run. Runs that end together are looked after
together: one look at our children serves them all.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Final

from flyball.runtimes.process import tree
from flyball.runtimes.process.tree import Kin, Member, Orphan

TIDY_EVERY: Final = 60.0
"""Seconds between looks for orphans of living units that have ended. They cost nothing but their number until then."""

Judge = Callable[[list[Orphan]], None]


class Household:
    """Who lives here."""

    def __init__(self) -> None:
        self._lives: dict[bytes, Member] = {}
        """By pid, as /proc writes it."""
        self._dead: set[Kin] = set()
        """Who had ended at the last look and may be somebody else's to reap."""
        self._asked: list[tuple[Member, Judge]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, life: Member) -> None:
        """A run began."""
        self._lives[b"%d" % life.pid] = life
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._asked = loop, []
            loop.call_later(TIDY_EVERY, self._tidy, loop)

    def remove(self, life: Member) -> None:
        """A run's own process has ended and was reaped."""
        self._lives.pop(b"%d" % life.pid, None)

    def ask_soon(self, life: Member, judge: Judge) -> None:
        """What did this run leave, which is over? `judge` is given its living orphans."""
        self._asked.append((life, judge))
        if len(self._asked) == 1:
            asyncio.get_running_loop().call_soon(self._sweep)

    def orphans_of(self, life: Member) -> list[Orphan]:
        """The living orphans of a run that is over."""
        return [orphan for orphan in self._orphans() if tree.claims(orphan, life, self._lives.values())]

    def _sweep(self) -> None:
        asked, self._asked = self._asked, []
        found = self._orphans()
        others = self._lives.values()
        for life, judge in asked:
            judge([orphan for orphan in found if tree.claims(orphan, life, others)])

    def _orphans(self) -> list[Orphan]:
        """Those that live; the others are reaped, unless whoever started them may yet want to do so. Who has ended has
        left us what it had started: so we look again until nobody new has."""
        ended: set[Kin] = set()
        while True:
            found = tree.orphans(self._lives.keys())
            dead = {orphan.kin for orphan in found if orphan.stat.dead}
            for orphan in found:
                if orphan.stat.dead and not orphan.leads:
                    _reap(orphan.pid)
            if dead <= ended:
                return [orphan for orphan in found if not orphan.stat.dead]
            ended |= dead

    def _tidy(self, loop: asyncio.AbstractEventLoop) -> None:
        """What had ended long ago is nobody's."""
        if self._loop is not loop:
            return
        dead = {orphan.kin for orphan in tree.orphans(self._lives.keys()) if orphan.stat.dead}
        for kin in dead & self._dead:
            _reap(kin.pid)
        self._dead = dead
        if self._lives:
            loop.call_later(TIDY_EVERY, self._tidy, loop)
        else:
            self._loop = None


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


HOUSEHOLD: Final = Household()
