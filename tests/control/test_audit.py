"""`audit`: who did what, through which channel, with which effect; and no verb changes a line of it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.control.commands import COMMANDS, answer
from flyball.control.context import CommandError, Right
from flyball.core.decision import Verb
from flyball.core.event import Answered, Asked, Held, Ordered, Raised, Released, Settled
from flyball.core.policy import Key
from flyball.core.time import HOUR, MINUTE, SECOND
from flyball.errors import FlyballError
from flyball.store import Draft, Line
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene
from tests.control.work import Piece

KIND = "abcdef0123456789"


@pytest.fixture
def scene() -> Scene:
    return Scene(MemoryStore())


def audit(scene: Scene, **args: Any) -> Any:
    return answer(scene.context(), "audit", args)


def lines(scene: Scene, **args: Any) -> list[tuple[str, str, str]]:
    return [(one["by"], one["channel"], one["verb"]) for one in audit(scene, **args)["audit"]]


def test_every_order_has_its_line(scene: Scene) -> None:
    """Once each, with who, through what, what was asked for and what came of it; a look has none."""
    scene.quarantine("web", KIND)
    answer(scene.context(who="ann", channel="telegram"), "reset", {"fingerprint": KIND[:4]})
    answer(scene.context(who="bob", channel="page"), "pause", {"units": ["web"], "note": "for now"})
    answer(scene.context(who="bob", channel="page"), "status", {})
    reset, pause = audit(scene)["audit"]
    assert (reset["by"], reset["channel"], reset["verb"], reset["refused"]) == ("ann", "telegram", "reset", "")
    assert reset["asked"] == "fingerprint=abcd"
    assert "forgot 1 kind of failure of 1 unit" in reset["effect"]
    assert (pause["by"], pause["channel"], pause["asked"]) == ("bob", "page", "units=web, note=for now")
    assert (pause["effect"], pause["unit"]) == ("web paused", "web")
    assert reset["seq"] < pause["seq"]


def test_what_somebody_may_not_do(scene: Scene) -> None:
    """It is not done, and that it was tried is on the trail."""
    scene.start("web")
    with pytest.raises(CommandError, match="may look, but not `kill`"):
        answer(scene.context(who="eve", right=Right.LOOK), "kill", {"units": ["web"]})
    with pytest.raises(CommandError, match="may operate, but not `raise`"):
        answer(scene.context(who="eve", right=Right.OPERATE), "raise", {"unit": "web", "more": "1.00"})
    assert [(one["by"], one["verb"], one["refused"]) for one in audit(scene)["audit"]] == [
        ("eve", "kill", "forbidden"),
        ("eve", "raise", "forbidden"),
    ]


def test_nobody_is_known_by_what_was_asked(scene: Scene) -> None:
    """A name that somebody made up, and may not use, is no unit for that."""
    with pytest.raises(CommandError):
        answer(scene.context(right=Right.LOOK), "pause", {"units": ["made-up"]})
    assert answer(scene.context(), "status", {})["units"] == []


def test_filters(scene: Scene) -> None:
    """Of one person, of one verb, so many, and after a number."""
    scene.start("web")
    for who in ("ann", "bob", "ann"):
        answer(scene.context(who=who), "pause", {"units": ["web"]})
        answer(scene.context(who=who), "resume", {"units": ["web"]})
    everything = audit(scene)["audit"]
    assert len(everything) == 6
    assert lines(scene, who="bob") == [("bob", "test", "pause"), ("bob", "test", "resume")]
    assert lines(scene, who="ann", verb="resume") == [("ann", "test", "resume")] * 2
    assert lines(scene, who="eve") == []
    assert [one["seq"] for one in audit(scene, limit=2)["audit"]] == [one["seq"] for one in everything[-2:]]
    assert audit(scene, limit=0)["audit"] == []


def test_page_by_page(scene: Scene) -> None:
    """With `last`, whoever reads on gets every line once; at the end there is nothing more."""
    scene.start("web")
    for _ in range(7):
        answer(scene.context(), "pause", {"units": ["web"]})
    seen, after = [], 0
    for _ in range(4):
        said = audit(scene, after=after, limit=2)
        seen += [one["seq"] for one in said["audit"]]
        after = said["last"]
    assert seen == [one["seq"] for one in audit(scene)["audit"]]
    assert audit(scene, after=after)["audit"] == []


def test_older_journals(scene: Scene) -> None:
    """Orders from before there were lines are shown as what they were, with their channel; a default is nobody's."""
    who: dict[str, Any] = {"by": "ann", "note": "via cli: because"}
    scene.governor.submit(Held(unit="web", verb=Verb.STOP, **who))
    scene.governor.submit(Released(unit="web", fingerprint=KIND, **who))
    scene.governor.submit(Released(unit="web", **who))
    scene.governor.submit(Answered(unit="web", id="q", answer="yes", heard=True, **who))
    scene.governor.submit(Answered(unit="web", id="q", answer="no"))
    scene.governor.submit(Settled(unit="web", run="r1", **who))
    scene.governor.submit(Raised(unit="web", more={"usd": 5}, **who))
    scene.clock.move(HOUR)
    assert lines(scene) == [("ann", "cli", verb) for verb in ("stop", "reset", "resume", "answer", "settle", "raise")]
    assert audit(scene)["audit"][0]["effect"] == "stopped by ann via cli: because"


def test_what_a_program_did(scene: Scene) -> None:
    """An order that came by no verb has its own line, and no channel of ours."""
    scene.governor.submit(Released(unit="web", policies=("budget",), by="ann", note="flyball run"))
    answer(scene.context(), "pause", {"units": ["web"]})
    assert lines(scene) == [("ann", "", "resume"), ("ann", "test", "pause")]


def test_killed_before_its_line(scene: Scene) -> None:
    """An order whose line was not written any more is on the trail all the same, once it is clear that none comes."""
    scene.governor.submit(Held(unit="web", by="ann", note="via test"))
    assert lines(scene) == [], "its line may come in a moment"
    scene.clock.move(2 * MINUTE)
    assert lines(scene) == [("ann", "test", "pause")]
    answer(scene.context(), "resume", {"units": ["web"]})
    assert lines(scene) == [("ann", "test", "pause"), ("ann", "test", "resume")]


def test_many_orders_and_one_line(scene: Scene) -> None:
    """A verb that concerns many units writes many orders, and one line."""
    for number in range(20):
        scene.fail(f"u{number}", KIND)
    answer(scene.context(), "reset", {"all": True})
    assert lines(scene) == [("ann", "test", "reset")]


def test_a_line_that_cannot_be_read(scene: Scene) -> None:
    """The others are shown."""
    line = Line("web", "ordered", "proceed", b'{"of": "a later version"}')
    key = Key("x", "unit", "web")
    scene.governor.store.transact([key], lambda snapshot: Draft(snapshot.at, {}, line))
    scene.governor.submit(Ordered(verb="pause", by="ann"))
    assert lines(scene) == [("ann", "", "pause")]


@pytest.mark.parametrize("args", [{"limit": 1_001}, {"limit": -1}, {"after": -1}, {"after": 2**70}], ids=str)
def test_wrong(scene: Scene, args: dict[str, Any]) -> None:
    """A number that cannot be is an error."""
    with pytest.raises(CommandError) as raised:
        audit(scene, **args)
    assert (raised.value.code, bool(raised.value.remedy)) == ("bad_argument", True)


# Nothing changes it.

VALUES: dict[type, st.SearchStrategy[Any]] = {
    str: st.sampled_from(
        ["web", "thesis", "ann", "fleet", "", "ordered", "journal", "1", "0", "1.00", "yes", KIND, "web:halted"]
    ),
    list: st.lists(st.sampled_from(["web", "thesis", "nobody"]), max_size=2),
    bool: st.booleans(),
    int: st.sampled_from([0, 1, 5, 100, -1, 10_000]),
    float: st.sampled_from([0.0, 1.0, 3600.0, -5.0]),
    object: st.sampled_from([None, {"a": 1}, "text"]),
}


@st.composite
def commands(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Any verb with any of its arguments."""
    command = COMMANDS[draw(st.sampled_from(sorted(COMMANDS)))]
    chosen = draw(st.sets(st.sampled_from(command.arguments))) if command.arguments else set()
    return command.name, {one.name: draw(VALUES[one.kind]) for one in sorted(chosen, key=lambda one: one.name)}


@settings(deadline=None, max_examples=60)
@given(st.lists(commands(), min_size=1, max_size=6), st.sampled_from(list(Right)))
def test_no_verb_changes_a_line(orders: list[tuple[str, dict[str, Any]]], right: Right) -> None:
    """Whatever verb is carried out, with whatever arguments and by whomever: every entry that was in the journal is
    there as it was, and what was done for good is added behind it."""
    scene = Scene(MemoryStore())
    scene.start("web")
    scene.governor.submit(Asked(unit="web", run="r1", id="q", text="Go?", choices=("yes", "no")))
    piece = Piece(scene, "thesis", user="ann")
    piece.begin()
    piece.step(used={"usd": 500_000})
    answer(scene.context(), "pause", {"units": ["web"]})
    for verb, args in orders:
        before = list(scene.governor.store.entries(limit=10_000))
        scene.clock.move(SECOND)
        done = True
        try:
            answer(scene.context(right=right, poke=lambda *_: None), verb, args)
        except FlyballError:
            done = False
        after = list(scene.governor.store.entries(limit=10_000))
        assert after[: len(before)] == before
        if done and COMMANDS[verb].right > Right.LOOK and not args.get("dry_run"):
            assert after[-1].event == "ordered"
        if COMMANDS[verb].right is Right.LOOK:
            assert len(after) == len(before)
