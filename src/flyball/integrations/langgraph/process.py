"""The run of a graph in a process of its own, which can be killed.

The process is a fork of the program as it is at that moment: the graph, its input, and whatever its nodes refer to are
there, and need not be pickled. Everything that is to outlive it stays in the program and is reached over the link: the
governor, the checkpointer, the store, the cache, handlers of callbacks. What comes back is pickled: chunks, values,
exceptions. What a node changes in memory besides the state (a global, an object of a closure) is gone with the process.

A run that is to end is asked to first: its coroutines are cancelled, its threads are refused their next node. What has
not ended after the grace is killed, with everything that it started.
"""

import asyncio
import contextvars
import logging
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final, NoReturn, TypeVar

from flyball.core.decision import Decision, Verb
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.integrations.langgraph.belongings import Belongings
from flyball.integrations.langgraph.errors import refusal_of
from flyball.integrations.langgraph.inside import (
    INLINE,
    WHERE,
    CannotCross,
    Chunk,
    Over,
    Scene,
    Told,
    live,
    live_soon,
)
from flyball.integrations.langgraph.nodes import Plan
from flyball.integrations.langgraph.outcome import Report
from flyball.integrations.missing import missing
from flyball.runtimes.forked import Forked, Gone, Link, Prompt, Raised, governor_services

try:
    from langchain_core.runnables.config import var_child_runnable_config
except ImportError:
    raise missing("LangGraph", "langgraph") from None

log = logging.getLogger(__name__)

T = TypeVar("T")

GRACE: Final = 2.0
"""Seconds that a run has to end by itself, once it is told to. What it waits for then mostly never comes: the time is
for coroutines that close what they opened."""


SAYS_WITHIN: Final = 1.0
"""Seconds that it has to say where it is. It takes milliseconds."""


class GraphDied(FlyballError):
    """The process of the graph ended, and nobody told it to: a crash in a library, `os._exit`, too little memory."""

    remedy = "Invoke it again: it goes on from its last checkpoint, and that is counted as a resume."


class ProcessRun:
    """A run of a graph, used as `GraphRun` is."""

    def __init__(
        self,
        plan: Plan,
        governor: Governor,
        unit: str,
        run: str,
        *,
        labels: Mapping[str, str],
        told: Callable[[Decision], None],
        whole: bool = False,
    ) -> None:
        """`whole`: the stream is read only to make one result of it."""
        self._plan, self._governor, self._unit, self._run = plan, governor, unit, run
        self._labels, self._told, self._whole = labels, told, whole
        self.report = Report()
        """What happened, once the stream has ended or raised."""
        self._child: Forked | None = None
        self._verdict: Decision | None = None
        """What the run was told from outside."""
        self._where = ""
        """Where it was when it was told to stop."""
        self._knows_where = threading.Event()
        self._over = False
        self._began = False
        """Whether the next checkpoint has more than the input."""
        self._mutex = threading.Lock()

    def tell(self, decision: Decision) -> None:
        """The run is to finish, or to stop. Any thread; it is not waited for."""
        with self._mutex:
            if self._verdict is None or decision.verb > self._verdict.verb:
                self._verdict = decision
            child = self._child
        if child is not None:
            self._pass_on(child, decision)

    def stream(self, given: Any, config: Any, **kwargs: Any) -> Iterator[Any]:
        """The chunks. Raises a GraphRefused where it is stopped, or what a node raised."""
        scene = self._scene(given, config, kwargs)
        scene.belongings.check_thread(config)
        beginning: Future[Forked] = Future()
        try:
            _aside(lambda: self._begin(scene, live, None), beginning)
            child = beginning.result()
            while not self._over:
                try:
                    said = child.receive()
                except Gone as gone:
                    self._gone(gone)
                if isinstance(said, Chunk):
                    yield said.value
                else:
                    self._heed(said)
        except BaseException as error:
            self._leave(beginning)
            self._say_where(error)
            raise
        self._leave(beginning)
        self._check()

    async def astream(self, given: Any, config: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        """The same for coroutines."""
        scene = self._scene(given, config, kwargs)
        loop = asyncio.get_running_loop()
        beginning: Future[Forked] = Future()
        try:
            _aside(lambda: self._begin(scene, live_soon, loop), beginning)
            child = await asyncio.wrap_future(beginning)
            while not self._over:
                try:
                    said = await child.receive_soon()
                except Gone as gone:
                    self._gone(gone)
                if isinstance(said, Chunk):
                    yield said.value
                else:
                    self._heed(said)
        except BaseException as error:
            await _whatever_comes(lambda: self._leave(beginning))
            self._say_where(error)
            raise
        await _whatever_comes(lambda: self._leave(beginning))
        self._check()

    # Its beginning.

    def _scene(self, given: Any, config: Any, options: dict[str, Any]) -> Scene:
        if options.get("control") is not None:
            raise CannotCross("`control` cannot be passed to a graph in a process of its own", remedy=INLINE)
        graph = self._plan.graph
        found = Belongings.found(graph, (config, var_child_runnable_config.get(), graph.config))
        return Scene(
            self._plan,
            self._governor,
            self._unit,
            self._run,
            self._labels,
            given,
            config,
            options,
            found,
            self._whole,
        )

    def _begin(
        self, scene: Scene, live: Callable[[Scene, Link], None], loop: asyncio.AbstractEventLoop | None
    ) -> Forked:
        child = Forked(
            lambda link: live(scene, link),
            services={
                **governor_services(self._governor),
                **scene.belongings.services(loop, self._kept),
                WHERE: Prompt(self._is_here),
            },
            unit=self._unit,
            run=self._run,
        )
        with self._mutex:
            self._child, verdict = child, self._verdict
        if verdict is not None:
            self._pass_on(child, verdict)
        return child

    def _kept(self, source: str) -> None:
        """A checkpoint was kept. Of a run that begins with an input the first two have nothing more than that."""
        if source == "loop" and self._began:
            self.report.progress = True
        self._began = source == "loop"

    # What it says, and what it is told.

    def _heed(self, said: object) -> None:
        match said:
            case Told(decision):
                self._told(decision)
            case Over(report, raises):
                self._over = not raises
                self.report = replace(report, progress=report.progress or self.report.progress)
            case Raised(error):
                self._over = True
                self._check(error)
                raise error

    def _pass_on(self, child: Forked, decision: Decision) -> None:
        child.tell(decision)
        if decision.verb >= Verb.STOP:
            # Not here: whoever tells it keeps the lease of the run until that is gone.
            threading.Thread(target=self._end, args=(child,), name=f"flyball ends {self._unit}", daemon=True).start()

    # Its end.

    def _end(self, child: Forked) -> None:
        # A node that does not let go of the interpreter cannot say where it is. Only then it is looked at from outside:
        # to look at stacks that change may crash it.
        if not self._knows_where.wait(SAYS_WITHIN):
            self._where = child.where()
        child.end(GRACE)

    def _is_here(self, where: str) -> None:
        self._where = where
        self._knows_where.set()

    def _say_where(self, error: BaseException) -> None:
        """Where it was, for whoever wants to know why it took so long."""
        if self._where and self._is_stopped():
            log.error("%s was stopped. It was here:\n%s", self._unit, self._where)
            error.add_note(f"The graph was here:\n{self._where}")

    def _is_stopped(self) -> bool:
        return self._verdict is not None and self._verdict.verb >= Verb.STOP

    def _gone(self, gone: Gone) -> NoReturn:
        self._check(gone)
        how = f"by {signal.Signals(gone.signal).name}" if gone.signal else f"with exit code {gone.code}"
        raise GraphDied(f"the process in which the graph ran has died {how}") from None

    def _check(self, error: BaseException | None = None) -> None:
        """One that was stopped from outside did not come to its own end, whatever it says itself."""
        if self._verdict is not None and self._is_stopped():
            self.report.verdict |= self._verdict
            raise refusal_of(self._verdict, self._governor.clock.now(), f"{self._unit} was stopped") from error

    def _leave(self, beginning: "Future[Forked]") -> None:
        """Nobody reads any more. What it still says is thrown away, so that it need not wait to say it."""
        if beginning.cancel() or beginning.exception() is not None:
            return
        child = beginning.result()
        ending = threading.Thread(target=child.end, args=(GRACE,), name=f"flyball ends {self._unit}", daemon=True)
        ending.start()
        try:
            while True:
                child.receive()
        except Gone:
            ending.join()


def _aside(work: Callable[[], T], done: "Future[T]") -> None:
    """Do it in a thread of its own, with the context of this one: there nobody can interrupt it half-way, and no loop
    waits for it. If that is cancelled before, it is not done at all."""
    here = contextvars.copy_context()

    def do() -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            done.set_result(here.run(work))
        except BaseException as error:  # noqa: BLE001 - the future carries it to whoever waits
            done.set_exception(error)

    threading.Thread(target=do, name="flyball aside", daemon=True).start()


async def _whatever_comes(work: Callable[[], None]) -> None:
    """Do it, and wait for that, also if the task is cancelled meanwhile."""
    done: Future[None] = Future()
    _aside(work, done)
    doing = asyncio.wrap_future(done)
    cancelled = None
    while not doing.done():
        try:
            await asyncio.shield(doing)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
