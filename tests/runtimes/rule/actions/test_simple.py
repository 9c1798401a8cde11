"""Actions that need nothing but the daemon."""

from typing import Any

import pytest

from flyball.config.rules import Browse, Call, Deed, Http, Notify, Run, SetValues, StartUnit, StopUnit, Wait
from flyball.core.policy import Key
from flyball.core.time import SECOND
from flyball.runtimes.rule.actions import DOING, simple
from flyball.runtimes.rule.deed import TIMED_OUT, ActionFailed
from flyball.runtimes.rule.values import NAME_MAX, VALUE, VALUE_MAX, VALUES_MAX, Unkept, Values, key
from tests.runtimes.rule.actions.stage import Stage, done, failed, run


def test_every_kind_is_done() -> None:
    """There is a way to do each kind of deed."""
    assert set(DOING) == {Run, Http, Call, Browse, StartUnit, StopUnit, Notify, Wait, SetValues}


@pytest.mark.parametrize(
    ("deed", "told"), [(StartUnit(unit="shop"), "start"), (StopUnit(unit="shop"), "stop")], ids=["start", "stop"]
)
def test_units(stage: Stage, deed: Deed, told: str) -> None:
    """A unit is started or stopped in the firing's name; what refuses says so; who hangs is not waited for."""
    scene = stage.scene()
    assert done(scene, deed) == {}
    assert stage.units.told == [(told, "shop", scene.firing.id)]
    stage.units.hangs = True
    found = failed(stage.scene(), deed, seconds=0.05)
    assert (found.error, found.target) == (TIMED_OUT, "shop")
    stage.units.refuses = ActionFailed("UnitHeld", "shop is paused", target="shop")
    assert failed(stage.scene(), deed) is stage.units.refuses


@pytest.mark.parametrize(("text", "told"), [("hello", "hello"), ("", ""), ("x" * 9_000, "x" * 3_999 + "…")])
def test_notify(stage: Stage, text: str, told: str) -> None:
    """People are told in the rule's name, and not more than they can read."""
    assert done(stage.scene(), Notify(text=text)) == {}
    assert stage.told == [(stage.name, told)]


@pytest.mark.parametrize(("length", "slept"), [(0, [0.0]), (5 * SECOND, [5.0]), (10 * SECOND, [10.0])])
def test_wait(stage: Stage, length: int, slept: list[float]) -> None:
    """It waits for as long as it should."""
    seen: list[float] = []

    async def sleep(seconds: float) -> None:
        seen.append(seconds)

    assert run(_waited(stage, length, sleep)) == {}
    assert seen == slept


def test_wait_too_long(stage: Stage) -> None:
    """A wait that is longer than the action may take is not begun."""

    async def sleep(seconds: float) -> None:
        raise AssertionError(f"slept {seconds}")

    with pytest.raises(ActionFailed) as caught:
        run(_waited(stage, 11 * SECOND, sleep))
    assert (caught.value.error, caught.value.final) == (TIMED_OUT, True)


async def _waited(stage: Stage, length: int, sleep: Any) -> Any:
    return await simple.wait(stage.scene(), Wait(length=length), 10.0, sleep=sleep)


def test_remember(stage: Stage) -> None:
    """What is set is written with the report, and is there when that is written, not before."""
    values = Values()
    scene = stage.scene(values=values)
    assert done(scene, SetValues(values={"price": 5, "seen": ["a", {"b": None}]})) == {}
    assert scene.rows == {Key(VALUE, "rule", "price"): b"5", Key(VALUE, "rule", "seen"): b'["a",{"b":null}]'}
    assert values.now == {}
    for kept in scene.kept:
        kept()
    assert values.now == {"price": 5, "seen": ["a", {"b": None}]}
    assert Values({place: data for place, data in scene.rows.items() if data is not None}).now == values.now


def test_forget(stage: Stage) -> None:
    """Null forgets a value."""
    values = Values({key("price"): b"5", key("other"): b"6"})
    scene = stage.scene(values=values)
    done(scene, SetValues(values={"price": None, "never": None}))
    assert scene.rows == {key("price"): None, key("never"): None}
    for kept in scene.kept:
        kept()
    assert values.now == {"other": 6}


@pytest.mark.parametrize(
    "given",
    [
        {"": 1},
        {"x" * (NAME_MAX + 1): 1},
        {"x": object()},
        {"x": "y" * VALUE_MAX},
        {"good": 1, "bad": "y" * VALUE_MAX},
        {f"x{number}": 1 for number in range(VALUES_MAX + 1)},
    ],
)
def test_what_cannot_be_remembered(stage: Stage, given: dict[str, Any]) -> None:
    """All values of an action are set, or none; why not is said, and another attempt does not help."""
    scene = stage.scene()
    found = failed(scene, SetValues(values=given))
    assert (found.error, found.final) == ("ValueNotKept", True)
    assert (scene.rows, scene.kept) == ({}, [])


def test_as_many_as_there_is_room_for() -> None:
    """There is no room for one more, also before those are written that have their place; one that is forgotten leaves
    room."""
    values = Values({key(f"x{number}"): b"1" for number in range(VALUES_MAX - 2)})
    values.encoded({"one": 1, "x0": 2})
    values.encoded({"two": 1})
    with pytest.raises(Unkept, match=r"set those to null"):
        values.encoded({"three": 1})
    values.encoded({"two": 2})
    values.take(values.encoded({"x1": None}))
    values.encoded({"three": 1})


def test_damaged_value(caplog: pytest.LogCaptureFixture) -> None:
    """A record that cannot be read is forgotten, and said so; the others are there."""
    values = Values({key("bad"): b"{", key("good"): b"1"})
    assert values.now == {"good": 1}
    assert "bad" in caplog.text
