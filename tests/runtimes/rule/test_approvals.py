"""Actions that need a person's yes: shared questions, turns, deadlines, and what people are told. Nothing sleeps."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from flyball.config import load
from flyball.core.codec import decode_body, decode_state
from flyball.core.event import QUESTION_MAX, Answered, Asked, Cause, Event, Exited, Held, Start
from flyball.core.policy import Key
from flyball.core.time import HOUR, MINUTE, SECOND, Instant, Span, seconds
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.policies.deadline import Deadline
from flyball.policies.question import Open
from flyball.policies.question import State as Questions
from flyball.runtimes.refusal import Refused
from flyball.runtimes.rule.approvals import GROUP_EVERY, OPEN_MAX, Approvals
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock

WAIT_MAX = 30.0
RUNS_MAX = 50
LABELS = {"runtime": "rule"}


class Office:
    """Runs of rules that ask, and people who answer, on a clock that is moved by hand."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        policies = [policy for policy in load(env={}).policies("rule") if policy.name in ("manual", "question")]
        policies.append(Deadline(lasts_max=10 * SECOND, idle=True, name="idle"))
        self.governor = Governor(policies, MemoryStore(), self.clock)
        self.told: list[str] = []
        self.desk = Approvals(self.governor, self.told.append, sleep=self.sleep)
        self._moved = asyncio.Condition()

    def begin(self, run: str, rule: str = "pay") -> None:
        assert self.governor.submit(Start(unit=rule, run=run, labels=LABELS, holder="host")).proceeds

    def ask(
        self, run: str, text: str = "Pay?", *, rule: str = "pay", waits: Span = HOUR, default: bool = False
    ) -> "asyncio.Task[bool]":
        """A run that waits for its yes."""
        self.begin(run, rule)
        return asyncio.ensure_future(self.desk.approved(rule, run, LABELS, **_asks(text, waits, default)))

    async def sleep(self, woken: asyncio.Event, until: Instant) -> None:
        async def moved() -> None:
            async with self._moved:
                await self._moved.wait_for(lambda: self.clock.now() >= until)

        waits = [asyncio.ensure_future(moved()), asyncio.ensure_future(woken.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def pass_by(self, length: Span) -> None:
        """Let time pass, a second at a time: nobody misses a sign of life."""
        await settled()
        for _ in range(length // SECOND):
            self.clock.move(SECOND)
            async with self._moved:
                self._moved.notify_all()
            await settled()

    def open(self, rule: str = "pay") -> dict[str, Open]:
        key = Key("question", "unit", rule)
        data = self.governor.store.read([key]).records.get(key)
        return {} if data is None else decode_state(Questions, data).open

    def texts(self, rule: str = "pay") -> list[str]:
        return [question.text for question in self.open(rule).values()]

    async def answer(self, text: str = "yes", question: str = "Pay?", rule: str = "pay") -> None:
        """A person answers that question."""
        (id_,) = (id_ for id_, one in self.open(rule).items() if one.text == question)
        run = self.open(rule)[id_].run
        fact = Answered(unit=rule, run=run, id=id_, answer=text, heard=True, by="ann", note="via socket")
        self.governor.submit(fact)
        await self.pass_by(2 * SECOND)

    def journal(self, *kinds: type[Event]) -> Sequence[Any]:
        events = [decode_body(entry.body).event for entry in self.governor.store.entries(limit=100_000)]
        return [event for event in events if isinstance(event, kinds)]


def _asks(text: str = "Pay?", timeout: Span = HOUR, default: bool = False, *, action: str = "fetch") -> dict[str, Any]:
    return {"action": action, "text": text, "timeout": timeout, "default": default}


async def settled() -> None:
    """All that can happen without time has happened."""
    for _ in range(50):
        await asyncio.sleep(0)


Case = Callable[[Office], Coroutine[Any, Any, None]]


@pytest.fixture
def within() -> Callable[[Case], None]:
    """Run a case in an office, within bounds."""

    async def bounded(case: Case) -> None:
        async with asyncio.timeout(WAIT_MAX):
            await case(Office())
        assert asyncio.all_tasks() == {asyncio.current_task()}

    return lambda case: asyncio.run(bounded(case))


Within = Callable[[Case], None]


@pytest.mark.parametrize(("said", "approved"), [("yes", True), ("no", False)])
def test_one_run(within: Within, said: str, approved: bool) -> None:
    """It asks, a person answers, and that is what it gets; the question is as every other one."""

    async def case(office: Office) -> None:
        waiting = office.ask("r1", "Pay 12?")
        await settled()
        assert not waiting.done()
        await office.answer(said, "Pay 12?")
        assert await waiting is approved
        asked, answered = office.journal(Asked, Answered)
        assert (asked.text, asked.choices, asked.default) == ("Pay 12?", ("yes", "no"), "no")
        assert asked.until - asked_at == HOUR
        assert (answered.answer, answered.by, answered.run) == (said, "ann", "r1")
        assert office.open() == {}
        assert office.desk._groups == {}

    asked_at = FakeClock().now()
    within(case)


@pytest.mark.parametrize("default", [True, False])
def test_nobody_answers(within: Within, default: bool) -> None:
    """After its timeout, and not before, the default is taken, as nobody's word."""

    async def case(office: Office) -> None:
        waiting = office.ask("r1", waits=MINUTE, default=default)
        await office.pass_by(MINUTE - SECOND)
        assert not waiting.done()
        await office.pass_by(SECOND)
        assert waiting.done()
        assert await waiting is default
        (answered,) = office.journal(Answered)
        assert (answered.by, answered.heard) == ("default", False)

    within(case)


@pytest.mark.parametrize(("said", "approved"), [("yes", True), ("no", False)])
def test_runs_that_ask_the_same_share_the_answer(within: Within, said: str, approved: bool) -> None:
    """One question for twenty runs, one answer, and in the journal it stands for each of them who gave it."""

    async def case(office: Office) -> None:
        waiting = [office.ask(f"r{number}") for number in range(20)]
        await settled()
        assert office.texts() == ["Pay?"]
        await office.answer(said)
        assert [one.done() for one in waiting] == [True] * 20
        assert await asyncio.gather(*waiting) == [approved] * 20
        assert len(office.journal(Asked)) == 1
        answers = office.journal(Answered)
        assert sorted(event.run for event in answers) == sorted(f"r{number}" for number in range(20))
        assert {(event.answer, event.by, event.heard) for event in answers} == {(said, "ann", True)}
        assert {event.note for event in answers} == {"via socket", "via socket, to r0"}

    within(case)


def test_an_answer_is_not_for_who_comes_later(within: Within) -> None:
    """Also with the same text: a yes is for those who waited for it."""

    async def case(office: Office) -> None:
        first = office.ask("r1")
        await settled()
        await office.answer("yes")
        assert await first is True
        second = office.ask("r2")
        await settled()
        assert not second.done()
        await office.answer("no")
        assert await second is False

    within(case)


@pytest.mark.parametrize(
    ("rule", "action", "text"), [("other", "fetch", "Pay?"), ("pay", "post", "Pay?"), ("pay", "fetch", "Pay 2?")]
)
def test_what_is_not_the_same(within: Within, rule: str, action: str, text: str) -> None:
    """Another rule, action or text is another question: an answer to one says nothing of the other."""

    async def case(office: Office) -> None:
        first = office.ask("r1")
        office.begin("r2", rule)
        second = asyncio.ensure_future(office.desk.approved(rule, "r2", LABELS, **_asks(text, action=action)))
        await settled()
        assert len(office.journal(Asked)) == 2
        (mine,) = (id_ for id_, question in office.open().items() if question.run == "r1")
        office.governor.submit(Answered(unit="pay", run="r1", id=mine, answer="yes", heard=True, by="ann"))
        await office.pass_by(2 * SECOND)
        assert await first is True
        assert not second.done()
        second.cancel()
        await asyncio.wait([second])

    within(case)


def test_turns(within: Within) -> None:
    """Of one rule three are open at a time, the first ones first; each answer lets the next one be seen."""

    async def case(office: Office) -> None:
        waiting = [office.ask(f"r{number}", f"Pay {number}?") for number in range(10)]
        elsewhere = office.ask("x1", "Tell?", rule="tell")
        seen = []
        for number in range(10):
            await settled()
            seen.append(office.texts())
            await office.answer("yes" if number % 2 else "no", f"Pay {number}?")
        assert seen == [[f"Pay {n}?" for n in range(k, min(10, k + OPEN_MAX))] for k in range(10)]
        assert await asyncio.gather(*waiting) == [False, True] * 5
        assert office.texts("tell") == ["Tell?"]
        elsewhere.cancel()
        await asyncio.wait([elsewhere])

    within(case)


def test_time_runs_while_it_waits_for_its_turn(within: Within) -> None:
    """Nothing waits for ever: who is never shown takes its default when its own time is over, and that is on record."""

    async def case(office: Office) -> None:
        shown = [office.ask(f"r{number}", f"Pay {number}?", waits=HOUR) for number in range(OPEN_MAX)]
        behind = office.ask("late", "Pay late?", waits=MINUTE, default=True)
        await office.pass_by(MINUTE)
        assert behind.done()
        assert await behind is True
        (answered,) = office.journal(Answered)
        assert (answered.run, answered.answer, answered.by, answered.heard) == ("late", "yes", "default", False)
        assert [one.done() for one in shown] == [False] * OPEN_MAX
        assert len(office.open()) == OPEN_MAX
        for one in shown:
            one.cancel()
        await asyncio.wait(shown)

    within(case)


def test_a_default_is_for_whose_time_is_over(within: Within) -> None:
    """The first of a group got no answer in time; the second came later, has its own time, and may still get one."""

    async def case(office: Office) -> None:
        first = office.ask("r1", waits=MINUTE)
        await office.pass_by(30 * SECOND)
        second = office.ask("r2", waits=MINUTE)
        await office.pass_by(30 * SECOND)
        assert await first is False
        assert not second.done()
        assert [question.run for question in office.open().values()] == ["r2"]
        await office.answer("yes")
        assert await second is True

    within(case)


def test_a_run_that_is_told_to_end(within: Within) -> None:
    """A person holds the rule: those who ask and those who wait behind them are refused, and nothing is open."""

    async def case(office: Office) -> None:
        waiting = [office.ask(f"r{number}", f"Pay {number % 4}?") for number in range(8)]
        await settled()
        office.governor.submit(Held(unit="pay", by="ann"))
        await office.pass_by(10 * SECOND)
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(end) for end in ends] == [Refused] * 8
        assert office.open() == {}
        assert office.desk._groups == {}

    within(case)


def test_a_run_that_is_cancelled(within: Within) -> None:
    """Its question is withdrawn; another run of its group asks it instead, and gets the answer."""

    async def case(office: Office) -> None:
        first, second = office.ask("r1"), office.ask("r2")
        await settled()
        assert [question.run for question in office.open().values()] == ["r1"]
        first.cancel()
        await asyncio.wait([first])
        await settled()
        assert [question.run for question in office.open().values()] == ["r2"]
        await office.answer("yes")
        assert await second is True

    within(case)


def test_who_waits_behind_may_leave(within: Within) -> None:
    """One that was never shown is cancelled: the others do not notice."""

    async def case(office: Office) -> None:
        first, second = office.ask("r1"), office.ask("r2")
        await settled()
        second.cancel()
        await asyncio.wait([second])
        await office.answer("yes")
        assert await first is True

    within(case)


def test_a_run_that_was_lost(within: Within) -> None:
    """After kill -9 the run is reported lost, and its question is closed with it; the next attempt asks anew."""

    async def case(office: Office) -> None:
        lost = office.ask("f1.1")
        await settled()
        lost.cancel()  # nobody waits any more, and nobody reported it: what is left is in the store
        office.governor.submit(Exited(unit="pay", run="f1.1", cause=Cause.LOST))
        assert office.open() == {}
        office.clock.move(MINUTE)
        again = Approvals(office.governor, office.told.append, sleep=office.sleep)
        office.begin("f1.2")
        waiting = asyncio.ensure_future(again.approved("pay", "f1.2", LABELS, **_asks()))
        await settled()
        assert [question.run for question in office.open().values()] == ["f1.2"]
        await office.answer("yes")
        assert await waiting is True

    within(case)


@pytest.mark.parametrize("behind", [False, True])
def test_a_run_that_waits_is_not_idle(within: Within, behind: bool) -> None:
    """Ten seconds of silence are allowed, and all wait for ten minutes: who is shown, who shares, who has no turn."""

    async def case(office: Office) -> None:
        texts = [f"Pay {number}?" for number in range(OPEN_MAX + 1)] if behind else ["Pay?", "Pay?"]
        waiting = [office.ask(f"r{number}", text, waits=10 * MINUTE) for number, text in enumerate(texts)]
        await office.pass_by(10 * MINUTE - SECOND)
        assert [one.done() for one in waiting] == [False] * len(texts)
        await office.pass_by(SECOND)
        assert await asyncio.gather(*waiting) == [False] * len(texts)

    within(case)


@pytest.mark.parametrize("text", ["", " ", "x" * (QUESTION_MAX + 1)])
def test_texts_that_cannot_be_asked(within: Within, text: str) -> None:
    """A clear error for the run that asked; the desk is as it was."""

    async def case(office: Office) -> None:
        with pytest.raises(FlyballError, match="a question"):
            await office.ask("r1", text)
        assert office.desk._groups == {}
        assert office.journal(Asked) == []

    within(case)


def test_people_are_told_once_in_a_while(within: Within) -> None:
    """Of the first at once, of the next fifty together and by number, and of nothing when nothing new waits."""

    async def ten_seconds(desk: Approvals) -> None:
        """The timer goes off, without waiting for it."""
        timer = desk._quiet
        assert timer is not None
        assert 0 < timer.when() - asyncio.get_running_loop().time() <= seconds(GROUP_EVERY)
        timer.cancel()
        desk._tell_all()

    async def case(office: Office) -> None:
        waiting = [office.ask("r0", "Pay 0?")]
        await settled()
        assert office.told == ["pay asks 'Pay 0?'. Answer with `flyball answer pay yes` (or no)."]
        waiting += [office.ask(f"r{number}", f"Pay {number % 8}?") for number in range(1, RUNS_MAX)]
        await settled()
        assert len(office.told) == 1
        await ten_seconds(office.desk)
        assert office.told[1:] == [
            "pay asks 'Pay 0?' for 7 runs; pay asks 'Pay 1?' for 7 runs; pay asks 'Pay 2?' for 6 runs; "
            "pay asks 'Pay 3?' for 6 runs; pay asks 'Pay 4?' for 6 runs; 3 more wait. "
            "Answer with `flyball answer pay yes` (or no)."
        ]
        await ten_seconds(office.desk)
        assert office.desk._quiet is None
        await office.answer("yes", "Pay 0?")  # the fourth is shown now; it was told of already
        assert len(office.told) == 2
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)

    within(case)


def test_what_people_are_told_is_one_line(within: Within) -> None:
    """What a trigger said cannot write lines, or colours, of its own."""

    async def case(office: Office) -> None:
        waiting = office.ask("r1", "Pay?\n\x1b[31mroot: all is well")
        await settled()
        assert office.told == [
            "pay asks 'Pay?\\n\\x1b[31mroot: all is well'. Answer with `flyball answer pay yes` (or no)."
        ]
        waiting.cancel()
        await asyncio.wait([waiting])

    within(case)


def test_told_by_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Where nobody else wants to tell people, it stands in the log, with per cents and all."""

    async def case() -> None:
        office = Office()
        office.desk = Approvals(office.governor, sleep=office.sleep)
        waiting = office.ask("r1", "Pay 100 %s?")
        await settled()
        waiting.cancel()
        await asyncio.wait([waiting])

    with caplog.at_level(logging.WARNING):
        asyncio.run(case())
    assert "pay asks 'Pay 100 %s?'" in caplog.text
