"""`problems`, `acknowledge`, `snooze`: what waits for a person, and who has seen it."""

from typing import Any

import pytest

from flyball.control.acknowledging import SEEN_MAX
from flyball.control.commands import answer
from flyball.control.context import CommandError
from flyball.control.problems import record, seen_by_people
from flyball.core.codec import decode_body
from flyball.core.event import Acknowledged, Asked
from flyball.core.time import DAY, FOREVER, HOUR, SECOND
from flyball.store import Draft
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene

KIND = "abcdef0123456789"
PROBLEM = "coder:quarantined:abcdef01"


@pytest.fixture
def scene() -> Scene:
    """A unit in quarantine, and one that is halted."""
    made = Scene(MemoryStore())
    made.quarantine("coder", KIND)
    made.flap("flapper", 7)
    made.clock.move(HOUR)
    return made


def ask(scene: Scene, verb: str, **args: Any) -> Any:
    return answer(scene.context(), verb, args)


def listed(scene: Scene) -> list[tuple[str, bool, bool]]:
    """Each problem: its id, whether it was seen, whether it is snoozed."""
    return [
        (one["id"], one["acknowledged"], one["snoozed_until"] is not None) for one in ask(scene, "problems")["problems"]
    ]


def test_listed(scene: Scene) -> None:
    """The worst and oldest first, each with the one safe thing to do; and what that does takes it off the list."""
    assert listed(scene) == [(PROBLEM, False, False), ("flapper:halted", False, False)]
    first = ask(scene, "problems")["problems"][0]
    assert (first["severity"], first["unit"], first["count"]) == ("critical", "coder", 6)
    [action] = first["actions"]
    ask(scene, action["verb"], **action["args"])
    assert listed(scene) == [("flapper:halted", False, False)]
    assert ask(scene, "problems", limit=0) == {"problems": [], "left_out": 1, "at": scene.clock.now() / SECOND}


@pytest.mark.parametrize("given", [PROBLEM, "coder", "coder:q", "cod"])
def test_seen(scene: Scene, given: str) -> None:
    """By its id, the beginning of it, or the unit's name: it is last on the list then, and says who has seen it; and
    the journal says so, and the audit trail."""
    said = ask(scene, "acknowledge", problem=given, note="mine")
    assert (said["problem"]["id"], said["problem"]["acknowledged"], said["problem"]["by"]) == (PROBLEM, True, "ann")
    assert listed(scene) == [("flapper:halted", False, False), (PROBLEM, True, False)]
    *_, acknowledged, ordered = [decode_body(entry.body).event for entry in scene.governor.store.entries()]
    assert acknowledged == Acknowledged(unit="coder", problem=PROBLEM, count=6, by="ann", note="via test: mine")
    [line] = ask(scene, "audit")["audit"]
    assert (line["verb"], line["by"], line["channel"]) == ("acknowledge", "ann", "test")
    assert line["effect"] == f"{PROBLEM} seen"
    assert ordered.unit == ""


def test_it_is_still_what_it_was(scene: Scene) -> None:
    """To see a problem changes nothing of it: the unit stays in quarantine."""
    before = ask(scene, "unit", unit="coder")
    ask(scene, "acknowledge", problem="coder")
    assert ask(scene, "unit", unit="coder") == before


@pytest.mark.parametrize("how", ["seconds", "until"])
def test_snoozed(scene: Scene, how: str) -> None:
    """For so long, or until then; after that it is told of as before."""
    until = scene.clock.now() / SECOND + 3600
    said = ask(scene, "snooze", problem="coder", **({"seconds": 3600} if how == "seconds" else {"until": until}))
    assert said["problem"]["snoozed_until"] == pytest.approx(until)
    assert listed(scene)[-1] == (PROBLEM, False, True)
    scene.clock.move(HOUR - SECOND)
    assert listed(scene)[-1] == (PROBLEM, False, True)
    scene.clock.move(SECOND)
    assert listed(scene)[0] == (PROBLEM, False, False)


@pytest.mark.parametrize("verb", ["acknowledge", "snooze"])
def test_until_it_gets_worse(scene: Scene, verb: str) -> None:
    """One more failure of the kind, and it is told of again."""
    ask(scene, verb, problem="coder", **({"seconds": 86_400} if verb == "snooze" else {}))
    assert listed(scene)[-1][0] == PROBLEM
    scene.exit("coder", fingerprint=KIND)
    assert (PROBLEM, False, False) in listed(scene)


def test_another_one_of_the_same_name(scene: Scene) -> None:
    """What was seen, put right, and came back is another problem: it is told of anew, though it is no worse."""
    ask(scene, "acknowledge", problem="coder")
    ask(scene, "reset", fingerprint=KIND)
    scene.clock.move(DAY)
    scene.quarantine("coder", KIND)
    assert (PROBLEM, False, False) in listed(scene)


def test_an_open_circuit_seen(scene: Scene) -> None:
    """Nobody knows when it began: that it was seen is forgotten after a day."""
    for number in range(5):
        scene.fail(f"u{number}", f"{number}" * 16)
    ask(scene, "acknowledge", problem="fleet:circuit_open")
    assert ("fleet:circuit_open", True, False) in listed(scene)


@pytest.mark.parametrize(
    ("verb", "args", "code", "says"),
    [
        ("acknowledge", {}, "bad_argument", "which problem?"),
        ("acknowledge", {"problem": "codr"}, "not_found", "no problem 'codr'"),
        ("acknowledge", {"problem": "coder:quarantined:abcdef02"}, "not_found", f"did you mean {PROBLEM}"),
        ("acknowledge", {"problem": "healthy"}, "not_found", "no problem"),
        ("acknowledge", {"problem": "asker"}, "ambiguous", "can be 2 problems: asker:question:one, asker:question:two"),
        ("acknowledge", {"problem": "coder", "note": "x" * 501}, "bad_argument", "a note of 501"),
        ("snooze", {"problem": "coder"}, "bad_argument", "needs seconds"),
        ("snooze", {"problem": "coder", "seconds": 1, "until": 1}, "bad_argument", "one of them"),
        ("snooze", {"problem": "coder", "seconds": 0}, "bad_argument", "not into the past"),
        ("snooze", {"problem": "coder", "seconds": -5}, "bad_argument", "not into the past"),
        ("snooze", {"problem": "coder", "seconds": 31 * 86_400}, "bad_argument", "up to 30 d"),
        ("snooze", {"problem": "coder", "seconds": 1e300}, "bad_argument", "has to be a number"),
        ("snooze", {"problem": "coder", "until": 5}, "bad_argument", "not into the past"),
        ("snooze", {"problem": "coder", "until": 2.0**52}, "bad_argument", "up to 30 d"),
        ("snooze", {"problem": "coder", "seconds": float("nan")}, "bad_argument", "has to be a number"),
        ("problems", {"limit": -1}, "bad_argument", "allowed: 0 to 1000"),
    ],
    ids=lambda case: str(case)[:60],
)
def test_refused(scene: Scene, verb: str, args: dict[str, Any], code: str, says: str) -> None:
    """What cannot be done is refused with what to do, and nothing is written."""
    scene.start("healthy")
    scene.start("asker")
    run = scene.context().look().unit("asker").live[0].run
    for name in ("one", "two"):
        scene.governor.submit(Asked(unit="asker", run=run, id=name, text=name))
    before = len(scene.governor.store.entries())
    with pytest.raises(CommandError) as raised:
        ask(scene, verb, **args)
    assert (raised.value.code, says in str(raised.value)) == (code, True), str(raised.value)
    assert raised.value.remedy
    assert len(scene.governor.store.entries()) == before


def test_records_have_a_bound(scene: Scene) -> None:
    """Of more than are remembered, the one seen longest ago is forgotten."""
    store = scene.governor.store
    many = {record(f"old{n}:x"): b'{"by":"ann","at":%d}' % n for n in range(SEEN_MAX)}
    store.transact(list(many), lambda snapshot: Draft(snapshot.at, dict(many), None))
    ask(scene, "acknowledge", problem="coder")
    seen = seen_by_people(store)
    assert len(seen) == SEEN_MAX
    assert "old0:x" not in seen
    assert seen[PROBLEM].until == FOREVER
