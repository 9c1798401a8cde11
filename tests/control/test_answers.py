"""What a unit asks a person: who sees it, and what can be answered."""

from typing import Any

import pytest

from flyball.control.commands import answer
from flyball.control.context import CommandError, Right
from flyball.core.codec import decode_body
from flyball.core.event import Answered, Asked, Cause
from flyball.core.time import FOREVER, HOUR, MINUTE, SECOND
from flyball.governor import Governor
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene


@pytest.fixture
def scene() -> Scene:
    """A unit that runs and asks."""
    made = Scene(MemoryStore(), ago=0)
    made.start("shop")
    made.governor.submit(_asked("3fa90001", choices=("yes", "No way"), default="yes"))
    return made


def _asked(id_: str, text: str = "Deploy?", run: str = "r1", **more: Any) -> Asked:
    return Asked(unit="shop", run=run, id=id_, text=text, **more)


def _questions(scene: Scene, **context: Any) -> Any:
    return answer(scene.context(**context), "unit", {"unit": "shop"})["questions"]


def _answer(scene: Scene, text: str, **args: Any) -> Any:
    return answer(scene.context(), "answer", {"unit": "shop", "answer": text, **args})


def _last(scene: Scene) -> Any:
    """The last order, before its line of the audit trail."""
    return decode_body(scene.governor.store.last_entries(limit=2)[0].body).event


def test_an_open_question_is_seen(scene: Scene) -> None:
    """With all that one has to know; the unit runs, and is what it is."""
    view = answer(scene.context(), "unit", {"unit": "shop"})
    assert (view["state"], view["held"], view["running"]) == ("healthy", False, True)
    (question,) = view["questions"]
    assert question["at"] == pytest.approx(scene.now / 1e6)
    del question["at"]
    assert question == {
        "id": "3fa90001",
        "run": "r1",
        "text": "Deploy?",
        "choices": ["yes", "No way"],
        "default": "yes",
        "until": None,
    }


@pytest.mark.parametrize(
    ("said", "means"), [("yes", "yes"), ("YES", "yes"), (" no way ", "No way"), ("No way", "No way")]
)
def test_an_answer(scene: Scene, said: str, means: str) -> None:
    """One of the choices, however it is written. The journal has who said it, and by which channel."""
    given = _answer(scene, said)
    assert (given["answer"], given["question"]["text"], given["unit"]["questions"]) == (means, "Deploy?", [])
    assert _last(scene) == Answered(
        unit="shop", run="r1", id="3fa90001", answer=means, heard=True, by="ann", note="via test"
    )
    assert _questions(scene) == []


def test_any_text_where_there_are_no_choices(scene: Scene) -> None:
    """What a person says is taken as it is."""
    _answer(scene, "yes")
    scene.governor.submit(_asked("b", "Which one?"))
    assert _answer(scene, "the blue one")["answer"] == "the blue one"


@pytest.mark.parametrize(
    ("said", "more", "code", "text"),
    [
        ("maybe", {}, "bad_argument", "'maybe' is no answer to 'Deploy?'; there are yes, No way"),
        ("", {}, "bad_argument", "an answer without a text"),
        ("x" * 2_001, {}, "bad_argument", "an answer of 2001 characters; allowed: 2000"),
        ("yes", {"id": "77"}, "not_found", "no open question with an id that begins with '77'; there are 3fa90001: "),
        ("yes", {"unit": "shp"}, "unknown_unit", "did you mean shop"),
        ("yes", {"unit": "other"}, "not_found", "other asks nothing"),
    ],
)
def test_what_is_no_answer(scene: Scene, said: str, more: dict[str, Any], code: str, text: str) -> None:
    """A clear error with what to do, and the question stays open."""
    scene.start("other")
    before = scene.governor.store.read(()).seq
    with pytest.raises(CommandError) as raised:
        _answer(scene, said, **more)
    assert raised.value.code == code
    assert text in str(raised.value)
    assert raised.value.remedy
    assert scene.governor.store.read(()).seq == before
    assert len(_questions(scene)) == 1


def test_several_questions(scene: Scene) -> None:
    """Then it has to be said which; all are listed."""
    scene.governor.submit(_asked("3fb00002", "Which one?"))
    with pytest.raises(CommandError, match=r"2 questions: 3fa90001: Deploy\? \(yes, No way\); 3fb00002: Which one\?"):
        _answer(scene, "yes")
    with pytest.raises(CommandError, match="2 questions"):
        _answer(scene, "yes", id="3f")
    assert _answer(scene, "yes", id="3fb")["question"]["text"] == "Which one?"
    assert [question["id"] for question in _questions(scene)] == ["3fa90001"]


def test_only_what_somebody_waits_for(scene: Scene) -> None:
    """Not what is too late to answer, nor what a run asked that is over, is lost, or whose program is gone."""
    scene.governor.submit(_asked("late", until=scene.clock.now() + SECOND))
    scene.governor.submit(_asked("dead", run="host/1/2"))
    scene.clock.move(SECOND)
    assert [question["id"] for question in _questions(scene)] == ["3fa90001", "dead"]
    seen = _questions(scene, gone=lambda holder: holder == "host/1/2")
    assert [question["id"] for question in seen] == ["3fa90001"]
    scene.clock.move(HOUR)
    assert [question["id"] for question in _questions(scene)] == ["dead"], "the lease of the run is over"
    scene.exit("shop", Cause.LOST)
    assert [question["id"] for question in _questions(scene)] == ["dead"]


def test_somebody_else_was_quicker(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose answer does not count is told so."""
    submit = Governor.submit

    def late(governor: Governor, event: Any) -> Any:
        first = Answered(unit="shop", run="r1", id="3fa90001", answer="No way", heard=True, by="bob")
        submit(governor, first)
        return submit(governor, event)

    monkeypatch.setattr(Governor, "submit", late)
    with pytest.raises(CommandError, match="answered a moment before: No way by bob"):
        _answer(scene, "yes")


def test_who_may_only_look_may_not_answer(scene: Scene) -> None:
    """An answer is an order."""
    with pytest.raises(CommandError, match="may look, but not `answer`"):
        answer(scene.context(right=Right.LOOK), "answer", {"unit": "shop", "answer": "yes"})


def test_until_is_shown(scene: Scene) -> None:
    """A question for ever has no end; another says when."""
    scene.governor.submit(_asked("b", until=scene.clock.now() + MINUTE))
    assert [question["until"] is None for question in _questions(scene)] == [True, False]
    assert FOREVER not in [question["until"] for question in _questions(scene)]


# Saying yes.


@pytest.mark.parametrize("choices", [("yes", "no"), ("No", "YES"), ("approve", "reject"), ("deny", "Allow")], ids=str)
def test_approved(scene: Scene, choices: tuple[str, ...]) -> None:
    """Yes, in the word that was offered; it is an answer as any other."""
    _answer(scene, "yes")
    scene.governor.submit(_asked("b", "Really?", choices=choices))
    said = answer(scene.context(), "approve", {"unit": "shop"})
    assert said["answer"] in choices
    assert said["answer"].casefold() in ("yes", "approve", "allow")
    assert _last(scene) == Answered(
        unit="shop", run="r1", id="b", answer=said["answer"], heard=True, by="ann", note="via test"
    )
    assert _questions(scene) == []


def test_approved_is_the_one_that_can_be(scene: Scene) -> None:
    """Of several questions the only one that has a yes; of several that have one, the one whose id is given."""
    scene.governor.submit(_asked("b", "Which one?"))
    assert answer(scene.context(), "approve", {"unit": "shop"})["question"]["id"] == "3fa90001"
    for name in ("c", "d"):
        scene.governor.submit(_asked(name, choices=("yes", "no")))
    with pytest.raises(CommandError, match="asks 2 questions"):
        answer(scene.context(), "approve", {"unit": "shop"})
    assert answer(scene.context(), "approve", {"unit": "shop", "id": "d"})["question"]["id"] == "d"
    assert [question["id"] for question in _questions(scene)] == ["b", "c"]


@pytest.mark.parametrize(
    ("asked", "args", "code", "text"),
    [
        ({"choices": ("red", "blue")}, {"id": "b"}, "bad_argument", "not answered by a yes: it takes red, blue"),
        ({}, {"id": "b"}, "bad_argument", "not answered by a yes: it takes any words"),
        ({"choices": ("yes please", "no")}, {"id": "b"}, "bad_argument", "not answered by a yes"),
        ({}, {"unit": "other"}, "not_found", "other asks nothing"),
        ({}, {"unit": "shp"}, "unknown_unit", "did you mean shop"),
    ],
    ids=lambda case: str(case)[:40],
)
def test_what_is_not_approved(scene: Scene, asked: dict[str, Any], args: dict[str, Any], code: str, text: str) -> None:
    """Nothing that was not offered is taken for a yes; the question stays open."""
    scene.start("other")
    scene.governor.submit(_asked("b", "Which?", **asked))
    before = scene.governor.store.read(()).seq
    with pytest.raises(CommandError) as raised:
        answer(scene.context(), "approve", {"unit": "shop", **args})
    assert (raised.value.code, text in str(raised.value)) == (code, True)
    assert scene.governor.store.read(()).seq == before
