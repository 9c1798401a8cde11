"""Approvals: a person says yes before an action is done. Here is only whose question is shown, and for whom its answer
counts; asking itself, the deadline and the default are those of every question.

People are not flooded. Runs that ask the same of the same rule and action share one question. Of one rule only so many
are open at a time; the others wait for their turn, and their time runs meanwhile, so nothing waits for ever. A person's
word is for all who waited for it then, and for nobody who comes later. A default is nobody's word: it is for those
alone whose own time is over.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from flyball.core.codec import decode_body
from flyball.core.decision import Verb
from flyball.core.event import Answered, Beat
from flyball.core.time import SECOND, Instant, Span, later, seconds
from flyball.governor import Governor
from flyball.runtimes.bridge import submit
from flyball.runtimes.driver import Sleep, sleep_until
from flyball.runtimes.flag import Flag
from flyball.runtimes.questions import BEAT_EVERY_MIN, DEFAULT, ask
from flyball.runtimes.refusal import refusal

log = logging.getLogger(__name__)

OPEN_MAX: Final = 3
"""Questions of one rule that are open at a time. Well below what is kept of a unit, and as many as a person reads."""
GROUP_EVERY: Final[Span] = 10 * SECOND
"""Between two times that people are told what waits. A burst of firings is over by then, and it is one message."""
TOLD_MAX: Final = 5
"""Questions that are named when people are told; of the rest they are told how many."""
YES: Final = "yes"
NO: Final = "no"


@dataclass(slots=True, kw_only=True, eq=False)
class _Member:
    """A run that waits."""

    rule: str
    run: str
    labels: Mapping[str, str]
    until: Instant
    default: bool
    beat_at: Instant = 0
    """When it has to give its next sign of life."""
    woken: asyncio.Event = field(default_factory=Flag)


@dataclass(slots=True, kw_only=True, eq=False)
class _Group:
    """One question, and the runs that wait for its answer: the first of them asks it."""

    text: str
    members: list[_Member] = field(default_factory=list)
    answered: Answered | None = None
    """By a person."""
    told: bool = False


_Asks = tuple[str, str]
"""An action's id, and what it asks."""


class Approvals:
    """The desk that questions of all rules go over. `tell` is called with what people are told."""

    def __init__(
        self, governor: Governor, tell: Callable[[str], None] = log.warning, *, sleep: Sleep = sleep_until
    ) -> None:
        self._governor, self._tell, self._sleep = governor, tell, sleep
        self._groups: dict[str, dict[_Asks, _Group]] = {}
        """By rule; those that came first are shown first."""
        self._quiet: asyncio.TimerHandle | None = None
        """Until then people are told nothing more."""

    async def approved(  # noqa: PLR0917 - the order in which a question reads: who asks, what, for how long
        self, rule: str, run: str, labels: Mapping[str, str], action: str, text: str, timeout: Span, default: bool
    ) -> bool:
        """Whether a person said yes; or, when nobody answered in time, the default. Refused if the run has to end
        meanwhile, FlyballError if the text is none that can be asked."""
        until = later(self._governor.clock.now(), timeout)
        member = _Member(rule=rule, run=run, labels=labels, until=until, default=default)
        groups = self._groups.setdefault(rule, {})
        group = groups.setdefault((action, text), _Group(text=text))
        group.members.append(member)
        try:
            while True:
                if group.answered is not None:
                    return await self._shared(member, group.answered)
                if self._governor.clock.now() >= until:
                    return await self._not_asked(member)
                if group.members[0] is member and group in list(groups.values())[:OPEN_MAX]:
                    return await self._ask(member, group)
                await self._wait(member)
        finally:
            group.members.remove(member)
            self._over(rule, groups)

    async def _ask(self, member: _Member, group: _Group) -> bool:
        """Ask for all of the group. What a person says is for all of them."""
        self._news()
        opened = self._governor.store.read(()).seq
        left = max(0, member.until - self._governor.clock.now())
        answer = await ask(
            self._governor,
            member.rule,
            member.run,
            member.labels,
            group.text,
            choices=(YES, NO),
            timeout=seconds(left),
            default=_word(member.default),
            sleep=self._sleep,
        )
        first = self._answer_to(member, opened)
        if first is not None and first.by != DEFAULT:
            group.answered = first
        return answer == YES

    def _answer_to(self, member: _Member, opened: int) -> Answered | None:
        """The answer that counts: the first one to that run since then. A run asks one thing at a time."""
        for entry in self._governor.store.entries(after=opened, unit=member.rule, events=("answered",)):
            event = decode_body(entry.body).event
            if isinstance(event, Answered) and event.run == member.run:
                return event
        return None

    async def _wait(self, member: _Member) -> None:
        """Wait for the answer, for the turn, or for the deadline; with signs of life, and obeying."""
        member.woken.clear()
        if self._governor.clock.now() >= member.beat_at:
            decision = await submit(self._governor, Beat(unit=member.rule, run=member.run, labels=member.labels))
            now = self._governor.clock.now()
            if decision.verb >= Verb.FINISH:
                raise refusal(decision, now, f"{member.rule} waits for an approval")
            member.beat_at = now + max(BEAT_EVERY_MIN, (decision.until - now) // 2)
        await self._sleep(member.woken, min(member.until, member.beat_at))

    async def _shared(self, member: _Member, answered: Answered) -> bool:
        """Write down for this run as well who answered what."""
        note = f"{answered.note}, to {answered.run}".lstrip(", ")
        await self._note(member, answered.id, answered.answer, heard=True, by=answered.by, note=note)
        return answered.answer == YES

    async def _not_asked(self, member: _Member) -> bool:
        """Its time was over before its own question was open."""
        await self._note(member, "", _word(member.default), heard=False, by=DEFAULT, note="behind other questions")
        return member.default

    async def _note(
        self, member: _Member, question: str, answer: str | None, *, heard: bool, by: str, note: str
    ) -> None:
        said = Answered(
            unit=member.rule,
            run=member.run,
            labels=member.labels,
            id=question,
            answer=answer,
            heard=heard,
            by=by,
            note=note,
        )
        await submit(self._governor, said)

    def _over(self, rule: str, groups: dict[_Asks, _Group]) -> None:
        """A run waits no more: others may be next. What was answered, or asked for nobody, is gone."""
        for asks, group in list(groups.items()):
            if group.answered is not None or not group.members:
                del groups[asks]
            for member in group.members:
                member.woken.set()
        if not groups and self._groups.get(rule) is groups:
            del self._groups[rule]

    # What people are told.

    def _news(self) -> None:
        """A question is open: people are told now, or with the others that come until they are told again."""
        if self._quiet is None:
            self._tell_all()

    def _tell_all(self) -> None:
        self._quiet = None
        waiting = [(rule, group) for rule, groups in self._groups.items() for group in groups.values()]
        if all(group.told for _, group in waiting):
            return
        for _, group in waiting:
            group.told = True
        self._tell(_told(waiting))
        self._quiet = asyncio.get_running_loop().call_later(seconds(GROUP_EVERY), self._tell_all)


def _told(waiting: list[tuple[str, _Group]]) -> str:
    parts = []
    for rule, group in waiting[:TOLD_MAX]:
        runs = len(group.members)
        parts.append(f"{rule} asks {group.text!r}" + (f" for {runs} runs" if runs > 1 else ""))
    if len(waiting) > TOLD_MAX:
        parts.append(f"{len(waiting) - TOLD_MAX} more wait")
    return f"{'; '.join(parts)}. Answer with `flyball answer {waiting[0][0]} {YES}` (or {NO})."


def _word(default: bool) -> str:
    return YES if default else NO
