"""A process that a run of a rule started: a command, or the worker of its calls. The guardian knows of it while it
lives, and when it was ended nothing is left of it, nor of what it started.

How it ended is named by what stays the same when the same thing fails again, like the exit of any unit.
"""

import asyncio
import contextlib
import logging
import re
import signal
from typing import Final

from flyball.config.units import Unit
from flyball.core.event import Cause
from flyball.core.failure import FRAMES_MAX
from flyball.core.time import Span
from flyball.runtimes.driver import Ending
from flyball.runtimes.process import ProcessHands, ProcessLife
from flyball.runtimes.process.failure import find_errors, find_traceback, signal_name
from flyball.runtimes.rule.actions.within import timed_out
from flyball.runtimes.rule.deed import GRACE, ActionFailed, Scene
from flyball.runtimes.sink import Takes

log = logging.getLogger(__name__)

KILLED: Final = 128 + signal.SIGKILL
"""The exit code of a shell whose command was killed."""
LAST_LINES: Final = 5
"""Lines before the end in which a process may say what it had too little of. Earlier ones may be of trouble that it got
over."""
VMSTAT: Final = "/proc/vmstat"
_OOM: Final = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)
_STARVED: Final = re.compile(
    r"out of memory|cannot allocate memory|bad_alloc|MemoryError|no space left on device|disk quota exceeded|"
    r"too many open files",
    re.IGNORECASE,
)


class Child:
    """One process, from its start to the proof that it is gone."""

    def __init__(self, scene: Scene, hands: ProcessHands, life: ProcessLife, ooms: int) -> None:
        self.life = life
        self._scene, self._hands, self._ooms = scene, hands, ooms

    @classmethod
    async def begin(
        cls, scene: Scene, unit: Unit, run: str, *, stdin: int = -1, sinks: tuple[Takes, Takes] | None = None
    ) -> "Child":
        """Start it, in the name of the rule. One that cannot be started has ended already."""
        firing = scene.firing
        told = {
            "FLYBALL_FIRING": firing.id,
            "FLYBALL_ATTEMPT": str(firing.attempt),
            "FLYBALL_TRIGGER": firing.trigger,
        }
        hands = ProcessHands(unit, logs=scene.logs, extra_env=told)
        hands.stdin, hands.sinks = stdin, sinks
        ooms = _ooms()
        child = cls(scene, hands, await hands.begin(run, again=False), ooms)
        child._note()
        return child

    async def ended(self, seconds: float) -> Ending:
        """Wait until it is over. ActionFailed if that takes longer than so many seconds: then it was ended, as it is
        when the wait is cancelled."""
        try:
            async with asyncio.timeout(seconds):
                return await self.life.ended()
        except TimeoutError:
            await self.end()
            raise timed_out(seconds, detail=self.last_lines) from None
        finally:
            await self.end()

    async def end(self, grace: Span = GRACE) -> None:
        """End it with all that it started; nothing happens if it is over. Who waits for that cannot be taken away from
        it: to be cancelled once more only takes the grace."""
        ending = [asyncio.ensure_future(self.life.end(grace))] if self.life.ending is None else []
        cancelled: asyncio.CancelledError | None = None
        while pending := [one for one in ending if not one.done()]:
            try:
                await asyncio.wait(pending)
            except asyncio.CancelledError as error:
                cancelled = error
                ending.append(asyncio.ensure_future(self.life.end(0)))
        self._forget()
        if cancelled is not None:
            raise cancelled

    @property
    def last_lines(self) -> str:
        """What it printed last, without the secrets of its environment, when it is over."""
        return self.life.ending.detail if self.life.ending is not None else ""

    def failure(self) -> ActionFailed:
        """What its end means, which was not a clean one."""
        ending = self.life.ending
        assert ending is not None  # noqa: S101 - asked when it is over
        if not self.life.pid:
            starved = ending.cause is Cause.STARVED
            return ActionFailed(ending.error, ending.detail, starved=starved, final=not starved)
        lines = ending.detail.splitlines()
        name = signal_name(ending.signal) if ending.signal is not None else f"exit {ending.code}"
        raised = find_traceback(lines)
        if raised is not None:
            error, text = raised.type, raised.message or raised.type
            target = ", ".join(raised.frames[-FRAMES_MAX:])
        else:
            error, text, target = name, "\n".join(find_errors(lines, self.life.pid)) or name, ""
        return ActionFailed(
            error,
            text,
            target=target,
            code=ending.code,
            signal=ending.signal,
            detail=ending.detail,
            starved=self._is_starved(ending, "\n".join((error, text, *lines[-LAST_LINES:]))),
        )

    def _is_starved(self, ending: Ending, said: str) -> bool:
        """It says so, or it was killed while the kernel was killing for want of memory."""
        was_killed = ending.signal == signal.SIGKILL or ending.code == KILLED
        return bool(_STARVED.search(said)) or (was_killed and _ooms() > self._ooms)

    def _note(self) -> None:
        """For whoever comes after this daemon. Without such a note it runs all the same."""
        if self._scene.guard is not None and self.life.pid:
            try:
                self._scene.guard.note(self.life.pid)
            except OSError as error:
                log.error("%s: no note of its process can be made: %s", self._scene.rule.name, error.strerror)

    def _forget(self) -> None:
        if self._scene.guard is not None and self.life.pid:
            self._scene.guard.forget(self.life.pid)
        self._hands.close()


def _ooms() -> int:
    """How often the kernel has killed a process for want of memory; 0 where it does not say."""
    with contextlib.suppress(OSError), open(VMSTAT, "rb") as file:  # noqa: PTH123 - it is read at each start
        found = _OOM.search(file.read())
        return int(found[1]) if found else 0
    return 0
