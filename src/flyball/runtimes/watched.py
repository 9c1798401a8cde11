"""The hands of one unit in a supervisor: they begin processes, listen to them, and judge whether they hang.

A unit that asks for none of it has no socket and no timer. A life that hangs, or that was told to end because of what
it reported, is ended here; how it ended then says why. A session gets its checkpoint here, and whether it paused is
said here, too.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from flyball.config.units import Unit
from flyball.core.decision import Decision, Verb
from flyball.core.event import Beat, Cause
from flyball.core.failure import FINGERPRINT_VERSION, fingerprint
from flyball.core.time import Span, seconds
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.runtimes.driver import OVERDUE, Ending
from flyball.runtimes.liveness import HUNG_CODES, Liveness
from flyball.runtimes.notify import Notify
from flyball.runtimes.process import ProcessHands, ProcessLife
from flyball.runtimes.process.spawn import CannotStart
from flyball.runtimes.report import Reporter
from flyball.runtimes.session.command import CommandSession

TIMEOUTS: Final = HUNG_CODES | OVERDUE
REPORTING: Final = ("agent", "session")
"""Kinds of units that tell what they do."""


class WatchedLife:
    """A process that is listened to."""

    def __init__(
        self,
        unit: Unit,
        life: ProcessLife,
        *,
        liveness: Liveness,
        reporter: Reporter,
        told: "asyncio.Future[Decision]",
        heard: "asyncio.Task[None]",
        why: Callable[[], Decision],
    ) -> None:
        self._unit, self._life, self._liveness, self._told = unit, life, liveness, told
        self._reporter = reporter
        self._heard = heard
        """Done when the life is over and all that it said was heard."""
        self._why = why
        """What the governor says of this run now."""

    async def ended(self) -> Ending:
        """Wait until it is over, or has to be ended."""
        await asyncio.wait((self._heard, self._told), return_when=asyncio.FIRST_COMPLETED)
        if not self._told.done():
            return self._reporter.judged(await self._life.ended())
        decision = self._told.result()
        if decision.verb is Verb.FINISH:  # the answer to its report told it so: it may end by itself
            await asyncio.wait((self._heard,), timeout=seconds(self._unit.grace))
        if OVERDUE.intersection(decision.codes):
            await self._liveness.dump()
        await self._life.end(self._unit.grace)
        await asyncio.wait((self._heard,))
        return self._told_to_end(self._reporter.judged(await self._life.ended()), decision)

    async def end(self, grace: Span) -> None:
        """Make it end. If its time is over, it says first where it was."""
        if self._liveness.can_dump and OVERDUE.intersection((await asyncio.to_thread(self._why)).codes):
            await self._liveness.dump()
        await self._life.end(grace)

    def _told_to_end(self, ending: Ending, decision: Decision) -> Ending:
        """It did not fail by itself: it hung, or it was told to stop, because its money was spent or for another
        reason. What was told to stop is not started again by itself."""
        reason = decision.primary
        code, policy = (reason.code, reason.policy) if reason else ("stopped", "")
        detail = f"{reason.text}\n{ending.detail}" if reason else ending.detail
        cause = Cause.TIMEOUT if code in TIMEOUTS else Cause.STOPPED
        mark = fingerprint(self._unit.name, code)
        return replace(
            ending,
            cause=cause,
            fingerprint=mark,
            version=FINGERPRINT_VERSION,
            error=code,
            detail=detail.rstrip(),
            policy=policy,
            pause="",
            resume_at=0,
        )


class WatchedHands:
    """Begins the runs of one unit, and listens to them."""

    __slots__ = ("_governor", "_liveness", "_notify", "_sockets", "on_up", "process", "session", "unit")

    def __init__(
        self, unit: Unit, governor: Governor, *, logs: Path, sockets: Path, sessions: Path | None = None
    ) -> None:
        """`sessions` is where sessions have their checkpoint files."""
        self.unit = unit
        self.process = ProcessHands(unit, logs=logs)
        self.session: CommandSession | None = None
        """Where the unit is one."""
        if unit.kind == "session" and sessions is not None:
            self.session = CommandSession(unit, governor, sessions, uid=_uid(unit))
        self.on_up: Callable[[], None] | None = None
        """Called when a run counts as up."""
        self._governor = governor
        self._sockets = sockets
        self._liveness: Liveness | None = None
        """Of the run that is live."""
        self._notify: Notify | None = None
        """Opened when a run begins: only then it is granted that nobody else runs this unit."""

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
        self._listen(life.run)
        return self._watch(life, *self._watchers(life.run), up=True)

    @property
    def says(self) -> str:
        """What the run that is live last said about itself."""
        return self._liveness.status if self._liveness is not None else ""

    def close(self) -> None:
        """Done with this unit."""
        if self._notify is not None:
            self._notify.close()
        if self.session is not None:
            self.session.close()
        self.process.close()

    async def _begin_watched(self, run: str, again: bool) -> ProcessLife | WatchedLife:
        watchers = self._watchers(run)
        try:
            said = self._listen(run)
        except FlyballError as error:
            return self.process.unborn(run, CannotStart("no notify socket", f"{error}. {error.remedy}"))
        session = self.session
        try:
            given = await asyncio.to_thread(session.begin) if session is not None else {}
        except FlyballError as error:
            return self.process.unborn(run, CannotStart("no checkpoint", f"{error}. {error.remedy}"))
        self.process.extra_env = {**watchers[0].env, **said, **given}
        life = await self.process.begin(run, again=again, resumes=session is not None and session.resumes)
        return self._watch(life, *watchers) if life.pid else life

    def _listen(self, run: str) -> Mapping[str, str]:
        """Expect what that run will say; what it has to know for that."""
        if not _listens(self.unit):
            return {}
        if self._notify is None:
            self._notify = Notify.open(self._sockets, self.unit.name, uid=_uid(self.unit))
        self._notify.expect(run)
        return self._notify.env(run)

    def _watchers(self, run: str) -> "tuple[Liveness, Reporter, asyncio.Future[Decision]]":
        told: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()

        def tell(decision: Decision) -> None:
            if not told.done():
                told.set_result(decision)

        reporter = Reporter(
            self._governor,
            self.unit.name,
            run,
            self.unit.labels,
            told=tell,
            pause=self._pause,
            session=self.session,
        )
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
        self._liveness = liveness
        life.on_output = lambda _: liveness.printed()
        if self._notify is not None:
            self._notify.listen(life.pid, liveness.hear, reporter.hear)
        liveness.begin(life.pid, up=up, held_up=lambda: life.is_held_up)
        heard = asyncio.get_running_loop().create_task(self._stand_by(life, liveness, reporter, told))
        beat = Beat(unit=self.unit.name, run=life.run, labels=self.unit.labels, silent=True)
        return WatchedLife(
            self.unit,
            life,
            liveness=liveness,
            reporter=reporter,
            told=told,
            heard=heard,
            why=lambda: self._governor.look(beat),
        )

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
            self._liveness = None
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
    """It needs a notify socket: it says when it is ready or alive, what it does and spends, or that it can show where
    it hangs."""
    limited = unit.budget or unit.idle or unit.deadline
    return bool(unit.ready == "notify" or unit.watchdog or unit.kind in REPORTING or limited)


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
