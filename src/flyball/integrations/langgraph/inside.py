"""What happens inside the process of a graph's run: the graph is set up with stand-ins for what is the program's, and
what comes of it is said over the link. Only `process` begins this, in the fork.
"""

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from flyball.core.decision import Decision, Reason, Verb, stop
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.integrations.langgraph.belongings import CONF, Belongings, Config
from flyball.integrations.langgraph.nodes import Plan
from flyball.integrations.langgraph.outcome import Report
from flyball.integrations.langgraph.phases import GraphRun
from flyball.integrations.langgraph.where import where
from flyball.integrations.missing import missing
from flyball.runtimes.forked import CannotSend, Link, RemoteGovernor

try:
    from langchain_core.runnables.config import var_child_runnable_config
except ImportError:
    raise missing("LangGraph", "langgraph") from None

INLINE: Final = (
    'With `isolation="inline"` the graph runs in the program itself, which can end only what lets itself be ended.'
)

DURABILITY: Final = "__pregel_durability"
"""Where a graph finds how the one of which it is a part waits for its checkpoints."""

INTERRUPT: Final = "__interrupt__"
"""The key under which an update has the interrupts."""

WHERE: Final = "where"
"""The service that is told where a run is that has to stop."""

UNREAD: Final = stop(Reason("", "unread", "nobody reads what the graph says any more"))
"""Why a run is to end that was not told why: whoever read its stream has gone away."""


class CannotCross(FlyballError):
    """Something cannot be passed between the program and the process that its graph runs in."""

    remedy = f"Keep it out of the state and of the stream: make it in the node that needs it. {INLINE}"


# What the process says.


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the stream."""

    value: Any


@dataclass(frozen=True, slots=True)
class Told:
    """The governor's answer to a step of the graph ends the run."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class Over:
    """The stream has ended; or something was raised, which is said next."""

    report: Report
    raises: bool


@dataclass(frozen=True, slots=True)
class Scene:
    """What a run is made of. The fork has it as it is."""

    plan: Plan
    governor: Governor
    unit: str
    run: str
    labels: Mapping[str, str]
    given: Any
    config: Config
    options: Mapping[str, Any]
    belongings: Belongings
    whole: bool
    """Of the stream only that is wanted which a result is made of."""

    @property
    def _waits(self) -> bool:
        """Whether the graph is to go on only when its last checkpoint is kept."""
        lent = (self.config or {}).get(CONF, {}).get(DURABILITY)
        return bool((self.options.get("durability") or lent) == "sync")

    def set_up(self, link: Link, loop: asyncio.AbstractEventLoop | None = None) -> tuple[GraphRun, Config]:
        """The run, on the program's governor, checkpointer, store and cache; and the config for it."""
        RemoteGovernor.in_place_of(self.governor, link)
        line, graph = _Line(link), self.plan.graph
        theirs = self.belongings.stand_ins(line, waits=self._waits)
        run = GraphRun(
            self.plan,
            self.governor,
            self.unit,
            self.run,
            labels=self.labels,
            told=lambda decision: link.send(Told(decision)),
            checkpointer=theirs.saver,
            store=theirs.store,
            cache=theirs.cache,
        )
        link.told = lambda decision: _hear(run, link, loop, decision)
        around = self.belongings.replaced(line, var_child_runnable_config.get(), theirs)
        var_child_runnable_config.set(around)
        graph.config = self.belongings.replaced(line, graph.config, theirs)
        return run, self.belongings.replaced(line, self.config, theirs)


def live(scene: Scene, link: Link) -> None:
    """A run in a thread."""
    run, config = scene.set_up(link)
    link.on_end(lambda: _stop(run))
    try:
        says = _Speaker(link, scene.whole)
        for chunk in run.stream(scene.given, config, **scene.options):
            says.say(chunk)
        link.posted()
        says.end()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is how the run ended
        _end(link, run.report, error)
    else:
        _end(link, run.report)


def live_soon(scene: Scene, link: Link) -> None:
    """A run in a loop."""
    # Not `asyncio.run`, which waits at its end for threads that may never end. After this the process is gone.
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    living = loop.create_task(_live_soon(scene, link, loop))
    loop.run_until_complete(living)


async def _live_soon(scene: Scene, link: Link, loop: asyncio.AbstractEventLoop) -> None:
    run, config = scene.set_up(link, loop)
    living = asyncio.current_task(loop)

    def end() -> None:
        _stop(run)
        if living is not None:
            loop.call_soon_threadsafe(living.cancel)

    link.on_end(end)
    try:
        says = _Speaker(link, scene.whole)
        async for chunk in run.astream(scene.given, config, **scene.options):
            says.say(chunk)
        await asyncio.to_thread(link.posted)
        says.end()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is how the run ended
        _end(link, run.report, error)
    else:
        _end(link, run.report)


def _hear(run: GraphRun, link: Link, loop: asyncio.AbstractEventLoop | None, decision: Decision) -> None:
    """It was told something. If it is to stop it says where it is: it may not live to say more."""
    run.tell(decision)
    if decision.verb >= Verb.STOP:
        link.ask(WHERE, where(run, loop, threading.main_thread().ident or 0))


def _stop(run: GraphRun) -> None:
    """It is to end, if it has not yet. If it was not told why, nobody reads it any more."""
    if run.gate.verdict.verb < Verb.STOP and not run.context.steps.over:
        run.tell(UNREAD)


class _Line:
    """The link; it says what to do about what cannot cross."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._unread = False
        """Something was posted, and nobody asked what became of it."""

    def call(self, service: str, *args: Any) -> Any:
        """Have it done in the program, and wait."""
        try:
            return self._link.call(service, *args)
        except CannotSend as error:
            raise CannotCross(str(error)) from error

    async def call_soon(self, service: str, *args: Any) -> Any:
        """The same in a coroutine."""
        try:
            return await self._link.call_soon(service, *args)
        except CannotSend as error:
            raise CannotCross(str(error)) from error

    def post(self, service: str, *args: Any) -> None:
        """Have it done in the program, in order, and do not wait."""
        self._unread = True
        try:
            self._link.post(service, *args)
        except CannotSend as error:
            raise CannotCross(str(error)) from error

    def posted(self) -> None:
        """Wait until all of that is done."""
        if self._unread:
            self._unread = False
            self._link.posted()


class _Speaker:
    """Says the chunks. Of a stream of which one result is made: the interrupts, and the last values."""

    def __init__(self, link: Link, whole: bool) -> None:
        self._link, self._whole = link, whole
        self._last: list[Any] = []

    def say(self, chunk: Any) -> None:
        """Here is one more."""
        if not self._whole:
            self._send(chunk)
        elif isinstance(chunk, dict):  # a stream of the second version, which has but values
            if chunk.get("interrupts"):
                self._send(chunk)
            self._last = [chunk]
        elif chunk[0] == "values":
            self._last = [chunk]
        elif isinstance(chunk[1], dict) and INTERRUPT in chunk[1]:
            self._send(chunk)

    def end(self) -> None:
        """There are no more."""
        for chunk in self._last:
            self._send({**chunk, "interrupts": ()} if isinstance(chunk, dict) else chunk)

    def _send(self, chunk: Any) -> None:
        try:
            self._link.send(Chunk(chunk))
        except CannotSend as error:
            raise CannotCross(str(error)) from error


def _end(link: Link, report: Report, error: BaseException | None = None) -> None:
    """Say that it is over. Values that cannot cross are left out: whoever wanted them was told so."""
    try:
        link.send(Over(report, error is not None))
    except CannotSend:
        link.send(Over(replace(report, values=None), error is not None))
    if error is not None:
        link.raised(error)
