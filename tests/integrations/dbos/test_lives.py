"""Workers that die: a workflow whose step kills its own worker, and workers that are killed from outside.

`FLYBALL_KILLS` sets how many kills there are in the campaign, `FLYBALL_SEED` which ones.
"""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from flyball import app
from flyball.core.codec import decode_body, decode_state
from flyball.core.event import Cause, Exited
from flyball.core.policy import Key
from flyball.governor import Governor
from flyball.integrations.dbos.options import BELT_ABOVE
from flyball.policies.budget import State as Spent
from flyball.policies.limit import State as Count
from flyball.store import Store
from tests.integrations.dbos.program import COST, PAYS, Life, Plan, settings_of, sqlite_url

pytestmark = pytest.mark.slow  # real servers, and workers that are killed

FAILED = "max_resume_attempts_exceeded"
ROOT = Path(__file__).parents[3]
KILLS = int(os.environ.get("FLYBALL_KILLS", "5"))
SEED = os.environ.get("FLYBALL_SEED", "1")

places = pytest.mark.parametrize("where", ["sqlite", "postgres"])


def plan_on(where: str, folder: Path, request: pytest.FixtureRequest, **how: object) -> Plan:
    """On SQLite each life has the executor id of the one before it, as DBOS recovers it; on PostgreSQL each has its
    own, and takes over."""
    if where == "sqlite":
        return Plan(str(folder), sqlite_url(folder), **how)  # type: ignore[arg-type]  # passed on as it is
    dsn = request.getfixturevalue("dsn")
    return Plan(str(folder), dsn, dsn, new_executors=True, **how)  # type: ignore[arg-type]  # as above


def play(plan: Plan) -> list[Life]:
    """Lives of a program, until one comes to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integrations.dbos.program", json.dumps(asdict(plan))],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60 + 20 * plan.lives,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Life(**life) for life in json.loads(done.stdout)]


def opened(plan: Plan) -> Store:
    """The store that the lives left behind."""
    return app.open_store(settings_of(plan), {"FLYBALL_STATE_DIR": plan.folder})


@places
def test_kills_its_own_worker(where: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Under a loop that restarts its worker for ever it ends at the resume limit exactly, is held, and says why."""
    plan = plan_on(where, tmp_path, request, resumes=2, again=1)
    lives = play(plan)
    *died, last, again = lives
    assert [life.code for life in died] == [-9] * 3
    assert all(life.lines[-1] == "step w1 die" for life in died)
    assert Counter(line for life in lives for line in life.lines)["step w1 begin"] == 1, "the first step is replayed"
    assert last.code == 0
    assert "begun w1" not in last.lines, "no code of the workflow runs any more"
    assert last.lines[-2:] == [f"refused w1 {FAILED} HOLD 3 2 {FAILED}", "over"]
    with opened(plan) as store:  # type: ignore[attr-defined]  # every store is a context
        key = Key("resumes", "unit", "dies@w1")
        assert decode_state(Count, store.read([key]).records[key]).count == 2
        assert Governor((), store).live_runs() == []
    assert again.lines == last.lines[-2:], "it stays so, however often the worker is started"


def test_without_the_guard(tmp_path: Path) -> None:
    """The same workflow, with DBOS alone, does not end there."""
    lives = play(Plan(str(tmp_path), sqlite_url(tmp_path), guarded=False, lives=4))
    assert [life.code for life in lives] == [-9] * 4


def test_second_belt(tmp_path: Path) -> None:
    """A worker that dies between the end of a run and DBOS' record of it was done each time, so that is no resume.
    DBOS' own limit ends it, and the step is made once."""
    lives = play(Plan(str(tmp_path), sqlite_url(tmp_path), workflow="ends", resumes=0))
    assert [life.code for life in lives] == [-9] * (1 + BELT_ABOVE) + [0]
    assert lives[-1].lines == ["given up w1", "over"]
    assert Counter(line for life in lives for line in life.lines)["step w1 begin"] == 1


@places
def test_killed_at_any_instant(where: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """No money is spent that was not counted, no execution is more than allowed, and a dead worker's workflows are
    taken over once."""
    plan = plan_on(where, tmp_path, request, workflow="spends")
    dice = random.Random(SEED)
    killed, ends = 0, Counter[str]()
    while killed < KILLS:
        names = tuple(f"w{killed}-{number}" for number in range(4))
        kills = dice.randint(1, plan.resumes) if killed else plan.resumes + 1
        lives = play(replace(plan, ids=names, kills=kills, seed=f"{SEED} {killed}"))
        assert lives[-1].lines[-1] == "over", lives
        with opened(plan) as store:  # type: ignore[attr-defined]  # every store is a context
            for name in names:
                ends[check(plan, lives, name, store)] += 1
            entries = store.entries(limit=100_000)
            assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1)), "no gap"
        deaths = sum(life.code == -9 for life in lives)
        assert deaths, "some were killed"
        killed += deaths
    assert ends["done"], f"some come to their end: {ends}"


def check(plan: Plan, lives: Sequence[Life], name: str, store: Store) -> str:
    """What the lives said of one workflow fits what was counted. How it ended."""
    lines = Counter(line for life in lives for line in life.lines)
    # Who dies between the end of a run and DBOS' record of it is begun once more, after it was done: that is no resume.
    exits = [decode_body(entry.body).event for entry in store.entries(unit=f"spends@{name}", events=("exited",))]
    done = sum(isinstance(event, Exited) and event.cause is Cause.DONE for event in exits)
    assert lines[f"begun {name}"] <= 1 + plan.resumes + done
    paid = [lines[f"step {name} pay{number}"] for number in range(PAYS)]
    key = Key("budget", "unit", f"spends@{name}")
    counted = decode_state(Spent, store.read([key]).records.get(key, b"{}"))
    assert sum(paid) * round(float(COST) * 1_000_000) <= counted.spent + counted.reserved
    for number, life in enumerate(lives):
        taken = [line for line in life.lines if line.startswith("took") and name in line.split()]
        assert len(taken) <= 1, f"life {number}: {taken}"
    if lines[f"done {name} spent"]:
        assert all(paid)
        return "done"
    assert any(line.startswith(f"refused {name} {FAILED}") for line in lives[-1].lines), lives[-1].lines
    return "failed"
