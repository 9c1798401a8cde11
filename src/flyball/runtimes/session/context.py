"""What a session is given: its input, what it goes on from, its stages, its money, and a way to pause.

A stage is a step: leave is asked before it, and what it put into the checkpoint is kept with the report of it. Whatever
is called inside a stage is a part of it: it costs and is looked at for circles, but is not one more step. What is
called outside any stage is a step of its own.
"""

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NoReturn

from flyball.core.decision import Decision
from flyball.core.event import NAME_MAX
from flyball.core.time import FOREVER, Instant, later, span
from flyball.errors import FlyballError
from flyball.runtimes.agent.context import Context
from flyball.runtimes.agent.options import SECONDS_MAX
from flyball.runtimes.agent.step import StepBlock
from flyball.runtimes.amounts import Given
from flyball.runtimes.current import CURRENT, live
from flyball.runtimes.money import Reservation, Soon
from flyball.runtimes.session.draft import Draft


class Paused(BaseException):
    """The session ends its run, to go on later. Not an `Exception`: no handler is meant for it."""

    def __init__(self, reason: str, resume_at: Instant = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.resume_at = resume_at
        """0: after as long as the settings say."""


class SessionContext:
    """One run of a session, as seen from inside."""

    def __init__(
        self,
        root: Context,
        inner: Context,
        draft: Draft,
        input: Any,  # noqa: A002 - so people call it
        *,
        resumed: int,
        again: bool,
        check: Callable[[], None],
    ) -> None:
        """`inner` is where what is called inside a stage belongs. `check` raises where the run is none any more."""
        self._root, self._inner = root, inner
        self._check = check
        self.checkpoint = draft
        """What the work goes on from: empty at first. What is put into it is kept when the stage is made."""
        self.input = input
        """What the work was begun with."""
        self.resumed = resumed
        """How often the work was resumed so far."""
        self.again = again
        """Whether this run is a resume."""
        self.asked_to_pause: Paused | None = None
        self._keeping = threading.Lock()
        """Held while a stage is reported: checkpoints are written in the order of their numbers."""

    @property
    def id(self) -> str:
        """The session's name."""
        return self._root.unit

    def now(self) -> Instant:
        """The present."""
        return self._root.now()

    # Work.

    def stage(
        self,
        name: str,
        call: object = None,
        *,
        cost: Given | None = None,
        last: bool = False,
        wait: bool = True,
    ) -> "Stage":
        """One stage, as a block: `with` it in a thread, `async with` it in a coroutine. The options are those of an
        agent's step."""
        if not isinstance(name, str) or not name:
            raise FlyballError(f"{self.id}: {name!r} is no name for a stage", remedy="Give each stage a short name.")
        return Stage(self, self._root.step(name, call, cost=cost, last=last, wait=wait), name)

    def pause(self, reason: str, *, resume_after: float | None = None) -> NoReturn:
        """End this run, keep what the checkpoint has, and go on later: after so many seconds, or as long as the
        settings say. The reason is `rate_limit`, `usage_limit`, `session_limit`, or any other; `person`: it goes on
        when a person says so. It leaves the function, and a stage that is being made is not made."""
        live(self._root)
        self.checkpoint.check()
        raise self._pausing(reason, resume_after)

    def pause_at_next_stage(self, reason: str, resume_after: float | None = None) -> None:
        """From outside, in any thread: the same, before its next stage."""
        self.asked_to_pause = self._pausing(reason, resume_after)

    def check(self) -> None:
        """Leave the function if the run is to end or to pause."""
        live(self._root).check()
        self._check()
        if self.asked_to_pause is not None:
            raise self.asked_to_pause

    def _pausing(self, reason: str, resume_after: float | None) -> Paused:
        if not isinstance(reason, str) or not 0 < len(reason) <= NAME_MAX or not reason.isprintable():
            remedy = f"Say why in a word of at most {NAME_MAX} characters that can be printed, such as `rate_limit`."
            raise FlyballError(f"{self.id}: {reason!r} is no reason for a pause", remedy=remedy)
        if resume_after is None:
            return Paused(reason)
        if not isinstance(resume_after, int | float) or not 0 <= resume_after <= SECONDS_MAX:
            remedy = f"Give seconds from 0 up to {SECONDS_MAX}, or leave it out."
            raise FlyballError(f"{self.id}: resume_after is {resume_after!r}", remedy=remedy)
        return Paused(reason, min(later(self.now(), span(resume_after)), FOREVER - 1))

    # What every run has. Inside a stage, it is a part of the stage.

    def spend(self, amounts: Given) -> Decision:
        """Report money that is spent already and was not reserved. A fact counts, also above the limit."""
        return self._here().spend(amounts)

    def reserve(self, worst_case: Given, *, pattern: str = "", last: bool = False, wait: float = 0) -> Reservation:
        """Reserve the worst case of what is about to be spent, for a block that settles what it really was."""
        return self._here().reserve(worst_case, pattern=pattern, last=last, wait=wait)

    def reserve_soon(self, worst_case: Given, *, pattern: str = "", last: bool = False, wait: float = 0) -> Soon:
        """`reserve`, for coroutines: `async with` it."""
        return self._here().reserve_soon(worst_case, pattern=pattern, last=last, wait=wait)

    def beat(self) -> None:
        """Say that it is alive, in stages that take long."""
        self._root.beat()

    async def sleep(self, seconds: float) -> None:
        """Sleep, and be known to be alive."""
        await self._root.sleep(seconds)

    def wait(self, seconds: float) -> None:
        """`sleep`, for threads. Ends with a refusal when the run is to end."""
        self._root.wait_until(later(self.now(), span(seconds)))

    async def ask_human(
        self, text: str, *, choices: Sequence[str] = (), timeout: float | None = None, default: str | None = None
    ) -> str:
        """Ask a person, and wait for the answer, which is given by `flyball answer`. For what may take hours: `pause`
        for a `person`."""
        return await self._root.ask_human(text, choices=choices, timeout=timeout, default=default)

    def ask_human_and_wait(
        self, text: str, *, choices: Sequence[str] = (), timeout: float | None = None, default: str | None = None
    ) -> str:
        """`ask_human`, for threads."""
        return self._root.ask_human_and_wait(text, choices=choices, timeout=timeout, default=default)

    def _here(self) -> Context:
        return self._inner if CURRENT.get() is self._inner else self._root

    # The stages' side.

    def enter(self) -> Any:
        """A stage begins: what is called from here on is a part of it."""
        self.checkpoint.open += 1
        return CURRENT.set(self._inner)

    def leave(self, token: Any) -> None:
        """It is to be reported."""
        CURRENT.reset(token)

    def keep(self, stage: "Stage", error: BaseException | None) -> None:
        """Report it, and with it the checkpoint."""
        with self._keeping:
            self.checkpoint.stage = stage.name
            try:
                stage.block.__exit__(type(error) if error else None, error, None)
            finally:
                self.checkpoint.stage = ""
                self.checkpoint.open -= 1

    async def keep_soon(self, stage: "Stage", error: BaseException | None) -> None:
        """`keep`, for coroutines: those of one loop are written in the order in which they come here."""
        self.checkpoint.stage = stage.name
        try:
            await stage.block.__aexit__(type(error) if error else None, error, None)
        finally:
            self.checkpoint.stage = ""
            self.checkpoint.open -= 1


class Stage:
    """A stage that is to be made. Inside the block, say what came of it, as of any step."""

    def __init__(self, session: SessionContext, block: StepBlock, name: str) -> None:
        self.name = name
        self.block = block
        self._session = session

    def __enter__(self) -> StepBlock:
        self._session.check()
        block = self.block.__enter__()
        self._token = self._session.enter()
        return block

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.leave(self._token)
        self._session.keep(self, error)

    async def __aenter__(self) -> StepBlock:
        self._session.check()
        block = await self.block.__aenter__()
        self._token = self._session.enter()
        return block

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.leave(self._token)
        await self._session.keep_soon(self, error)
