"""Temporal: an interceptor for a worker. Each attempt of an activity asks leave before it starts, and is counted before
it acts.

    worker = Worker(client, task_queue="agents", …, interceptors=[GuardInterceptor(guard, attempts=3)])

An activity is a piece of work, as a session is: a unit of its own, named after its workflow, of which each attempt is a
run. So an attempt whose worker was killed is found as lost, and counts; and how often there is another is no longer
Temporal's to say, which by default tries for ever. What has to wait is waited for by Temporal, which does so durably:
no worker is busy with it. The workflow is the tree of its activities: they share what a tree has.

Workflow code is replayed, and must come to the same each time. So nothing of this runs there: a workflow sees a refusal
as an activity that failed.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib import import_module
from typing import Any, Final

from flyball.config import Settings
from flyball.config.build import budget_name
from flyball.config.money import micro
from flyball.config.section import COUNT_MAX
from flyball.config.units import RestartWhen, Unit
from flyball.core.amounts import MONEY, amount_text
from flyball.core.decision import Verb
from flyball.core.event import NAME_MAX as LABEL_MAX
from flyball.core.event import Cause, Exited, Released, Start
from flyball.core.name import NAME_MAX, is_name, name_from
from flyball.core.policy import AnyPolicy, Gate
from flyball.core.time import FOREVER, SECOND, Instant
from flyball.errors import FlyballError, StoreError
from flyball.governor import Governor
from flyball.integrations.guarding import Guarding
from flyball.integrations.missing import missing
from flyball.policies import Budget, Limit
from flyball.policies.limit import OUT_OF_RESUMES, RESUMES
from flyball.runtimes.agent.block import WatchedBlock
from flyball.runtimes.agent.context import Context
from flyball.runtimes.agent.options import SECONDS_MAX, check_seconds
from flyball.runtimes.amounts import Given, whole
from flyball.runtimes.current import running
from flyball.runtimes.driver import ALREADY_RUNNING, OVERDUE, TROUBLE_WAIT, Ending
from flyball.runtimes.refusal import Refused
from flyball.runtimes.session.block import HEARS_EVERY, STAGES_MAX
from flyball.runtimes.session.opening import known, opening, resumes
from flyball.runtimes.session.options import session_unit

try:
    from temporalio import activity
    from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, CancelledError
    from temporalio.worker import (
        ActivityInboundInterceptor,
        ActivityOutboundInterceptor,
        ExecuteActivityInput,
        Interceptor,
    )
except ImportError:
    raise missing("Temporal", "temporal") from None

log = logging.getLogger(__name__)

DEFAULT_NAMESPACE: Final = "default"

ASKS_AGAIN: float = 5.0
"""Seconds after which an attempt asks again that found another one alive. That one has a lease for longer than this,
but may end at any moment."""

OWED_MAX: Final = 120
"""How often it is tried to write down how an attempt ended, every few seconds, while the store is out of reach: for as
long as its lease lasts, by default. After that it is found as lost."""

WORKFLOW: Final = "tree"
"""The label that all activities of a workflow share."""

NOT_RETURNED: Final = object()

Labels = Mapping[str, str] | Callable[[activity.Info, Sequence[Any]], Mapping[str, str]]
"""Labels of activities: for all of them the same, or made for each of what Temporal says of it and its arguments."""


def _completes_elsewhere() -> type[BaseException]:
    """What an activity raises that somebody else will complete. Temporal has no public name for it."""
    try:
        activity.raise_complete_async()
    except BaseException as error:  # noqa: BLE001 - it is what was asked for
        return type(error)


ELSEWHERE: Final = _completes_elsewhere()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one activity may use. What is not given is as the settings say of a session."""

    attempts: int | None = None
    """How often it is started, in all, whatever Temporal's retry policy says; one more is held for a person."""
    deadline: float | None = None
    """Seconds of one attempt. Not given: its `start_to_close_timeout`."""
    steps: int | None = None
    """Steps that are made in it, over all attempts."""
    budget: Given | None = None
    """What it may spend, in all attempts together."""

    def __post_init__(self) -> None:
        _check_count("attempts", self.attempts)
        check_seconds("activities", "deadline", self.deadline, "above")
        _check_count("steps", self.steps)
        _check_budget("budget", self.budget)

    def over(self, general: "Limits") -> "Limits":
        """These, and where one is not given, that of all activities."""
        return Limits(
            attempts=general.attempts if self.attempts is None else self.attempts,
            deadline=general.deadline if self.deadline is None else self.deadline,
            steps=general.steps if self.steps is None else self.steps,
            budget=general.budget if self.budget is None else self.budget,
        )


class GuardInterceptor(Interceptor):
    """Given to a worker as one of its interceptors; the outermost, so that nothing acts before leave is given.

    `attempts`, `deadline`, `steps` and `budget` are limits of each activity, as `Limits` says; `activities` has others
    for some, by their type. A workflow, in all its activities together, may start `workflow_attempts` of them and spend
    `workflow_budget`. `labels` are those of an activity (`user`, `provider`, …), or a function that makes them of its
    info and its arguments.

    What is held fails its workflow, unless the workflow catches that; or, with `asks_again`, it asks again after so
    many seconds, and goes on by itself when a person has released it. Without a `guard`, one is opened.
    """

    def __init__(
        self,
        guard: Guarding | None = None,
        *,
        attempts: int | None = None,
        deadline: float | None = None,
        steps: int | None = None,
        budget: Given | None = None,
        activities: Mapping[str, Limits] | None = None,
        workflow_attempts: int | None = None,
        workflow_budget: Given | None = None,
        labels: Labels | None = None,
        asks_again: float | None = None,
    ) -> None:
        super().__init__()
        _check_count("workflow_attempts", workflow_attempts)
        _check_budget("workflow_budget", workflow_budget)
        check_seconds("activities", "asks_again", asks_again, "above")
        _check_labels(labels)
        _check_limits(activities or {})
        limits = Limits(attempts=attempts, deadline=deadline, steps=steps, budget=budget)
        by_type = {kind: own.over(limits) for kind, own in (activities or {}).items()}
        self._rules = _Rules(limits, by_type, workflow_attempts, workflow_budget, labels or {}, asks_again)
        # As any program does it: an integration does not know how a guard is put together.
        self._guard: Guarding = guard if guard is not None else import_module("flyball").open()
        self._debts = _Debts(self._guard.governor)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - Temporal's name
        """One attempt is about to start."""
        return _Attempt(next, self._guard, self._rules, self._debts)


def current() -> Context:
    """The run that the activity at hand is: for its steps, its money, and a person to ask."""
    run = running()
    if not isinstance(run, Context):
        text = "there is no guarded activity here"
        raise FlyballError(text, remedy="Use it inside an activity, not in a process of a pool.")
    return run


def unit_of(info: activity.Info) -> str:
    """The name of the unit that an activity is: `charge@order-17.1` is the first activity of the workflow `order-17`.
    It stays the same over attempts, and over runs of its workflow. No two share one: where it does not fit into a name
    as it is, a part of its hash is added."""
    parts = (info.namespace, info.activity_type, info.workflow_id or "", info.activity_id)
    plain = f"{info.activity_type}@{info.workflow_id}.{info.activity_id}"
    if info.workflow_id is None:
        plain = f"{info.activity_type}@{info.activity_id}"
    clear = "@" not in info.activity_type and "." not in info.activity_id and info.namespace == DEFAULT_NAMESPACE
    return plain if clear and is_name(plain) else _marked(name_from(plain, "activity"), parts, NAME_MAX)


@dataclass(frozen=True, slots=True)
class _Rules:
    """What the interceptor was told."""

    limits: Limits
    by_type: Mapping[str, Limits]
    workflow_attempts: int | None
    workflow_budget: Given | None
    labels: Labels
    asks_again: float | None

    def unit(self, info: activity.Info, args: Sequence[Any]) -> Unit:
        """The unit that an activity is."""
        limits, timeout = self._limits_of(info), info.start_to_close_timeout
        labels = self.labels(info, args) if callable(self.labels) else self.labels
        unit = session_unit(
            unit_of(info),
            deadline=limits.deadline or (min(timeout.total_seconds(), SECONDS_MAX) if timeout else None),
            steps=limits.steps,
            resumes=None,
            version="",
            labels={"activity": _label(info.activity_type), **labels},
            user="",
            tree=_label(info.workflow_id or info.activity_id),
            causes=None,
        )
        return replace(unit, restart=RestartWhen.ON_FAILURE)  # whoever retries it is Temporal

    def policies(self, info: activity.Info, settings: Settings) -> list[AnyPolicy]:
        """Its own safeguards, over those that the settings give every session."""
        limits, recovery = self._limits_of(info), settings.daemon.session_recovery
        attempts = limits.attempts or 1 + (recovery.max_resume_attempts if recovery.enabled else 0)
        own: list[AnyPolicy] = [
            # In place of the limit on resumes: what was done here and not to Temporal is started again, not resumed.
            Limit(
                of=Start,
                most=attempts,
                verb=Verb.HOLD,
                code=OUT_OF_RESUMES,
                text="Attempt limit of the activity reached",
                remedy="Look at how its attempts ended: `flyball why`. To let it go on: `flyball resume`, and then "
                "reset its workflow or run it again.",
                over_done=True,
                name=RESUMES,
                by="unit",
                at=Gate.START,
            ),
            *_budgets(limits.budget, "unit", micro(settings.budget.kept_back)),
            *_budgets(self.workflow_budget, WORKFLOW, 0),
        ]
        if self.workflow_attempts is not None:
            own.append(
                Limit(
                    of=Start,
                    most=self.workflow_attempts,
                    text="Activity limit of the workflow reached",
                    remedy="Look at why it does not end. If it is really that long, raise `workflow_attempts`.",
                    name="activities",
                    by=WORKFLOW,
                    at=Gate.START,
                )
            )
        return own

    def failure(self, refused: Refused, unit: str, now: Instant) -> ApplicationError:
        """A refusal, as Temporal is told of it: when to try again, or never."""
        decision = refused.decision
        delay = self._delay(refused, now)
        return ApplicationError(
            f"{unit}: {refused.reason.text}. {refused.remedy}".rstrip(),
            {"unit": unit, "verb": decision.verb.name.lower(), "codes": list(decision.codes)},
            type=refused.code,
            non_retryable=delay is None and refused.code not in OVERDUE,
            next_retry_delay=timedelta(seconds=delay) if delay is not None else None,
            # To wait is no failure: it is not logged as one.
            category=ApplicationErrorCategory.UNSPECIFIED if delay is None else ApplicationErrorCategory.BENIGN,
        )

    def _delay(self, refused: Refused, now: Instant) -> float | None:
        """Seconds until it is asked again; None: by itself never."""
        decision = refused.decision
        ends = max(0, decision.until - now) / SECOND if decision.until < FOREVER else None
        if ALREADY_RUNNING in decision.codes:  # whatever else is said: that other attempt may yet be done
            return ASKS_AGAIN if ends is None else min(ends, ASKS_AGAIN)
        if decision.verb is Verb.HOLD and self.asks_again is not None:
            return self.asks_again if ends is None else min(ends, self.asks_again)
        return ends if decision.verb in (Verb.WAIT, Verb.HOLD) else None

    def _limits_of(self, info: activity.Info) -> Limits:
        return self.by_type.get(info.activity_type, self.limits)


class _Debts:
    """How attempts ended, where the store could not take that: said later. Until then their places are taken."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._paying: set[asyncio.Task[None]] = set()

    def owe(self, exited: Exited) -> None:
        """Say it as soon as it can be said."""
        task = asyncio.ensure_future(self._pay(exited))
        self._paying.add(task)
        task.add_done_callback(self._paying.discard)

    async def _pay(self, exited: Exited) -> None:
        for _ in range(OWED_MAX):
            await asyncio.sleep(TROUBLE_WAIT / SECOND)
            try:
                await asyncio.to_thread(self._governor.submit_living, exited)
            except StoreError as error:
                log.warning("how %s ended cannot be written yet: %s", exited.unit, error)
            else:
                return


class _Attempt(ActivityInboundInterceptor):
    """One attempt of an activity. Temporal makes one for each."""

    def __init__(self, next: ActivityInboundInterceptor, guard: Guarding, rules: _Rules, debts: _Debts) -> None:  # noqa: A002 - as above
        super().__init__(next)
        self._guard, self._rules, self._debts = guard, rules, debts
        self.block: _AttemptBlock | None = None

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        """Hear its heartbeats, too."""
        super().init(_Heartbeats(outbound, self))

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - as above
        """Ask leave, have it act, and say how it ended."""
        info = activity.info()
        unit = self._rules.unit(info, input.args)
        self.block = block = _AttemptBlock(self._guard, unit, self._rules.policies(info, self._guard.settings), info)
        block.is_coroutine = input.executor is None
        block.hears_beats = block.is_coroutine or isinstance(input.executor, ThreadPoolExecutor)
        result: Any = NOT_RETURNED
        try:
            async with block:
                result = await super().execute_activity(input)
        except Refused as refused:
            raise self._rules.failure(refused, unit.name, self._guard.governor.clock.now()) from refused
        except StoreError as error:
            if not block.begun:
                raise _out_of_reach(error) from error
            if block.owed is not None:
                self._debts.owe(block.owed)
            if result is NOT_RETURNED:
                raise
        return result


class _AttemptBlock(WatchedBlock):
    """A run that is an attempt. The store is asked in threads: the worker's loop has other work."""

    def __init__(self, guard: Guarding, unit: Unit, own: list[AnyPolicy], info: activity.Info) -> None:
        super().__init__(
            guard.governor,
            unit,
            causes={CancelledError: Cause.STOPPED},
            listener=lambda *_: None,
            opening=lambda start: opening(guard.governor, start),
            steps_max=STAGES_MAX,
        )
        self._guard, self._own = guard, own
        self._is_first = info.attempt == 1
        self.begun = False
        self.is_coroutine = True
        """It can be cancelled. What is in a thread cannot: it would go on, and nobody would wait for it."""
        self.hears_beats = True
        """What a heartbeat raises reaches the activity."""

    def beat(self) -> None:
        """The activity says that it is alive. Refused, if it is to end."""
        if self.begun:
            self._context.beat()
            if self.hears_beats:
                self._context.check()

    def _start(self) -> Instant:
        governor, name = self._governor, self._unit.name
        self._listener = self._guard.define_work(self._unit, *self._own)
        if self._is_first and not known(governor, name).begun and resumes(governor, name)[0]:
            # Its workflow runs once more, and this is new work. After a first attempt it is not: what was done here,
            # and is asked for again, was not done to Temporal, because the worker died before it could say so.
            self._governor.submit(
                Released(
                    unit=name,
                    labels=self._unit.labels,
                    policies=(RESUMES,),
                    by="flyball",
                    note="it was done, and its workflow runs once more",
                )
            )
        until = super()._start()
        self.begun = True
        return until

    def _apart(self, until: Instant) -> float:
        return min(HEARS_EVERY, super()._apart(until))

    def _cancel(self) -> None:
        if self.is_coroutine:
            super()._cancel()
        elif self.hears_beats:
            log.warning(
                "%s is to end; it is in a thread, and hears that at its next heartbeat or step", self._unit.name
            )
        else:
            log.error("%s is to end; it is in a process of a pool, and cannot be ended from here", self._unit.name)

    def _ending(self, error: BaseException | None) -> Ending:
        if isinstance(error, ELSEWHERE) and self._told is None:
            return Ending(Cause.DONE)
        ending = super()._ending(error)
        if ending.cause is Cause.STARVED and ending.policy:
            # Its own money is gone: it did not fail, and says nothing of what others share with it.
            return replace(ending, cause=Cause.STOPPED)
        return ending


class _Heartbeats(ActivityOutboundInterceptor):
    """What an activity says while it runs."""

    def __init__(self, next: ActivityOutboundInterceptor, attempt: _Attempt) -> None:  # noqa: A002 - as above
        super().__init__(next)
        self._attempt = attempt

    def heartbeat(self, *details: Any) -> None:
        """It is alive; and this is where a thread hears that it is to end."""
        super().heartbeat(*details)
        if self._attempt.block is not None:
            self._attempt.block.beat()


def _budgets(given: Given | None, by: str, kept_back: int) -> list[AnyPolicy]:
    return [
        Budget(
            limit=limit,
            kept_back=min(limit, kept_back) if meter == MONEY else 0,
            meter=meter,
            by=by,
            name=budget_name(meter),
        )
        for meter, limit in whole(given).items()
    ]


def _out_of_reach(error: StoreError) -> ApplicationError:
    """Nobody could be asked, so nothing was begun. It may be this worker's trouble alone: it is tried again."""
    return ApplicationError(
        f"leave cannot be asked: {error}. {error.remedy}",
        type=type(error).__name__,
        next_retry_delay=timedelta(seconds=TROUBLE_WAIT / SECOND),
    )


def _label(text: str) -> str:
    """A text as the value of a label, no two alike."""
    if len(text) <= LABEL_MAX and text.isprintable():
        return text
    return _marked(name_from(text, "workflow"), (text,), LABEL_MAX)


def _marked(name: str, parts: tuple[str, ...], most: int) -> str:
    """That name, with a part of the hash of what it was made of."""
    hasher = hashlib.blake2b(digest_size=6)
    for part in parts:
        hasher.update(f"{len(part)}:{part}".encode())
    mark = hasher.hexdigest()
    return f"{name[: most - len(mark) - 1]}-{mark}"


def _check_limits(given: Mapping[str, object]) -> None:
    for kind, limits in given.items():
        if not isinstance(limits, Limits):
            raise FlyballError(f"activities has {limits!r} for {kind!r}", remedy="It maps types to `Limits(…)`.")


def _check_labels(given: object) -> None:
    if given is not None and not isinstance(given, Mapping) and not callable(given):
        remedy = "They are a dict, or a function of an activity's info and arguments that returns one."
        raise FlyballError(f"labels is {given!r}", remedy=remedy)


def _check_count(option: str, given: object) -> None:
    if given is None:
        return
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= COUNT_MAX:
        text = f"{option} is {given!r}"
        raise FlyballError(text, remedy=f"Give a whole number from 1 to {COUNT_MAX}, or leave it out.")


def _check_budget(option: str, given: Given | None) -> None:
    for meter, limit in whole(given, option).items():
        if not limit:
            text = f"{option} is {amount_text(meter, 0)}: it would let nothing run"
            raise FlyballError(text, remedy="Give an amount above 0, or leave it out.")
