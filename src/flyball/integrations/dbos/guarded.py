"""Decorators that put DBOS workflows and steps under a guard, around DBOS' own; and what puts a workflow back that was
refused, where it may go on.

A decorated function is DBOS' own workflow or step, and used as such: started, enqueued, scheduled, awaited. Leave is
asked inside of it, so no way to run it gets round that.
"""

import asyncio
import functools
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, Final, ParamSpec, TypeVar, cast

import msgspec

from flyball.config.units import Unit
from flyball.core.decision import Decision, Verb
from flyball.core.event import Cause, Exited, Released, Start
from flyball.core.time import FOREVER, SECOND, Instant, later, span
from flyball.errors import FlyballError
from flyball.integrations.dbos.block import LEFT, WorkflowBlock
from flyball.integrations.dbos.errors import WorkflowLeft, left_without_store
from flyball.integrations.dbos.options import BELT_ABOVE, Options
from flyball.integrations.dbos.steps import THIS_STEP, Stepping
from flyball.integrations.dbos.takeover import take_over
from flyball.integrations.guarding import Guarding
from flyball.integrations.missing import missing
from flyball.policies.limit import OUT_OF_RESUMES
from flyball.policies.session import Session
from flyball.runtimes.agent.ending import Causes
from flyball.runtimes.agent.options import check_seconds
from flyball.runtimes.agent.step import StepBlock
from flyball.runtimes.amounts import Given, whole
from flyball.runtimes.driver import ALREADY_RUNNING
from flyball.runtimes.holder import is_gone, me
from flyball.runtimes.refusal import Refused, refusal
from flyball.runtimes.session.opening import opening, resumes
from flyball.runtimes.session.work import WAITS, SessionFailed

try:
    from dbos import DBOS, WorkflowSerializationFormat, WorkflowStatus
    from dbos import error as of_dbos
except ImportError:
    raise missing("DBOS", "dbos") from None

log = logging.getLogger("flyball")

P = ParamSpec("P")
R = TypeVar("R")

ASKS_EVERY: Final = 2.0
"""Seconds between two questions of whoever waits for leave: so soon an order of a person is heard."""

RESUMES_EVERY: Final = 10.0
"""Seconds between two looks for workflows that may go on. A person who released one can wait for so long."""

LISTED_MAX: Final = 1_000
"""Workflows that are looked at in one go, the newest first."""

GOES_ON_BY_ITSELF: Final = (Verb.WAIT, Verb.HOLD)
"""Refusals that end: by time, or when a person releases it. What was stopped or finished goes on only if somebody
resumes it by name: nothing has changed, and it would only be stopped again."""

_RUN: Final[ContextVar[WorkflowBlock | None]] = ContextVar("flyball_dbos_run", default=None)


class Guarded:
    """DBOS under a guard. Make one per program, before its workflows are defined."""

    def __init__(self, guard: Guarding) -> None:
        self.guard = guard
        self._governor = guard.governor
        self._options: dict[str, Options] = {}
        """By the name that DBOS has for the workflow."""
        self._owed: dict[str, Exited] = {}
        """How runs ended of which the store could not be told."""
        self._left: set[str] = set()
        """Workflows that were left here as they are."""
        self._closed = threading.Event()

    def close(self) -> None:
        """Whoever waits for leave waits no more: those workflows are left as they are, to be recovered. For a program
        that ends; call it before `DBOS.destroy()`."""
        self._closed.set()

    # Decorators.

    def workflow(
        self,
        *,
        unit: str | None = None,
        deadline: float | None = None,
        steps: int | None = None,
        resumes: int | None = None,
        budget: Given | None = None,
        tier: str | None = None,
        labels: Mapping[str, str] | None = None,
        user: str = "",
        tree: str = "",
        causes: Causes | None = None,
        wait: float | None = None,
        allowance: int | None = None,
        name: str | None = None,
        serialization_type: WorkflowSerializationFormat | None = None,
        validate_args: Any = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """`DBOS.workflow()`, under the guard. Each workflow is a session called `unit@workflow-id`.

        `unit` is the function's name where it is left out. `deadline` (seconds of one execution), `steps`, `resumes`
        and `budget` (of all executions together) are as the settings say where they are left out; the other options
        are those of `guard.session`. Leave that has to be waited for is waited for in place, as long as it takes, or
        for `wait` seconds: then the workflow ends with the refusal. `allowance` is how many steps that cost nothing
        are asked for at once. The last three options are DBOS' own.
        """

        def define(function: Callable[P, R]) -> Callable[P, R]:
            options = Options(
                name=unit or function.__name__,
                deadline=deadline,
                steps=steps,
                resumes=resumes,
                budget=budget,
                tier=tier,
                labels=labels,
                user=user,
                tree=tree,
                causes=causes,
                wait=wait,
                allowance=allowance,
            )
            settings = self.guard.settings
            options.check(settings)
            known = name or function.__qualname__
            self._options[known] = options
            return DBOS.workflow(
                name=known,
                max_recovery_attempts=options.resumes_max(settings) + BELT_ABOVE,
                serialization_type=serialization_type,
                validate_args=validate_args,
            )(self._running(function, options))

        return define

    def step(
        self,
        *,
        pattern: str | None = None,
        cost: Given | None = None,
        polling: bool = False,
        last: bool = False,
        should_retry: Callable[[BaseException], bool | Awaitable[bool]] | None = None,
        **how: Any,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """`DBOS.step()`, under the guard: leave is asked before each attempt, and what came of it is reported.

        `pattern` is what kind of step it is, the function's name where it is left out; `cost` its worst case. A call
        that is made again and again until something changes is `polling`. The `last` step may use the money that is
        kept back for it. All other options are DBOS' own. What was refused is not tried again.
        """

        def define(function: Callable[P, R]) -> Callable[P, R]:
            asked = self.asking(function, pattern=pattern, cost=cost, polling=polling, last=last)
            return DBOS.step(should_retry=_not_refused(should_retry), **how)(asked)

        return define

    def asking(
        self,
        function: Callable[P, R],
        *,
        pattern: str | None = None,
        cost: Given | None = None,
        polling: bool = False,
        last: bool = False,
    ) -> Callable[P, R]:
        """That function, asking leave before it is called: for `DBOS.run_step(options, guarded.asking(function))`."""
        whole(cost, "cost")
        kind = pattern or function.__qualname__

        def stepping(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Stepping:
            run = _RUN.get()
            if run is None:
                raise FlyballError(
                    f"{kind} asks for leave, and is called outside of any workflow under a guard",
                    remedy="Call it in a workflow that has `@guarded.workflow()`, or give it `@DBOS.step()` alone.",
                )
            step = run.step(kind, [args, kwargs], cost, polling=polling, last=last)
            return Stepping(step, run.unit, run.inner, run.made)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def asked_soon(*args: Any, **kwargs: Any) -> Any:
                async with stepping(args, kwargs) as step:
                    result = await function(*args, **kwargs)
                    step.result(result)
                    return result

            return cast(Callable[P, R], asked_soon)

        @functools.wraps(function)
        def asked(*args: P.args, **kwargs: P.kwargs) -> R:
            with stepping(args, kwargs) as step:
                result = function(*args, **kwargs)
                step.result(result)
                return result

        return asked

    @property
    def this_step(self) -> StepBlock:
        """Inside a step: to say what it really cost (`spent`), what came of it, what the world looks like."""
        step = THIS_STEP.get()
        if step is None:
            raise FlyballError("there is no step of a guarded workflow here", remedy="Ask for it inside of a step.")
        return step

    # Executions.

    def _running(self, function: Callable[P, R], options: Options) -> Callable[P, R]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run_soon(*args: Any, **kwargs: Any) -> Any:
                async with self._entered_soon(options):
                    return await function(*args, **kwargs)

            return cast(Callable[P, R], run_soon)

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._entered(options):
                return function(*args, **kwargs)

        return run

    @contextmanager
    def _entered(self, options: Options) -> Iterator[None]:
        execution = _Execution(self, options)
        with execution.leaving():
            while True:
                block = execution.block()
                try:
                    block.__enter__()
                    break
                except Refused as refused:
                    seconds = execution.waits(refused)
                self._closed.wait(seconds)
            token = _RUN.set(block)
            try:
                yield
            except BaseException as error:
                _RUN.reset(token)
                block.__exit__(type(error), error, error.__traceback__)
                raise
            _RUN.reset(token)
            block.__exit__(None, None, None)

    @asynccontextmanager
    async def _entered_soon(self, options: Options) -> AsyncIterator[None]:
        execution = _Execution(self, options)
        with execution.leaving():
            while True:
                block = await asyncio.to_thread(execution.block)
                try:
                    await block.__aenter__()
                    break
                except Refused as refused:
                    seconds = execution.waits(refused)
                await asyncio.sleep(seconds)
            token = _RUN.set(block)
            try:
                yield
            except BaseException as error:
                _RUN.reset(token)
                await block.__aexit__(type(error), error, error.__traceback__)
                raise
            _RUN.reset(token)
            await block.__aexit__(None, None, None)

    # What puts workflows back.

    def resume(self, workflow_id: str) -> bool:
        """Put a workflow back that was refused, failed, was cancelled or given up by DBOS: whoever calls this speaks
        for a person, so a pause is over. It goes on from the step that was refused or failed. Whether it was put back:
        not if it is done, or waits for its turn already.

        A Refused says why it may not go on, and nothing is changed: what is held is released first, by
        `flyball resume`."""
        found = DBOS.get_workflow_status(workflow_id)
        if found is None:
            raise FlyballError(f"there is no workflow {workflow_id!r}", remedy="`DBOS.list_workflows()` lists them.")
        options = self._options.get(found.name)
        if options is None:
            text = f"{workflow_id} is a workflow {found.name!r}, which is not under this guard"
            raise FlyballError(text, remedy="Decorate it with `@guarded.workflow()`; or `DBOS.resume_workflow()`.")
        unit = self._define(options, workflow_id)
        decision = self._look(unit)
        if WAITS.intersection(decision.codes):
            self._governor.submit(
                Released(unit=unit.name, labels=unit.labels, policies=(Session.NAME,), by="its program")
            )
            decision = self._look(unit)
        if decision.verb > Verb.WAIT or ALREADY_RUNNING in decision.codes:
            raise refusal(decision, self._governor.clock.now(), f"{unit.name} may not be resumed")
        return self._put_back(found)

    def resume_due(self) -> list[str]:
        """Put back all workflows that were refused for a time that is over, or were held and are released; and those
        that were left here. Their ids. For whoever calls it now and then: it speaks for nobody."""
        found = DBOS.list_workflows(
            status=["ERROR", "PENDING"], name=list(self._options), limit=LISTED_MAX, sort_desc=True, load_input=False
        )
        return [one.workflow_id for one in found if self._is_due(one) and self._put_back(one)]

    def resume_by_itself(self, every: float = RESUMES_EVERY) -> None:
        """Have `resume_due` called every so many seconds, in a thread of its own, until this is closed: so what a
        person releases goes on. Call it after `DBOS.launch()`; several processes may."""
        check_seconds("resume_by_itself", "every", every, "above")
        threading.Thread(target=self._resume_until_closed, args=(every,), name="flyball dbos", daemon=True).start()

    def _resume_until_closed(self, every: float) -> None:
        while not self._closed.wait(every):
            try:
                self.resume_due()
            except Exception:  # a database that is away is asked again; nobody else would hear of it
                log.exception("workflows that may go on could not be put back")

    def take_over(self, dead_executor: str) -> list[str]:
        """Put back what an executor of DBOS had that is dead for certain: nobody else finds that out, so whoever calls
        this has to know. Its runs are reported as lost; each execution that follows is a resume. Their ids; of those
        who call this at once, one has them all."""
        return take_over(self._governor, dead_executor, list(self._options))

    def _is_due(self, found: WorkflowStatus) -> bool:
        if found.status == "PENDING":
            if found.workflow_id not in self._left or found.executor_id != DBOS.executor_id:
                return False
        elif not isinstance(found.error, Refused) or found.error.verb not in GOES_ON_BY_ITSELF:
            return False
        return self._look(self._define(self._options[found.name], found.workflow_id)).proceeds

    def _put_back(self, found: WorkflowStatus) -> bool:
        self._left.discard(found.workflow_id)
        match found.status:
            case "ERROR":
                # DBOS resumes nothing that has an outcome. To rewind to a step that is not there yet keeps them all.
                return _rewound(found)
            case "CANCELLED" | "MAX_RECOVERY_ATTEMPTS_EXCEEDED" | "PENDING":
                DBOS.resume_workflow(found.workflow_id, queue_name=found.queue_name)
            case _:
                return False
        return True

    def _look(self, unit: Unit) -> Decision:
        """What would be answered if it asked to go on."""
        self.say_owed(unit.name)
        self._governor.reap(is_gone, unit=unit.name)
        start = Start(unit=unit.name, run="-", labels=unit.labels, holder=me())
        return self._governor.look(opening(self._governor, start))

    def say_owed(self, unit: str) -> None:
        """Say how its last run ended, where the store could not take that. What nobody was told of is not done: it
        goes on from where DBOS has it."""
        owed = self._owed.get(unit)
        if owed is not None:
            if owed.cause.done:
                owed = msgspec.structs.replace(owed, cause=Cause.STOPPED, error=LEFT)
            self._governor.submit_living(owed)
            self._owed.pop(unit, None)

    def _define(self, options: Options, workflow_id: str) -> Unit:
        unit = options.unit(workflow_id, DBOS.executor_id)
        self.guard.define_work(unit, *options.policies(self.guard.settings))
        return unit


class _Execution:
    """One execution of a workflow: how it comes to its run, and what is left when it cannot end."""

    def __init__(self, guarded: Guarded, options: Options) -> None:
        workflow = DBOS.workflow_id
        if workflow is None:
            text = f"{options.name} is a workflow under a guard, and was called past DBOS"
            raise FlyballError(text, remedy="Call what `@guarded.workflow()` returned.")
        self._guarded, self._options, self._workflow = guarded, options, workflow
        self._governor = guarded._governor
        self._unit = options.unit(workflow, DBOS.executor_id)
        self._by: Instant = FOREVER
        if options.wait is not None:
            self._by = later(self._governor.clock.now(), span(options.wait))
        self._block: WorkflowBlock | None = None

    def block(self) -> WorkflowBlock:
        """The run that it would be."""
        guarded, options, settings = self._guarded, self._options, self._guarded.guard.settings
        guarded.say_owed(self._unit.name)
        self._block = WorkflowBlock(
            self._governor,
            self._unit,
            options,
            steps_at_once=options.steps_at_once(settings),
            listener=guarded.guard.define_work(self._unit, *options.policies(settings)),
        )
        return self._block

    def waits(self, refused: Refused) -> float:
        """Seconds to wait before it asks again. Raises the refusal where it is not to be waited for."""
        decision, now = refused.decision, self._governor.clock.now()
        # What another process runs is never refused for good: DBOS would keep that as the outcome of both.
        waits = decision.until <= self._by or ALREADY_RUNNING in decision.codes
        if OUT_OF_RESUMES in decision.codes and ALREADY_RUNNING not in decision.codes:  # its last run may yet be done
            raise self._failed(decision) from None
        if decision.verb is not Verb.WAIT or not waits:
            raise refused
        if self._guarded._closed.is_set() or now >= self._by:
            raise WorkflowLeft(self._unit.name, str(refused))
        return min(ASKS_EVERY, max(0, decision.until - now) / SECOND)

    def _failed(self, decision: Decision) -> SessionFailed:
        count, most = resumes(self._governor, self._unit.name)
        what = f"{self._unit.name} may not be resumed"
        failed = SessionFailed(decision, self._governor.clock.now(), what, attempts=count + 1, most=most)
        log.error("%s. %s", failed, failed.remedy, extra={"metadata": failed.metadata})
        return failed

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Around all of it: what leaves without an outcome is remembered."""
        try:
            with left_without_store(self._unit.name):
                yield
        except WorkflowLeft as left:
            self._guarded._left.add(self._workflow)
            log.warning("%s", left)
            raise
        finally:
            if self._block is not None and self._block.owed is not None:
                self._guarded._owed[self._unit.name] = self._block.owed


def _not_refused(
    wanted: Callable[[BaseException], bool | Awaitable[bool]] | None,
) -> Callable[[BaseException], bool | Awaitable[bool]]:
    """Whether to try a step again: not if it was refused, and else as was wanted."""

    def should_retry(error: BaseException) -> bool | Awaitable[bool]:
        return not isinstance(error, Refused) and (wanted is None or wanted(error))

    return should_retry


def _rewound(found: WorkflowStatus) -> bool:
    """Rewind it to where it goes on. Not if another one was quicker."""
    try:
        DBOS.rewind_workflow(
            found.workflow_id,
            start_step=_goes_on_at(found.workflow_id),
            queue_name=found.queue_name,
            queue_partition_key=found.queue_partition_key,
        )
    except of_dbos.DBOSException:
        now = DBOS.get_workflow_status(found.workflow_id)
        if now is not None and now.status == found.status:
            raise
        return False
    return True


def _goes_on_at(workflow_id: str) -> int:
    """The step that a workflow with an outcome goes on at: the first one that was refused, or the last one if it
    failed, or the one after all that were made."""
    steps = DBOS.list_workflow_steps(workflow_id)
    for step in steps:
        if isinstance(step["error"], Refused):
            return step["function_id"]
    if not steps:
        return 1
    last = max(steps, key=lambda step: step["function_id"])
    return last["function_id"] + (last["error"] is None)
