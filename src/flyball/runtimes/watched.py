"""The hands of one unit in a supervisor: they begin processes, listen to them, and judge whether they hang.

A unit that asks for none of it has no socket and no timer. A life that hangs, or that was told to end because of what
it reported, is ended here; how it ended then says why.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from flyball.config.units import Unit
from flyball.core.decision import Decision
from flyball.core.event import Cause
from flyball.core.failure import FINGERPRINT_VERSION, fingerprint
from flyball.core.time import Span
from flyball.governor import Governor
from flyball.runtimes.driver import Ending
from flyball.runtimes.liveness import HUNG_CODES, Liveness
from flyball.runtimes.notify import Notify
from flyball.runtimes.process import ProcessHands, ProcessLife
from flyball.runtimes.report import Reporter

TIMEOUTS: Final = frozenset({*HUNG_CODES, "timeout", "idle_timeout"})


class WatchedLife:
    """A process that is listened to."""

    def __init__(
        self, unit: Unit, life: ProcessLife, told: "asyncio.Future[Decision]", heard: "asyncio.Task[None]"
    ) -> None:
        self._unit, self._life, self._told = unit, life, told
        self._heard = heard
        """Done when the life is over and all that it said was heard."""

    async def ended(self) -> Ending:
        """Wait until it is over, or has to be ended."""
        await asyncio.wait((self._heard, self._told), return_when=asyncio.FIRST_COMPLETED)
        if self._heard.done():
            return await self._life.ended()
        await self._life.end(self._unit.grace)
        await asyncio.wait((self._heard,))
        return self._told_to_end(await self._life.ended(), self._told.result())

    async def end(self, grace: Span) -> None:
        """Make it end."""
        await self._life.end(grace)

    def _told_to_end(self, ending: Ending, decision: Decision) -> Ending:
        """It did not fail by itself: it hung, or its money was spent, or it was told to stop."""
        reason = decision.primary
        code = reason.code if reason else "stopped"
        detail = f"{reason.text}\n{ending.detail}" if reason else ending.detail
        if code in TIMEOUTS:
            cause = Cause.TIMEOUT
        else:
            cause = Cause.STARVED if code == "cost_budget_exceeded" else Cause.STOPPED
        mark = fingerprint(self._unit.name, code)
        return replace(
            ending, cause=cause, fingerprint=mark, version=FINGERPRINT_VERSION, error=code, detail=detail.rstrip()
        )


class WatchedHands:
    """Begins the runs of one unit, and listens to them."""

    def __init__(self, unit: Unit, governor: Governor, *, logs: Path, sockets: Path) -> None:
        self.unit = unit
        self.process = ProcessHands(unit, logs=logs)
        self.on_up: Callable[[], None] | None = None
        """Called when a run counts as up."""
        self._governor = governor
        self._notify = Notify.open(sockets, unit.name, uid=_uid(unit)) if _listens(unit) else None

    async def begin(self, run: str, *, again: bool) -> ProcessLife | WatchedLife:
        """Begin a run."""
        if not _is_watched(self.unit):
            life = await self.process.begin(run, again=again)
            if life.pid:
                self._up()
            return life
        return await self._begin_watched(run, again)

    def adopted(self, life: ProcessLife) -> ProcessLife | WatchedLife:
        """A run that was begun by another supervisor. What it says on its socket is heard from now on."""
        if not _is_watched(self.unit):
            self._up()
            return life
        if self._notify is not None:
            self._notify.expect(life.run)
        return self._watch(life, *self._watchers(life.run), up=True)

    def close(self) -> None:
        """Done with this unit."""
        if self._notify is not None:
            self._notify.close()
        self.process.close()

    async def _begin_watched(self, run: str, again: bool) -> ProcessLife | WatchedLife:
        watchers = self._watchers(run)
        env = dict(watchers[0].env)
        if self._notify is not None:
            self._notify.expect(run)
            env |= self._notify.env(run)
        self.process.extra_env = env
        life = await self.process.begin(run, again=again)
        return self._watch(life, *watchers) if life.pid else life

    def _watchers(self, run: str) -> "tuple[Liveness, Reporter, asyncio.Future[Decision]]":
        told: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()

        def tell(decision: Decision) -> None:
            if not told.done():
                told.set_result(decision)

        reporter = Reporter(self._governor, self.unit.name, run, self.unit.labels, told=tell, pause=self._pause)
        liveness = Liveness(self.unit, beat=reporter.beat)
        return liveness, reporter, told

    def _watch(
        self,
        life: ProcessLife,
        liveness: Liveness,
        reporter: Reporter,
        told: "asyncio.Future[Decision]",
        *,
        up: bool = False,
    ) -> WatchedLife:
        life.on_output = lambda _: liveness.printed()
        if self._notify is not None:
            self._notify.listen(life.pid, liveness.hear, reporter.hear)
        liveness.begin(life.pid, up=up)
        heard = asyncio.get_running_loop().create_task(self._stand_by(life, liveness, reporter, told))
        return WatchedLife(self.unit, life, told, heard)

    async def _stand_by(
        self, life: ProcessLife, liveness: Liveness, reporter: Reporter, told: "asyncio.Future[Decision]"
    ) -> None:
        """Until the life is over: say when it is up, and have it ended when it hangs."""
        over = asyncio.ensure_future(life.ended())
        ready = asyncio.ensure_future(liveness.ready.wait())
        ready.add_done_callback(lambda done: None if done.cancelled() else self._up())
        try:
            await asyncio.wait((over, liveness.hung), return_when=asyncio.FIRST_COMPLETED)
            if liveness.hung.done() and not told.done():
                told.set_result(liveness.hung.result())
            await over
        finally:
            ready.cancel()
            liveness.close()
            if self._notify is not None:
                self._notify.rest()
            await reporter.settled()

    def _pause(self, full: bool) -> None:
        if self._notify is not None:
            self._notify.pause(full)

    def _up(self) -> None:
        if self.on_up is not None:
            self.on_up()


def _listens(unit: Unit) -> bool:
    """It needs a notify socket: it says when it is ready or alive, or what it does and spends."""
    return bool(unit.ready == "notify" or unit.watchdog or unit.kind == "agent" or unit.budget or unit.idle)


def _is_watched(unit: Unit) -> bool:
    return bool(_listens(unit) or unit.probe is not None)


def _uid(unit: Unit) -> int | None:
    """The user that it runs as; None: as the supervisor, also where there is no such user, which its start will say."""
    if not unit.user:
        return None
    import pwd  # noqa: PLC0415 - only where it serves

    try:
        return int(unit.user) if unit.user.isdecimal() else pwd.getpwnam(unit.user).pw_uid
    except KeyError:
        return None
