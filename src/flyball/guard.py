"""The guard: flyball inside somebody's own program. Agents, guarded calls and money, on one governor.

`flyball.open()` gives one. It is usable from threads and coroutines, and by several processes on one store at once.
Here is only how its parts are put together; each part says for itself what it does.
"""

import asyncio
import dataclasses
import hashlib
import inspect
import logging
import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Literal, Self, TypeVar, get_args

from flyball.config import Settings, definitions
from flyball.config.build import budget_name, get_tier_limit, unit_policies
from flyball.config.money import micro
from flyball.config.units import Unit
from flyball.control import sessions
from flyball.control.news import News
from flyball.control.past import Past
from flyball.control.shapes import SessionView
from flyball.control.text import describe, one_line
from flyball.control.views import Look
from flyball.core.amounts import MONEY, amount_text
from flyball.core.codec import decode_body
from flyball.core.decision import Decision
from flyball.core.event import AnyEvent, Event, Exited, Start
from flyball.core.policy import AnyPolicy
from flyball.core.time import span
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.policies import Budget
from flyball.runtimes.agent.block import WatchedBlock
from flyball.runtimes.agent.ending import Causes
from flyball.runtimes.agent.inline import Function, InlineHands
from flyball.runtimes.agent.iteration import repeated
from flyball.runtimes.agent.options import GRACE, agent_unit, check_function, check_seconds, labels_of
from flyball.runtimes.agent.process import WorkerHands
from flyball.runtimes.agent.supervisor import Begins, Supervisor
from flyball.runtimes.agent.wire import Task, packed, refuse_while_loading
from flyball.runtimes.agent.wire import check_function as check_importable
from flyball.runtimes.amounts import Given, whole
from flyball.runtimes.calls import Calls
from flyball.runtimes.driver import Sleep, sleep_until
from flyball.runtimes.holder import is_gone, me
from flyball.runtimes.money import Purse, Reservation, Soon
from flyball.runtimes.prices import Prices
from flyball.runtimes.session import options as session_options
from flyball.runtimes.session import record
from flyball.runtimes.session.context import SessionContext
from flyball.runtimes.session.retention import Retention
from flyball.runtimes.session.work import Session, SessionNotFound
from flyball.store import Store

log = logging.getLogger("flyball")

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

EXIT_BY_SIGNAL: Final = 128
"""Added to a signal's number it is the exit code, as shells have it."""

SESSIONS_MAX: Final = 10_000
"""Sessions of which a program knows the function, for whoever resumes them by their name. Of more than this the oldest
are forgotten, and have to be defined again."""

START_WAIT: Final = 30.0
"""Seconds that a session waits for leave to begin: as long as the first cooldowns after a crash last."""

HISTORY_MAX: Final = 1_000
"""Entries of the journal that are looked at, unless more are asked for."""

Isolation = Literal["inline", "process"]
ISOLATIONS: Final[tuple[str, ...]] = get_args(Isolation)


@dataclasses.dataclass(frozen=True, slots=True)
class Agent:
    """An agent as it was defined."""

    unit: Unit
    function: Function
    every: float | None
    isolation: Isolation
    causes: Causes
    revision: str


class Guard:
    """Guards what a program does. Close it after use, or use it as a context."""

    def __init__(
        self,
        settings: Settings,
        governor: Governor,
        *,
        name: str,
        file: Path | None = None,
        reopen: Callable[[], Store] | None = None,
        sleep: Sleep | None = None,
    ) -> None:
        self.settings = settings
        self.governor = governor
        self.name = name
        """The program's own name: what is done outside any agent is on its account."""
        self._file = file
        """The file that every commit of the store changes, in the state folder."""
        self._reopen = reopen
        """Opens the store in another process; None: that cannot be."""
        self._sleep: Sleep = sleep or partial(sleep_until, now=governor.clock.now)
        self._agents: dict[str, Agent] = {}
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._works: OrderedDict[str, None] = OrderedDict()
        self._retention = Retention(governor, settings.journal.max_sessions)
        self._past = Past()
        self._added: list[AnyPolicy] = []
        self._supervisor: Supervisor | None = None
        self._news = News()
        self._put(Unit(name=name, command=()))
        self.call: Final = Calls(governor, name, settings, self.put_policy)
        """`@guard.call("fetch", retry=…, breaker="provider:x", budget=…)`: a guarded call, as decorator or block."""
        self._purse = Purse(governor, name, me())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store. Nothing can be asked after this."""
        self.call.close()
        self.governor.store.close()

    # Agents.

    def agent(
        self,
        name: str,
        *,
        every: float | None = None,
        isolation: Isolation = "inline",
        restart: Literal["on-failure", "always", "never"] = "on-failure",
        deadline: float | None = None,
        idle: float | None = None,
        grace: float = GRACE,
        budget: Given | None = None,
        budget_by: Literal["unit", "run"] = "unit",
        tier: str | None = None,
        labels: Mapping[str, str] | None = None,
        user: str = "",
        tree: str = "",
        causes: Causes | None = None,
    ) -> Callable[[F], F]:
        """Make a function an agent. It is given a `Context`.

        The function is a loop, and its return is its end; with `every` it is one iteration, repeated after so many
        seconds. A coroutine runs in the loop of `run`, a plain function in a thread of its own; with `isolation`
        "process" either has an interpreter of its own, which can be killed. `deadline`, `idle` and `grace` are seconds.
        `budget` is for all its runs together, or for each run; a `tier` gives it that of its user. Agents with one
        `tree` share what the tree has.
        `causes` says which exceptions are what: `{InsufficientQuota: Cause.STARVED}`.
        """
        unit = agent_unit(
            name,
            every=every,
            restart=restart,
            deadline=deadline,
            idle=idle,
            grace=grace,
            budget_by=budget_by,
            labels=labels,
            user=user,
            tree=tree,
            causes=causes,
        )

        budgets = self._budgets(budget, budget_by, tier)

        def define(function: F) -> F:
            if name in self._agents or name == self.name:
                raise FlyballError(f"there is an agent {name!r} already", remedy="Give each agent a name of its own.")
            if isolation not in ISOLATIONS:
                known = " and ".join(map(repr, ISOLATIONS))
                raise FlyballError(f"agent {name}: there is no isolation {isolation!r}", remedy=f"There are {known}.")
            check_function(name, function)
            if isolation == "process":
                check_importable(name, function)
            self._agents[name] = Agent(unit, function, every, isolation, causes or {}, _revision(unit, function))
            self._put(unit, *budgets)
            return function

        return define

    def watch(
        self,
        name: str,
        *,
        deadline: float | None = None,
        budget: Given | None = None,
        budget_by: Literal["unit", "run"] = "run",
        tier: str | None = None,
        labels: Mapping[str, str] | None = None,
        user: str = "",
        tree: str = "",
        causes: Causes | None = None,
    ) -> WatchedBlock:
        """A block of one's own code as a run of an agent: `with` it in a thread, `async with` it in a coroutine. It
        gives the `Context`.

        It is counted, limited and reported as any run is, but not supervised: a failure leaves the block as it is, and
        nobody starts it again. Raises a refusal where it may not start. The options are those of `agent`.
        """
        unit = agent_unit(
            name,
            restart="never",
            deadline=deadline,
            budget_by=budget_by,
            labels=labels,
            user=user,
            tree=tree,
            causes=causes,
        )
        if name in self._agents or name == self.name:
            raise FlyballError(f"{name!r} is taken", remedy="Give what is watched a name of its own.")
        self._put(unit, *self._budgets(budget, budget_by, tier))
        return WatchedBlock(self.governor, unit, causes=causes or {}, listener=self._say)

    def run(self, *names: str, on_hang: Literal["report", "exit"] = "report") -> dict[str, Decision]:
        """Supervise the agents (those named, or all) until all are over; what ended each. Ctrl-C and SIGTERM end them
        in order."""
        return asyncio.run(self._run(names, on_hang))

    async def supervise(self, *names: str, on_hang: Literal["report", "exit"] = "report") -> dict[str, Decision]:
        """The same inside an event loop that is there already. When it is cancelled, the agents are ended in order."""
        refuse_while_loading()
        if self._supervisor is not None:
            raise FlyballError("the agents of this guard are supervised already", remedy="Run them once.")
        agents = [self._agent(name) for name in names] if names else list(self._agents.values())
        self._supervisor = Supervisor(
            governor=self.governor,
            hands={agent.unit.name: self._hands(agent) for agent in agents},
            revisions={agent.unit.name: agent.revision for agent in agents},
            listener=self._say,
            file=self._file,
            exits_when_hung=on_hang == "exit",
            sleep=self._sleep,
        )
        try:
            return await self._supervisor.supervise()
        finally:
            self._supervisor = None

    async def _run(self, names: tuple[str, ...], on_hang: Literal["report", "exit"]) -> dict[str, Decision]:
        loop = asyncio.get_running_loop()
        work = asyncio.ensure_future(self.supervise(*names, on_hang=on_hang))

        def end() -> None:
            if self._supervisor is not None:
                self._supervisor.end()
            else:
                work.cancel()

        with _signals(lambda: loop.call_soon_threadsafe(end)):
            return await work

    def _agent(self, name: str) -> Agent:
        if name not in self._agents:
            known = ", ".join(self._agents) or "none"
            raise FlyballError(f"there is no agent {name!r}; there are: {known}", remedy="Name one of those.")
        return self._agents[name]

    def _hands(self, agent: Agent) -> Begins:
        unit, function, causes = agent.unit, agent.function, agent.causes
        if agent.isolation == "inline":
            return InlineHands(unit, repeated(function, agent.every), self.governor, causes, self._stuck, self._sleep)
        if self._reopen is None or self._file is None:
            text = f"agent {unit.name} has a process of its own, and that cannot see a store that is kept in memory"
            raise FlyballError(text, remedy='Open the guard without `scratch`, or use `isolation="inline"`.')
        policies = tuple(self.governor.panel.policies_of(unit.name))
        task = Task(unit, function, agent.every, causes, policies, self._reopen)
        return WorkerHands(unit, packed(task), logs=self._file.parent / "logs")

    def _stuck(self, life: Any, where: str) -> None:
        if self._supervisor is not None:
            self._supervisor.stuck(life, where)

    # Sessions.

    def session(
        self,
        name: str,
        function: Callable[[SessionContext], Any],
        *,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - so people call it
        version: str = "",
        deadline: float | None = None,
        steps: int | None = None,
        resumes: int | None = None,
        budget: Given | None = None,
        tier: str | None = None,
        labels: Mapping[str, str] | None = None,
        user: str = "",
        tree: str = "",
        causes: Causes | None = None,
        wait: float = START_WAIT,
    ) -> Session:
        """A piece of work in stages, which keeps checkpoints, may pause, and is resumed until it is done. Nothing runs
        before `run`.

        The function, a plain one or a coroutine, is given a `SessionContext`. `input` is kept with the work; left out,
        work that was begun goes on with the one it has. A checkpoint of another `version` is not used. `deadline`
        (seconds of one run), `steps`, `resumes` and `budget` (of all runs together) are as the settings say where they
        are left out. `wait` is for how many seconds a cooldown is waited for.
        """
        check_function(name, function, session_options.SESSION)
        unit = session_options.session_unit(
            name,
            deadline=deadline,
            steps=steps,
            resumes=resumes,
            version=version,
            labels=labels,
            user=user,
            tree=tree,
            causes=causes,
        )
        check_seconds(name, "wait", wait, "from")
        if name in self._agents or name == self.name:
            raise FlyballError(f"{name!r} is taken", remedy="Give the session a name of its own.")
        given = record.encoded(name, input)
        budgets = self._budgets(budget, "unit", tier, kept_back=micro(self.settings.budget.kept_back))

        def define() -> None:
            if self._sessions.get(name) is not session:
                self._put(unit, *budgets)
                self._newest(self._sessions, name, session)

        session = Session(
            self.governor,
            unit,
            function,
            input=given,
            version=version,
            wait=span(wait),
            causes=causes or {},
            listener=self._work_said,
            sleep=self._sleep,
            file=self._file,
            view=self._view,
            define=define,
        )
        define()
        return session

    def resume(self, name: str, checkpoint: str | None = None) -> bool:
        """Resume the session of that name now, from its last good checkpoint or the one that is named. Whether it was
        resumed: not if it is done. See `Session.resume`."""
        return self._session(name).resume(checkpoint)

    def resume_paused(self, name: str) -> bool:
        """Resume the session of that name if there is one, it is paused, and its time has come. Whether it was."""
        known = name in self._sessions or record.is_known(self.governor.store, name)
        return known and self._session(name).resume_paused()

    def _session(self, name: str) -> Session:
        if name in self._sessions:
            return self._sessions[name]
        if record.is_known(self.governor.store, name):
            text = f"there is a session {name!r}, but this program does not know its function"
            raise FlyballError(text, remedy="Define it first: `guard.session(name, function)`.")
        raise SessionNotFound(name)

    def _view(self, name: str) -> SessionView:
        return sessions.view(Look(self.governor, self._past, units=(name,), gone=is_gone), name)

    # Money.

    @property
    def prices(self) -> Prices:
        """What calls of models cost, by the settings of this guard."""
        return Prices(self.settings.prices)

    def reserve(
        self,
        worst_case: Given,
        *,
        user: str = "",
        tree: str = "",
        pattern: str = "",
        last: bool = False,
        wait: float = 0,
    ) -> Reservation:
        """Reserve the worst case of what is about to be spent: `with guard.reserve("0.05") as money:`, and inside it
        `money.settle("0.013")`. Inside an agent it is the agent's money. OutOfBudget if there is not enough."""
        return self._purse.reserve(worst_case, labels=labels_of(user, tree), pattern=pattern, last=last, wait=wait)

    def reserve_soon(
        self,
        worst_case: Given,
        *,
        user: str = "",
        tree: str = "",
        pattern: str = "",
        last: bool = False,
        wait: float = 0,
    ) -> Soon:
        """`reserve`, for coroutines: `async with` it."""
        return self._purse.reserve_soon(worst_case, labels=labels_of(user, tree), pattern=pattern, last=last, wait=wait)

    # Policies.

    def put_policy(self, policy: AnyPolicy) -> None:
        """One more safeguard for everything that this guard guards."""
        if policy not in self._added:
            self._added.append(policy)
            for name in (self.name, *self._agents, *self._sessions, *self._works):
                self.governor.panel.put(name, (*self.governor.panel.policies_of(name), policy))
            definitions.keep(self.governor, self.name)

    def _put(self, unit: Unit, *own: AnyPolicy) -> None:
        # What is given here wins over what the settings say of every unit.
        policies = {
            (policy.name, policy.by): policy for policy in (*unit_policies(self.settings, unit), *own, *self._added)
        }
        self.governor.panel.put(unit.name, tuple(policies.values()))

    def _budgets(self, given: Given | None, by: str, tier: str | None, *, kept_back: int = 0) -> list[AnyPolicy]:
        limits = dict(whole(given, "budget"))
        if tier is not None and MONEY not in limits:
            limits[MONEY] = get_tier_limit(tier, self.settings)
        if limits.get(MONEY, kept_back) < kept_back:
            back = amount_text(MONEY, kept_back)
            text = f"budget is {amount_text(MONEY, limits[MONEY])}, and {back} of it is kept back for the last step"
            raise FlyballError(text, remedy="Raise the budget, or lower `budget.kept_back`.")
        return [
            Budget(limit=limit, kept_back=kept_back, by=by)
            if meter == MONEY
            else Budget(limit=limit, meter=meter, by=by, name=budget_name(meter))
            for meter, limit in limits.items()
        ]

    # Work that an integration runs.

    def define_work(self, unit: Unit, *own: AnyPolicy) -> Callable[[str, Event, Decision], None]:
        """Put a piece of work that an integration runs, such as a graph, under this guard; `own` safeguards win over
        the settings. Whoever runs it tells what is returned of each start and exit."""
        self._put(unit, *own)
        self._newest(self._works, unit.name, None)
        return self._work_said

    def _newest(self, known: OrderedDict[str, T], name: str, work: T) -> None:
        """Know of that piece of work as the newest. The oldest is forgotten if there are too many; when it is run, it
        is known once more."""
        known[name] = work
        known.move_to_end(name)
        if len(known) > SESSIONS_MAX:
            oldest, other = known.popitem(last=False)
            if self.governor.live_runs(oldest):  # its limits are needed
                known[oldest] = other
            else:
                self.governor.panel.drop(oldest)

    def _work_said(self, name: str, event: Event, decision: Decision) -> None:
        self._say(name, event, decision)
        if isinstance(event, Exited):
            self._news.forget(name)
            self._retention.ended()

    # What is said.

    def why(self, name: str) -> Decision:
        """What the governor would answer if that agent asked to start now."""
        unit = self._agent(name).unit
        return self.governor.look(Start(unit=name, run="-", labels=unit.labels))

    def history(self, name: str, limit: int = HISTORY_MAX) -> list[AnyEvent]:
        """What happened to that agent, the newest last: requests that were granted, and facts."""
        bodies = [decode_body(entry.body) for entry in self.governor.store.last_entries(limit=limit, unit=name)]
        return [body.event for body in bodies if not body.event.asks or body.decision.proceeds]

    def _say(self, name: str, event: Event, decision: Decision) -> None:
        """One line, if it is news."""
        if self._news.hear(name, event, decision):
            text = one_line(describe(event, decision, self.governor.clock.now()))
            log.info("%s %s%s", name, text, self._news.number(name, event, decision))


@contextmanager
def _signals(end: Callable[[], object]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end in order, and the second of them at once: an agent that hangs in this process cannot be
    ended in any other way. Not handlers of the loop: whoever blocks it would block them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told = False

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal told
        if told:
            os._exit(EXIT_BY_SIGNAL + number)
        told = True
        end()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _revision(unit: Unit, function: Callable[..., Any]) -> str:
    """A hash of the agent's options, and of the file that its function is in: a mended bug is a new revision."""
    hasher = hashlib.blake2b(unit.revision.encode(), digest_size=8)
    with suppress(OSError, TypeError):
        hasher.update(Path(inspect.getsourcefile(inspect.unwrap(function)) or "").read_bytes())
    return hasher.hexdigest()
