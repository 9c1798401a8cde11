"""What people order of sessions: to go on, from which checkpoint; and what they order of all that a user has."""

from typing import Any

import pytest

from flyball.config import Settings, definitions
from flyball.control.commands import answer
from flyball.control.context import CommandError
from flyball.core.codec import decode_body
from flyball.core.decision import Verb
from flyball.core.event import Cause, Held, Released, Resume, Start
from flyball.core.policy import Key
from flyball.core.time import HOUR, MINUTE, SECOND
from flyball.errors import FlyballError
from flyball.policies import Session
from flyball.store import Draft, checkpoints
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene
from tests.control.work import Piece, every_status


@pytest.fixture
def scene() -> Scene:
    return Scene(MemoryStore())


def order(scene: Scene, verb: str, **args: Any) -> dict[str, Any]:
    said: dict[str, Any] = answer(scene.context(), verb, args)
    return said


def everything(scene: Scene) -> tuple[int, dict[Key, bytes]]:
    store = scene.governor.store
    return store.read(()).seq, dict(store.states())


def paused(scene: Scene, reason: str = "usage_limit") -> Piece:
    piece = Piece(scene, "s", user="ann")
    piece.begin()
    piece.step("a", keeps=b'{"n": 1}')
    piece.step("b", keeps=b'{"n": 2}')
    piece.pause(reason, scene.clock.now() + HOUR)
    return piece


def would(piece: Piece) -> tuple[str, ...]:
    return piece.governor.look(Resume(unit=piece.name, labels=piece.labels)).codes


# Going on.


@pytest.mark.parametrize("reason", ["usage_limit", "person"])
def test_resume_earlier(scene: Scene, reason: str) -> None:
    """A session that is named goes on, whether it waits for its time or for a person; its count is kept."""
    piece = paused(scene, reason)
    assert would(piece) in {("waits_to_resume",), ("waits_for_person",)}
    said = order(scene, "resume", units=["s"])
    assert said["released"] == [{"unit": "s", "policies": ["session"]}]
    assert would(piece) == ()
    assert said["sessions"][0]["resumes"] == {"used": 0, "max": 3}


def test_resume_of_all_leaves_waits(scene: Scene) -> None:
    """`resume --all` frees what waits for a person, not what waits for a limit to pass: all at once would meet it."""
    piece = paused(scene)
    other = Piece(scene, "t")
    other.begin()
    other.pause("person")
    order(scene, "resume", all=True)
    assert would(piece) == ("waits_to_resume",)
    assert would(other) == ()


def test_resume_gives_a_new_set(scene: Scene) -> None:
    """A session that is out of resumes gets as many once more from a person; a fourth after that is refused again."""
    piece = Piece(scene, "s")
    piece.begin()
    piece.pause()
    for _ in range(2):
        for _ in range(3):
            scene.clock.move(HOUR)
            assert piece.resume().proceeds
            piece.pause()
        scene.clock.move(HOUR)
        assert piece.resume().codes == ("max_resume_attempts_exceeded",)
        said = order(scene, "resume", units=["s"])
        assert said["released"] == [{"unit": "s", "policies": ["resumes"]}]
        assert (said["sessions"][0]["status"], said["sessions"][0]["resumes"]["used"]) == ("paused", 0)


@pytest.mark.parametrize(
    ("cause", "given", "released"),
    [
        (Cause.TIMEOUT, {"error": "timeout", "policy": "deadline", "fingerprint": "f" * 16}, ["session"]),
        (Cause.STOPPED, {"error": "cost_budget_exceeded", "policy": "budget"}, ["restart"]),
        (Cause.STOPPED, {"error": "max_steps", "policy": "steps"}, ["restart"]),
        (Cause.ERROR, {"error": "ValueError", "fingerprint": "f" * 16}, ["session"]),
        (Cause.LOST, {"error": "lost", "fingerprint": "f" * 16}, ["session"]),
    ],
)
def test_resume_whatever_ended_it(scene: Scene, cause: Cause, given: dict[str, Any], released: list[str]) -> None:
    """S1-63: what timed out, ran out of money or steps, failed or was lost can be resumed; that is in the journal, with
    who said so, also where nothing was in its way."""
    piece = Piece(scene, "s")
    piece.begin()
    piece.end(cause, **given)
    scene.clock.move(HOUR)
    assert order(scene, "resume", units=["s"])["released"] == [{"unit": "s", "policies": released}]
    last = decode_body(scene.governor.store.last_entries(limit=2)[0].body).event
    assert isinstance(last, Released)
    assert (last.by, last.note) == ("ann", "via test")
    assert piece.resume().proceeds


def test_a_quarantine_stays(scene: Scene) -> None:
    """A session that failed six times in the same way waits for a reset, as any unit does."""
    piece = Piece(scene, "s", daemon={"sessionRecovery": {"maxResumeAttempts": 9}})
    piece.begin()
    for _ in range(6):
        scene.clock.move(2 * MINUTE)
        piece.end(Cause.ERROR, fingerprint="f" * 16)
        scene.clock.move(HOUR)
        piece.resume()
    assert order(scene, "resume", units=["s"])["units"][0]["held"]


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        ("running", "running", "running-one is running: there is nothing to resume"),
        ("completed", "not_paused", "completed-one is done: there is nothing to resume"),
        ("pending", "not_paused", "pending-one was never begun: there is nothing to resume"),
    ],
)
def test_nothing_to_resume(scene: Scene, status: str, code: str, says: str) -> None:
    """What runs, is done or was never begun: a clear error, and nothing changes, also not for others named with it."""
    every_status(scene)
    before = everything(scene)
    with pytest.raises(CommandError) as raised:
        order(scene, "resume", units=["paused-one", f"{status}-one"])
    assert (raised.value.code, str(raised.value)) == (code, says)
    assert raised.value.remedy
    assert everything(scene) == before


def test_a_call_is_not_resumed(scene: Scene) -> None:
    """One call of a graph without a thread has left nothing to go on from: that is said, also by `why`."""
    piece = Piece(scene, "g", kind="graph")
    policies = [policy for policy in scene.governor.panel.policies_of("g") if not isinstance(policy, Session)]
    scene.governor.panel.put("g", (*policies, Session(of="call")))
    definitions.keep(scene.governor, "g")
    piece.begin()
    piece.end(Cause.ERROR, error="ValueError", fingerprint="f" * 16)
    before = everything(scene)
    with pytest.raises(CommandError, match="nothing is left of it to resume"):
        order(scene, "resume", units=["g"])
    assert everything(scene) == before
    said = order(scene, "why", unit="g")
    assert said["session"]["kind"] == "call"
    assert said["post_mortem"]["ways_on"][0].endswith("Call it again.")


@pytest.mark.parametrize("verb", [Verb.HOLD, Verb.STOP])
def test_an_order_is_taken_back(scene: Scene, verb: Verb) -> None:
    """What a person ordered is taken back by a resume, also while it still runs or when it is done."""
    for status in ("running", "completed"):
        piece = Piece(scene, status)
        piece.begin()
        if status == "completed":
            piece.end()
        piece.governor.submit(Held(unit=status, verb=verb))
        assert order(scene, "resume", units=[status])["released"] == [{"unit": status, "policies": ["manual"]}]


def test_the_daemon_is_told(scene: Scene) -> None:
    """The daemon is told of its own sessions, and the answer says which these are: a program's are not among them."""
    piece = paused(scene)
    program = Piece(scene, "t")
    program.begin()
    program.pause()
    poked: list[tuple[str, str]] = []
    scene.settings = Settings.model_validate({"units": {"s": {"command": ["true"]}}})
    context = scene.context(poke=lambda unit, verb: poked.append((unit, verb)))
    said = answer(context, "resume", {"units": ["s", "t"]})
    assert (said["told"], said["daemon"]) == (["s"], True)
    assert poked == [("s", "resume"), ("t", "resume")]
    assert order(scene, "resume", units=[piece.name])["told"] == []


# From which checkpoint.


@pytest.mark.parametrize(("given", "chosen"), [("1", "1"), ("2", "2"), ("001", "1")])
def test_checkpoint(scene: Scene, given: str, chosen: str) -> None:
    """S2-10: the next resume goes on from the checkpoint that is named; the choice is written with the order."""
    paused(scene)
    order(scene, "resume", units=["s"], checkpoint=given)
    assert checkpoints.chosen(scene.governor.store, "s") == chosen
    assert order(scene, "session", unit="s")["chosen"] == chosen


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"units": ["s"], "checkpoint": "9"}, "s has no checkpoint '9'"),
        ({"units": ["s"], "checkpoint": "one"}, "s has no checkpoint 'one'"),
        ({"units": ["s"], "checkpoint": ""}, "s has no checkpoint '?'"),
        ({"units": ["s"], "checkpoint": "2"}, "checkpoint 2 of s is damaged"),
        ({"units": ["s", "running"], "checkpoint": "1"}, "a checkpoint is of one session"),
        ({"all": True, "checkpoint": "1"}, "a checkpoint is of one session"),
        ({"user": "ann", "checkpoint": "1"}, "a checkpoint is of one session"),
        ({"checkpoint": "1"}, "a checkpoint is of one session"),
        ({"units": ["web"], "checkpoint": "1"}, "Session not found: web"),
        ({"units": ["running"], "checkpoint": "1"}, "running is running: it goes on from where it is"),
        ({"units": ["sss"], "checkpoint": "1"}, "no unit 'sss'"),
    ],
)
def test_checkpoint_that_cannot_be(scene: Scene, args: dict[str, Any], says: str) -> None:
    """An unknown or damaged checkpoint, several sessions, none, or one that runs: a clear error, nothing changes."""
    paused(scene)
    scene.start("web")
    Piece(scene, "running").begin()
    key = checkpoints.data_key("s", 2)
    scene.governor.store.transact([key], lambda seen: Draft(seen.at, {key: b"{}"}, None))
    before = everything(scene)
    with pytest.raises(FlyballError) as raised:
        order(scene, "resume", **args)
    assert says in str(raised.value)
    assert raised.value.remedy
    assert everything(scene) == before


# All that a user has.


@pytest.mark.parametrize(("verb", "code"), [("pause", "paused"), ("stop", "stopped"), ("kill", "stopped")])
def test_all_of_a_user(scene: Scene, verb: str, code: str) -> None:
    """S1-61: one order ends and holds whatever runs for that user, also what comes later; nobody else's."""
    every_status(scene)
    said = order(scene, verb, user="ann", note="too much")
    assert [unit["name"] for unit in said["units"]] == [
        f"{word}-one" for word in ("budget_exceeded", "completed", "failed", "lost", "running", "stopped", "timed_out")
    ]
    for unit, user, held in (("running-one", "ann", True), ("new", "ann", True), ("paused-one", "bob", False)):
        asked = scene.governor.look(Start(unit=unit, run="x", labels={"user": user}))
        assert (code in asked.codes) is held
    entry = order(scene, "events", limit=2)["events"][0]
    assert entry["text"].endswith(" by ann via test: too much for the user ann")
    fleet = order(scene, "status")["fleet"]
    assert fleet["state"] == "running", "the fleet is not held"
    assert fleet["orders"][-1]["order"] == {"kill": "stop"}.get(verb, verb) + " user ann"


def test_resume_of_a_user(scene: Scene) -> None:
    """What was ordered of a user is taken back for that user; the reason says how, and the units are told of it."""
    every_status(scene)
    order(scene, "kill", user="ann")
    order(scene, "pause", user="bob")
    poked: list[tuple[str, str]] = []
    held = order(scene, "resume", units=["timed_out-one"])["units"][0]
    assert held["reasons"][0]["remedy"] == "To go on: `flyball resume --user ann`."
    context = scene.context(poke=lambda unit, verb: poked.append((unit, verb)))
    said = answer(context, "resume", {"user": "ann"})
    assert said["released"] == [{"unit": "", "policies": ["manual"]}]
    assert ("timed_out-one", "resume") in poked
    assert not {unit for unit, _ in poked} & {"paused-one", ""}
    assert scene.governor.look(Start(unit="new", labels={"user": "ann"})).proceeds
    assert scene.governor.look(Start(unit="new", labels={"user": "bob"})).codes == ("paused",)


def test_user_of_a_unit_that_never_ran(scene: Scene) -> None:
    """A unit of the settings is its user's before it ever ran."""
    scene.settings = Settings.model_validate({"units": {"web": {"command": ["true"], "labels": {"user": "cid"}}}})
    assert [unit["name"] for unit in order(scene, "pause", user="cid")["units"]] == ["web"]


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ({"user": "amn"}, "unknown_user", "no unit of the user 'amn'; did you mean ann?"),
        ({"user": "zoe"}, "unknown_user", "no unit of the user 'zoe'; there are ann, bob"),
        ({"user": ""}, "bad_argument", "a user without a name"),
        ({"user": "ann", "units": ["s"]}, "bad_argument", "not both"),
        ({"user": "ann", "all": True}, "bad_argument", "not both"),
        ({"user": 7}, "bad_argument", "user has to be a text"),
    ],
)
@pytest.mark.parametrize("verb", ["pause", "stop", "kill", "resume"])
def test_bad_user(scene: Scene, verb: str, args: dict[str, Any], code: str, says: str) -> None:
    """A user whom nobody knows, or two ways at once of saying what is meant: an error, and nothing changes."""
    every_status(scene)
    before = everything(scene)
    with pytest.raises(CommandError) as raised:
        order(scene, verb, **args)
    assert raised.value.code == code
    assert says in str(raised.value)
    assert everything(scene) == before


@pytest.mark.parametrize("whom", [{"units": ["paused-one"]}, {"user": "ann"}, {"all": True}])
@pytest.mark.parametrize("verb", ["pause", "stop", "kill", "resume"])
def test_dry_run(scene: Scene, verb: str, whom: dict[str, Any]) -> None:
    """Who would be concerned is said; nobody is told, and nothing changes."""
    every_status(scene)
    before = everything(scene)
    poked: list[tuple[str, str]] = []
    context = scene.context(poke=lambda unit, verb: poked.append((unit, verb)))
    said = answer(context, verb, {**whom, "dry_run": True})
    assert said["dry_run"]
    assert len(said["units"]) == (1 if "units" in whom else 7 if "user" in whom else 9)
    assert everything(scene) == before
    assert poked == []


def test_word_of_a_paused_session(scene: Scene) -> None:
    """A session that waits to be resumed is paused, and says until when; it is not cooling, as after a failure."""
    paused(scene)
    [unit] = order(scene, "status", units=["s"])["units"]
    assert (unit["state"], unit["held"]) == ("paused", False)
    assert unit["until"] == (scene.clock.now() + HOUR) / SECOND


def test_thread_is_known_by_its_own_name(scene: Scene) -> None:
    """A thread of a graph may be named as its program names it, without the graph, if only one graph has it."""
    Piece(scene, "board@42", kind="graph").begin()
    assert order(scene, "why", unit="42")["unit"]["name"] == "board@42"
    assert order(scene, "session", unit="42")["session"]["id"] == "board@42"
    assert [unit["name"] for unit in order(scene, "pause", units=["42"])["units"]] == ["board@42"]
    Piece(scene, "chat@42", kind="graph").begin()
    for verb, args in (("why", {"unit": "42"}), ("session", {"unit": "42"}), ("pause", {"units": ["42"]})):
        with pytest.raises(CommandError, match="a thread of 2 graphs: board@42, chat@42"):
            order(scene, verb, **args)
