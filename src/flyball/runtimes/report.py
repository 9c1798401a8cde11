"""What a child reports of its work, put to the governor: so limits, budgets, loop and stall hold for it as for agents.

Each step is put to the governor by itself, in the order in which it was said, and answered when the answer is on disk.
A step that was made without asking is asked for now: it counts, whoever forgot to ask. Texts of calls and results are
not kept, only their fingerprints: they may carry secrets. An answer that ends the run is handed to whoever drives it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from flyball.config.money import micro, rounded_up
from flyball.core.amounts import MONEY
from flyball.core.decision import PROCEED, Decision, Verb
from flyball.core.event import NOTHING, Amounts, Beat, Event, Step, Stepped, Work
from flyball.core.failure import call_fingerprint, digest, result_fingerprint
from flyball.core.time import FOREVER, SECOND
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.runtimes.amounts import check_name, whole
from flyball.runtimes.notify import OWN_KEYS, Message

log = logging.getLogger(__name__)

WAITING_MAX: Final = 64
"""Messages that wait for the governor. With more, the socket is not read: then whoever speaks has to wait."""
ASKED_MAX: Final = 64
"""Steps that were asked for and not reported as made. The oldest are forgotten: what was reserved for them stays so."""
PATTERN_MAX: Final = 200
"""Characters of a pattern. It is a name; what is longer is cut."""
GAUGES_MAX: Final = 16

STEP: Final = "X_FLYBALL_STEP"
STEPPED: Final = "X_FLYBALL_STEPPED"
SPENT: Final = "X_FLYBALL_SPENT"
PROGRESS: Final = "X_FLYBALL_PROGRESS"
_ANSWERED: Final = frozenset({STEP, STEPPED, SPENT, PROGRESS})


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
        whole(self.cost)


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
        whole(self.used)
        if len(self.gauges) > GAUGES_MAX:
            raise ValueError(f"{len(self.gauges)} gauges in one step; at most {GAUGES_MAX}")
        for gauge in self.gauges:
            check_name(gauge)


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
    ) -> None:
        self._governor = governor
        self._unit, self._run, self._labels = unit, run, dict(labels or {})
        self._told = told
        """Called with a decision that ends the run. A refused request leaves no trace: asking again would not tell."""
        self._pause = pause
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
        decision = PROCEED
        for report in reports:
            match report:
                case Asked():
                    decision |= await self._ask(report)
                case Made():
                    decision |= await self._made(report)
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

    async def _made(self, made: Made) -> Decision:
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
        after = await self._submit(self._event(Stepped, done=(work,)))
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

    async def _submit(self, event: Event) -> Decision:
        return await asyncio.wrap_future(self._governor.submit_soon(event))


def _read(key: str, value: str) -> Asked | Made | str | int:
    try:
        if key == STEP:
            return msgspec.json.decode(value, type=Asked)
        if key == STEPPED:
            return msgspec.json.decode(value, type=Made)
        return value if key == PROGRESS else micro(rounded_up(value.strip()))
    except (msgspec.MsgspecError, ValueError) as error:
        raise ValueError(f"{key.removeprefix(OWN_KEYS).lower()}: {error}") from None


def _names(pattern: str, call: str, amounts: Mapping[str, Said]) -> tuple[str, str, Amounts]:
    """A step's pattern and call as they are kept, and its amounts in whole numbers."""
    pattern = pattern[:PATTERN_MAX]
    return pattern, call_fingerprint(pattern, call) if call else "", whole(amounts)


def _as_json(decision: Decision, governor: Governor, reports: list[Asked | Made | str | int]) -> dict[str, object]:
    answer: dict[str, object] = {"verb": decision.verb.name.lower()}
    if decision.until < FOREVER and decision.verb is not Verb.PROCEED:
        answer["seconds"] = max(0, decision.until - governor.clock.now()) / SECOND
    answer["reasons"] = [
        {"policy": reason.policy, "code": reason.code, "text": reason.text, "remedy": reason.remedy}
        for reason in decision.reasons
    ]
    ids = [report.id for report in reports if isinstance(report, Asked | Made) and report.id != ""]
    if ids:
        answer["id"] = ids[-1]
    return answer


def _answer(message: Message | None, answer: Mapping[str, object]) -> None:
    if message is not None and message.answer is not None:
        message.answer(msgspec.json.encode(answer))
