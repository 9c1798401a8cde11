"""Layer 1: one step of the governor's per superstep, as LangGraph counts them. The first node of a superstep asks; the
others of it share the answer.

Leave is asked for many supersteps at once and counted before the first of them is made, so that most of them cost
nothing. That is no less than to ask for each: of what a plain superstep says, only how many there were is judged. What
its nodes wrote into the gauges is reported before the next begins.

What the answer says is done here: to finish, the nodes at hand are skipped, so the graph comes to its end without them;
to stop, they leave the graph.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, Final

from flyball.core.decision import PROCEED, Decision, Verb
from flyball.core.event import Event, Step, Stepped, Work
from flyball.core.time import FOREVER, Instant, Span, later
from flyball.governor import Governor
from flyball.integrations.langgraph.errors import Ended
from flyball.integrations.missing import missing
from flyball.policies import Budget, Convergence, Deadline, Limit, Stall
from flyball.policies.rounds import check_rounds
from flyball.runtimes import bridge
from flyball.runtimes.agent.context import Context
from flyball.runtimes.allowance import ALONE_MAX, LASTS_MAX, OWN, SHARE, STEPS_MAX

try:
    from langgraph.types import Command
except ImportError:
    raise missing("LangGraph", "langgraph") from None

log = logging.getLogger(__name__)

AHEAD: Final = 256
"""Of a limit that is far above the usual, leave is asked for this part of it at once: after a crash less than a
hundredth of it counts as used that was not."""

PART: Final = 8
"""Of a usual limit leave is asked for this part of it: what a run was granted and did not make is lost to the work if
the run is killed (layer 4 does so), and the work is to be resumed all the same."""

WRAP_UP_MAX: Final = 10
"""Supersteps in which a graph wraps up. They are beyond the rounds, so they have a bound of their own: fifteen rounds
of three nodes and ten more steps are the 55 of the step limit."""

SHOULD_STOP: Final = "should_stop"
"""The key of a state by which a graph says itself that it stops."""

ROUND: Final = "round"

COUNTS_ONLY: Final = (Budget, Convergence, Deadline, Limit, Stall)
"""Policies of a run to which a plain superstep says nothing but that it was one more. Where there are others, leave is
asked for each superstep."""

Talk = Generator[Event | Instant, Decision, None]
"""What is said to the governor, and how long is waited in between."""


class Supersteps:
    """Asks for supersteps, for threads (`enter`) and coroutines (`enter_soon`). `parts` is the run as its nodes see it;
    `heard` is told what ends the run."""

    def __init__(
        self,
        governor: Governor,
        parts: Context,
        *,
        gauges: Mapping[str, str],
        folded: Sequence[str],
        reads: Callable[[str], Any],
        steps_max: int,
        rounds_max: int,
        goes_its_own_way: bool,
        heard: Callable[[Decision], None],
    ) -> None:
        """What is `folded` from many writes is in no update: `reads` has it. A graph that `goes_its_own_way` has no
        wrap-up node: if it says itself that it stops, it may do so."""
        self._governor = governor
        self._now = governor.clock.now
        self._parts = parts
        self._keys = dict(gauges)
        self._folded = tuple(folded)
        self._reads = reads
        self._seen: dict[str, Any] = {}
        self._unread: set[str] = set()
        """Gauges of which somebody was told that they are no numbers."""
        self._rounds_max = rounds_max
        self._goes_its_own_way = goes_its_own_way
        self._heard = heard
        self._turn = threading.Lock()
        self._turn_soon: asyncio.Lock | None = None
        self._mutex = threading.Lock()
        self._left = 0
        """Supersteps that were granted and not begun."""
        self._until: Instant = 0
        self._number: int | None = None
        self._node = ""
        """Of the superstep at hand, the node that asked; empty: none is at hand."""
        self._began: Instant = 0
        self._plain: dict[str, tuple[int, Span]] = {}
        """Supersteps that are not reported yet: how many and how long, by the node that asked."""
        self._gauges: dict[str, float] = {}
        """What the nodes of the superstep at hand wrote."""
        self._round = 0
        self._stops = False
        """The graph said itself that it stops."""
        self._skips = False
        self._wrapping = 0
        self.verdict = PROCEED
        """All that was heard which ends the run."""
        self.skipped = False
        """Whether nodes were skipped. If not, the graph came to its own end, whatever was heard meanwhile."""
        self.wraps_up = False
        self.made = 0
        self._ahead, self._lasts = self._fair(max(min(STEPS_MAX, steps_max // PART), steps_max // AHEAD))

    def hear(self, decision: Decision) -> None:
        """Obey what ends the run, from the next node on. In any thread."""
        if decision.verb < Verb.FINISH or (self.wraps_up and decision.verb is Verb.FINISH):
            return
        with self._mutex:
            before, self.verdict = self.verdict, self.verdict | decision
        if self.verdict.verb > before.verb:
            self._heard(self.verdict)

    def wrap_up(self) -> None:
        """From now on each step is one of the last: it may use what was kept back, and no round is counted."""
        self.wraps_up = self._parts.steps.last = True
        self._skips = False
        self._number = None

    def skip(self) -> None:
        """A node is skipped: from here on the graph is not what it would have been."""
        self.skipped = True

    # Threads.

    def enter(self, number: int, node: str) -> bool:
        """A node of that superstep is about to run. False: it is to be skipped. Raises Ended if the run is to stop."""
        if number != self._number:
            with self._turn:
                if number != self._number:
                    self._look()
                    if not self._enter_here(number, node):
                        self._hold(self._entering(number, node))
        return self.verdict is PROCEED or self._goes()

    def close(self) -> None:
        """The run is over: report what was made, and give back the rest."""
        self._hold(self._reporting())
        last = self._rest()
        if last is None:
            return
        if self._governor.in_order:
            # Nothing follows from the answer, and the exit is written after it: so nobody waits.
            self._governor.submit_soon(last)
        else:
            self.hear(self._governor.submit(last))

    def _hold(self, talk: Talk) -> None:
        try:
            said = next(talk)
            while True:
                if isinstance(said, Event):
                    said = talk.send(self._governor.submit(said))
                else:
                    self._parts.wait_until(said)
                    said = next(talk)
        except StopIteration:
            return

    # Coroutines.

    async def enter_soon(self, number: int, node: str) -> bool:
        """`enter`, without blocking the loop."""
        if number != self._number:
            if self._turn_soon is None:
                self._turn_soon = asyncio.Lock()
            async with self._turn_soon:
                if number != self._number:
                    self._look()
                    if not self._enter_here(number, node):
                        await self._hold_soon(self._entering(number, node))
        return self.verdict is PROCEED or self._goes()

    async def _hold_soon(self, talk: Talk) -> None:
        try:
            said = next(talk)
            while True:
                if isinstance(said, Event):
                    said = talk.send(await bridge.submit(self._governor, said))
                else:
                    await self._parts.sleep_until(said)
                    said = next(talk)
        except StopIteration:
            return

    # What nodes say.

    def note(self, update: Any) -> None:
        """Read the gauges that a node wrote. ValueError if its round is broken."""
        if isinstance(update, dict):
            for key in update:
                if key in self._keys:
                    if key not in self._folded:
                        self._read(self._keys[key], update[key])
                elif key == SHOULD_STOP and update[key]:
                    self._stops = True
        elif isinstance(update, Command):
            self.note(update.update)
        elif isinstance(update, list | tuple):
            for part in update:
                self.note(dict((part,)) if _is_pair(part) else part)
        elif update is not None:  # a state that is an object: its attributes are written
            found = {key: getattr(update, key, None) for key in (*self._keys, SHOULD_STOP)}
            self.note({key: value for key, value in found.items() if not callable(value)})

    def _look(self) -> None:
        """Read the gauges that are folded from what nodes write: only the state has them. What was there when the run
        began is none of its doing."""
        for key in self._folded:
            value = self._reads(key)
            if key in self._seen and value != self._seen[key]:
                self._read(self._keys[key], value)
            self._seen[key] = value

    def _read(self, gauge: str, value: Any) -> None:
        if self.wraps_up or value is None or isinstance(value, bool):
            return
        number = _number(value)
        if math.isfinite(number):
            if gauge == ROUND:
                check_rounds(self._round, int(number), self._rounds_max)
                self._round = int(number)
            self._gauges[gauge] = number
        elif gauge == ROUND and isinstance(value, float | int):
            raise ValueError(f"the round is {number}: it is no number of a round")
        elif gauge not in self._unread:
            self._unread.add(gauge)
            log.warning("%s: the %s is %.80r, which is no number: it is not read", self._parts.unit, gauge, value)

    # Both.

    def _fair(self, most: int) -> tuple[int, int]:
        """For how many supersteps leave is asked at once, and how long that lasts: of what others share, little."""
        lasts = ALONE_MAX
        for policy in self._governor.panel.concerning(self._step("")).policies:
            if isinstance(policy, Limit) and policy.by not in OWN:
                most, lasts = min(most, policy.most // SHARE), LASTS_MAX
            elif policy.by == "run" and not isinstance(policy, COUNTS_ONLY):
                most = 1
        return max(1, most), lasts

    def _step(self, node: str, *, steps: int = 1) -> Step:
        parts = self._parts
        return Step(unit=parts.unit, run=parts.run, labels=parts.labels, pattern=node, steps=steps, last=self.wraps_up)

    def _enter_here(self, number: int, node: str) -> bool:
        """Begin a superstep inside what was granted. False: there is something to say to the governor."""
        now = self._now()
        if not self._left or self._gauges or self.verdict is not PROCEED or now >= self._until:
            return False
        self._note_made(now)
        self._left -= 1
        self._begin(node, now)
        self._number = number
        return True

    def _entering(self, number: int, node: str) -> Talk:
        yield from self._reporting()
        while self._may_ask():
            if self._left and self._now() < self._until and not self.wraps_up:
                self._left -= 1
                self._begin(node, self._now())
                break
            yield from self._closing()
            decision = yield self._step(node, steps=1 if self.wraps_up else self._ahead)
            if decision.verb is Verb.WAIT and decision.until < FOREVER:
                yield decision.until
            elif self._granted(decision):
                self._begin(node, self._now())
                break
        self._number = number

    def _granted(self, decision: Decision) -> bool:
        """Whether a superstep may begin. If not, what is to be done is noted."""
        if decision.proceeds:
            steps = decision.allowance.steps if decision.allowance is not None else 1
            self._left = steps - 1
            self._until = min(decision.until, later(self._now(), self._lasts))
            self._wrapping += self.wraps_up
            return True
        if decision.verb is Verb.WAIT:
            decision = Decision(Verb.STOP, FOREVER, decision.reasons)  # what never comes is not waited for
        if self.wraps_up and decision.verb is Verb.FINISH:
            self._skips = True
        self.hear(decision)
        return False

    def _may_ask(self) -> bool:
        """Whether the superstep at hand is asked for at all."""
        if self.verdict.verb is Verb.FINISH and not self.wraps_up:
            if not (self._goes_its_own_way and self._stops):
                self._skips = True
                return False
            self.wrap_up()
        if self._wrapping >= WRAP_UP_MAX and not self._skips:
            log.warning("%s does not come to its end: it wraps up for %s steps", self._parts.unit, WRAP_UP_MAX)
            self._skips = True
        return not self._skips and self.verdict.verb < Verb.STOP

    def _begin(self, node: str, now: Instant) -> None:
        self._node, self._began = node, now
        self.made += 1

    def _note_made(self, now: Instant) -> None:
        if self._node:
            times, lasted = self._plain.get(self._node, (0, 0))
            self._plain[self._node] = (times + 1, lasted + now - self._began)
            self._node = ""

    def _reporting(self) -> Talk:
        """Report the superstep at hand, if it wrote gauges: they are judged by the work's own policies, too."""
        if self._gauges and self._node:
            node, self._node = self._node, ""
            work = Work(pattern=node, gauges=self._gauges, lasted=self._now() - self._began)
            self._gauges = {}
            self.hear((yield self._stepped(work)))
        self._note_made(self._now())

    def _closing(self) -> Talk:
        """Report everything, and give back what was granted and not made."""
        yield from self._reporting()
        last = self._rest()
        if last is not None:
            self.hear((yield last))

    def _rest(self) -> Stepped | None:
        left, self._left = self._left, 0
        return self._stepped(left=left) if self._plain or left else None

    def _stepped(self, *more: Work, left: int = 0) -> Stepped:
        plain, self._plain = self._plain, {}
        done = (*(Work(pattern=node, times=times, lasted=lasted) for node, (times, lasted) in plain.items()), *more)
        parts = self._parts
        return Stepped(
            unit=parts.unit,
            run=parts.run,
            labels=parts.labels,
            done=done,
            allowed=sum(work.times for work in done) + left,
        )

    def _goes(self) -> bool:
        if self.verdict.verb >= Verb.STOP:
            raise Ended(self.verdict)
        if self._skips or (self.verdict.verb is Verb.FINISH and not self.wraps_up):
            self.skip()
            return False
        return True


def _is_pair(part: object) -> bool:
    """Whether it is a key with its value: an update may be a list of these."""
    return isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], str)


def _number(value: object) -> float:
    """The number that a gauge is; not a finite one if it is none."""
    try:
        return float(value) if isinstance(value, Real | Decimal) else math.nan
    except OverflowError:
        return math.inf
