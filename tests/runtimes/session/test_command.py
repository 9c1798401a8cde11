"""A session that is a command: what its runs find in their file, and what comes of what they report."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flyball.config.units import Unit
from flyball.core.codec import decode_body
from flyball.core.event import Cause, Event, Exited, Resume, Start, Stepped
from flyball.core.policy import AnyPolicy, Key
from flyball.core.time import MINUTE, SECOND
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.policies import Exclusive, Limit, Session, resume_limit
from flyball.runtimes.driver import Ending
from flyball.runtimes.notify import Message
from flyball.runtimes.report import PAUSE_MAX, Reporter
from flyball.runtimes.session.command import CommandSession
from flyball.store import Drafter, Entry, checkpoints
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock

UNIT = Unit(name="work", command=("true",), kind="session")


class Scene:
    """A governor, and a session of which runs begin, report and end."""

    def __init__(self, folder: Path, *policies: AnyPolicy, forgives: bool = False) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.governor = Governor(
            [Exclusive(lease=60 * MINUTE), Session(), resume_limit(forgives=forgives), *policies],
            self.store,
            self.clock,
        )
        self.session = CommandSession(UNIT, self.governor, folder)
        self.number = 0
        self.reporter: Reporter | None = None

    def begin(self) -> dict[str, str]:
        """A run begins; what it is told."""
        self.number += 1
        start, rows = self.session.open(Start(unit="work", run=str(self.number)))
        assert self.governor.submit(start, rows).proceeds
        self.reporter = Reporter(self.governor, "work", start.run, session=self.session)
        return dict(self.session.begin())

    def write(self, text: str) -> None:
        """The command writes its file."""
        Path(self.session.begin()["FLYBALL_CHECKPOINT"]).write_text(text)

    def say(self, key: str, **said: Any) -> dict[str, Any]:
        """The run says something; the answer."""
        answers: list[bytes] = []

        async def speak() -> None:
            assert self.reporter is not None
            self.reporter.hear(Message(((f"X_FLYBALL_{key}", json.dumps(said)),), answer=answers.append))
            await self.reporter.settled()

        asyncio.run(speak())
        found: dict[str, Any] = json.loads(answers[0])
        return found

    def keep(self, text: str, stage: str = "") -> dict[str, Any]:
        """The run keeps that as its checkpoint."""
        self.write(text)
        return self.say("CHECKPOINT", stage=stage)

    def end(self, cause: Cause = Cause.ERROR) -> Ending:
        """The run ends, by itself with that cause."""
        assert self.reporter is not None
        ending = self.reporter.judged(Ending(cause, code=0 if cause.done else 3))
        self.governor.submit(
            Exited(
                unit="work",
                run=str(self.number),
                cause=ending.cause,
                pause=ending.pause,
                resume_at=ending.resume_at,
                progress=ending.progress,
            )
        )
        return ending

    @property
    def kept(self) -> list[str]:
        """The stages of the checkpoints that are kept."""
        return [kept.stage for kept in checkpoints.read_index(self.store, "work")]

    def events(self, kind: type[Event]) -> list[Event]:
        """Those of the journal."""
        found = (decode_body(entry.body).event for entry in self.store.entries())
        return [event for event in found if isinstance(event, kind)]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Nothing ran yet."""
    return Scene(tmp_path)


def content(env: dict[str, str]) -> str:
    """What a run finds in its file."""
    return Path(env["FLYBALL_CHECKPOINT"]).read_text()


def test_from_the_first_run_to_the_next_work(scene: Scene) -> None:
    """The first run finds an empty file, a resumed one the last checkpoint and its number; a checkpoint counts as one
    step of its stage's name. When the work is done its checkpoints stay, until new work begins."""
    env = scene.begin()
    assert env.keys() == {"FLYBALL_SESSION", "FLYBALL_CHECKPOINT"}
    assert (env["FLYBALL_SESSION"], content(env)) == ("work", "")
    assert scene.keep("a", "one") == {"verb": "proceed", "reasons": []}
    assert scene.keep("b", "two")["verb"] == "proceed"
    scene.end()
    env = scene.begin()
    assert (env["FLYBALL_RESUMED"], env["FLYBALL_CHECKPOINT_ID"], content(env)) == ("1", "2", "b")
    assert [step.pattern for stepped in scene.events(Stepped) for step in stepped.done] == ["one", "two"]  # type: ignore[attr-defined]
    scene.end(Cause.DONE)
    assert scene.kept == ["one", "two"]
    env = scene.begin()
    assert ("FLYBALL_RESUMED" in env, content(env), scene.kept) == (False, "", [])


def test_resumed_without_a_checkpoint(scene: Scene) -> None:
    """It fell over before it kept any: it is resumed, from the beginning."""
    scene.begin()
    assert not scene.end().progress
    env = scene.begin()
    assert (env["FLYBALL_RESUMED"], "FLYBALL_CHECKPOINT_ID" in env, content(env)) == ("1", False, "")


def test_the_one_that_was_chosen(scene: Scene) -> None:
    """A person chose an older checkpoint: the next resume goes on from that, and only that one does."""
    scene.begin()
    scene.keep("a", "one")
    scene.keep("b", "two")
    scene.end()
    scene.governor.submit(Exited(unit="other", cause=Cause.DONE), checkpoints.choose("work", "1"))
    env = scene.begin()
    assert (env["FLYBALL_CHECKPOINT_ID"], content(env)) == ("1", "a")
    assert [resume.checkpoint for resume in scene.events(Resume)] == ["1"]  # type: ignore[attr-defined]
    scene.end()
    assert content(scene.begin()) == "b"


def test_a_chosen_one_that_is_gone(scene: Scene) -> None:
    """It is an error, and nothing is lost by it: not what is kept, nor, for the next resume, the last good one."""
    scene.begin()
    scene.keep("a", "one")
    scene.end()
    scene.governor.submit(Exited(unit="other", cause=Cause.DONE), checkpoints.choose("work", "7"))
    with pytest.raises(FlyballError, match="work has no checkpoint '7'"):
        scene.begin()
    assert scene.kept == ["one"]
    scene.end()
    assert content(scene.begin()) == "a"


def test_what_cannot_be_written(scene: Scene, tmp_path: Path) -> None:
    """There is no place for the file: an error with its path, and what to do."""
    (tmp_path / "work").write_text("no folder")
    with pytest.raises(
        FlyballError, match=r"cannot write the checkpoint file .*/work/checkpoint: File exists"
    ) as raised:
        scene.begin()
    assert "FLYBALL_STATE_DIR" in raised.value.remedy


def test_it_is_on_disk_when_it_is_answered(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that was made gates nothing and does not wait for the disk; a checkpoint does."""
    scene.begin()
    synced: list[bool] = []
    transact = scene.store.transact

    def spy(keys: Sequence[Key], draft: Drafter, *, sync: bool = True) -> Entry | None:
        synced.append(sync)
        return transact(keys, draft, sync=sync)

    monkeypatch.setattr(scene.store, "transact", spy)
    scene.say("STEPPED", pattern="p")
    scene.keep("a", "one")
    assert synced == [True, False, True, True], "leave and step, leave and checkpoint"


@pytest.mark.parametrize("cause", [Cause.DONE, Cause.ERROR])
def test_a_pause(cause: Cause, scene: Scene) -> None:
    """S2-01: whatever its exit code, a run that said so paused: until the time that it named, and with what it kept."""
    scene.begin()
    scene.keep("a")
    assert scene.say("PAUSE", reason="rate_limit", after=90)["verb"] == "proceed"
    ending = scene.end(cause)
    at = scene.clock.now() + 90 * SECOND
    assert (ending.cause, ending.pause, ending.resume_at, ending.progress) == (Cause.STOPPED, "rate_limit", at, True)
    assert (ending.fingerprint, ending.code) == ("", 0 if cause.done else 3)
    asked, _ = scene.session.open(Start(unit="work", run="r"))
    assert scene.governor.look(asked).until == at


def test_a_pause_of_a_length_that_is_not_said(scene: Scene) -> None:
    """It is as long as the settings say."""
    scene.begin()
    scene.say("PAUSE", reason="usage_limit")
    assert scene.end().resume_at == 0
    asked, _ = scene.session.open(Start(unit="work", run="r"))
    assert scene.governor.look(asked).until == scene.clock.now() + MINUTE


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "no reason": ("PAUSE", {}, "missing required field `reason`"),
    "a reason that is no name": ("PAUSE", {"reason": "rate limit\n"}, "is no name"),
    "a time for a person": ("PAUSE", {"reason": "person", "after": 5}, "leave `after` out"),
    "before now": ("PAUSE", {"reason": "x", "after": -1}, "after: -1"),
    "beyond a year": ("PAUSE", {"reason": "x", "after": PAUSE_MAX / SECOND + 1}, "is not from 0 to"),
    "an unknown field": ("PAUSE", {"reason": "x", "until": 5}, "unknown field `until`"),
    "a stage that is no text": ("CHECKPOINT", {"stage": 5}, "Expected `str`"),
    "an empty file": ("CHECKPOINT", {}, "is empty"),
}


@pytest.mark.parametrize("name", BAD)
def test_reports_that_cannot_be_used(name: str, scene: Scene) -> None:
    """Each is answered with what is wrong, and nothing of it counts."""
    key, said, text = BAD[name]
    scene.begin()
    before = len(scene.store.entries())
    assert text in scene.say(key, **said)["error"]
    assert len(scene.store.entries()) == before
    assert scene.end() == Ending(Cause.ERROR, code=3)


@pytest.mark.parametrize("key", ["PAUSE", "CHECKPOINT"])
def test_only_sessions(key: str, scene: Scene) -> None:
    """A unit that is no session is told how to become one."""
    scene.begin()
    scene.reporter = Reporter(scene.governor, "work", "1")
    said = {"reason": "x"} if key == "PAUSE" else {}
    assert "`kind: session`" in scene.say(key, **said)["error"]


def test_a_checkpoint_over_the_step_limit_is_kept(tmp_path: Path) -> None:
    """The stage was made, so what it came to is kept, and the run is ended: nothing is lost."""
    scene = Scene(tmp_path, Limit(most=1, by="unit"))
    scene.begin()
    assert scene.keep("a", "one")["verb"] == "proceed"
    answer = scene.keep("b", "two")
    assert (answer["verb"], answer["reasons"][0]["code"]) == ("stop", "max_steps")
    assert scene.kept == ["one", "two"]


def test_a_stage_that_was_asked_for_is_not_counted_twice(tmp_path: Path) -> None:
    """Ask for the stage by its name, and its checkpoint is that step."""
    scene = Scene(tmp_path, Limit(most=1, by="unit"))
    scene.begin()
    assert scene.say("STEP", pattern="one")["verb"] == "proceed"
    assert scene.keep("a", "one")["verb"] == "proceed"
    assert scene.say("STEP", pattern="two")["verb"] == "stop"


@pytest.mark.parametrize("forgives", [True, False])
def test_progress(forgives: bool, tmp_path: Path) -> None:
    """A resume that kept a checkpoint is forgiven, if so set: then long work does not fail for its many pauses."""
    scene = Scene(tmp_path, forgives=forgives)
    granted = 0
    for number in range(10):
        start, _ = scene.session.open(Start(unit="work", run=str(number + 1)))
        if not scene.governor.look(start).proceeds:
            break
        scene.begin()
        granted += 1
        scene.keep(str(number))
        scene.end()
    assert granted == (10 if forgives else 4)
