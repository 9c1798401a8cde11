"""One run of a process, from its first instruction to the proof that nothing of it is left.

A run is over when its own process has ended and been reaped, its process group is empty, and no process that came from
it is left, wherever it went. What is left when its own process has ended is told to stop, and killed after a grace.
Only then does `ended` return: a successor never meets its predecessor's remains.
"""

import asyncio
import contextlib
import logging
import signal as signals
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final

from flyball.config.units import Unit
from flyball.core.time import SECOND, Span
from flyball.runtimes import holder
from flyball.runtimes.driver import Ending
from flyball.runtimes.process import failure, kernel, tree
from flyball.runtimes.process.household import HOUSEHOLD
from flyball.runtimes.process.kernel import UNKNOWN, Kernel
from flyball.runtimes.process.output import Listener, Output
from flyball.runtimes.process.tree import Kin, Orphan
from flyball.runtimes.process.watch import Watch, watch_child, watch_stranger

log = logging.getLogger(__name__)

LEFTOVERS_GRACE: Final[Span] = 2 * SECOND
"""What a process leaves behind when it ends by itself has this long, or the unit's grace if that is shorter."""
LOOK_FIRST: Final = 0.001
LOOK_MAX: Final = 0.1
"""Seconds between looks at processes that are about to be gone: there is no event for the end of somebody else's
child. Doubled from the first to the last."""
COMPLAIN_AFTER: Final = 5.0
"""Seconds after SIGKILL, which takes milliseconds, until somebody is told that it did not help."""
NOBODY: Final[AbstractSet[Kin]] = frozenset()
"""One for all: each empty set by itself has room for eight."""


class ProcessLife:
    """One run that was begun. `pid` is 0 if there never was a process."""

    __slots__ = (
        "_adopted",
        "_awaited",
        "_complaint",
        "_ending",
        "_kill_at",
        "_kin",
        "_loop",
        "_means",
        "_news",
        "_output",
        "_started",
        "_status",
        "_task",
        "_told",
        "_unit",
        "_watch",
        "pid",
        "run",
    )

    def __init__(self, unit: Unit, run: str, pid: int, output: Output | None, means: Kernel) -> None:
        self.pid, self.run = pid, run
        self._unit, self._output, self._means = unit, output, means
        self._loop = asyncio.get_running_loop()
        self._started = 0
        self._adopted = False
        self._watch: Watch | None = None
        self._awaited: tuple[asyncio.Future[Ending], ...] = ()
        """Whoever waits for its end."""
        self._ending: Ending | None = None
        self._status: kernel.Status | None = None
        self._told = False
        """Somebody called `end` while it lived."""
        self._task: asyncio.Task[None] | None = None
        """Ends what has to be ended, step by step."""
        self._news: asyncio.Event | None = None
        """Wakes that task: the process has ended, or the time to kill it came nearer."""
        self._kill_at = 0.0
        self._complaint: asyncio.TimerHandle | None = None
        self._kin: AbstractSet[Kin] = NOBODY
        """Processes of the run that were seen outside its group."""

    @classmethod
    def unborn(cls, unit: Unit, run: str, ending: Ending, means: Kernel) -> "ProcessLife":
        """A run that ended before it began."""
        life = cls(unit, run, 0, None, means)
        life._ending = ending
        return life

    def watch(self) -> None:
        """It is a child of ours, and just began."""
        self._watch = watch_child(self.pid, self._exited, self._means)
        if self._means.subreaper:
            HOUSEHOLD.add(self)

    def adopt(self, started: int) -> bool:
        """It is not a child of ours, and began long ago. False if it is not there any more."""
        self._started, self._adopted = started, True
        self._watch = watch_stranger(Kin(self.pid, started), self._exited, self._means)
        if self._watch is None:
            return False
        HOUSEHOLD.add(self)
        return True

    # What others may know of it.

    @property
    def started(self) -> int:
        """When it started, as the kernel counts. With its pid, this is no other process. 0 if it is not known."""
        if not self._started and self.pid and self._status is None:
            if self._means.proc:
                stat = kernel.stat(self.pid)
                self._started = stat.started if stat is not None else 0
            else:
                self._started = holder.start_of(self.pid) or 0
        return self._started

    @property
    def mark(self) -> tuple[str, str]:
        """Its unit and its run."""
        return self._unit.name, self.run

    @property
    def ending(self) -> Ending | None:
        """How it ended; None while it is not over."""
        return self._ending

    @property
    def on_output(self) -> Listener | None:
        """Called with what it prints, as it comes."""
        return self._output.listener if self._output is not None else None

    @on_output.setter
    def on_output(self, listener: Listener | None) -> None:
        if self._output is not None:
            self._output.listener = listener

    @property
    def is_held_up(self) -> bool:
        """It has to wait with its output, because who reads it does not."""
        return self._output is not None and self._output.is_held_up()

    def held_up_by(self, reader: Callable[[], bool]) -> None:
        """Its output goes to somebody who says so whether that one holds it up."""
        if self._output is not None:
            self._output.is_held_up = reader

    def hear(self, data: bytes) -> None:
        """It printed this on the terminal that it was given."""
        if self._output is not None:
            self._output.hear(data)

    def tail(self) -> str:
        """Its last lines."""
        return self._output.tail() if self._output is not None else ""

    def signal(self, number: int) -> None:
        """Send a signal to its own process, not to what that started. Nothing happens when it is over."""
        if self.pid and self._status is None:
            tree.send(Kin(self.pid, self.started), number, self._means)

    # Life.

    def ended(self) -> "asyncio.Future[Ending]":
        """Done when it is over. Not a coroutine, because that would need a task for each life."""
        over: asyncio.Future[Ending] = self._loop.create_future()
        if self._ending is not None:
            over.set_result(self._ending)
        else:
            self._awaited = (*(other for other in self._awaited if not other.done()), over)
        return over

    async def end(self, grace: Span) -> None:
        """Make it end: the stop signal to all of it, the grace, then by force. A second call may shorten the grace."""
        kill_at = self._loop.time() + grace / SECOND
        if self._ending is None and self._task is None:
            self._kill_at = kill_at
            self._task = self._loop.create_task(self._end())
        elif kill_at < self._kill_at:
            self._kill_at = kill_at
            if self._news is not None:
                self._news.set()
        await self.ended()

    def _exited(self) -> None:
        """Its own process has ended: the usual case is that nothing of it is left."""
        assert self._watch is not None  # noqa: S101 - it is the watch that calls
        if self._task is None and not self._adopted:
            # Before it is reaped, because its number is the group's: until then nobody else can have it.
            tree.send_to_group(self.pid, self._unit.stop_signal)
        self._status = self._watch.reap()
        HOUSEHOLD.remove(self)
        if self._task is not None:
            if self._news is not None:
                self._news.set()
        elif self._means.subreaper and not self._adopted:
            HOUSEHOLD.ask_soon(self, self._judge)
        else:
            self._judge(None)

    def _judge(self, orphans: list[Orphan] | None) -> None:
        """Whether anything is left of a run that ended by itself."""
        if self._task is not None or self._ending is not None:
            return
        left = bool(orphans) if orphans is not None else bool(self._leftovers())
        if left or tree.group_lives(self.pid, self._means):
            self._kill_at = self._loop.time() + min(self._unit.grace, LEFTOVERS_GRACE) / SECOND
            self._task = self._loop.create_task(self._end())
        else:
            self._finish()

    def _finish(self) -> None:
        if self._output is not None:
            self._output.finish()
        name, tail, secrets = self._unit.name, self.tail, self._unit.env.values()
        status = self._status or UNKNOWN
        if self._told:
            self._ending = failure.ending_of_told(name, status, tail(), secrets=secrets)
        else:
            last = "" if status.code == 0 else tail()
            self._ending = failure.ending_of(name, status, last, pid=self.pid, secrets=secrets)
        awaited, self._awaited = self._awaited, ()
        for over in awaited:
            if not over.done():
                over.set_result(self._ending)

    # Ending.

    async def _end(self) -> None:
        """Ask, wait, kill, prove."""
        self._news = asyncio.Event()
        if self._status is None:
            self._told = True
            self._kin = {*self._kin, *tree.walk(self.pid, self._means)}
            self._send(self._unit.stop_signal)
            self._send(signals.SIGCONT)  # what is stopped hears nothing
            while self._status is None and self._loop.time() < self._kill_at:
                await self._wait_news(self._kill_at)
            if self._status is None:
                self._kin = {*self._kin, *tree.walk(self.pid, self._means)}
                self._kill()
            while self._status is None:
                await self._wait_news(None)
        await self._clear()
        if self._complaint is not None:
            self._complaint.cancel()
        self._finish()

    async def _clear(self) -> None:
        """Its own process is gone; return when the rest of it is."""
        seen, pause = set(self._kin), LOOK_FIRST
        while True:
            left = self._leftovers()
            if not left and not tree.group_lives(self.pid, self._means):
                break
            if self._loop.time() >= self._kill_at:
                self._kin = left
                self._kill()
            else:
                for kin in left - seen:
                    tree.send_to_all(kin, self._unit.stop_signal, self._means)
            seen |= left
            await self._wait_news(self._loop.time() + pause)
            pause = min(2 * pause, LOOK_MAX)
        for kin in seen:
            tree.reap(kin, self._means)

    def _leftovers(self) -> set[Kin]:
        """The processes of the run besides its own that were alive when they were looked at. Who ended since may have
        left others: only a look that finds nobody is the proof."""
        known = {kin for kin in self._kin if tree.is_alive(kin, self._means)}
        if self._means.subreaper and not self._adopted:
            roots = [orphan.kin for orphan in HOUSEHOLD.orphans_of(self)]
            return known.union(roots, *(tree.walk(root.pid, self._means) for root in roots))
        return known.union(tree.search(self)) if self._means.proc else known

    def _send(self, number: int) -> None:
        """To the group, and to what has left it."""
        tree.send_to_group(self.pid, number)
        for kin in self._kin:
            if not self._is_inside(kin):
                tree.send_to_all(kin, number, self._means)

    def _kill(self) -> None:
        self._send(signals.SIGKILL)
        if self._complaint is None:
            self._complaint = self._loop.call_later(COMPLAIN_AFTER, self._complain)

    def _complain(self) -> None:
        """It hangs in the kernel, or we have no right to kill it. Nothing can be done, and nothing is claimed."""
        left = sorted(kin.pid for kin in self._leftovers() | self._kin) or [self.pid]
        log.error("%s: still there after SIGKILL, and waited for: %s", self._unit.name, ", ".join(map(str, left)))

    def _is_inside(self, kin: Kin) -> bool:
        """It is in the group, and had the signal."""
        stat = kernel.stat(kin.pid) if self._means.proc else None
        return stat is not None and stat.group == self.pid

    async def _wait_news(self, until: float | None) -> None:
        assert self._news is not None  # noqa: S101 - made before
        self._news.clear()
        seconds = None if until is None else max(0.0, until - self._loop.time())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)
