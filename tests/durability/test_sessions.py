"""kill -9 of programs with sessions, at random instants: in a stage, while a checkpoint is written, while a resume is.

Whatever the instant: nothing is lost but the stage in work, no resume is free, and every checkpoint can be loaded.
`FLYBALL_KILLS` sets how many kills there are at least, `FLYBALL_SEED` which ones.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from flyball.config import Settings
from flyball.config.definitions import Definitions
from flyball.core.codec import decode_state
from flyball.core.policy import Key
from flyball.governor import Governor
from flyball.policies.limit import State as Count
from flyball.replay import replay
from flyball.store import Entry, checkpoints
from flyball.store.sqlite import SqliteStore
from tests.durability import session_worker as worker

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("FLYBALL_KILLS", "60"))
SEED = os.environ.get("FLYBALL_SEED", "1")
SECONDS = 3_600 if "FLYBALL_KILLS" in os.environ else 60

pytestmark = pytest.mark.slow


class Life(NamedTuple):
    """What one process said, and how it ended."""

    lines: Sequence[str]
    code: int


def run(folder: Path) -> list[list[Life]]:
    """Sessions, each to its end: the lives of each."""
    conductor = subprocess.run(
        [sys.executable, "-m", "tests.durability.session_worker", str(folder), SEED, str(KILLS), str(SECONDS)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=2 * SECONDS + 120,
        check=False,
    )
    assert conductor.returncode == 0, conductor.stderr
    return [[Life(**life) for life in json.loads(line)] for line in conductor.stdout.splitlines()]


def test_killed_at_any_instant(tmp_path: Path) -> None:
    """Law 1 for sessions. (S2-02, S2-11, S2-25)"""
    sessions = run(tmp_path)
    deaths = Counter[str]()
    for lives in sessions:
        check_lives(lives)
        deaths.update(died_in(life) for life in lives if life.code == -9)
    check_store(tmp_path, sessions)
    assert {"its beginning", "a stage", "between"} <= deaths.keys(), f"killed at various instants: {deaths}"
    ends = Counter(lives[-1].lines[-1].split()[0] for lives in sessions)
    assert {"done", "failed"} <= ends.keys(), f"some were done, and some resumed too often: {ends}"


def check_lives(lives: Sequence[Life]) -> None:
    """What the processes of one session said fits together."""
    kept = reached = 0
    resumed = -1
    begun = 0
    for life in lives:
        assert life.code in (0, -9)
        for line in life.lines:
            word, *numbers = line.split()
            match word, [int(number) for number in numbers]:
                case "begun", [resumes, made]:
                    begun += 1
                    assert kept <= made <= reached, "nothing is lost but the stage in work"
                    assert resumes > resumed, "each resume is counted, and before the work goes on"
                    resumed = resumes
                    reached = kept = made
                case "stage", [number]:
                    assert number == reached + 1, "no stage is left out"
                    reached = number
                case "kept", [number]:
                    assert number == reached
                    kept = number
                case "failed", [attempts, most]:
                    assert (attempts, most) == (worker.RESUMES + 1, worker.RESUMES)
                case "done", []:
                    assert reached == worker.STAGES
                case "paused", []:
                    pass
                case _:
                    raise AssertionError(line)
    assert begun <= worker.RESUMES + 1
    assert resumed <= worker.RESUMES


def died_in(life: Life) -> str:
    """Where a process was when it was killed."""
    if not life.lines:
        return "its beginning"
    return "a stage" if life.lines[-1].startswith("stage") else "between"


def check_store(folder: Path, sessions: Sequence[Sequence[Life]]) -> None:
    """The file is sound, every decision in it comes out again, and every checkpoint can be loaded and is whole."""
    settings = Settings.model_validate(worker.SETTINGS)
    with SqliteStore(folder / "state.db") as store:
        assert store.integrity() == []
        governor = Governor(settings.policies(), store)
        Definitions().learn(governor, ())
        entries = all_entries(store)
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert [again for again in replay(governor.panel, store.base(), entries) if not again.agrees] == []
        for number, lives in enumerate(sessions):
            name = f"s{number}"
            index = checkpoints.read_index(store, name)
            for one in index:
                found = checkpoints.load(store, name, one.id)
                assert found is not None
                assert found.values["payload"] == worker.payload(found.values["made"])
            kept = max((int(line.split()[1]) for life in lives for line in life.lines if "kept" in line), default=0)
            newest = checkpoints.load(store, name)
            assert (newest.values["made"] if newest is not None else 0) >= kept
            failed = lives[-1].lines[-1].startswith("failed")
            key = Key("resumes", "unit", name)
            data = store.read([key]).records.get(key)
            assert (decode_state(Count, data).count if data else 0) == (worker.RESUMES if failed else 0)


def all_entries(store: SqliteStore) -> list[Entry]:
    found: list[Entry] = []
    while some := store.entries(after=found[-1].seq if found else 0):
        found += some
    return found
