"""What a child reports of its work, put to the governor: so limits, budgets, loop and stall hold for it as for agents.

Each step is put to the governor by itself, in the order in which it was said, and answered when the answer is on disk.
A step that was made without asking is asked for now: it counts, whoever forgot to ask. Texts of calls and results are
not kept, only their fingerprints: they may carry secrets. An answer that ends the run is handed to whoever drives it.

A session also reports its checkpoints, and that it pauses. A checkpoint is one step, and on disk when it is answered.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from flyball.core.amounts import MONEY
from flyball.core.decision import PROCEED, Decision, Verb
from flyball.core.event import NOTHING, Amounts, Beat, Cause, Event, Step, Stepped, Work
from flyball.core.failure import call_fingerprint, digest, result_fingerprint
from flyball.core.name import IN_WORDS, is_name
from flyball.core.time import DAY, FOREVER, SECOND, Instant, span
from flyball.errors import FlyballError
from flyball.governor import NO_ROWS, Governor, Rows
from flyball.policies.session import PERSON
from flyball.runtimes.amounts import check_name, whole
from flyball.runtimes.driver import Ending
from flyball.runtimes.notify import OWN_KEYS, Message
from flyball.runtimes.session.command import CommandSession

log = logging.getLogger(__name__)

WAITING_MAX: Final = 64
"""Messages that wait for the governor. With more, the socket is not read: then whoever speaks has to wait."""
ASKED_MAX: Final = 64
"""Steps that were asked for and not reported as made. The oldest are forgotten: what was reserved for them stays so."""
PATTERN_MAX: Final = 200
"""Characters of a pattern. It is a name; what is longer is cut."""
GAUGES_MAX: Final = 16
PAUSE_MAX: Final = 366 * DAY
"""What has to rest longer than a year is not paused but over."""

STEP: Final = "X_FLYBALL_STEP"
STEPPED: Final = "X_FLYBALL_STEPPED"
SPENT: Final = "X_FLYBALL_SPENT"
PROGRESS: Final = "X_FLYBALL_PROGRESS"
CHECKPOINT: Final = "X_FLYBALL_CHECKPOINT"
PAUSE: Final = "X_FLYBALL_PAUSE"
_ANSWERED: Final = frozenset({STEP, STEPPED, SPENT, PROGRESS, CHECKPOINT, PAUSE})


Said = int | float | str
"""An amount as JSON has it."""


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`X_FLYBALL_STEP`: may I make this step?"""

    pattern: str = ""
    call: str = ""
    cost: dict[str, Said] = {}
    last: bool = False
    id: str | int = ""

    def __post_init__(self) -> None:
        whole(self.cost, "cost")


class Made(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`X_FLYBALL_STEPPED`: I made this step."""

    pattern: str = ""
    call: str = ""
    result: str = ""
    world: str = ""
    error: bool = False
    polling: bool = False
    used: dict[str, Said] = {}
    gauges: dict[str, float] = {}
    id: str | int = ""

    def __post_init__(self) -> None:
        whole(self.used, "used")
        if len(self.gauges) > GAUGES_MAX:
            raise ValueError(f"{len(self.gauges)} gauges in one step; at most {GAUGES_MAX}")
        for gauge in self.gauges:
            check_name(gauge)


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`X_FLYBALL_CHECKPOINT`: my file has a new checkpoint."""

    stage: str = ""
    """After which stage: it counts as a step of that name."""
    id: str | int = ""


class Pauses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`X_FLYBALL_PAUSE`: I am about to exit, and am to be resumed."""

    reason: str
    after: float | None = None
    """Seconds until then."""
    id: str | int = ""

    def __post_init__(self) -> None:
        if not is_name(self.reason):
            raise ValueError(f"the reason {self.reason[:PATTERN_MAX]!r} is no name: {IN_WORDS}")
        if self.after is not None and self.reason == PERSON:
            raise ValueError("a pause for a person ends when a person says so: leave `after` out")
        if self.after is not None and not 0 <= self.after <= PAUSE_MAX / SECOND:
            raise ValueError(f"after: {self.after} is not from 0 to {PAUSE_MAX // SECOND} seconds")


Report = Asked | Made | Kept | Pauses | str | int


def _ignore(_: Any) -> None:
    pass


class Reporter:
    """The reports of one run. Used inside the event loop; nothing here blocks it."""

    def __init__(
        self,
        governor: Governor,
        unit: str,
        run: str,
        labels: Mapping[str, str] | None = None,
        *,
        told: Callable[[Decision], None] = _ignore,
        pause: Callable[[bool], None] = _ignore,
        session: CommandSession | None = None,
    ) -> None:
        self._governor = governor
        self._unit, self._run, self._labels = unit, run, dict(labels or {})
        self._told = told
        """Called with a decision that ends the run. A refused request leaves no trace: asking again would not tell."""
        self._pause = pause
        self._session = session
        """None: it is no session, and has no checkpoints."""
        self._pauses: tuple[str, Instant] | None = None
        """Why it pauses and until when, since it said so."""
        self._progress = False
        """It kept a checkpoint."""
        self._waiting: deque[Message | None] = deque()
        self._working: asyncio.Task[None] | None = None
        self._asked: dict[tuple[str, str], list[Amounts]] = {}
        self._world = ""

    def hear(self, message: Message) -> None:
        """Something was said on the notify socket. What is not about work is left to others."""
        if any(key in _ANSWERED for key, _ in message.pairs):
            self._put(message)

    def beat(self) -> None:
        """The run gave a sign of life."""
        if None not in self._waiting:
            self._put(None)

    async def settled(self) -> None:
        """Wait until everything that was said has been put to the governor. To be called before the exit is."""
        if self._working is not None:
            await asyncio.shield(self._working)

    def judged(self, ending: Ending) -> Ending:
        """How a run ended, by what it said of itself: if it said that it pauses, it did, whatever its exit code."""
        if self._pauses is None:
            return replace(ending, progress=True) if self._progress else ending
        reason, resume_at = self._pauses
        return Ending(
            Cause.STOPPED,
            error=reason,
            code=ending.code,
            signal=ending.signal,
            detail=ending.detail,
            pause=reason,
            resume_at=resume_at,
            progress=self._progress,
        )

    def _put(self, message: Message | None) -> None:
        self._waiting.append(message)
        if len(self._waiting) == WAITING_MAX:
            self._pause(True)
        if self._working is None or self._working.done():
            self._working = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        paused = False
        while self._waiting:
            paused = paused or len(self._waiting) >= WAITING_MAX
            message = self._waiting.popleft()
            try:
                decision = await self._submit(self._event(Beat)) if message is None else await self._heed(message)
            except (ValueError, FlyballError) as error:
                log.warning("a report of %s could not be used: %s", self._unit, error)
                _answer(message, {"error": str(error)})
                continue
            if decision.verb >= Verb.FINISH:
                self._told(decision)
        self._working = None
        if paused:
            self._pause(False)

    async def _heed(self, message: Message) -> Decision:
        """Everything that a message says, in its order, and one answer to all of it. If a part of it is wrong, none of
        it counts."""
        reports = [_read(key, value) for key, value in message.pairs if key in _ANSWERED]
        session, checkpoint = self._session, b""
        if any(isinstance(report, Kept | Pauses) for report in reports) and session is None:
            raise ValueError("this unit is no session, so it has no checkpoints and no pauses; give it `kind: session`")
        if session is not None and any(isinstance(report, Kept) for report in reports):
            checkpoint = await asyncio.to_thread(session.take)
        decision = PROCEED
        for report in reports:
            match report:
                case Asked():
                    decision |= await self._ask(report)
                case Made():
                    decision |= await self._made(report)
                case Kept(stage=stage) if session is not None:
                    rows = await asyncio.to_thread(session.rows, stage, checkpoint)
                    # That it has another checkpoint than before is what it got done.
                    made = Made(pattern=stage or "checkpoint", world=digest([checkpoint.hex()]))
                    decision |= await self._made(made, rows)
                    self._progress = True
                case Pauses(reason=reason, after=after):
                    resume_at = 0 if after is None else self._governor.clock.now() + span(after)
                    self._pauses = reason, resume_at
                    decision |= await self._submit(self._event(Beat))
                case str(progress):
                    self._world = digest(["progress", progress])
                    decision |= await self._submit(self._event(Beat))
                case int(spent):
                    decision |= await self._submit(self._event(Stepped, done=(Work(used={MONEY: spent}),)))
        _answer(message, _as_json(decision, self._governor, reports))
        return decision

    async def _ask(self, asked: Asked) -> Decision:
        pattern, call, cost = _names(asked.pattern, asked.call, asked.cost)
        decision = await self._submit(self._event(Step, pattern=pattern, call=call, cost=cost, last=asked.last))
        if decision.proceeds:
            self._note(pattern, call, cost)
        elif decision.verb is Verb.WAIT and decision.until >= FOREVER:
            # Refusing alone stops nobody: whoever insists on a refused call is judged by that.
            refused = Work(pattern=pattern, call=call, refused=True)
            decision |= await self._submit(self._event(Stepped, done=(refused,)))
        return decision

    async def _made(self, made: Made, rows: Rows = NO_ROWS) -> Decision:
        pattern, call, used = _names(made.pattern, made.call, made.used)
        decision = PROCEED
        costs = self._asked.get((pattern, call))
        if costs:
            reserved = costs.pop()
            if not costs:
                del self._asked[pattern, call]
        else:
            reserved = NOTHING
            decision = await self._submit(self._event(Step, pattern=pattern, call=call))
        work = Work(
            pattern=pattern,
            call=call,
            result=result_fingerprint(made.result) if made.result else "",
            world=digest(["world", made.world]) if made.world else self._world,
            error=made.error,
            polling=made.polling,
            reserved=reserved,
            used=used,
            gauges=made.gauges,
        )
        self._world = ""
        after = await self._submit(self._event(Stepped, done=(work,)), rows)
        return after if decision.proceeds else decision | after

    def _note(self, pattern: str, call: str, cost: Amounts) -> None:
        self._asked.setdefault((pattern, call), []).append(cost)
        if sum(map(len, self._asked.values())) > ASKED_MAX:
            oldest = next(iter(self._asked))
            self._asked[oldest].pop(0)
            if not self._asked[oldest]:
                del self._asked[oldest]

    def _event(self, kind: type[Event], **fields: Any) -> Event:
        return kind(unit=self._unit, run=self._run, labels=self._labels, **fields)

    async def _submit(self, event: Event, rows: Rows = NO_ROWS) -> Decision:
        return await asyncio.wrap_future(self._governor.submit_soon(event, rows))


def _read(key: str, value: str) -> Report:
    try:
        if key == STEP:
            return msgspec.json.decode(value, type=Asked)
        if key == STEPPED:
            return msgspec.json.decode(value, type=Made)
        if key == CHECKPOINT:
            return msgspec.json.decode(value, type=Kept)
        if key == PAUSE:
            return msgspec.json.decode(value, type=Pauses)
        return value if key == PROGRESS else whole(value.strip(), "it")[MONEY]
    except (msgspec.MsgspecError, ValueError) as error:
        raise ValueError(f"{key.removeprefix(OWN_KEYS).lower()}: {error}") from None


def _names(pattern: str, call: str, amounts: Mapping[str, Said]) -> tuple[str, str, Amounts]:
    """A step's pattern and call as they are kept, and its amounts in whole numbers."""
    pattern = pattern[:PATTERN_MAX]
    return pattern, call_fingerprint(pattern, call) if call else "", whole(amounts)


def _as_json(decision: Decision, governor: Governor, reports: list[Report]) -> dict[str, object]:
    answer: dict[str, object] = {"verb": decision.verb.name.lower()}
    if decision.until < FOREVER and decision.verb is not Verb.PROCEED:
        answer["seconds"] = max(0, decision.until - governor.clock.now()) / SECOND
    answer["reasons"] = [
        {"policy": reason.policy, "code": reason.code, "text": reason.text, "remedy": reason.remedy}
        for reason in decision.reasons
    ]
    ids = [report.id for report in reports if not isinstance(report, str | int) and report.id != ""]
    if ids:
        answer["id"] = ids[-1]
    return answer


def _answer(message: Message | None, answer: Mapping[str, object]) -> None:
    if message is not None and message.answer is not None:
        message.answer(msgspec.json.encode(answer))
