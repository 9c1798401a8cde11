"""What an order in the journal means for whoever runs the unit on another host."""

from typing import Any

import pytest

from flyball.config import Settings
from flyball.control.commands import answer
from flyball.control.pokes import pokes
from flyball.core.decision import Verb
from flyball.core.event import Beat, Cause, Event, Exited, Held, Ordered, Raised, Released
from flyball.store import Entry
from flyball.store.memory import MemoryStore
from tests.control.fleet import three_hosts
from tests.control.scene import Scene

LABELS = {"mine": {"user": "ann"}, "yours": {"user": "bob"}, "nobodys": {}}


@pytest.fixture
def scene() -> Scene:
    made = Scene(MemoryStore(), ago=0)
    units = {name: {"command": ["true"], "labels": labels} for name, labels in LABELS.items()}
    made.settings = Settings.model_validate({"units": units})
    three_hosts(made, {"b": [*LABELS]})
    return made


def _new(scene: Scene, before: int) -> list[Entry]:
    return list(scene.governor.store.entries(after=before, limit=1000))


def _heard(scene: Scene, verb: str, args: dict[str, Any], *, here: str = "b") -> set[tuple[str, str]]:
    """What the host hears after somebody ordered that on host a."""
    before = scene.governor.store.read(()).seq
    answer(scene.context(host="a", poke=lambda *_: None), verb, args)
    return {poke for entry in _new(scene, before) for poke in pokes(entry, here=here, labels=LABELS)}


@pytest.mark.parametrize(
    ("verb", "args", "heard"),
    [
        ("pause", {"units": ["mine"]}, {("mine", "pause")}),
        ("pause", {"units": ["mine", "yours"]}, {("mine", "pause"), ("yours", "pause")}),
        ("pause", {"all": True}, {("", "pause")}),
        ("stop", {"units": ["mine"]}, {("mine", "stop")}),
        ("stop", {"user": "ann"}, {("", "stop")}),
        ("kill", {"units": ["mine"]}, {("mine", "kill")}),
        ("kill", {"units": ["mine"], "note": "it burns money"}, {("mine", "kill")}),
        ("kill", {"all": True}, {("", "kill")}),
        ("kill", {"user": "ann"}, {("mine", "kill")}),
        ("start", {"units": ["mine"]}, {("mine", "start")}),
        ("restart", {"units": ["mine"]}, {("mine", "restart")}),
        ("restart", {"all": True}, {(name, "restart") for name in LABELS}),
    ],
)
def test_every_order_arrives(scene: Scene, verb: str, args: dict[str, Any], heard: set[tuple[str, str]]) -> None:
    """Every order that one host gives is in the journal as whole as whoever runs the unit needs it; a kill stays one
    whatever its note says, and of a user it means that user's units alone."""
    assert _heard(scene, verb, args) == heard


@pytest.mark.parametrize("verb", ["pause", "kill", "restart"])
def test_obeyed_already(scene: Scene, verb: str) -> None:
    """The host where it was ordered has obeyed it then: a restart is not done twice."""
    assert _heard(scene, verb, {"units": ["mine"]}, here="a") == set()


def test_resumed_and_reset(scene: Scene) -> None:
    """What takes a hold back arrives too: a pause of one, of all, and a failure that is forgotten."""
    answer(scene.context(), "pause", {"units": ["mine"]})
    assert _heard(scene, "resume", {"units": ["mine"]}) == {("mine", "resume")}
    answer(scene.context(), "pause", {"all": True})
    assert _heard(scene, "restart", {"all": True}) == {("", "resume"), *((name, "restart") for name in LABELS)}
    scene.governor.submit(Exited(unit="mine", run="mine-1", cause=Cause.ERROR, fingerprint="abcdef0123456789"))
    assert _heard(scene, "reset", {"fingerprint": "abcdef"}) == {("mine", "reset")}


@pytest.mark.parametrize(
    ("event", "heard"),
    [
        (Held(unit="u", verb=Verb.STOP, by="rule r"), [("u", "stop")]),
        (Held(unit="u", verb=Verb.FINISH), [("u", "finish")]),
        (Released(unit="u"), [("u", "resume")]),
        (Released(unit="u", scope="provider", labels={"provider": "x"}, order="reset"), [("", "reset")]),
        (Raised(unit="u", scope="unit", more={"usd": 1}), [("u", "raise")]),
        (Raised(scope="fleet", more={"usd": 1}), [("", "raise")]),
        (Ordered(unit="u", verb="start", by="rule r", channel="rule"), [("u", "start")]),
        (Ordered(unit="u", verb="start", by="rule r", channel="rule", refused="no"), []),
        (Ordered(unit="u", verb="start", by="ann", channel="cli"), []),
        (Exited(unit="u", run="r", cause=Cause.DONE), []),
        (Beat(unit="u", run="r", stuck="here"), []),
    ],
)
def test_entries(event: Event, heard: list[tuple[str, str]]) -> None:
    """What was written by others than people, and before orders said what they are, is understood too; what is no
    order is not one, nor is the line of the audit trail, which comes beside the order itself."""
    scene = Scene(MemoryStore(), ago=0)
    scene.governor.submit(event)
    [entry] = _new(scene, 0)
    assert pokes(entry, here="b") == heard


def test_unreadable() -> None:
    """An entry that cannot be read says nothing."""
    entry = Entry(seq=1, at=1, unit="u", event="held", verb="hold", body=b"{")
    assert pokes(entry) == []
