"""What one host asks another one to do, through the store."""

import pytest

from flyball.control.context import CommandError
from flyball.control.forwarding import BYTES_MAX, FORWARD, LASTS, WAITING_MAX, forward, take
from flyball.control.pokes import pokes
from flyball.core.event import Ordered
from flyball.core.policy import Key
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene

ARGS = {"rule": "go", "data": {"amount": 3}, "unit": None, "run": ""}


@pytest.fixture
def scene() -> Scene:
    return Scene(MemoryStore(), ago=0)


def _forward(scene: Scene, **more: object) -> str:
    return forward(scene.governor, "trigger", {**ARGS, **more}, "ann", rule="go", host="a")


def test_taken_once(scene: Scene) -> None:
    """It is kept with whatever it says until one takes it, and given once, the oldest first."""
    _forward(scene)
    scene.clock.move(1)
    _forward(scene, data="second")
    first, second = take(scene.governor)
    assert (first.verb, first.who, first.args) == ("trigger", "ann", {"rule": "go", "data": {"amount": 3}, "run": ""})
    assert second.args["data"] == "second"
    assert take(scene.governor) == []
    assert scene.governor.store.states(FORWARD) == {}


def test_what_it_says_is_not_in_the_journal(scene: Scene) -> None:
    """The journal says that it was left and for which rule, which rings; what it says may be secret."""
    _forward(scene, data="s3cret")
    [entry] = scene.governor.store.entries(after=0, limit=10)
    assert (entry.unit, entry.event) == ("go", "ordered")
    assert b"s3cret" not in entry.body
    assert pokes(entry, here="b") == [("", FORWARD)]
    take(scene.governor)
    [_, taken] = scene.governor.store.entries(after=0, limit=10)
    assert pokes(taken, here="b") == []


def test_too_late(scene: Scene) -> None:
    """What waited too long is dropped: whoever asked for it does not expect it any more."""
    _forward(scene)
    scene.clock.move(LASTS + 1)
    assert take(scene.governor) == []
    assert scene.governor.store.states(FORWARD) == {}


def test_unreadable(scene: Scene) -> None:
    """What cannot be read is dropped, and keeps nothing else from being done."""
    scene.governor.submit(Ordered(), {Key(FORWARD, "fleet", "x"): b"{"})
    _forward(scene)
    assert len(take(scene.governor)) == 1
    assert scene.governor.store.states(FORWARD) == {}


def test_bounded(scene: Scene) -> None:
    """Neither one that is too long nor too many of them are kept."""
    with pytest.raises(CommandError, match="bytes, for another host"):
        _forward(scene, data="x" * BYTES_MAX)
    for _ in range(WAITING_MAX):
        _forward(scene)
    with pytest.raises(CommandError, match="100 orders wait already") as full:
        _forward(scene)
    assert full.value.code == "busy"
