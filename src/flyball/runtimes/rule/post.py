"""A rule at its post: as long as firings of it wait, drivers run them, at most as many at a time as the rule allows.

A rule that nothing fires costs nothing: no task, no driver. What the governor refuses waits with its firing, until the
time that was named, an order, or another definition. What an exit means for its firing is decided here, and written in
the same transaction: it is over, or it is tried again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from flyball.config.rules import Rule
from flyball.core.codec import decode_state
from flyball.core.decision import Decision
from flyball.core.event import Cause, Event, Exited, Start
from flyball.core.time import Instant
from flyball.errors import FlyballError
from flyball.governor import NO_ROWS, Governor, Rows
from flyball.policies.restart import State as Restarts
from flyball.runtimes.before import restarts_key
from flyball.runtimes.driver import Driver, Killable, Life, NotBegun, Sleep, doze_until
from flyball.runtimes.flag import Flag
from flyball.runtimes.rule.deed import GRACE
from flyball.runtimes.rule.firing import Firing
from flyball.runtimes.rule.queue import Queue, encode
from flyball.runtimes.rule.run import NOT_APPROVED
from flyball.runtimes.rule.slots import Slots

log = logging.getLogger(__name__)

SHARED: Final = frozenset({"circuit_half_open", "already_running", "rate_limited"})
"""Refusals that may be over as soon as another rule's run is."""
STOPPED_FOR_GOOD: Final = frozenset({"stopped", "finishing"})
"""Orders of people after which the firing that was being run is not wanted any more. A pause is none of them."""
TROUBLE_WAIT: Final = 5.0
"""Seconds before it is tried again after a fault of ours."""
RUNTIME: Final = "runtime"
"""The label that all rules share: what bounds them together counts by it."""


class Idle(Exception):
    """Nothing waits: the driver is not needed any more."""


class Stage(Protocol):
    """What a post needs of the engine."""

    governor: Governor
    queue: Queue
    slots: Slots
    holder: str

    async def holds(self, rule: Rule, firing: Firing) -> bool | Exception:
        """Whether the rule's condition holds now; or why that cannot be said."""
        ...

    async def skip(self, firing: Firing) -> None:
        """Its condition does not hold any more: it is over."""
        ...

    def begin_run(self, rule: Rule, firing: Firing, labels: Mapping[str, str], condition: Exception | None) -> Life:
        """Begin a run."""
        ...

    def heard(self, post: "RulePost", event: Event, decision: Decision) -> None:
        """The governor answered about that one."""
        ...

    def troubled(self, name: str, error: FlyballError | None) -> None:
        """The store cannot be written; or, None, it can be again."""
        ...


def labels_of(rule: Rule) -> Mapping[str, str]:
    """The labels of its runs."""
    return {**rule.labels, RUNTIME: "rule"}


@dataclass(slots=True, eq=False)
class RulePost:
    """One rule. `wake` it when something waits for it."""

    rule: Rule
    stage: Stage
    sleep: Sleep = doze_until
    _lines: "dict[_Line, asyncio.Task[None]]" = field(default_factory=dict)
    _ordered: asyncio.Event = field(default_factory=Flag)
    _leaving: bool = False

    @property
    def says(self) -> str:
        """What its firings wait for, if they wait for anything."""
        if any(line.in_line for line in self._lines):
            return f"waits for its turn: {self.stage.slots.taken} runs of rules live (rule.max_running)"
        return next((line.waits_for for line in self._lines if line.life is None and line.waits_for), "")

    def wake(self, firing: Firing | None = None) -> None:
        """Something waits. What a person asked for is tried also where all the others are refused."""
        if self._leaving:
            return
        if firing is not None and firing.by_person:
            self._rouse()
        free = self.rule.runs_max - len(self._lines)
        waiting = self.stage.queue.number(self.rule.name) - len(self._lines)
        for _ in range(min(free, waiting)):
            line = _Line(self)
            self._lines[line] = asyncio.get_running_loop().create_task(line.work())

    def done(self, line: "_Line") -> None:
        """That line has nothing to do any more."""
        self._lines.pop(line, None)

    def change(self, rule: Rule) -> None:
        """Another definition. What runs ends by the old one; what waits asks anew."""
        self.rule = rule
        self._rouse()
        self.wake()

    async def order(self, verb: str) -> None:
        """Somebody ordered something, and it is in the journal."""
        for line in self._lines:
            if verb == "kill":
                line.kills = True
            line.driver.poke()
        if verb in ("start", "resume", "reset", "restart"):
            self._rouse()
            self.wake()

    def ask_again(self) -> None:
        """Another rule's run is over: what waited for that asks again."""
        for line in self._lines:
            if line.life is None:
                line.driver.poke()

    async def end(self) -> None:
        """End it, with all that runs."""
        self._leaving = True
        for line, task in list(self._lines.items()):
            line.leave(task)
        await asyncio.gather(*self._lines.values(), return_exceptions=True)

    def _rouse(self) -> None:
        for line in self._lines:
            if line.life is None:
                line.driver.poke()
        ordered, self._ordered = self._ordered, Flag()
        ordered.set()

    async def rest(self) -> None:
        """Until somebody orders something."""
        await self._ordered.wait()

    @property
    def is_leaving(self) -> bool:
        """It is being ended."""
        return self._leaving


class _Line:
    """One driver of a rule, and the firing that it has."""

    def __init__(self, post: RulePost) -> None:
        self.post = post
        self.life: Life | None = None
        self.kills = False
        self.in_line = False
        """It waits until fewer rules run."""
        self.waits_for = ""
        """Why its start was refused."""
        self._stage = post.stage
        self._firing: Firing | None = None
        self._condition: Exception | None = None
        self._has_slot = False
        self._asks = False
        """It is at the governor: what that grants must not be forgotten, so it is not cancelled now."""
        self._after_done = False
        """Its last exit was a good one, and no run beside it can have been ended by a safeguard: nothing has to be
        looked up before the next start."""
        self._kept = False
        """Its firing is tried again after the exit that is being written."""
        self.driver = Driver(
            unit=post.rule.name,
            hands=self,
            governor=self._stage.governor,
            holder=self._stage.holder,
            labels=labels_of(post.rule),
            grace=GRACE,
            opening=self._open,
            closing=self._close,
            listener=self._heard,
            troubled=lambda error: self._stage.troubled(post.rule.name, error),
            sleep=self._sleep,
        )

    def leave(self, task: "asyncio.Task[None]") -> None:
        """Have it end. Where an answer of the governor is on its way, that comes first."""
        if not self._asks:
            task.cancel()
        self.driver.give_up()

    async def work(self) -> None:
        """Run what waits, until nothing does."""
        name = self.post.rule.name
        try:
            while True:
                try:
                    await self.driver.drive()
                except Idle:
                    return
                except FlyballError as error:
                    log.error("%s: %s; it is tried again", name, error)
                    await self._settle()
                except Exception:
                    log.exception("%s: its driver failed, and is tried again", name)
                    await self._settle()
                else:
                    self._asks = False
                    self._put_back()
                    if self.post.is_leaving:  # nobody orders anything any more
                        return
                    await self.post.rest()
        finally:
            self._put_back()
            self.post.done(self)

    async def _settle(self) -> None:
        """Nobody looks after its run any more: it is over, and counts as lost."""
        if self.life is not None:
            await self.life.end(0)
            self.life = None
        run = self.driver.run_id
        with contextlib.suppress(FlyballError):
            await asyncio.to_thread(self._report_lost, run)
        self._put_back()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.post.rest(), TROUBLE_WAIT)

    def _report_lost(self, run: str) -> None:
        """This run alone: those of other lines of the rule live on, under the same holder."""
        self._stage.governor.submit_living(_lost(self.post.rule.name, run, self.driver.labels))

    # What the driver is given.

    async def _open(self, start: Start) -> tuple[Start, Rows]:
        """The next firing, as a start, and what is to be written with that: how often it was begun."""
        stage = self._stage
        self._asks = False
        self._leave_firing()  # meanwhile another one may have come that is more urgent
        while True:
            firing = self._firing = None if self.post.is_leaving else stage.queue.take(self.post.rule.name)
            if firing is None:
                raise Idle
            if not self._has_slot:
                self.in_line = True
                try:
                    await stage.slots.take(self.post.rule.priority)
                finally:
                    self.in_line = False
                self._has_slot = True
            rule = self.post.rule
            holds = await stage.holds(rule, firing)
            if holds is False:
                await stage.skip(firing)
                continue
            self._condition = holds if isinstance(holds, Exception) else None
            asked_for = firing.by_person and not firing.attempt
            again = not (asked_for or self._after_done) and self._is_again(firing)
            self.driver.labels = labels_of(rule)
            begun = msgspec.structs.replace(firing, attempt=firing.attempt + 1)
            changes = {"run": begun.run, "again": again, "labels": self.driver.labels}
            self._asks = True
            return msgspec.structs.replace(start, **changes), {begun.key: encode(begun)}

    def _is_again(self, firing: Firing) -> bool:
        """Whether nobody asked for this run: it is another one for the same firing, after a failure; or a safeguard
        ended the last one, and only a person lets the rule go on."""
        key = restarts_key(firing.rule)
        data = self._stage.governor.store.read([key]).records.get(key)
        known = decode_state(Restarts, data) if data is not None else Restarts()
        failed = known.last is not None and known.last.failed
        return bool(known.ended_for) or (failed and firing.attempt > 0)

    async def begin(self, run: str, *, again: bool) -> Life:
        """Begin a run of the firing that was granted."""
        assert self._firing is not None  # noqa: S101 - it was opened with one
        self.kills = self._asks = False
        life: Life = NotBegun()
        if not self.post.is_leaving:
            life = self._stage.begin_run(self.post.rule, self._firing, self.driver.labels, self._condition)
        self.life = Killable(self, life)
        return self.life

    def _close(self, exited: Exited) -> Rows:
        """What becomes of the firing."""
        firing = self._firing
        self._kept = self._stays(exited)
        return NO_ROWS if firing is None or self._kept else {firing.key: None}

    def _stays(self, exited: Exited) -> bool:
        """Whether it is tried again: after a failure if the rule says so, and after an end that was not about it."""
        if exited.cause.failed:
            return self.post.rule.runs_again
        if exited.cause is Cause.DONE or exited.error == NOT_APPROVED:
            return False
        ordered = exited.policy == "manual"
        return not (ordered and exited.error in STOPPED_FOR_GOOD) and (ordered or not exited.policy)

    def _heard(self, _: Driver, event: Event, decision: Decision) -> None:
        if isinstance(event, Start):
            self.waits_for = decision.primary.text if decision.primary is not None else ""
            if decision.proceeds and self._firing is not None:
                self._firing = msgspec.structs.replace(self._firing, attempt=self._firing.attempt + 1)
                self._stage.queue.replace(self._firing)
            else:  # while it waits, what it waits for may be joined, or forgotten
                self._put_back()
        elif isinstance(event, Exited):
            self.life, self._asks = None, False
            self._after_done = event.cause is Cause.DONE and self.post.rule.runs_max == 1
            firing, self._firing = self._firing, None
            if firing is not None and self._kept:
                self._stage.queue.leave(firing)
            elif firing is not None:
                self._stage.queue.drop(firing)
            if self._has_slot:
                self._give_slot_back()
        self._stage.heard(self.post, event, decision)

    def _give_slot_back(self) -> None:
        self._has_slot = False
        self._stage.slots.give_back()

    def _leave_firing(self) -> None:
        if self._firing is not None:
            self._stage.queue.leave(self._firing)
            self._firing = None

    def _put_back(self) -> None:
        self._leave_firing()
        if self._has_slot:
            self._give_slot_back()

    async def _sleep(self, poked: asyncio.Event, until: Instant) -> None:
        self._asks = False
        if self.life is None and self.post.is_leaving:
            raise Idle
        await self.post.sleep(poked, until)
        if self.life is None and self.post.is_leaving:
            raise Idle


def _lost(rule: str, run: str, labels: Mapping[str, str]) -> Exited:
    return Exited(unit=rule, run=run, labels=labels, cause=Cause.LOST, error="lost", detail="its driver failed")
