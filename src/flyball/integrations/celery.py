"""Celery: every task of an app under a guard. A task that kills its worker is counted before it starts.

    app = Celery("shop", broker="redis://…")
    tasks = GuardedTasks(app, flyball.open)

A message of a task is a run of the unit that the task is. Leave is asked in the process that is about to run it; how it
ended is reported there. Of a process that was killed nobody reports: its run is found as lost when the message comes
again, or when its lease ran out. So what Celery delivers for ever is begun so often, and not once more.

Messages are told apart by the label `message`. One that failed too often is held by itself: those of its kind that do
well do not make it forgotten. And no message is run twice at a time, though a broker may deliver it twice.

Where leave is not given: what has to wait is sent again, with a countdown, at no cost to Celery's own retries; all else
ends as `TaskRefused`, a failure with the reason in it. Messages, retries, results and pools stay Celery's.
"""

import contextlib
import functools
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

from flyball.config import Settings
from flyball.config.build import budget_name
from flyball.config.units import MESSAGE, Unit
from flyball.core.codec import readable_state
from flyball.core.decision import Decision, Verb
from flyball.core.event import Cause, Released
from flyball.core.failures import Failure, Failures
from flyball.core.policy import AnyPolicy, Key
from flyball.core.time import DAY, Span, span
from flyball.errors import FlyballError, StoreError
from flyball.governor import Governor
from flyball.integrations.guarding import Guarding
from flyball.integrations.missing import missing
from flyball.policies import Budget, Exclusive, Quarantine
from flyball.runtimes.agent.block import Listener, WatchedBlock
from flyball.runtimes.agent.ending import GAVE_UP, Causes, GaveUp
from flyball.runtimes.agent.options import agent_unit
from flyball.runtimes.amounts import Given, whole
from flyball.runtimes.current import CURRENT
from flyball.runtimes.driver import ALREADY_RUNNING, Ending
from flyball.runtimes.refusal import Refused, refusal
from flyball.store import Draft, Snapshot

try:
    from billiard.pool import SIG_SOFT_TIMEOUT, soft_timeout_sighandler
    from celery import signals
    from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded
except ImportError:
    raise missing("Celery", "celery") from None

log = logging.getLogger("flyball")

MARK: Final = "flyball"
"""The option of a task that says how it is guarded; and the mark of what is wrapped."""

REDELIVERY: Final = "redelivery"
"""The policy that counts failing runs of one message."""

OWN: Final = frozenset(("celery.accumulate", "celery.backend_cleanup", "celery.chord_unlock"))
"""Celery's own housekeeping. It runs none of the user's code, and comes again and again by design."""

STARTS_MAX: Final = 3
"""Failing runs of one message. One may be the machine's fault and two a coincidence; a third is the message's."""

AT_ONCE_MAX: Final = 256
"""Live runs of one task, over all workers, unless it says otherwise. Celery's own pools are the real limit; this one
bounds what is written at each start."""

WAITS_MAX: Final = 600.0
"""Seconds until a message that has to wait asks again, at most. Brokers deliver a message anew that a worker has held
for long, by default for half an hour to an hour."""

LIVE_LOOKS: Final = 2.0
"""Seconds until it asks again where another run has its place: that mostly ends long before its lease does."""

HELD_LOOKS: Final = 60.0
"""Seconds until a message asks again that is kept while its task is held."""

STORE_WAIT: Final = 10.0
"""Seconds until it asks again where the store cannot be asked: without leave nothing begins."""

FORGOTTEN_AFTER: Final[Span] = 30 * DAY
"""Messages that nobody delivered again for so long are not delivered any more."""

CAUSES: Final[Causes] = {SoftTimeLimitExceeded: Cause.TIMEOUT}

COMES_AGAIN: Final = (Retry, Reject, MemoryError)
"""What a task may raise without Celery being done with its message."""


class Opened(Guarding, Protocol):
    """A guard that each process of a worker opens for itself, and closes."""

    def close(self) -> None:
        """Let go of the store."""


class TaskRefused(FlyballError):
    """Leave was not given, and will not be by waiting. This is the stored result of the task. `code` is the stable name
    of the reason, `remedy` says what to do."""

    def __init__(self, text: str, code: str = "", remedy: str = "") -> None:
        super().__init__(text, remedy=remedy)
        self.code = code
        self.args = (text, code, remedy)  # a result is stored as these, and made of these again

    def __str__(self) -> str:
        return f"{self.args[0]}. {self.remedy}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """How a task is guarded: `@app.task(flyball=TaskOptions(unit="research", budget="0.50"))`.

    Tasks with one `unit` share it; not given: the task's name. `starts` are failing runs of one message. `at_once` are
    live runs over all workers. `deadline` is in seconds and `budget` for one run. The others are as for any agent.
    """

    unit: str = ""
    starts: int = STARTS_MAX
    at_once: int = AT_ONCE_MAX
    deadline: float | None = None
    budget: Given | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    tree: str = ""
    causes: Causes = field(default_factory=dict)

    def unit_of(self, task: str) -> Unit:
        """The unit that a task of that name is. FlyballError says which option is wrong."""
        for option, given in {"starts": self.starts, "at_once": self.at_once}.items():
            if not isinstance(given, int) or isinstance(given, bool) or given < 1:
                raise FlyballError(f"task {task}: {option} is {given!r}", remedy="Give a whole number above 0.")
        whole(self.budget, f"budget of task {task}")
        try:
            return agent_unit(
                self.unit or task,
                restart="on-failure",
                deadline=self.deadline,
                budget_by="run",
                labels=self.labels,
                user=self.user,
                tree=self.tree,
                causes=self.causes,
            )
        except FlyballError as error:
            remedy = f"{error.remedy} A task takes it by `@app.task(flyball=TaskOptions(…))`."
            raise FlyballError(f"task {task}: {error}", remedy=remedy) from None

    def policies(self, settings: Settings) -> list[AnyPolicy]:
        """The safeguards that these options ask for, over those that the settings give every agent."""
        lease = span(settings.exclusive.lease_seconds)
        return [
            Exclusive(runs_max=self.at_once, lease=lease),
            Exclusive(runs_max=1, lease=lease, name="delivery", by=MESSAGE),
            Quarantine(failures_max=self.starts, healthy_after=0, name=REDELIVERY, by=MESSAGE),
            *(
                Budget(limit=limit, meter=meter, by="run", name=budget_name(meter))
                for meter, limit in whole(self.budget).items()
            ),
        ]


class GuardedTasks:
    """All tasks of an app, under a guard: those that there are, and those that are made before its workers start."""

    def __init__(
        self,
        app: Any,
        opener: Callable[[], Opened],
        *,
        skip: Collection[str] = (),
        held: Literal["fail", "keep"] = "fail",
    ) -> None:
        """`opener` opens a guard, once in each process that runs tasks: `flyball.open`, or a function that calls it.
        Tasks named in `skip` are not guarded. What becomes of messages of a task that is held: they `fail`, or are
        kept, and ask again once a minute until somebody releases it."""
        if held not in ("fail", "keep"):
            raise FlyballError(f"held is {held!r}", remedy="It is one of: fail, keep.")
        self._app = app
        self._opener = opener
        self._skip = OWN | frozenset([skip] if isinstance(skip, str) else skip)
        self._keeps = held == "keep"
        self._guard: Opened | None = None
        self._pid = 0
        self._mutex = threading.Lock()
        # Each of them may be the first to see a task. Not weakly: nobody else may hold on to this.
        app.on_after_finalize.connect(self._wrap_all, weak=False)
        signals.worker_init.connect(self._check, weak=False)
        signals.worker_process_shutdown.connect(self._shut, weak=False)
        if app.finalized:
            self._wrap_all()

    @property
    def guard(self) -> Opened:
        """The guard of this process. A store cannot be shared with a process that was forked off: each has its own."""
        with self._mutex:
            if self._guard is None or self._pid != os.getpid():
                self._guard, self._pid = self._opener(), os.getpid()
            return self._guard

    def close(self) -> None:
        """Let go of the store, in this process. What is asked after this opens it again."""
        with self._mutex:
            guard, self._guard = self._guard, None
            if guard is not None and self._pid == os.getpid():
                guard.close()

    def release(self, message: str, task: str, *, by: str = "") -> None:
        """A person lets go of one message that is held: it may be sent again under the same id."""
        unit = self._plan(self._app.tasks[task])[1].name
        self.guard.governor.submit(Released(unit=unit, scope=MESSAGE, labels={MESSAGE: message}, by=by))

    # What Celery tells.

    def _wrap_all(self, **_: object) -> None:
        for name, task in self._app.tasks.items():
            if name not in self._skip and not hasattr(task.run, MARK):
                task.run = self._wrapped(task, task.run)

    def _plan(self, task: Any) -> tuple[TaskOptions, Unit]:
        """How that task is guarded. FlyballError if that cannot be what was meant."""
        options = getattr(task, MARK, None)
        if options is not None and not isinstance(options, TaskOptions):
            text = f"task {task.name}: {MARK} is {options!r}"
            raise FlyballError(text, remedy=f"Give it `{MARK}=TaskOptions(…)`, or leave it out.")
        options = options or TaskOptions()
        return options, options.unit_of(task.name)

    def _check(self, **_: object) -> None:
        """A worker starts: what is wrong with the guard is said now, and the worker does not start. Celery logs what
        its signals raise and goes on, but for this."""
        try:
            self._wrap_all()
            for name in self._app.tasks.keys() - self._skip:
                self._plan(self._app.tasks[name])
            self._forget_old()
            self.close()  # before the pool is forked
        except FlyballError as error:
            raise SystemExit(f"flyball: {error}. {error.remedy}") from None

    def _shut(self, **_: object) -> None:
        with contextlib.suppress(FlyballError):
            self.close()

    def _forget_old(self) -> None:
        governor = self.guard.governor
        now = governor.clock.now()
        for key in governor.store.states(REDELIVERY):
            _drop(governor, key.subject, lambda kind: now - kind.last > FORGOTTEN_AFTER)

    # One message.

    def _wrapped(self, task: Any, run: Callable[..., Any]) -> Callable[..., Any]:
        """What Celery calls in place of the task's own `run`. It is around `autoretry_for`, too: a refusal is no
        failure of the task, and is not tried again."""

        @functools.wraps(run)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            request = _message_of(task)
            if request is None:
                return run(*args, **kwargs)
            return self._run(task, request, lambda: run(*args, **kwargs))

        setattr(guarded, MARK, True)
        return guarded

    def _run(self, task: Any, request: Any, code: Callable[[], Any]) -> Any:
        options, unit = self._plan(task)
        block = self._begun(task, request, options, unit)
        try:
            block.listen()
            result = code()
        except BaseException as error:
            block.leave(error)
            if isinstance(error, Exception | GaveUp) and not isinstance(error, COMES_AGAIN):
                self._forget(request.id, options.starts)
            if block.ended_by is not None and isinstance(error, SoftTimeLimitExceeded):
                raise _told(request, unit, "was ended", refusal(block.ended_by, 0)) from error
            if isinstance(error, GaveUp):  # no Exception: a child of Celery's would not outlive it
                text = f"message {request.id} of {unit.name} gave up: {error.why}"
                raise TaskRefused(
                    text, GAVE_UP, remedy="Put right what it says, then send the message again."
                ) from error
            raise
        block.leave(None)
        return result

    def _begun(self, task: Any, request: Any, options: TaskOptions, unit: Unit) -> "_TaskBlock":
        """The run, which may begin now. What may not, leaves as what Celery understands."""
        try:
            guard = self.guard
            listener = guard.define_work(unit, *options.policies(guard.settings))
            of_message = replace(unit, labels={**unit.labels, MESSAGE: request.id})
            block = _TaskBlock(guard.governor, of_message, causes={**CAUSES, **options.causes}, listener=listener)
            block.__enter__()
        except StoreError as error:
            raise self._sent_again(task, request, STORE_WAIT, error) from None
        except Refused as refused:
            told, waits = _told(request, unit, "may not start", refused), self._waits(refused)
            raise (told if waits is None else self._sent_again(task, request, waits, told)) from None
        return block

    def _waits(self, refused: Refused) -> float | None:
        """Seconds until it is asked again; None: it is not."""
        if refused.verb is Verb.WAIT:
            longest = LIVE_LOOKS if ALREADY_RUNNING in refused.decision.codes else WAITS_MAX
            return longest if refused.retry_after is None else min(refused.retry_after, longest)
        its_own = any(reason.policy == REDELIVERY for reason in refused.decision.reasons)
        kept = refused.verb is Verb.HOLD and self._keeps and not its_own
        return HELD_LOOKS if kept else None

    def _sent_again(self, task: Any, request: Any, countdown: float, why: FlyballError) -> Exception:
        """Send the message again, as it is; with as many retries as it had. What is to be raised then: only after that
        is the message at hand acknowledged. A worker that dies in between leaves two of them, of one id."""
        if request.is_eager:
            return why
        again = task.signature_from_request(request, countdown=countdown, retries=request.retries)
        try:
            again.apply_async()
        except Exception as error:  # noqa: BLE001 - whatever the broker's library raises: it is not sent
            log.error("%s cannot be sent again: %s", request.id, error)
            put_back: Exception = Reject(error, requeue=True)
            return put_back
        retry: Exception = Retry(exc=why, when=countdown, sig=again)
        return retry

    def _forget(self, message: str, starts: int) -> None:
        """Nobody delivers that message any more, so nothing is to be remembered of it, unless it is held."""
        try:
            _drop(self.guard.governor, message, lambda kind: kind.count < starts)
        except StoreError as error:  # it is forgotten later, with the old ones
            log.warning("what is known of message %s is kept: %s", message, error)


class _TaskBlock(WatchedBlock):
    """A run of a task. If it is to stop, it is interrupted as Celery interrupts what takes too long; where that cannot
    be, in a thread, its next step is refused."""

    def __init__(self, governor: Governor, unit: Unit, *, causes: Causes, listener: Listener) -> None:
        super().__init__(governor, unit, causes=causes, listener=listener, told=self._interrupt)
        self.ended_by: Decision | None = None
        """What it was interrupted for."""
        self._interrupting = threading.Lock()
        self._deaf = True
        """Nobody may be interrupted now: its code has not begun, or has ended."""

    def listen(self) -> None:
        """The task's own code begins: from now on it may be interrupted."""
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(SIG_SOFT_TIMEOUT) is soft_timeout_sighandler:
            self._deaf = False
            if self._told is not None:
                self._interrupt(self._told)

    def leave(self, error: BaseException | None) -> None:
        """The task's own code has ended. That this cannot be written makes nothing of what it did undone: its run is
        then found as lost, and counted as that."""
        with contextlib.suppress(SoftTimeLimitExceeded):  # sent while the code ended by itself
            with self._interrupting:
                self._deaf = True
            if self.ended_by is not None:
                time.sleep(0)  # what was sent comes here, and no later
        try:
            self.__exit__(type(error) if error is not None else None, error, None)
        except StoreError as trouble:
            log.error("how a run of %s ended cannot be written: %s", self._unit.name, trouble)

    def _interrupt(self, decision: Decision) -> None:
        with self._interrupting:
            if decision.verb >= Verb.STOP and not self._deaf:
                self._deaf, self.ended_by = True, decision
                signal.pthread_kill(threading.main_thread().ident or 0, SIG_SOFT_TIMEOUT)

    def _ending(self, error: BaseException | None) -> Ending:
        """A retry that the task asks for is a failure if it says for which; otherwise it only comes back later."""
        if isinstance(error, Retry) and isinstance(error.exc, Exception):
            error = error.exc
        if self._told is None and isinstance(error, Ignore | Reject | Retry):
            return Ending(Cause.STOPPED, error=type(error).__name__.lower())
        return super()._ending(error)


def _message_of(task: Any) -> Any | None:
    """The message that the code at hand is called for. None: it is called directly, as any function is, perhaps by a
    task that is guarded already."""
    request = next((found for found in reversed(task.request_stack.stack) if not found.called_directly), None)
    run = CURRENT.get()
    within = run is not None and request is not None and run.labels.get(MESSAGE) == request.id
    return None if within else request


def _told(request: Any, unit: Unit, what: str, refused: Refused) -> TaskRefused:
    remedy = refused.remedy
    if refused.reason.policy == REDELIVERY:
        remedy = f"Look into it. Then let go of it (`flyball resume {unit.name}`) and send it again; or send a new one."
    text = f"message {request.id} of {unit.name} {what}: {refused.reason.text}"
    return TaskRefused(text, refused.code, remedy=remedy)


def _drop(governor: Governor, message: str, may: Callable[[Failure], bool]) -> None:
    """Forget the failures of a message, if all of them may be. No journal tells of it: nobody asked for that."""
    key = Key(REDELIVERY, MESSAGE, message)

    def draft(snapshot: Snapshot) -> Draft | None:
        state = readable_state(Failures, snapshot.records[key]) if key in snapshot.records else None
        if state is None or not all(may(kind) for kind in state.failures.values()):
            return None
        return Draft(max(governor.clock.now(), snapshot.at), {key: None}, None)

    governor.store.transact([key], draft, sync=False)
