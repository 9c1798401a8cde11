"""Is this life still alive? By what its unit says: a watchdog, probes, and being ready in time.

Nothing polls: a timer looks when it fires whether it was put off meanwhile, so a sign of life costs an assignment; the
timers of many lives fire together; and a unit without these settings has none at all. What hangs becomes a decision in
`hung`, after the stacks of a Python child were asked for; whoever drives the life ends it then. Silence is not judged
here: signs of life are beats for the governor, so many in each `idle` and no more, and its idle deadline says how long
is too long.
"""

import asyncio
import contextlib
import math
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from flyball.config.units import Probe, Unit
from flyball.core.decision import Decision, Reason, stop
from flyball.core.failure import digest
from flyball.core.time import HOUR, SECOND, Span, format_span, seconds
from flyball.runtimes import probe as probes
from flyball.runtimes.flag import Flag
from flyball.runtimes.holder import start_of
from flyball.runtimes.notify import Message

READY_MAX: Final[Span] = 90 * SECOND
"""How long a unit that says when it is ready has for it. systemd gives as much."""
EXTENDED_MAX: Final[Span] = HOUR
"""The longest that one EXTEND_TIMEOUT_USEC can ask for. It may be said again."""
BEATS_PER_IDLE: Final = 4
"""Beats for the governor in each `idle`. Each is a commit; silence is noticed a quarter of `idle` late, never early."""
TOGETHER: Final = 16
"""A timer may fire later by one part in so many, so that those of many lives fire in one wake of the process. Waking is
what costs: a thousand watchdogs of 10 s wake it 1.6 times a second instead of a hundred times."""
DUMP_MAX: Final = 3.0
"""Seconds to wait for stacks that were asked for. They are written by a signal handler: at once, or not at all."""
DUMP_SETTLES: Final = 0.3
"""Seconds without further output after which a dump is complete."""
STATUS_MAX: Final = 500
"""Characters of what a unit says about itself."""

DUMP_SIGNAL: Final = signal.SIGUSR2

WATCHDOG: Final = "watchdog_timeout"
NOT_READY: Final = "not_ready"
PROBE: Final = "probe_failed"
STUCK: Final = "stuck_stopping"
HUNG_CODES: Final = frozenset({WATCHDOG, NOT_READY, PROBE, STUCK})
"""The codes of decisions in `hung`. A life that is ended for one of them exits with the cause `timeout`."""

_REMEDY: Final = "Look at where it hangs: its last output has the stacks of a Python child that enabled dumps."

Check = Callable[[Probe, Unit], Awaitable[str]]


def _ignore() -> None:
    pass


def _never() -> bool:
    return False


class Liveness:
    """Watches one life. Made and used inside the event loop."""

    def __init__(
        self,
        unit: Unit,
        *,
        beat: Callable[[], None] = _ignore,
        ready_max: Span = READY_MAX,
        check: Check = probes.check,
    ) -> None:
        self._unit = unit
        self._beat = beat
        self._ready_max = ready_max
        self._check = check
        self._loop = asyncio.get_running_loop()
        self.hung: asyncio.Future[Decision] = self._loop.create_future()
        """Done when it hangs: the decision to stop it."""
        self.ready = Flag()
        """It counts as up, by what its unit says."""
        self.status = ""
        """What it last said about itself."""
        self._pid = 0
        self._closed = False
        self._dumps: tuple[int, int | None] | None = None
        self._deadline = _Alarm(self._loop, _ignore, 0)
        self._watchdog = _Alarm(self._loop, self._watchdog_rang, unit.watchdog)
        self._said = 0.0
        self._beats: _Beats | None = None
        self._probing: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._output = Flag()

    @property
    def env(self) -> Mapping[str, str]:
        """What the life's processes have to know."""
        env = {"FLYBALL_DUMP_SIGNAL": str(int(DUMP_SIGNAL))}
        if self._unit.watchdog:
            env["WATCHDOG_USEC"] = str(self._unit.watchdog)
        return env

    def begin(self, pid: int, *, up: bool = False, held_up: Callable[[], bool] = _never) -> None:
        """The life has begun as that process; `up`: long ago, and it was up then (it outlived its supervisor).
        `held_up` says whether it has to wait with its output: who cannot speak is not silent."""
        self._pid = pid
        unit = self._unit
        if unit.idle:
            file = Path(unit.cwd) / unit.beat_file if unit.beat_file else None
            self._beats = _Beats(self._loop, self._beat, seconds(unit.idle) / BEATS_PER_IDLE, file, held_up)
        if up or unit.ready == "started":
            self._is_up()
        else:
            self._deadline = _Alarm(self._loop, self._not_ready, self._ready_max)
            self._deadline.start()
            if unit.ready == "probe":
                self._start_probing()

    def close(self) -> None:
        """The life is over, or is being ended: nothing more is judged."""
        self._closed = True
        self._deadline.cancel()
        self._watchdog.cancel()
        if self._beats is not None:
            self._beats.cancel()
            self._beats = None
        for task in (self._probing, self._telling):
            if task is not None:
                task.cancel()

    def printed(self) -> None:
        """It wrote some output."""
        self._output.set()
        self.heard()

    def heard(self) -> None:
        """It gave a sign of life."""
        if self._beats is not None:
            self._beats.sign()

    def hear(self, message: Message) -> None:
        """It said something on its notify socket."""
        if self._closed:
            return
        self.heard()
        for key, value in message.pairs:
            match key, value:
                case "READY", "1":
                    self._said_ready()
                case "WATCHDOG", "1":
                    self._fed()
                case "WATCHDOG", "trigger":
                    self._hang(WATCHDOG, "it said itself that it hangs (WATCHDOG=trigger)")
                case "STOPPING", "1":
                    self._stopping()
                case "EXTEND_TIMEOUT_USEC", number:
                    self._extend(number)
                case (("STATUS" | "X_FLYBALL_PROGRESS"), text):
                    self.status = text[:STATUS_MAX]
                case "X_FLYBALL_DUMP", "1":
                    pid = message.pid or self._pid
                    self._dumps = pid, start_of(pid)

    @property
    def can_dump(self) -> bool:
        """It is a Python child that agreed to be asked for the stacks of its threads."""
        return self._dumps is not None

    async def dump(self) -> bool:
        """Ask for the stacks, once, and wait until they are written. False: nothing came."""
        if self._dumps is None:
            return False
        (pid, started), self._dumps = self._dumps, None
        if started is None or start_of(pid) != started:
            return False
        self._output.clear()
        try:
            os.kill(pid, DUMP_SIGNAL)
        except OSError:
            return False
        try:
            async with asyncio.timeout(DUMP_MAX):
                await self._output.wait()
                await self._until_quiet()
        except TimeoutError:
            return False
        return True

    async def _until_quiet(self) -> None:
        with contextlib.suppress(TimeoutError):
            while True:
                self._output.clear()
                await asyncio.wait_for(self._output.wait(), DUMP_SETTLES)

    def _is_up(self) -> None:
        """It is up: from now on it has to stay so."""
        self._deadline.cancel()
        self.ready.set()
        if self._unit.watchdog:
            self._said = self._loop.time()
            self._watchdog.start()
        if self._probing is None:
            self._start_probing()

    def _said_ready(self) -> None:
        if self._unit.ready == "notify" and not self.ready.is_set():
            self._is_up()

    def _fed(self) -> None:
        self._said = self._loop.time()
        self._watchdog.due = self._said + seconds(self._unit.watchdog)

    def _watchdog_rang(self) -> None:
        silent = round((self._loop.time() - self._said) * SECOND)
        every = format_span(self._unit.watchdog)
        self._hang(WATCHDOG, f"no WATCHDOG=1 for {format_span(silent)}; it has to come every {every}")

    def _not_ready(self) -> None:
        missing = "READY=1" if self._unit.ready == "notify" else "successful probe"
        self._hang(NOT_READY, f"no {missing} within {format_span(self._ready_max)} of its start")

    def _stopping(self) -> None:
        """It ends by itself: what it stops doing now is no fault, but it has to be gone within its grace."""
        if self._telling is not None:
            return
        if self._probing is not None:
            self._probing.cancel()
        self._watchdog.cancel()
        self._deadline.cancel()
        self._deadline = _Alarm(self._loop, self._stuck, self._unit.grace)
        self._deadline.start()

    def _stuck(self) -> None:
        self._hang(STUCK, f"it said that it stops (STOPPING=1) and is not gone after {format_span(self._unit.grace)}")

    def _extend(self, number: str) -> None:
        if number.isdecimal() and self._deadline.armed:
            length = min(int(number[:20]), EXTENDED_MAX)
            self._deadline.due = max(self._deadline.due, self._loop.time() + seconds(length))

    def _start_probing(self) -> None:
        if self._unit.probe is not None:
            self._probing = self._loop.create_task(self._keep_probing(self._unit.probe))

    async def _keep_probing(self, probe: Probe) -> None:
        # Not all at the same instant after a mass start: each unit begins at a moment of its own, always the same one.
        if self.ready.is_set():
            share = int(digest([self._unit.name])[:4], 16) / 0xFFFF
            await asyncio.sleep(seconds(probe.every) * (0.9 + 0.1 * share))
        failures = 0
        while True:
            wrong = await self._check(probe, self._unit)
            if not wrong:
                failures = 0
                if not self.ready.is_set():
                    self._is_up()
            elif self.ready.is_set():
                failures += 1
                if failures >= probe.failures_max:
                    times = "once" if failures == 1 else f"{failures} times in a row"
                    self._hang(PROBE, f"the probe failed {times}: {wrong}")
                    return
            await asyncio.sleep(seconds(probe.every))

    def _hang(self, code: str, text: str) -> None:
        if self._telling is not None:
            return
        self._deadline.cancel()
        self._watchdog.cancel()
        self._telling = self._loop.create_task(self._dump_and_tell(stop(Reason("liveness", code, text, _REMEDY))))

    async def _dump_and_tell(self, decision: Decision) -> None:
        await self.dump()
        self.hung.set_result(decision)


class _Alarm:
    """Rings once it is due. It may be put off any number of times by setting `due` alone."""

    __slots__ = ("_handle", "_length", "_loop", "_ring", "due")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None], length: Span) -> None:
        self._loop = loop
        self._ring = ring
        self._length = seconds(length)
        self._handle: asyncio.TimerHandle | None = None
        self.due = 0.0

    @property
    def armed(self) -> bool:
        return self._handle is not None

    def start(self) -> None:
        self.due = self._loop.time() + self._length
        self._arm()

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self) -> None:
        self._handle = self._loop.call_at(_together(self.due, self._length), self._look)

    def _look(self) -> None:
        if self._loop.time() < self.due:
            self._arm()
        else:
            self._handle = None
            self._ring()


class _Beats:
    """Signs of life become beats, not more often than every so many seconds. The first one becomes a beat at once,
    those after it when the time is over. A beat file is looked at as often. What holds up its output came after some of
    it, so it is looked at in time."""

    __slots__ = ("_beat", "_every", "_file", "_handle", "_held_up", "_loop", "_signs", "_touched")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        beat: Callable[[], None],
        every: float,
        file: Path | None,
        held_up: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._beat = beat
        self._every = every
        self._file = file
        self._held_up = held_up
        self._touched = _touched_at(file)
        self._signs = False
        self._handle: asyncio.TimerHandle | None = None
        if file is not None:
            self._look_later()

    def sign(self) -> None:
        self._signs = True
        if self._handle is None:
            self._give()

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _give(self) -> None:
        self._signs = False
        self._look_later()
        self._beat()

    def _look(self) -> None:
        self._handle = None
        touched = _touched_at(self._file)
        if self._signs or touched > self._touched or self._held_up():
            self._touched = touched
            self._give()
        elif self._file is not None:
            self._look_later()

    def _look_later(self) -> None:
        self._handle = self._loop.call_at(_together(self._loop.time() + self._every, self._every), self._look)


def _together(due: float, length: float) -> float:
    """A moment not before `due` that other timers of that length choose too."""
    grain = length / TOGETHER
    return math.ceil(due / grain) * grain if grain else due


def _touched_at(file: Path | None) -> int:
    """When a file was last written; 0 if it is not there."""
    if file is not None:
        with contextlib.suppress(OSError):
            return file.stat().st_mtime_ns
    return 0
