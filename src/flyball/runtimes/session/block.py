"""A run of a session as a block: begun or resumed, with what it goes on from, and left done, paused or failed.

What it goes on from is read before leave is asked: a checkpoint that cannot be used is an error, and nothing is
counted. What the leave changes (the input of new work, a choice that is used up, checkpoints of work that is done) is
written with it.
"""

import dataclasses
import logging
from typing import Any, Final

import msgspec

from flyball.config.units import Unit
from flyball.core.decision import Reason, stop
from flyball.core.event import Cause, Resume, Start
from flyball.core.time import Instant
from flyball.governor import Governor, Rows
from flyball.policies import Exclusive
from flyball.runtimes.agent.block import Listener, WatchedBlock
from flyball.runtimes.agent.context import Context
from flyball.runtimes.agent.ending import Causes
from flyball.runtimes.driver import Ending
from flyball.runtimes.refusal import Refused, refusal
from flyball.runtimes.session import record
from flyball.runtimes.session.context import Paused, SessionContext
from flyball.runtimes.session.draft import Draft
from flyball.runtimes.session.opening import opening, resumes
from flyball.store.checkpoints import Checkpoint, Kept, choose, chosen, cleared, load, read_index

log = logging.getLogger(__name__)

STAGES_MAX: Final = 1
"""Stages asked for at once. What is asked for and not made counts as used when the process is killed: of a session that
would be its steps and its money."""

HEARS_EVERY: Final = 2.0
"""Seconds after which a run has heard what a person ordered, at the latest. Its lease alone would be asked about every
ten minutes; and a sign of life that changes nothing writes nothing."""

PAUSED: Final = "paused"

LOST: Final = stop(
    Reason(
        Exclusive.NAME,
        "run_not_live",
        "its lease ran out, and it was given up as lost; another run may have taken its place",
        "Let it end. What it has kept before is safe.",
    )
)

TOLD_TO_STOP: Final = stop(
    Reason("", "stopped", "its program told it to stop", "It goes on from its last checkpoint when it is run again.")
)


class SessionBlock(WatchedBlock):
    """One run of a session. `begun` says whether leave was given."""

    def __init__(
        self,
        governor: Governor,
        unit: Unit,
        *,
        input: bytes | None,  # noqa: A002 - so people call it
        version: str,
        checkpoint: str | None,
        causes: Causes,
        listener: Listener,
    ) -> None:
        """`checkpoint` is the one to go on from; None: the one that a person chose, or else the last good one."""
        super().__init__(
            governor,
            unit,
            causes=causes,
            listener=listener,
            opening=self._opened,
            rows=self._kept_with,
            steps_max=STAGES_MAX,
        )
        self.begun = False
        self.paused: Paused | None = None
        self._given = input
        self._version = version
        self._named = checkpoint
        self._checkpoint: Checkpoint | None = None
        self._index: list[Kept] = []
        self._again = False
        self._inner: Context | None = None
        self._session: SessionContext | None = None

    def session(self) -> SessionContext:
        """Inside the block: what the session is given."""
        self.begun = True
        governor, name, root = self._governor, self._unit.name, self._context
        index = read_index(governor.store, name)
        if index != self._index and self._again:  # another run ended between the look and the leave
            self._checkpoint = self._loaded(self._named)
        draft = Draft(
            name,
            self._checkpoint,
            index,
            version=self._version,
            now=governor.clock.now,
            is_live=self._is_live,
        )
        root.memory = draft
        self._inner = Context(
            governor,
            name,
            self._run,
            labels=self._unit.labels,
            part=True,
            steps_max=STAGES_MAX,
            told=self._tell,
        )
        resumed, most = resumes(governor, name)
        if self._again:
            log.info("%s: resume %d of %d", name, resumed, most)
        begun_with = record.read(governor.store, name)
        self._session = SessionContext(
            root,
            self._inner,
            draft,
            begun_with,
            resumed=resumed,
            again=self._again,
            check=self._check,
        )
        return self._session

    def pause(self, reason: str, resume_after: float | None) -> bool:
        """From outside: pause before its next stage. Whether it could be told."""
        if self._session is None or self._closed.is_set():
            return False
        self._session.pause_at_next_stage(reason, resume_after)
        return True

    def stop(self) -> bool:
        """From outside: end now, or, in a thread, before its next stage. Whether it could be told."""
        if self._session is None or self._closed.is_set():
            return False
        self._tell(TOLD_TO_STOP)
        return True

    # How it begins.

    def _opened(self, start: Start) -> Start:
        governor, name = self._governor, self._unit.name
        request = opening(governor, start)
        self._index = read_index(governor.store, name)
        self._again = isinstance(request, Resume)
        if not isinstance(request, Resume):
            self._checkpoint = None
            return request
        record.check(governor.store, name, self._given)
        record.read(governor.store, name)
        self._checkpoint = self._loaded(self._named or chosen(governor.store, name))
        return msgspec.structs.replace(request, checkpoint=self._checkpoint.id if self._checkpoint else "")

    def _loaded(self, named: str | None) -> Checkpoint | None:
        """What to go on from. It has to be what a program keeps: of a command's, nothing is known but that it is
        whole."""
        checkpoint = load(self._governor.store, self._unit.name, named, version=self._version)
        if checkpoint is not None:
            _ = checkpoint.values
        return checkpoint

    def _kept_with(self, start: Start) -> Rows:
        name = self._unit.name
        choice = choose(name, None) if chosen(self._governor.store, name) else {}
        if isinstance(start, Resume):
            return choice
        return {**cleared(self._index, name), **choice, **record.rows(name, self._given)}

    # While it runs.

    def _apart(self, until: Instant) -> float:
        return min(HEARS_EVERY, super()._apart(until))

    def _is_live(self) -> bool:
        return any(run == self._run for _, run, _ in self._governor.live_runs(self._unit.name))

    def _check(self) -> None:
        """Refused if the run was given up: a process that slept for longer than its lease is not needed any more."""
        if not self._is_live():
            raise self._lost()

    def _lost(self) -> Refused:
        return refusal(LOST, self._governor.clock.now(), f"{self._unit.name} may not go on")

    # How it ends.

    def _report(self, error: BaseException | None) -> None:
        if not self._is_live():
            self._thread.join()
            self._context.steps.end()
            self._was_lost(error)
            return
        self.paused = self._pause_of(error)
        with self._owing(error):
            if self._inner is not None:
                self._inner.close_and_wait(clean=False)
            if self.paused is not None:
                self._context.save()
        super()._report(error)

    def _was_lost(self, error: BaseException | None) -> None:
        """How it ended is on record already. What it would return now is not the session's result."""
        self.paused = None
        if error is None or isinstance(error, Paused):
            raise self._lost() from None

    def _ending(self, error: BaseException | None) -> Ending:
        ending = super()._ending(error)
        if self.paused is not None:
            ending = Ending(Cause.STOPPED, error=PAUSED, pause=self.paused.reason, resume_at=self.paused.resume_at)
        elif ending.cause is Cause.STARVED and ending.policy:
            # Its own money is gone: it did not fail, and says nothing of what others share with it.
            ending = dataclasses.replace(ending, cause=Cause.STOPPED)
        progress = self._session is not None and self._session.checkpoint.progress
        return dataclasses.replace(ending, progress=progress)

    def _pause_of(self, error: BaseException | None) -> Paused | None:
        """The pause that left the function, also out of several tasks. What was told to end is not paused."""
        if self._told is not None:
            return None
        if isinstance(error, BaseExceptionGroup):
            pauses, others = error.split(Paused)
            error = None if pauses is None or others is not None else _first(pauses)
        return error if isinstance(error, Paused) else None


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
