"""Circuits as people know them, and how a person closes one before its time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from flyball.config import Settings, definitions
from flyball.config.rules import Rule
from flyball.config.units import Unit
from flyball.control.commands import answer
from flyball.control.context import CommandError
from flyball.core.codec import decode_body
from flyball.core.decision import Verb
from flyball.core.event import Cause, Exited, Released, Start, Step, Stepped, Work
from flyball.core.policy import AnyPolicy, Gate
from flyball.core.time import MINUTE
from flyball.policies import Breaker
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene

PROGRAM = "program"
OF_UNITS = Breaker(by="provider")
OF_CALLS = Breaker(by="provider", name="call_breaker", units_min=1, at=Gate.STEP)


@dataclass(frozen=True)
class Named:
    """Settings that name some units."""

    units: Sequence[Unit] = ()
    rules: Sequence[Rule] = ()


@pytest.fixture
def scene() -> Scene:
    return Scene(MemoryStore(), policies=(*Settings().policies(), OF_UNITS))


def _define(scene: Scene, *more: AnyPolicy) -> None:
    """What a program does that guards its calls: it keeps its safeguards. Whoever asks learns of them there."""
    governor = scene.governor
    own = (*governor.panel.policies_of(PROGRAM), *more)
    governor.panel.put(PROGRAM, own)
    definitions.keep(governor, PROGRAM)


def _runs_fail(scene: Scene, provider: str) -> None:
    for number in range(5):
        labels = {"provider": provider}
        scene.start(f"u{number}", labels=labels)
        scene.exit(f"u{number}", fingerprint=f"f{number}", labels=labels)


def _calls_fail(scene: Scene, by: str, value: str) -> None:
    for _ in range(5):
        scene.governor.submit(Stepped(unit=PROGRAM, labels={by: value}, done=(Work(error=True),)))


def _start(scene: Scene, labels: dict[str, str]) -> tuple[str, ...]:
    return scene.governor.look(Start(unit="new", labels=labels)).codes


def _call(scene: Scene, labels: dict[str, str]) -> tuple[str, ...]:
    return scene.governor.look(Step(unit=PROGRAM, labels=labels)).codes


def _circuits(scene: Scene, **more: Any) -> dict[str, str]:
    fleet = answer(scene.context(**more), "status", {})["fleet"]
    return {one["name"]: one["state"] for one in fleet["breakers"]}


def _reset(scene: Scene, name: str, *, dry_run: bool = False, **more: Any) -> Any:
    return answer(scene.context(**more), "reset", {"breaker": name, "dry_run": dry_run})


def _orders(scene: Scene, after: int) -> list[Any]:
    entries = scene.governor.store.entries(after=after)
    return [decode_body(entry.body).event for entry in entries if entry.event != "ordered"]


def _seq(scene: Scene) -> int:
    return scene.governor.store.read(()).seq


def test_starts(scene: Scene) -> None:
    """A breaker of starts by a label: shown, closed by a person, and starts go on. Other values are left alone."""
    _runs_fail(scene, "x")
    _runs_fail(scene, "y")
    answer(scene.context(), "reset", {"breaker": "fleet"})
    assert _circuits(scene) == {"provider:x": "open", "provider:y": "open"}
    assert "circuit_open" in _start(scene, {"provider": "x"})
    before = _seq(scene)
    said = _reset(scene, "provider:x")
    assert [(one["name"], one["state"]) for one in said["closed"]] == [("provider:x", "open")]
    assert _circuits(scene) == {"provider:y": "open"}
    assert _start(scene, {"provider": "x"}) == ()
    assert "circuit_open" in _start(scene, {"provider": "y"})
    assert _orders(scene, before) == [
        Released(
            scope="provider",
            labels={"provider": "x"},
            policies=("breaker",),
            order="reset",
            by="ann",
            note="via test",
        )
    ]


def test_the_fleet(scene: Scene) -> None:
    """That of the fleet has the fleet's name."""
    _runs_fail(scene, "x")
    assert _circuits(scene)["fleet"] == "open"
    assert "circuit_open" in _start(scene, {})
    _reset(scene, "fleet")
    assert "fleet" not in _circuits(scene)
    assert _start(scene, {}) == ()


def test_calls(scene: Scene) -> None:
    """That of guarded calls is found where its program keeps it, and the order is one that its program's rules hear."""
    _define(scene, OF_CALLS)
    _calls_fail(scene, "provider", "x")
    assert _circuits(scene) == {"provider:x": "open"}
    assert _call(scene, {"provider": "x"}) == ("circuit_open",)
    before = _seq(scene)
    _reset(scene, "provider:x")
    assert _circuits(scene) == {}
    assert _call(scene, {"provider": "x"}) == ()
    [order] = _orders(scene, before)
    assert (order.unit, order.scope, order.policies) == (PROGRAM, "provider", ("call_breaker",))
    shown = answer(scene.context(), "unit", {"unit": PROGRAM})
    assert [one["order"] for one in shown["orders"]] == ["reset provider x"]


def test_a_calls_own(scene: Scene) -> None:
    """A call's own circuit has the call's name and the program's."""
    _define(scene, Breaker(by="call:fetch", name="call_breaker", units_min=1, at=Gate.STEP))
    _calls_fail(scene, "call:fetch", PROGRAM)
    assert _circuits(scene) == {f"call:fetch:{PROGRAM}": "open"}
    _reset(scene, f"call:fetch:{PROGRAM}")
    assert _call(scene, {"call:fetch": PROGRAM}) == ()


def test_both(scene: Scene) -> None:
    """Of one label they are one circuit: whichever is stricter is shown, and one order closes both."""
    _define(scene, OF_CALLS)
    _runs_fail(scene, "x")
    scene.clock.move(2 * MINUTE)
    _calls_fail(scene, "provider", "x")
    _reset(scene, "fleet")
    assert _circuits(scene) == {"provider:x": "open"}
    _reset(scene, "provider:x")
    assert _circuits(scene) == {}
    scene.clock.move(-MINUTE)
    assert (_start(scene, {"provider": "x"}), _call(scene, {"provider": "x"})) == ((), ())


def test_a_unit_of_the_settings(scene: Scene) -> None:
    """The program is a unit of the settings, by the same name: its calls' circuit is found all the same, and what the
    settings say of the unit stays."""
    _define(scene, OF_CALLS)
    _calls_fail(scene, "provider", "x")
    scene.governor.panel.put(PROGRAM, Settings().policies())
    before = scene.governor.panel.policies_of(PROGRAM)
    unit: dict[str, Any] = {"settings": Named((Unit(name=PROGRAM, command=("true",)),))}
    assert _circuits(scene, **unit) == {"provider:x": "open"}
    _reset(scene, "provider:x", **unit)
    assert _call(scene, {"provider": "x"}) == ()
    after = scene.governor.panel.policies_of(PROGRAM)
    assert after[: len(before)] == before
    assert {policy.by for policy in after[len(before) :]} == {"provider"}


def test_one_that_only_counts(scene: Scene) -> None:
    """A circuit that is closed and counts failures is not shown, but can be made to forget them."""
    _define(scene, OF_CALLS)
    for _ in range(4):
        scene.governor.submit(Stepped(unit=PROGRAM, labels={"provider": "x"}, done=(Work(error=True),)))
    assert _circuits(scene) == {}
    assert _reset(scene, "provider:x")["closed"][0]["state"] == "closed"
    scene.governor.submit(Stepped(unit=PROGRAM, labels={"provider": "x"}, done=(Work(error=True),)))
    assert _call(scene, {"provider": "x"}) == ()


def test_only_said(scene: Scene) -> None:
    """A dry run says which it would be, tells nobody and changes nothing."""
    _runs_fail(scene, "x")
    before, poked = _seq(scene), []
    said = _reset(scene, "provider:x", dry_run=True, poke=lambda *told: poked.append(told))
    assert said["dry_run"]
    assert [one["name"] for one in said["closed"]] == ["provider:x"]
    assert (_seq(scene), poked) == (before, [])
    assert _circuits(scene)["provider:x"] == "open"


def test_the_daemon_is_told(scene: Scene) -> None:
    """Whoever waits for the circuit asks again: that can be any unit."""
    _runs_fail(scene, "x")
    poked: list[tuple[str, str]] = []
    _reset(scene, "provider:x", poke=lambda unit, verb: poked.append((unit, verb)))
    assert poked == [("", "reset")]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("provider:xs", "no circuit 'provider:xs'; did you mean provider:x?"),
        ("nothing-like-it", "no circuit 'nothing-like-it'; there are fleet, provider:x"),
    ],
)
def test_unknown(scene: Scene, name: str, says: str) -> None:
    """What was meant, or what there is; nothing changes."""
    _runs_fail(scene, "x")
    before = _seq(scene)
    with pytest.raises(CommandError, match="no circuit") as caught:
        _reset(scene, name)
    assert (str(caught.value), caught.value.code) == (says, "unknown_breaker")
    assert caught.value.remedy
    assert _seq(scene) == before


def test_none_at_all(scene: Scene) -> None:
    """Where nothing failed, there is nothing to close."""
    with pytest.raises(CommandError, match="no circuit is open, and none counts failures"):
        _reset(scene, "provider:x")


@pytest.mark.parametrize("more", [{"fingerprint": "abc"}, {"all": True}])
def test_one_of_them(scene: Scene, more: dict[str, Any]) -> None:
    """A circuit, a failure, or all failures."""
    with pytest.raises(CommandError, match="one of them"):
        answer(scene.context(), "reset", {"breaker": "fleet", **more})


def test_the_remedy_is_complete(scene: Scene) -> None:
    """Whoever is refused reads what to type."""
    scene.start("u0", labels={"provider": "x"})
    scene.governor.submit(Exited(unit="u0", run="r1", cause=Cause.DONE))
    _runs_fail(scene, "x")
    shown = answer(scene.context(), "unit", {"unit": "u0"})
    remedies = {reason["by"]: reason["remedy"] for reason in shown["reasons"] if reason["code"] == "circuit_open"}
    assert "`flyball reset --breaker provider:x`" in remedies["provider"]
    assert "`flyball reset --breaker fleet`" in remedies["fleet"]
    assert scene.governor.look(Start(unit="u0", labels={"provider": "x"})).verb >= Verb.WAIT
