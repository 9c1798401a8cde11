"""Question: what a run asks a person is open until it is answered or the run is over; it refuses nothing."""

from typing import Any

import pytest

from flyball.core.event import NAME_MAX, QUESTION_MAX, Answered, Asked, Booted, Cause, Event, Exited, Held, Start
from flyball.core.time import DAY, FOREVER, SECOND
from flyball.policies.question import Open, Question
from flyball.testing.clock import START_OF_TIME
from tests.policies.walk import Walk


def asked(id_: str = "q1", run: str = "r1", **more: Any) -> Asked:
    return Asked(unit="shop", run=run, id=id_, text="Deploy?", **more)


def answered(id_: str = "q1", **more: Any) -> Answered:
    return Answered(unit="shop", id=id_, **more)


def test_a_question_is_kept() -> None:
    """With all that a person has to know to answer it."""
    walk = Walk(Question())
    walk.tell(asked(choices=("yes", "no"), default="no", until=START_OF_TIME + SECOND))
    assert walk.state.open == {
        "q1": Open("Deploy?", "r1", ("yes", "no"), "no", at=START_OF_TIME, until=START_OF_TIME + SECOND)
    }


@pytest.mark.parametrize(
    ("event", "open_after"),
    [
        (answered(answer="yes", heard=True), False),
        (answered(answer="no", by="default"), False),
        (answered(), False),
        (answered("q2", answer="yes"), True),
        (Exited(unit="shop", run="r1", cause=Cause.LOST), False),
        (Exited(unit="shop", run="r2", cause=Cause.DONE), True),
        (Start(unit="shop", run="r2"), True),
        (Held(unit="shop"), True),
        (Booted(), True),
    ],
    ids=repr,
)
def test_what_closes_it(event: Event, open_after: bool) -> None:
    """An answer to it, whoever gave it, and the end of its run; nothing else."""
    walk = Walk(Question())
    walk.tell(asked())
    walk.pass_span(DAY)
    walk.tell(event)
    assert walk.forgot() is not open_after


@pytest.mark.parametrize("event", [asked(), answered(answer="yes"), Start(unit="shop", run="r2", again=True)], ids=repr)
def test_it_refuses_nothing(event: Event) -> None:
    """A unit that asks goes on like any other."""
    walk = Walk(Question())
    walk.tell(asked())
    decision = walk.tell(event)
    assert (decision.proceeds, decision.until, decision.reasons) == (True, FOREVER, ())


def test_an_end_closes_all_questions_of_its_run() -> None:
    """And of no other."""
    walk = Walk(Question())
    for id_, run in (("a", "r1"), ("b", "r2"), ("c", "r1")):
        walk.tell(asked(id_, run))
    walk.tell(Exited(unit="shop", run="r1", cause=Cause.DONE))
    assert list(walk.state.open) == ["b"]


def test_only_so_many() -> None:
    """The newest are kept. What nobody waits for any more goes first."""
    walk = Walk(Question(questions_max=3))
    walk.tell(asked("a"))
    walk.tell(asked("late", until=walk.now + SECOND))
    walk.tell(asked("b"))
    walk.pass_span(SECOND)
    walk.tell(asked("c"))
    assert list(walk.state.open) == ["a", "b", "c"]
    walk.tell(asked("d"))
    assert list(walk.state.open) == ["b", "c", "d"]
    walk.tell(asked("c"))
    assert list(walk.state.open) == ["b", "d", "c"]


def test_texts_are_bounded() -> None:
    """However long they are, what is kept is not."""
    question = asked("i" * 999, choices=("c" * 999,) * 99, default="d" * 999)
    assert (len(question.id), len(question.choices), len(question.choices[0])) == (NAME_MAX, 10, NAME_MAX)
    assert len(question.default or "") == NAME_MAX
    assert len(Asked(text="t" * 9_999).text) == QUESTION_MAX
    answer = answered("i" * 999, answer="a" * 9_999, by="b" * 999, note="n" * 9_999)
    assert [len(part or "") for part in (answer.id, answer.answer, answer.by, answer.note)] == [200, 2_000, 200, 2_000]
