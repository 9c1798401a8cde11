"""What people see of sessions is computed from states and journal."""

from typing import Any

import pytest

from flyball.control.commands import answer
from flyball.control.context import CommandError
from flyball.control.past import Past
from flyball.control.sessions import view
from flyball.control.shapes import CountView, SessionView, SessionWord
from flyball.control.views import Look
from flyball.core.decision import Verb
from flyball.core.event import Cause, Held
from flyball.core.policy import Key
from flyball.core.time import HOUR, MINUTE, SECOND
from flyball.errors import FlyballError
from flyball.store import Draft
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene
from tests.control.work import Piece, every_status

BROKE = "cost_budget_exceeded"


@pytest.fixture
def scene() -> Scene:
    return Scene(MemoryStore())


def see(piece: Piece) -> SessionView:
    return view(Look(piece.governor, Past()), piece.name)


def listed(scene: Scene, **args: Any) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in answer(scene.context(), "sessions", args)["sessions"]}


# In one word.


def test_every_status(scene: Scene) -> None:
    """S1-25, S1-36: a session is pending, running, paused, completed, failed, timed_out, budget_exceeded, stopped or
    lost."""
    every_status(scene)
    assert {name: one["status"] for name, one in listed(scene).items()} == {f"{word}-one": word for word in SessionWord}


def test_only_work_is_listed(scene: Scene) -> None:
    """A process is no session, whatever it does."""
    scene.start("web")
    Piece(scene, "work", kind="graph")
    found = listed(scene)
    assert [(name, one["kind"]) for name, one in found.items()] == [("work", "graph")]


def test_out_of_resumes(scene: Scene) -> None:
    """S2-13, S2-18: after a fourth resume was asked for it has failed, 3 of 3 are used, and the pause is as it was."""
    piece = Piece(scene, "s")
    piece.begin()
    piece.pause("rate_limit")
    for number in range(3):
        assert see(piece).resumes == CountView(used=number, max=3)
        scene.clock.move(2 * MINUTE)
        assert piece.resume().proceeds
        assert (see(piece).status, see(piece).pause) == ("running", None)
        piece.pause("rate_limit")
    scene.clock.move(2 * MINUTE)
    before = see(piece)
    assert (before.status, before.failure_reason) == ("paused", None), "three of three is not too many"
    assert piece.resume().verb is Verb.HOLD
    after = see(piece)
    assert (after.status, after.failure_reason, after.held) == ("failed", "max_resume_attempts_exceeded", True)
    assert after.pause == before.pause is not None
    assert after.resumes == CountView(used=3, max=3)


def test_out_of_time_of_its_lease(scene: Scene) -> None:
    """Whoever ran it is gone and reported nothing: lost, before somebody reports it and after."""
    piece = Piece(scene, "s")
    piece.begin()
    scene.clock.move(HOUR)
    assert see(piece).status == "lost"
    piece.governor.reap()
    assert (see(piece).status, see(piece).failure_reason) == ("lost", "lost")


@pytest.mark.parametrize(("verb", "status"), [(Verb.HOLD, "paused"), (Verb.STOP, "stopped")], ids=["pause", "stop"])
def test_ended_by_a_person(scene: Scene, verb: Verb, status: str) -> None:
    """A session that a person paused is paused, one that was stopped is stopped; while it runs, it runs."""
    piece = Piece(scene, "s")
    piece.begin()
    piece.governor.submit(Held(unit="s", verb=verb, by="ann"))
    assert see(piece).status == "running"
    piece.end(Cause.STOPPED, error={"paused": "paused"}.get(status, "stopped"), policy="manual")
    assert see(piece).status == status


def test_pause_of_what_failed_hides_nothing(scene: Scene) -> None:
    """A person who holds a session that ran out of time does not make it look as if it had not."""
    piece = Piece(scene, "s")
    piece.begin()
    piece.end(Cause.TIMEOUT, error="timeout", policy="deadline", fingerprint="f" * 16)
    piece.governor.submit(Held(unit="s", by="ann"))
    assert (see(piece).status, see(piece).held) == ("timed_out", True)


@pytest.mark.parametrize(("verb", "status"), [(Verb.HOLD, "paused"), (Verb.STOP, "stopped")], ids=["pause", "stop"])
def test_ended_by_a_person_while_paused(scene: Scene, verb: Verb, status: str) -> None:
    """A session that waits for its time, and that a person stops meanwhile, is stopped: it does not go on then."""
    piece = Piece(scene, "s")
    piece.begin()
    piece.pause()
    piece.governor.submit(Held(unit="s", verb=verb, by="ann"))
    assert see(piece).status == status


def test_waits_for_a_person(scene: Scene) -> None:
    """What paused for a person has no time at which it goes on."""
    piece = Piece(scene, "s")
    piece.begin()
    piece.pause("person")
    seen = see(piece)
    assert (seen.status, seen.held) == ("paused", True)
    assert seen.pause is not None
    assert (seen.pause.reason, seen.pause.resume_at) == ("person", None)


def test_known_without_its_journal(scene: Scene) -> None:
    """A journal that was trimmed takes no status away: the policies know how it ended."""
    done, timed_out, paused = (Piece(scene, name) for name in ("done", "timed-out", "paused"))
    for piece in (done, timed_out, paused):
        piece.begin()
    done.end()
    timed_out.end(Cause.TIMEOUT, fingerprint="f" * 16)
    paused.pause()
    store = scene.governor.store
    for _ in range(3):
        scene.fail("other")
        store.trim(1)
    assert not store.last_entries(unit="done")
    assert [one["status"] for one in listed(scene).values()] == ["completed", "paused", "timed_out"]


# What ended it.


@pytest.mark.parametrize(
    ("cause", "given", "ended_by"),
    [
        (Cause.DONE, {}, (None, None, None)),
        (Cause.DONE, {"error": "consensus"}, ("consensus", None, 3)),
        (Cause.DONE, {"error": "max_rounds"}, ("max_rounds", None, 3)),
        (Cause.STOPPED, {"error": "max_steps", "policy": "steps"}, ("max_steps", None, 1)),
        (Cause.STOPPED, {"error": "going_in_circles", "policy": "stall"}, ("going_in_circles", None, None)),
        (Cause.STOPPED, {"error": "stopped", "policy": "manual"}, ("stopped", None, None)),
        (Cause.STOPPED, {"error": "KeyboardInterrupt"}, (None, None, None)),
        (Cause.STOPPED, {"pause": "rate_limit"}, (None, None, None)),
        (Cause.TIMEOUT, {"error": "timeout", "policy": "deadline"}, ("timeout", "timeout", 4)),
        (Cause.TIMEOUT, {}, ("timeout", "timeout", None)),
        (Cause.TIMEOUT, {"error": "idle_timeout", "policy": "idle"}, ("idle_timeout", "idle_timeout", 4)),
        (Cause.STARVED, {"error": BROKE, "policy": "budget"}, (BROKE, BROKE, 5)),
        (Cause.ERROR, {"error": "KeyError: 'x'"}, (None, "KeyError", None)),
        (Cause.ERROR, {}, (None, "error", None)),
        (Cause.STARVED, {"error": "MemoryError"}, (None, "MemoryError", None)),
        (Cause.LOST, {"error": "lost"}, (None, "lost", None)),
    ],
)
def test_what_ended_it(
    scene: Scene, cause: Cause, given: dict[str, Any], ended_by: tuple[str | None, str | None, int | None]
) -> None:
    """S1-65: the code of whoever ended it, why it failed if it did, and which layer fired."""
    piece = Piece(scene, "s")
    piece.begin()
    piece.end(cause, **given)
    seen = see(piece)
    assert (seen.stop_reason, seen.failure_reason, seen.layer) == ended_by
    if cause is not Cause.DONE:
        scene.clock.move(HOUR)
        assert piece.resume().proceeds
        seen = see(piece)
        assert (seen.status, seen.stop_reason, seen.failure_reason, seen.layer, seen.ended) == (
            "running",
            *[None] * 4,
        ), "what ended the run before is over"


def test_layers_are_counted(scene: Scene) -> None:
    """S1-49: how often each layer fired, of all sessions or of those that are asked for; a process is none of them."""
    every_status(scene)
    scene.start("web")
    scene.exit("web", Cause.TIMEOUT, error="timeout")
    assert answer(scene.context(), "sessions", {})["layers"] == {"1": 1, "2": 0, "3": 1, "4": 1, "5": 1}
    some = answer(scene.context(), "sessions", {"status": "timed_out"})
    assert some["layers"] == {"1": 0, "2": 0, "3": 0, "4": 1, "5": 0}
    assert some["counts"] == {"timed_out": 1}


# How far it is.


def test_limits(scene: Scene) -> None:
    """What each limit has counted, of how many; also when the work is done, and the policies count no more."""
    piece = Piece(scene, "g", kind="graph", user="ann", graph={"max_rounds": 9, "recursion_limit": 20})
    began = scene.clock.now()
    piece.begin()
    for number in range(4):
        piece.step("persona", lasts=3 * SECOND, used={"usd": 50_000}, gauges={"round": number, "convergence": 0.2})
    piece.step("call", part=True, used={"usd": 1})

    def seen() -> tuple[Any, ...]:
        one = see(piece)
        assert one.steps and one.rounds and one.budget and one.deadline  # noqa: PT018 - all of them, or nothing is told
        return (
            (one.steps.used, one.steps.max),
            (one.rounds.reached, one.rounds.max, one.rounds.convergence, one.rounds.agreement),
            (one.budget.spent, one.budget.reserved, one.budget.limit),
            (one.deadline.started, one.deadline.lasted, one.deadline.limit),
        )

    while_running = seen()
    assert while_running == ((4, 20), (3, 9, 0.2, None), (200_001, 0, 1_000_000), (began / SECOND, 13.0, 3600.0))
    piece.end()
    scene.clock.move(HOUR)
    assert seen() == while_running
    assert (see(piece).started, see(piece).ended) == (began / SECOND, began / SECOND + 13)
    assert see(piece).user == "ann"


def test_counts_go_on_over_resumes(scene: Scene) -> None:
    """Steps and rounds belong to the work: a resume does not start them anew; its time does."""
    piece = Piece(scene, "s")
    began = scene.clock.now()
    piece.begin()
    piece.step(gauges={"round": 2.0})
    piece.pause()
    scene.clock.move(HOUR)
    piece.resume()
    piece.step(lasts=5 * SECOND, gauges={"round": 1.0})
    seen = see(piece)
    assert seen.steps and seen.rounds and seen.deadline  # noqa: PT018 - as above
    assert (seen.steps.used, seen.rounds.reached, seen.deadline.lasted) == (2, 2, 5.0)
    assert seen.started == began / SECOND


def test_checkpoints(scene: Scene) -> None:
    """Those that are kept, the oldest first, with their stages."""
    piece = Piece(scene, "s")
    piece.begin()
    for number in range(7):
        piece.step(f"stage-{number}", keeps=b"x" * number or b"0")
    assert [(one.id, one.stage, one.bytes) for one in see(piece).checkpoints] == [
        (str(number + 1), f"stage-{number}", number) for number in range(2, 7)
    ]


def test_filters(scene: Scene) -> None:
    """By user and by status; nobody is an empty list, and a status that does not exist is an error."""
    every_status(scene)
    assert [*listed(scene, user="bob")] == ["paused-one"]
    assert [*listed(scene, user="ann", status="lost")] == ["lost-one"]
    assert listed(scene, user="nobody") == {}
    with pytest.raises(CommandError, match="limit is -1"):
        listed(scene, limit=-1)
    with pytest.raises(CommandError, match="'dead' is no status of a session; there are pending, running, paused, "):
        listed(scene, status="dead")


def test_a_state_that_cannot_be_read(scene: Scene) -> None:
    """What is damaged is shown as a reason of the unit; the list is there all the same."""
    every_status(scene)
    keys = [Key(name, "unit", "paused-one") for name in ("session", "steps", "resumes", "checkpoints")]
    changes: dict[Key, bytes | None] = dict.fromkeys(keys, b'{"begun": 7, "count": "x"}')
    scene.governor.store.transact(keys, lambda seen: Draft(seen.at, changes, None))
    one = listed(scene)["paused-one"]
    assert (one["steps"], one["resumes"], one["pause"]) == (None, None, None)
    assert [kept["id"] for kept in one["checkpoints"]] == ["1", "2"], "found without their index"


def test_looking_leaves_no_trace(scene: Scene) -> None:
    """No look at a session changes anything."""
    every_status(scene)
    store = scene.governor.store
    before = (store.read(()).seq, dict(store.states()))
    for verb, args in (
        ("sessions", {}),
        ("session", {"unit": "paused-one", "checkpoint": "1"}),
        ("why", {"unit": "timed_out-one"}),
        ("kill", {"user": "ann", "dry_run": True}),
        ("resume", {"units": ["paused-one"], "checkpoint": "1", "dry_run": True}),
    ):
        answer(scene.context(), verb, args)
    assert (store.read(()).seq, dict(store.states())) == before


# One session.


@pytest.mark.parametrize(
    ("data", "form", "content"),
    [
        (b'{"page": 2}', "json", {"page": 2}),
        (b"page 2\n", "text", "page 2\n"),
        (b"\xff\x00\xff", "bytes", "3 bytes that are no text"),
        (b"[" * 100_000, "text", "[" * 100_000),
    ],
    ids=["json", "text", "bytes", "no end"],
)
def test_content_of_a_checkpoint(scene: Scene, data: bytes, form: str, content: Any) -> None:
    """S1-63: what there is so far can be seen: as data, as text, or at least how much it is."""
    piece = Piece(scene, "s")
    piece.begin()
    piece.step("draft", keeps=data)
    said = answer(scene.context(), "session", {"unit": "s", "checkpoint": "1"})["checkpoint"]
    assert (said["id"], said["stage"], said["form"], said["content"]) == ("1", "draft", form, content)
    assert answer(scene.context(), "session", {"unit": "s"})["checkpoint"] is None


@pytest.mark.parametrize(
    ("unit", "checkpoint", "says"),
    [
        ("paused-on", None, "Session not found: paused-on; did you mean paused-one"),
        ("web", None, "Session not found: web; there are budget_exceeded-one, "),
        ("", None, "Session not found: ; there are "),
        ("paused-one", "9", "paused-one has no checkpoint '9'"),
        ("paused-one", "x", "paused-one has no checkpoint 'x'"),
        ("paused-one", "2", "checkpoint 2 of paused-one is damaged"),
        ("completed-one", "1", "completed-one has no checkpoint '1'"),
    ],
)
def test_bad_input(scene: Scene, unit: str, checkpoint: str | None, says: str) -> None:
    """S2-12: an unknown session, or one that is none; an unknown or damaged checkpoint: a clear error with a remedy."""
    every_status(scene)
    scene.start("web")
    key = Key("checkpoint", "session", "paused-one/000002")
    scene.governor.store.transact([key], lambda seen: Draft(seen.at, {key: b"{}"}, None))
    with pytest.raises(FlyballError) as raised:
        answer(scene.context(), "session", {"unit": unit, "checkpoint": checkpoint})
    assert says in str(raised.value)
    assert raised.value.remedy
