"""One execution of a workflow as a run: begun or resumed, and left done, refused, cancelled, taken over or failed."""

import dataclasses
from typing import Final

from flyball.config.units import Unit
from flyball.core.decision import Verb
from flyball.core.event import Cause
from flyball.core.time import FOREVER, Instant, span
from flyball.governor import Governor
from flyball.integrations.dbos.errors import WorkflowLeft
from flyball.integrations.dbos.options import Options
from flyball.integrations.dbos.steps import LOST, WorkflowStep, WorkflowSteps
from flyball.integrations.missing import missing
from flyball.runtimes.agent.block import Listener, WatchedBlock
from flyball.runtimes.agent.context import Context
from flyball.runtimes.allowance import ALONE_MAX
from flyball.runtimes.amounts import Given, whole
from flyball.runtimes.driver import Ending
from flyball.runtimes.refusal import Refused, refusal
from flyball.runtimes.session.block import HEARS_EVERY
from flyball.runtimes.session.opening import opening

try:
    from dbos import error as of_dbos
except ImportError:
    raise missing("DBOS", "dbos") from None

CANCELLED: Final = "cancelled"
TAKEN_OVER: Final = "taken_over"
LEFT: Final = "left"
"""How a run ended that says nothing of the work, nor of what it shares with others."""


class WorkflowBlock(WatchedBlock):
    """One execution. What is asked inside it goes to its steps."""

    def __init__(
        self, governor: Governor, unit: Unit, options: Options, *, steps_at_once: int, listener: Listener
    ) -> None:
        super().__init__(
            governor,
            unit,
            causes=options.causes or {},
            listener=listener,
            opening=lambda start: opening(governor, start),
            steps_max=steps_at_once,
        )
        self._wait_max = FOREVER if options.wait is None else span(options.wait)
        self._made = 0

    @property
    def unit(self) -> str:
        """The session's name."""
        return self._unit.name

    def step(self, pattern: str, call: object, cost: Given | None, *, polling: bool, last: bool) -> WorkflowStep:
        """One step of it, that is to be made."""
        step = WorkflowStep(
            self._context, pattern, call, whole(cost, "cost"), polling=polling, last=last, wait=self._wait_max > 0
        )
        step.wait_max = self._wait_max
        return step

    def made(self) -> None:
        """A step was made, and DBOS keeps it."""
        self._made += 1

    # How it begins.

    def _start(self) -> Instant:
        until = super()._start()
        governor, unit = self._governor, self._unit
        steps = WorkflowSteps(
            governor, unit.name, self._run, unit.labels, steps_max=self._steps_max, lasts_max=ALONE_MAX
        )
        steps.is_live = self._is_live
        self._context.steps = steps
        self.inner = Context(governor, unit.name, self._run, labels=unit.labels, part=True, told=self._tell)
        return until

    # While it runs.

    def _apart(self, until: Instant) -> float:
        return min(HEARS_EVERY, super()._apart(until))

    def _is_live(self) -> bool:
        return any(run == self._run for _, run, _ in self._governor.live_runs(self._unit.name))

    # How it ends.

    def _report(self, error: BaseException | None) -> None:
        with self._owing(error):
            live = self._is_live()
            if live:
                self.inner.close_and_wait(clean=False)
        if live:
            super()._report(error)
            return
        self._thread.join()
        self._context.steps.end()
        self._was_lost(error)

    def _was_lost(self, error: BaseException | None) -> None:
        """How it ended is on record already. What it would return now is not the workflow's result: another execution
        may have taken its place."""
        if error is None or isinstance(error, Exception):
            lost = refusal(LOST, self._governor.clock.now(), f"{self.unit} may not go on")
            raise WorkflowLeft(self.unit, str(lost)) from None

    def _ending(self, error: BaseException | None) -> Ending:
        return dataclasses.replace(self._ending_of(error), progress=self._made > 0)

    def _ending_of(self, error: BaseException | None) -> Ending:
        match error:
            case of_dbos.DBOSWorkflowCancelledError():
                return Ending(Cause.STOPPED, error=CANCELLED)
            case of_dbos.DBOSWorkflowConflictIDError():
                return Ending(Cause.STOPPED, error=TAKEN_OVER)
            case WorkflowLeft():
                return Ending(Cause.STOPPED, error=LEFT)
            case Refused(verb=Verb.WAIT) if self._told is None:
                return Ending(Cause.STOPPED, error=error.code, pause=error.code, resume_at=error.decision.until)
        ending = super()._ending(error)
        if ending.cause is Cause.STARVED and ending.policy:
            # Its own money is gone: it did not fail, and says nothing of what others share with it.
            return dataclasses.replace(ending, cause=Cause.STOPPED)
        return ending
