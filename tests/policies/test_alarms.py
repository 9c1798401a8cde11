"""Whom the stall policy stops, and whom it lets work: realistic steps, through the governor, under all policies that an
agent stands under by default."""

from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from typing import Any

import pytest

from flyball.config import load
from flyball.core.decision import Decision, Verb
from flyball.core.event import Start, Step, Stepped, Work
from flyball.core.failure import call_fingerprint, result_fingerprint, text_fingerprint
from flyball.core.time import MINUTE, SECOND
from flyball.governor import Governor
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock


class Agent:
    """One run of an agent that asks before each call and reports what came of it. What it is refused it does not do."""

    def __init__(self, profile: str = "default") -> None:
        self.clock = FakeClock()
        policies = load(env={"FLYBALL_STALL__PROFILE": profile}).policies("agent")
        self.governor = Governor(policies, MemoryStore(), self.clock)
        self.nudges: list[str] = []
        self.steps = 0
        self.ask(Start(unit="agent", run="1"))

    def ask(self, event: Any) -> Decision:
        decision = self.governor.submit(event)
        if decision.proceeds and decision.reasons:
            self.nudges.append(decision.reasons[0].text)
        return decision

    def step(self, step: Work) -> Decision:
        """One more."""
        decision = self.ask(Step(unit="agent", run="1", pattern=step.pattern, call=step.call))
        if decision.verb is Verb.WAIT:
            step = Work(pattern=step.pattern, call=step.call, refused=True)
        if decision.verb <= Verb.WAIT:
            self.steps += 1
            self.clock.move(20 * SECOND)
            decision = self.ask(Stepped(unit="agent", run="1", done=(step,)))
        return decision

    def lives(self, steps: Iterable[Work]) -> Decision | None:
        """Make all of these steps; the decision that ended it, if one did."""
        for step in steps:
            decision = self.step(step)
            if decision.verb >= Verb.FINISH:
                return decision
        return None


def did(tool: str, args: str, result: str, *, error: bool = False, **more: Any) -> Work:
    """A call and what came of it, with fingerprints as the library makes them."""
    call, found = call_fingerprint(tool, args), result_fingerprint(result)
    return Work(pattern=tool, call=call, result=found, error=error, **more)


# Work.


def polling_declared() -> Iterator[Work]:
    """A job is waited for, by a tool that says so of itself: 25 minutes."""
    return islice(repeat(did("wait_for_job", "7", "still running", polling=True)), 75)


def polling_undeclared() -> Iterator[Work]:
    """The same with a tool that does not say so, and a result that changes."""
    return (did("bash", "curl -s ci/7", f"running: {percent} %") for percent in range(0, 100, 2))


def paging() -> Iterator[Work]:
    """A long file, a hundred lines at a time; some pages look alike."""
    for page in range(60):
        text = "" if page % 4 == 0 else f"lines {page}"
        yield did("read", f'{{"file":"big.log","offset":{page * 100}}}', text)


def next_page() -> Iterator[Work]:
    """The same, with a tool that remembers where it was."""
    return (did("next_page", "", f"page {page}") for page in range(60))


def mending() -> Iterator[Work]:
    """Tests, an edit, tests: fewer and fewer fail, and once it gets worse."""
    for attempt, failed in enumerate((5, 5, 4, 6, 4, 3, 3, 2, 2, 1)):
        yield did("bash", "pytest -q", f"{failed} failed, 20 passed in 3.{failed}1s", error=True)
        yield did("edit", f"shop.py: attempt {attempt}", "edited")
    yield did("bash", "pytest -q", "25 passed in 3.02s")


def mending_in_vain() -> Iterator[Work]:
    """The same where the edits do not help for long: each of them is something new all the same."""
    for attempt in range(12):
        yield did("bash", "pytest -q", "1 failed, 24 passed in 3.01s", error=True)
        yield did("edit", f"shop.py: attempt {attempt}", "edited")


def reading() -> Iterator[Work]:
    """Many files, one after the other; some are empty, some are missing."""
    for number in range(150):
        missing = number % 9 == 0
        result = "" if number % 7 == 0 else f"contents of {number}"
        yield did("read", f"src/{number}.py", f"no such file: {number}" if missing else result, error=missing)


def flaky_network() -> Iterator[Work]:
    """A call fails, is tried again twice, works; and the agent goes on. Every few calls."""
    for page in range(12):
        yield from repeat(did("fetch", f"api/{page}", "connection reset by peer", error=True), 3)
        yield did("fetch", f"api/{page}", f"items of page {page}")
        yield did("save", f"page-{page}.json", "saved")


def looking_around() -> Iterator[Work]:
    """The same folder is listed now and then, between pieces of work."""
    for number in range(25):
        yield did("bash", "ls", "Makefile src tests")
        yield did("edit", f"src/{number}.py", "edited")
        if number % 3 == 0:
            yield did("bash", "git status --short", f" M src/{number}.py")


def changing_the_world() -> Iterator[Work]:
    """A call with the same answer each time, that moves the world on."""
    return (did("next_migration", "", "ok", world=f"schema {number}") for number in range(30))


def talking() -> Iterator[Work]:
    """It says the same before each of its calls."""
    for number in range(30):
        yield Work(call=text_fingerprint("Let me look at the next file."))
        yield did("read", f"src/{number}.py", f"contents of {number}")


WORK = [
    polling_declared,
    polling_undeclared,
    paging,
    next_page,
    mending,
    mending_in_vain,
    reading,
    flaky_network,
    looking_around,
    changing_the_world,
    talking,
]


@pytest.mark.parametrize("profile", ["default", "cautious"])
@pytest.mark.parametrize("steps", WORK, ids=lambda steps: steps.__name__)
def test_work_is_not_stopped(steps: Any, profile: str) -> None:
    """Nobody who gets anywhere is stopped or refused a call, however much it looks like a circle."""
    agent = Agent(profile)
    planned = list(steps())
    assert agent.lives(planned) is None
    assert agent.steps == len(planned)
    assert not [entry for entry in agent.governor.store.entries(limit=1000) if entry.verb not in ("proceed",)]


# Circles.

VOLATILE = [
    "started at 2026-11-16T01:{n:02}:17Z",
    "Mon Nov 16 01:31:{n:02} UTC 2026: nothing to do",
    "request 3f2504e0-4f89-41d3-9a0c-0305e82c33{n:02} failed",
    "wrote /tmp/build-{n}/out.log",
    "1 failed in 0.{n}1s",
    "real 0m{n}.619s",
    "object at 0x7f3a{n:02}c0 is closed",
    "job run_8f2a{n:02}xq is gone",
]


def circle(period: int, *, error: bool = False) -> Iterator[Work]:
    """After some work, the same calls in the same order, for ever."""
    yield from (did("read", f"src/{number}.py", f"contents of {number}") for number in range(5))
    for number in range(10_000):
        place = number % period
        yield did("bash", f"step {place}", f"answer {place}", error=error)


@pytest.mark.parametrize("profile", ["default", "cautious"])
@pytest.mark.parametrize("error", [False, True], ids=["results", "errors"])
@pytest.mark.parametrize("period", range(1, 11))
def test_a_circle_is_stopped(period: int, error: bool, profile: str) -> None:
    """Whatever its period, within four steps of its second round (five, if cautious); told before, and told where it
    began."""
    agent = Agent(profile)
    ended = agent.lives(circle(period, error=error))
    assert ended is not None
    assert ended.codes == ("going_in_circles",)
    assert agent.steps <= 5 + period + (4 if profile == "default" else 6)
    assert "since step 6 (" in ended.reasons[0].text
    assert "since step 6 (" in agent.nudges[0]


@pytest.mark.parametrize("result", VOLATILE)
@pytest.mark.parametrize("period", [1, 2, 3])
def test_what_is_volatile_does_not_hide_a_circle(result: str, period: int) -> None:
    """Results that differ in times, ids, durations and temporary paths alone are the same results."""
    agent = Agent()
    steps = (did("bash", f"call {n % period}", result.format(n=10 + n)) for n in range(40))
    assert agent.lives(steps) is not None
    assert agent.steps <= period + 4


def test_the_same_error_by_different_calls() -> None:
    """It tries this and that, and nothing but one error comes of it: told at the fourth, stopped at the eighth."""
    agent = Agent()
    errors = (did("bash", f"pip install lib=={n}", "no route to host", error=True) for n in range(100))
    ended = agent.lives(errors)
    assert ended is not None
    assert agent.steps == 8
    assert "4 errors in a row that it had before, since step 1; the last: bash" in agent.nudges[0]


def test_two_errors_that_take_turns() -> None:
    """The same, where there are two of them."""
    agent = Agent()
    messages = ("no route to host", "permission denied")
    errors = (did("bash", f"try {n}", messages[n % 2], error=True) for n in range(100))
    assert agent.lives(errors) is not None
    assert agent.steps == 9


def test_chanting() -> None:
    """It only talks, and says the same thing."""
    agent = Agent()
    said = (Work(call=text_fingerprint(f"I will now begin. ({n} ms)")) for n in range(100))
    assert agent.lives(said) is not None
    assert agent.steps == 6


def test_polling_without_end() -> None:
    """Declared or not, what brings nothing new is ended: after half an hour, or as a circle."""
    declared, undeclared = Agent(), Agent()
    ended = declared.lives(repeat(did("wait_for_job", "7", "still running", polling=True), 1_000))
    assert ended is not None
    assert ended.codes == ("polled_too_long",)
    assert declared.steps * 20 * SECOND > 30 * MINUTE
    assert undeclared.lives(repeat(did("wait_for_job", "7", "still running"), 100)) is not None
    assert undeclared.steps == 4


def test_the_journal_says_where_it_began() -> None:
    """Whoever reads it afterwards finds the step and the kind of call."""
    agent = Agent()
    agent.lives(circle(2))
    (entry,) = [entry for entry in agent.governor.store.entries(limit=1000) if entry.verb == "stop"]
    assert b"a circle of 2 steps since step 6 (score 6; bash, bash)" in entry.body
