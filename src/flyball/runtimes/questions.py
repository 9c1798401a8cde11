"""Questions of a run to a person: asked, waited for, answered; or taken back.

The question and its answer are facts in the journal, and the first answer there is the one that counts, also where a
person and a clock answer at once. Whoever waits gives signs of life, so it is not taken for hung, and obeys: who is
told to stop waits no more. What is said to the governor is written once, as a talk (a generator that is sent what it
asked for); coroutines hold it by awaiting, threads by waiting.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final, TypeVar

from flyball.core.codec import decode_state
from flyball.core.decision import PROCEED, Decision, Verb
from flyball.core.event import CHOICES_MAX, NAME_MAX, QUESTION_MAX, Answered, Asked, Beat, Event
from flyball.core.policy import Key
from flyball.core.time import DAY, MILLISECOND, SECOND, Instant, Span, format_span, later, seconds, span
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.policies.question import Question
from flyball.policies.question import State as Questions
from flyball.runtimes.driver import Sleep, sleep_until
from flyball.runtimes.refusal import refusal

WAITS_MAX: Final[Span] = 30 * DAY
"""How long a question waits, at most and if no time is given. Who did not answer within a month will not."""
LOOK_EVERY: Final[Span] = 1 * SECOND
"""Between looks for an answer, where nothing tells of it."""
BEAT_EVERY_MIN: Final[Span] = 100 * MILLISECOND
"""Between signs of life, also where a lease is about to end anyway."""
DEFAULT: Final = "default"
"""Who answered, where nobody did and the default was taken."""

_E = TypeVar("_E", bound=Event)
Talk = Generator[Event | Instant, Decision, str]
"""Says events, and is sent their answers; or an instant, and is resumed then, or as soon as something was heard."""


class NoAnswer(FlyballError):
    """Nobody answered, and there was no default."""

    remedy = "Answer in time (`flyball answer UNIT TEXT`), wait longer (`timeout`), or give a `default`."


async def ask(
    governor: Governor,
    unit: str,
    run: str,
    labels: Mapping[str, str],
    text: str,
    *,
    choices: Sequence[str] = (),
    timeout: float | None = None,
    default: str | None = None,
    heard: asyncio.Event | None = None,
    sleep: Sleep = sleep_until,
) -> str:
    """Ask a person, and wait for the answer: one of the choices, if there are any. After `timeout` seconds the default
    is taken; NoAnswer if there is none. Refused if the run has to end meanwhile.

    `heard` is set by whoever learns that somebody gave an answer or an order; without it, this looks now and then."""
    question = _question(governor, unit, run, labels, text=text, choices=choices, timeout=timeout, default=default)
    talk = question.talk(LOOK_EVERY if heard is None else WAITS_MAX)
    woken = heard or asyncio.Event()
    try:
        said = next(talk)
        while True:
            if isinstance(said, Event):
                said = talk.send(await asyncio.wrap_future(governor.submit_soon(said)))
            else:
                await sleep(woken, said)
                woken.clear()  # before the look that follows: what comes after it is not missed
                said = talk.send(PROCEED)
    except StopIteration as end:
        answer: str = end.value
        return answer
    except asyncio.CancelledError:
        with contextlib.suppress(FlyballError):  # a store that is closed already
            governor.submit_soon(question.closed("withdrawn"))
        raise


def ask_and_wait(
    governor: Governor,
    unit: str,
    run: str,
    labels: Mapping[str, str],
    text: str,
    *,
    choices: Sequence[str] = (),
    timeout: float | None = None,
    default: str | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> str:
    """`ask`, for threads."""
    question = _question(governor, unit, run, labels, text=text, choices=choices, timeout=timeout, default=default)
    talk = question.talk(LOOK_EVERY)
    try:
        said = next(talk)
        while True:
            if isinstance(said, Event):
                said = talk.send(governor.submit(said))
            else:
                wait(max(0.0, seconds(said - governor.clock.now())))
                said = talk.send(PROCEED)
    except StopIteration as end:
        answer: str = end.value
        return answer
    except KeyboardInterrupt:
        with contextlib.suppress(FlyballError):
            governor.submit(question.closed("withdrawn"))
        raise


@dataclass(slots=True, kw_only=True)
class _Question:
    """One question, from the asking to the answer."""

    governor: Governor
    unit: str
    run: str
    labels: Mapping[str, str]
    text: str
    choices: tuple[str, ...]
    until: Instant
    default: str | None
    id: str = field(default_factory=lambda: secrets.token_hex(4))
    """Short, because people type it; a unit has only a few open questions."""

    def talk(self, look_every: Span) -> Talk:
        """Ask, wait, and find the answer."""
        governor = self.governor
        open_at = governor.store.read(()).seq
        decision = yield self._event(
            Asked, id=self.id, text=self.text, choices=self.choices, until=self.until, default=self.default
        )
        now = governor.clock.now()
        beat_at = _halfway(decision, now)
        while decision.verb < Verb.FINISH and now < self.until:
            seen = self._seen_open()
            if seen is None:
                break
            open_at = seen
            yield min(self.until, beat_at, later(now, look_every))
            now = governor.clock.now()
            if now >= beat_at:
                decision = yield self._event(Beat)
                beat_at = _halfway(decision, now)
            else:
                decision = governor.look(self._event(Beat, silent=True))
        answer = governor.first_answer(self.unit, self.id, after=open_at)
        if answer is None:
            # Somebody may answer at this very moment. Then that is the first, and counts.
            yield self._late() if now >= self.until else self.closed("gave up")
            answer = governor.first_answer(self.unit, self.id, after=open_at)
        if answer is not None and answer.answer is not None:
            return answer.answer
        what = f"{self.unit} asked {self.text!r}"
        if decision.verb >= Verb.FINISH:
            raise refusal(decision, now, what)
        if now >= self.until:
            raise NoAnswer(f"{what}, and nobody answered in time")
        raise NoAnswer(f"{what}, which is open no more: its run ended, or newer questions took its place")

    def closed(self, note: str) -> Answered:
        """It waits no more."""
        return self._event(Answered, id=self.id, note=note)

    def _late(self) -> Answered:
        if self.default is None:
            return self.closed("nobody answered in time")
        return self._event(Answered, id=self.id, answer=self.default, by=DEFAULT)

    def _seen_open(self) -> int | None:
        """The last entry of the journal, if the question is open then."""
        key = Key(Question.NAME, "unit", self.unit)
        snapshot = self.governor.store.read([key])
        data = snapshot.records.get(key)
        return snapshot.seq if data is not None and self.id in decode_state(Questions, data).open else None

    def _event(self, kind: type[_E], **more: Any) -> _E:
        return kind(unit=self.unit, run=self.run, labels=self.labels, **more)


def _question(
    governor: Governor,
    unit: str,
    run: str,
    labels: Mapping[str, str],
    *,
    text: str,
    choices: Sequence[str],
    timeout: float | None,
    default: str | None,
) -> _Question:
    """A question that can be asked. FlyballError says what is wrong with it."""
    if not text.strip():
        raise FlyballError("a question without a text", remedy="Say what the person is to decide.")
    if len(text) > QUESTION_MAX:
        raise FlyballError(
            f"a question of {len(text)} characters; allowed: {QUESTION_MAX}",
            remedy="Ask in short, and say where the rest can be read.",
        )
    if isinstance(choices, str) or len(choices) > CHOICES_MAX or not all(choices):
        raise FlyballError(
            f"the choices have to be at most {CHOICES_MAX} texts, none of them empty",
            remedy='Give them as a list: ["yes", "no"].',
        )
    if max(map(len, (*choices, default or ""))) > NAME_MAX:
        raise FlyballError(
            f"a choice or default of more than {NAME_MAX} characters", remedy="Name it in short in the choices."
        )
    if choices and default is not None and default not in choices:
        raise FlyballError(f"the default {default!r} is none of the choices", remedy=f"Take one of {list(choices)}.")
    waits = WAITS_MAX if timeout is None else span(timeout) if isfinite(timeout) else -1
    if not 0 <= waits <= WAITS_MAX:
        raise FlyballError(
            f"a timeout of {timeout} s; allowed: 0 s to {format_span(WAITS_MAX)}",
            remedy=f"Leave it out to wait for {format_span(WAITS_MAX)}.",
        )
    return _Question(
        governor=governor,
        unit=unit,
        run=run,
        labels=labels,
        text=text,
        choices=tuple(choices),
        until=later(governor.clock.now(), waits),
        default=default,
    )


def _halfway(decision: Decision, now: Instant) -> Instant:
    """When to give the next sign of life: long before the lease that the last answer gave has ended."""
    return now + max(BEAT_EVERY_MIN, (decision.until - now) // 2)
