"""How a session came to be what it is: told afterwards, from the journal."""

from typing import Any

import pytest

from flyball.control import story
from flyball.control.commands import answer
from flyball.core.event import Cause, Held, Released, Step, Stepped, Work
from flyball.core.time import HOUR, MINUTE, SECOND
from flyball.store.memory import MemoryStore
from tests.control.scene import Scene
from tests.control.work import Piece, every_status


@pytest.fixture
def scene() -> Scene:
    return Scene(MemoryStore())


def told(piece: Piece) -> dict[str, Any]:
    said: dict[str, Any] = answer(piece.scene.context(), "why", {"unit": piece.name})["post_mortem"]
    return said


def texts(piece: Piece) -> list[str]:
    return [moment["text"] for moment in told(piece)["timeline"]]


# The timeline.


def test_timeline(scene: Scene) -> None:
    """S1-62: how it began, each resume with its number and its checkpoint, each pause, refusal, order and exit, with
    what the run took; not its steps."""
    piece = Piece(scene, "s")
    piece.begin()
    piece.step(keeps=b"{}", used={"usd": 20_000})
    piece.step()
    piece.pause("rate_limit")
    scene.clock.move(10 * SECOND)
    piece.resume()
    scene.clock.move(MINUTE)
    piece.resume(checkpoint="1")
    piece.governor.submit(Held(unit="s", by="ann", note="via cli"))
    piece.end(Cause.STOPPED, error="paused", policy="manual")
    piece.governor.submit(Released(unit="s", policies=("manual",), by="ann", note="via cli"))
    assert texts(piece) == [
        "began",
        "after 2 s, 2 steps, 0.02 USD: paused for rate_limit; waits 1 min: paused: rate_limit",
        "asked to resume; waits 50 s: paused: rate_limit",
        "resume 1 of 3 from checkpoint 1",
        "paused by ann via cli",
        "after 0 s, 0 steps, 0.00 USD: exited: stopped: paused; is held: paused by ann: via cli",
        "released by ann via cli: manual",
    ]


def test_resumes_are_counted_anew(scene: Scene) -> None:
    """A session that got a new set of resumes from a person counts them from one again."""
    piece = Piece(scene, "s", daemon={"sessionRecovery": {"maxResumeAttempts": 1}})
    piece.begin()
    for _ in range(2):
        piece.pause()
        scene.clock.move(HOUR)
        piece.resume()
        piece.governor.submit(Released(unit="s", policies=("resumes",), by="ann"))
    assert [text for text in texts(piece) if text.startswith("resume")] == ["resume 1 of 1", "resume 1 of 1"]


def test_timeline_names_the_layer(scene: Scene) -> None:
    """S1-65: the step that was refused, and which layer ended the run."""
    piece = Piece(scene, "g", kind="graph", graph={"recursion_limit": 2})
    piece.begin()
    for _ in range(2):
        piece.step()
    piece.ask()
    piece.end(Cause.STOPPED, error="max_steps", policy="steps")
    _, refused, ended = texts(piece)
    assert refused == "asked to step; is stopped: Step limit reached (3/2)"
    assert ended.startswith("layer 1 (steps): after 2 s, 2 steps, 0.00 USD: exited: stopped: max_steps")


def test_what_a_layer_says_of_a_step(scene: Scene) -> None:
    """A step after which the work is told to end is a moment of its own."""
    piece = Piece(scene, "g", kind="graph")
    piece.begin()
    piece.step(gauges={"convergence": 0.9})
    assert texts(piece)[1] == "a step made; ends: convergence 0.90 is above 0.85"


def test_story_of_new_work(scene: Scene) -> None:
    """Work that is done and begun anew under the same name has a story of its own."""
    piece = Piece(scene, "s")
    for pattern in ("old", "new"):
        piece.begin()
        piece.step(pattern)
        piece.end()
    assert [time["pattern"] for time in told(piece)["times"]] == ["new"]
    assert texts(piece)[0] == "began"
    assert told(piece)["whole"]


def test_story_is_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a very long one the newest is told, and that its beginning is not among it."""
    monkeypatch.setattr(story, "STORY_MAX", 10)
    piece = Piece(scene, "s")
    piece.begin()
    for _ in range(20):
        piece.step()
    seen = told(piece)
    assert not seen["whole"]
    assert sum(time["times"] for time in seen["times"]) == 5


# Where the time went.


def test_times(scene: Scene) -> None:
    """By kind of step, the longest first, with what failed and what it cost; calls inside steps by themselves, and what
    lies outside of all steps."""
    piece = Piece(scene, "s")
    piece.begin()
    piece.step("fast", lasts=SECOND, used={"usd": 10})
    piece.step("slow", lasts=20 * SECOND, error=True)
    piece.step("fast", lasts=4 * SECOND)
    piece.step("model", lasts=2 * SECOND, part=True, used={"usd": 5})
    scene.clock.move(10 * SECOND)
    piece.end()
    seen = told(piece)
    keys = ("pattern", "part", "times", "errors", "seconds", "longest", "spent")
    assert [tuple(time[key] for key in keys) for time in seen["times"]] == [
        ("slow", False, 1, 1, 20.0, 20.0, 0),
        ("fast", False, 2, 0, 5.0, 4.0, 10),
        ("model", True, 1, 0, 2.0, 2.0, 5),
    ]
    assert seen["between"] == 12.0


def test_times_of_an_allowance(scene: Scene) -> None:
    """Steps that are reported together: each lasted until the next one was asked for, the last one until the report."""
    piece = Piece(scene, "s")
    piece.begin()
    run: dict[str, Any] = {"unit": "s", "run": piece.run}
    piece.governor.submit(Step(steps=10, **run))
    scene.clock.move(10 * SECOND)
    works = (
        Work(pattern="a", ago=10 * SECOND),
        Work(pattern="b", ago=7 * SECOND),
        Work(pattern="a", ago=SECOND),
        Work(pattern="b", ago=SECOND, refused=True),
    )
    piece.governor.submit(Stepped(done=works, allowed=10, **run))
    assert [(time["pattern"], time["times"], time["seconds"]) for time in told(piece)["times"]] == [
        ("b", 1, 6.0),
        ("a", 2, 4.0),
    ]
    assert told(piece)["between"] == 0.0


def test_times_that_are_told(scene: Scene) -> None:
    """Steps that are reported together as one say themselves how long they took: the longest is not known then, and
    is at least their mean."""
    piece = Piece(scene, "g", kind="graph")
    piece.begin()
    run: dict[str, Any] = {"unit": "g", "run": piece.run}
    piece.governor.submit(Step(steps=10, **run))
    scene.clock.move(10 * SECOND)
    works = (Work(pattern="a", times=4, lasted=8 * SECOND), Work(pattern="b", times=1, lasted=SECOND))
    piece.governor.submit(Stepped(done=works, allowed=10, **run))
    keys = ("pattern", "times", "seconds", "longest")
    assert [tuple(time[key] for key in keys) for time in told(piece)["times"]] == [
        ("a", 4, 8.0, 2.0),
        ("b", 1, 1.0, 1.0),
    ]
    assert told(piece)["between"] == 1.0


def test_times_of_a_command(scene: Scene) -> None:
    """A command tells of its stages when they are over: each lasted since the one before it, the first one since the
    run began; the pause between two runs is nobody's."""
    piece = Piece(scene, "s")
    piece.begin()
    for pattern, lasted in (("north", 3), ("east", 5)):
        scene.clock.move(lasted * SECOND)
        piece.step(pattern, lasts=0, keeps=b"x")
    piece.pause()
    scene.clock.move(HOUR)
    piece.resume()
    scene.clock.move(2 * SECOND)
    piece.step("south", lasts=0, keeps=b"x")
    assert [(time["pattern"], time["seconds"]) for time in told(piece)["times"]] == [
        ("east", 5.0),
        ("north", 3.0),
        ("south", 2.0),
    ]
    assert told(piece)["between"] == 0.0


def test_time_goes_on_while_it_runs(scene: Scene) -> None:
    """What it does now is not reported yet: it counts as outside of all steps."""
    piece = Piece(scene, "s")
    piece.begin()
    piece.step()
    scene.clock.move(MINUTE)
    assert told(piece)["between"] == 60.0


# What each layer saw.


def test_layers(scene: Scene) -> None:
    """S1-62: of each layer how near it was to ending the work, and which one did."""
    piece = Piece(scene, "g", kind="graph")
    piece.begin()
    for number in range(4):
        gauges = {"round": number + 1, "convergence": 0.62, "agreement": 0.5}
        piece.step(lasts=103 * SECOND, used={"usd": 77_500}, gauges=gauges)
    piece.end(Cause.TIMEOUT, error="timeout", policy="deadline", fingerprint="f" * 16)
    assert [(layer["layer"], layer["text"], layer["fired"]) for layer in told(piece)["layers"]] == [
        (1, "4 of 55 steps", False),
        (2, "every node has a way to an end: looked at before anything ran", False),
        (3, "4 of 7 rounds, convergence 0.62, agreement 0.50", False),
        (4, "its last run took 6 min 52 s of 1 h", True),
        (5, "0.31 USD spent of 1.00 USD", False),
    ]


def test_a_session_has_no_graph(scene: Scene) -> None:
    """Layer 2 looks at graphs: a session of plain code has nothing for it to look at."""
    every_status(scene)
    said = answer(scene.context(), "why", {"unit": "stopped-one"})["post_mortem"]
    assert [layer["layer"] for layer in said["layers"]] == [1, 3, 4, 5]


# After a timeout.


def timed_out(scene: Scene, *, name: str = "s", **given: Any) -> Piece:
    piece = Piece(scene, name, kind="graph", graph={"recursion_limit": 60})
    piece.begin()
    for _ in range(given.get("steps", 4)):
        piece.step("persona", lasts=given.get("persona", 100 * SECOND), error=given.get("error", False))
        piece.step("vote", lasts=given.get("vote", 100 * SECOND))
        piece.step("model", lasts=0, part=True)
    scene.clock.move(given.get("hangs", 0))
    piece.end(Cause.TIMEOUT, error="timeout", policy="deadline", fingerprint="f" * 16)
    return piece


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"persona": 200 * SECOND},
            "A slow API? persona took 13 min 20 s of 20 min (4 times, the longest 3 min 20 s).",
        ),
        ({"hangs": HOUR}, "A slow API? 1 h of 1 h 13 min were outside of all steps that ended: it hung in one, or"),
        ({"persona": 0, "vote": 0, "steps": 20}, "It made 40 steps, more than the 35 of a run that converges."),
        ({"error": True}, "Retries over a bad network? 4 of its steps and calls failed."),
        ({}, "Retries over a bad network? No step or call was reported as failed."),
        ({}, "A run that goes well takes 300 to 900 s."),
    ],
)
def test_causes_of_a_timeout(scene: Scene, given: dict[str, Any], says: str) -> None:
    """S1-27: a slow API, layers 1 to 3 that did not end it, or retries: each with what speaks for it."""
    causes = told(timed_out(scene, **given))["causes"]
    assert any(says in cause for cause in causes), causes
    assert len(causes) == 4


def test_step_that_never_ended(scene: Scene) -> None:
    """The step that was granted last and was never reported is named."""
    piece = Piece(scene, "s")
    piece.begin()
    piece.step("read")
    piece.governor.submit(Step(unit="s", run=piece.run, pattern="fetch"))
    scene.clock.move(HOUR)
    piece.end(Cause.TIMEOUT, error="timeout", policy="deadline", fingerprint="f" * 16)
    assert "The last leave was for fetch." in told(piece)["causes"][1]


def test_no_causes_without_a_timeout(scene: Scene) -> None:
    """Whatever ended otherwise is not asked why it took so long."""
    every_status(scene)
    for name in ("completed-one", "failed-one", "paused-one"):
        assert answer(scene.context(), "why", {"unit": name})["post_mortem"]["causes"] == []


# How to go on.


def test_ways_on_after_a_timeout(scene: Scene) -> None:
    """S1-63: see what there is, resume it, go back to an earlier checkpoint, raise the limit, ask for help."""
    piece = Piece(scene, "s")
    piece.begin()
    piece.step("a", keeps=b"1")
    piece.step("b", keeps=b"2")
    piece.end(Cause.TIMEOUT, error="timeout", policy="deadline", fingerprint="f" * 16)
    assert told(piece)["ways_on"] == [
        "See what there is so far after b: `flyball session show s --checkpoint 2`.",
        "Resume it, now or later: `flyball resume s` (3 of 3 resumes are left).",
        "Or from an earlier checkpoint: `flyball resume s --checkpoint 1`.",
        "If the work honestly needs more, raise `graph.timeout_seconds` first.",
        "To have somebody else look at it, send `flyball why s --json`: it has all of this.",
    ]


def test_ways_on_when_out_of_resumes(scene: Scene) -> None:
    """S2-14: what to do when it was resumed too often."""
    piece = Piece(scene, "s", daemon={"sessionRecovery": {"maxResumeAttempts": 1}})
    piece.begin()
    for _ in range(2):
        piece.pause()
        scene.clock.move(HOUR)
        piece.resume()
    assert told(piece)["ways_on"][0] == (
        "Find out why it keeps pausing, split the work, or raise `sessionRecovery.maxResumeAttempts` (1); then give it "
        "as many resumes once more: `flyball resume s`."
    )


@pytest.mark.parametrize("status", ["running", "completed", "pending"])
def test_nothing_to_do(scene: Scene, status: str) -> None:
    """What runs, is done or was never begun needs nobody."""
    every_status(scene)
    assert answer(scene.context(), "why", {"unit": f"{status}-one"})["post_mortem"]["ways_on"] == []


def test_units_have_no_story(scene: Scene) -> None:
    """A process is no piece of work."""
    scene.start("web")
    said = answer(scene.context(), "why", {"unit": "web"})
    assert (said["session"], said["post_mortem"]) == (None, None)
