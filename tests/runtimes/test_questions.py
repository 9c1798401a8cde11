"""A run asks a person: it waits without being taken for hung, and gets the one answer that counts. Nothing sleeps."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from flyball.config import load
from flyball.core.codec import decode_body, decode_state
from flyball.core.event import Answered, Asked, Cause, Event, Exited, Held, Start, Stepped, Work
from flyball.core.policy import Key
from flyball.core.time import DAY, HOUR, MINUTE, SECOND, Instant, Span
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.policies import Deadline
from flyball.policies.question import Open
from flyball.policies.question import State as Questions
from flyball.runtimes import questions
from flyball.runtimes.agent.context import Context
from flyball.runtimes.doorbell import Doorbell
from flyball.runtimes.questions import NoAnswer, ask, ask_and_wait
from flyball.runtimes.refusal import Refused
from flyball.store.memory import MemoryStore
from flyball.store.sqlite import SqliteStore
from flyball.testing.clock import FakeClock

WAIT_MAX = 30.0
YES_NO = ("yes", "no")
IDLE = 10 * SECOND


class House:
    """An agent's run that asks, on a clock that moves to whatever is waited for."""

    def __init__(self, how: str = "async") -> None:
        self.how = how
        self.clock = FakeClock()
        policies = [*load(env={}).policies("agent"), Deadline(lasts_max=IDLE, idle=True, name="idle")]
        self.governor = Governor(policies, MemoryStore(), self.clock)
        self.governor.submit(self.of(Start, holder="host"))
        self.plans: list[tuple[Instant, Callable[[], object]]] = []

    def of(self, kind: Callable[..., Any], **more: Any) -> Any:
        return kind(unit="shop", run="r1", **more)

    def after(self, length: Span, does: Callable[[], object]) -> None:
        """Have something happen so much later."""
        self.plans.append((self.clock.now() + length, does))

    def answer(self, text: str = "yes", by: str = "ann") -> None:
        """A person answers the oldest open question."""
        (first, *_) = self.open()
        self.governor.submit(self.of(Answered, id=first, answer=text, heard=True, by=by))

    def open(self) -> dict[str, Open]:
        key = Key("question", "unit", "shop")
        data = self.governor.store.read([key]).records.get(key)
        return decode_state_of(data)

    def ask(self, text: str = "Deploy?", **more: Any) -> str:
        """Ask by the way at hand."""
        if self.how == "async":
            return asyncio.run(ask(self.governor, "shop", "r1", {}, text, sleep=self.sleep, **more))
        return ask_and_wait(self.governor, "shop", "r1", {}, text, wait=self._wait, **more)

    async def sleep(self, heard: asyncio.Event, until: Instant) -> None:
        self.pass_to(until)

    def _wait(self, seconds: float) -> None:
        self.pass_to(self.clock.now() + round(seconds * SECOND))

    def pass_to(self, until: Instant) -> None:
        for plan in [plan for plan in self.plans if plan[0] <= until]:
            self.plans.remove(plan)
            self.clock.set(max(plan[0], self.clock.now()))
            plan[1]()
        self.clock.set(max(until, self.clock.now()))

    def journal(self, *kinds: type[Event]) -> Sequence[Any]:
        events = [decode_body(entry.body).event for entry in self.governor.store.entries(limit=100_000)]
        return [event for event in events if isinstance(event, kinds)]


def decode_state_of(data: bytes | None) -> dict[str, Open]:
    return {} if data is None else decode_state(Questions, data).open


@pytest.fixture(params=["async", "thread"])
def house(request: pytest.FixtureRequest) -> House:
    return House(request.param)


def test_a_person_answers(house: House) -> None:
    """The answer comes back; question and answer are in the journal, and nothing is open any more."""
    house.after(MINUTE, lambda: house.answer("yes"))
    assert house.ask(choices=YES_NO, timeout=3600, default="no") == "yes"
    asked, answered = house.journal(Asked, Answered)
    assert (asked.text, asked.choices, asked.default) == ("Deploy?", YES_NO, "no")
    assert (answered.id, answered.answer, answered.by, answered.heard) == (asked.id, "yes", "ann", True)
    assert house.open() == {}


def test_a_run_that_waits_is_not_idle(house: House) -> None:
    """Ten seconds of silence are allowed, and it waits for an hour; when the answer comes it has its ten seconds."""
    idle_before = []

    def late() -> None:
        house.answer()
        idle_before.append(house.governor.look(house.of(Stepped)).proceeds)
        house.clock.move(IDLE - SECOND)
        idle_before.append(house.governor.look(house.of(Stepped)).proceeds)

    house.after(HOUR, late)
    assert house.ask() == "yes"
    assert idle_before == [True, True]


def test_without_a_sign_of_life_it_would_be_idle(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim above is about the beats: without them the same run is stopped."""
    monkeypatch.setattr(questions, "_halfway", lambda _, now: now + DAY)
    house.after(HOUR, house.answer)
    with pytest.raises(Refused, match="no sign of life"):
        house.ask()


def test_the_default_is_taken(house: House) -> None:
    """After the timeout, and written down as such: nobody's word."""
    begun = house.clock.now()
    assert house.ask(choices=YES_NO, timeout=90, default="no") == "no"
    assert house.clock.now() - begun == 90 * SECOND
    (answered,) = house.journal(Answered)
    assert (answered.answer, answered.by, answered.heard) == ("no", "default", False)
    assert house.open() == {}


@pytest.mark.parametrize(("timeout", "waits"), [(0.5, SECOND // 2), (0, 0), (None, 30 * DAY)])
def test_nobody_answers(house: House, timeout: float | None, waits: Span, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a default that is an error with a remedy. There is no endless wait."""
    monkeypatch.setattr(questions, "LOOK_EVERY", DAY)
    monkeypatch.setattr(questions, "_halfway", lambda _, now: now + DAY)
    house.governor.panel.put("shop", load(env={}).policies("process"))
    begun = house.clock.now()
    with pytest.raises(NoAnswer, match="'Deploy\\?', and nobody answered in time") as raised:
        house.ask(timeout=timeout)
    assert "flyball answer" in raised.value.remedy
    assert house.clock.now() - begun == waits
    assert [event.answer for event in house.journal(Answered)] == [None]
    assert house.open() == {}


def test_the_first_answer_counts(house: House) -> None:
    """Of two people who answer at once."""

    def both() -> None:
        (id_,) = house.open()
        for text, by in (("yes", "ann"), ("no", "bob")):
            house.governor.submit(house.of(Answered, id=id_, answer=text, heard=True, by=by))

    house.after(5 * SECOND, both)
    assert house.ask() == "yes"


def test_a_person_is_quicker_than_the_default(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is in the journal when the default is written down is the one that counts."""
    late = questions._Question._late

    def too_late(question: questions._Question) -> Answered:
        house.answer("yes")
        return late(question)

    monkeypatch.setattr(questions._Question, "_late", too_late)
    assert house.ask(timeout=5, default="no") == "yes"
    assert [(event.answer, event.by) for event in house.journal(Answered)] == [("yes", "ann"), ("no", "default")]


def test_an_answer_behind_many_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is read in parts, to its end."""
    monkeypatch.setattr("flyball.governor.ENTRIES_MAX", 2)
    house = House()
    for number in range(7):
        house.governor.submit(house.of(Answered, id=f"q{number}", answer=str(number)))
    assert house.governor.first_answer("shop", "q5", after=0) == house.of(Answered, id="q5", answer="5")
    assert house.governor.first_answer("shop", "q5", after=house.governor.store.read(()).seq - 1) is None


def test_who_is_told_to_stop_waits_no_more(house: House) -> None:
    """An order of a person ends the wait within a second; the question is closed."""
    house.after(MINUTE, lambda: house.governor.submit(Held(unit="shop", by="ann")))
    begun = house.clock.now()
    with pytest.raises(Refused, match="paused by ann"):
        house.ask(default="no")
    assert house.clock.now() - begun <= MINUTE + SECOND
    assert house.open() == {}


def test_a_run_that_was_given_up(house: House) -> None:
    """Its question is gone with it; whoever waits all the same is told so."""
    house.after(MINUTE, lambda: house.governor.submit(house.of(Exited, cause=Cause.LOST)))
    with pytest.raises(NoAnswer, match="open no more"):
        house.ask(default="no")


def test_the_next_run_asks_again() -> None:
    """An answer is for the run that asked: another run with the same question does not find it."""
    house = House()
    house.after(SECOND, lambda: house.answer("yes"))
    assert house.ask() == "yes"
    house.governor.submit(house.of(Exited, cause=Cause.ERROR))
    assert house.ask(timeout=5, default="no") == "no"


@pytest.mark.parametrize(
    ("text", "more", "says"),
    [
        ("", {}, "without a text"),
        (" \n", {}, "without a text"),
        ("x" * 1_001, {}, "1001 characters; allowed: 1000"),
        ("Deploy?", {"choices": "yes"}, "at most 10 texts"),
        ("Deploy?", {"choices": [str(n) for n in range(11)]}, "at most 10 texts"),
        ("Deploy?", {"choices": ["yes", ""]}, "none of them empty"),
        ("Deploy?", {"choices": ["y" * 201]}, "more than 200 characters"),
        ("Deploy?", {"default": "y" * 201}, "more than 200 characters"),
        ("Deploy?", {"choices": YES_NO, "default": "maybe"}, "'maybe' is none of the choices"),
        ("Deploy?", {"timeout": -1}, "a timeout of -1 s"),
        ("Deploy?", {"timeout": float("nan")}, "a timeout of nan s"),
        ("Deploy?", {"timeout": 31 * 86_400}, "0 s to 30 d"),
    ],
)
def test_what_cannot_be_asked(house: House, text: str, more: dict[str, Any], says: str) -> None:
    """A clear error, and nothing is written down."""
    before = house.governor.store.read(()).seq
    with pytest.raises(FlyballError, match=says) as raised:
        house.ask(text, **more)
    assert raised.value.remedy
    assert house.governor.store.read(()).seq == before


def test_a_wait_that_is_cancelled_is_withdrawn() -> None:
    """Whoever gives up waiting leaves no question behind that nobody hears the answer to."""
    house = House()

    async def give_up() -> None:
        heard = asyncio.Event()
        asking = asyncio.ensure_future(ask(house.governor, "shop", "r1", {}, "Deploy?", heard=heard))
        await _until(lambda: bool(house.open()))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await _until(lambda: not house.open())

    asyncio.run(give_up())
    (answered,) = house.journal(Answered)
    assert (answered.answer, answered.note) == (None, "withdrawn")


def test_an_answer_is_new_ground_and_a_default_is_not() -> None:
    """A person's answer takes the score of an agent that repeats itself back to 0; its own default does not, or it
    could free itself by asking."""
    house = House()
    for _ in range(3):
        house.governor.submit(house.of(Stepped, done=(Work(call="a", result="1"),)))
    assert _codes(house) == ("repeating",)
    assert house.ask(timeout=1, default="no") == "no"
    assert _codes(house) == ("repeating",)
    house.after(SECOND, house.answer)
    house.ask()
    assert _codes(house) == ()


@pytest.mark.parametrize("asks", ["async", "thread"])
def test_what_was_done_before_the_answer_counts_before_it(asks: str) -> None:
    """An agent's steps that are not reported yet are, before it asks: afterwards they would weigh against it anew."""
    house = House()
    context = Context(house.governor, "shop", "r1", labels={}, told=lambda _: None, sleep=house.sleep)

    async def look() -> str:
        return "nothing"

    async def work() -> str:
        for _ in range(3):
            await context.do("look", look)
        house.after(SECOND // 2, house.answer)
        if asks == "async":
            return await context.ask_human("What now?")
        context.wait_until = house.pass_to  # type: ignore[method-assign]  # on this clock
        return await asyncio.to_thread(context.ask_human_and_wait, "What now?")

    assert asyncio.run(work()) == "yes"
    asyncio.run(context.close(clean=True))
    assert _codes(house) == ()


def _codes(house: House) -> tuple[str, ...]:
    return house.governor.look(house.of(Stepped)).codes


# With a real store, another process's connection, and real time.


async def _until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_MAX):
        while not happened():
            await asyncio.sleep(0.01)


def test_the_doorbell_tells_of_the_answer(tmp_path: Path) -> None:
    """Two tasks wait with one event between them; both hear their answers as soon as others have written them."""
    policies = load(env={}).policies("agent")
    own, other = SqliteStore(tmp_path / "state.db"), SqliteStore(tmp_path / "state.db")
    asking, answering = Governor(policies, own), Governor(policies, other)

    async def run() -> list[str]:
        heard = asyncio.Event()
        bell = Doorbell(own, tmp_path / "state.db-wal", heard.set)
        try:
            waits = [
                asyncio.ensure_future(ask(asking, unit, unit, {}, "Deploy?", heard=heard)) for unit in ("one", "two")
            ]
            await _until(lambda: len(other.states("question")) == 2)
            for key, data in other.states("question").items():
                for id_, asked in decode_state_of(data).items():
                    said = Answered(unit=key.subject, run=asked.run, id=id_, answer=f"{key.subject}!", heard=True)
                    await asyncio.to_thread(answering.submit, said)
            async with asyncio.timeout(WAIT_MAX):
                return [await wait for wait in waits]
        finally:
            bell.close()

    try:
        asking.submit(Held(unit="before"))
        assert asyncio.run(run()) == ["one!", "two!"]
    finally:
        own.close()
        other.close()


def test_a_thread_looks_for_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread without a loop finds what another process wrote."""
    monkeypatch.setattr(questions, "LOOK_EVERY", SECOND // 50)
    policies = load(env={}).policies("agent")
    own, other = SqliteStore(tmp_path / "state.db"), SqliteStore(tmp_path / "state.db")
    asking, answering = Governor(policies, own), Governor(policies, other)
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(ask_and_wait(asking, "one", "r", {}, "Deploy?")))
    try:
        thread.start()
        asyncio.run(_until(lambda: bool(other.states("question"))))
        (data,) = other.states("question").values()
        (id_,) = decode_state_of(data)
        answering.submit(Answered(unit="one", run="r", id=id_, answer="yes", heard=True))
        thread.join(WAIT_MAX)
        assert answers == ["yes"]
    finally:
        thread.join(WAIT_MAX)
        own.close()
        other.close()
