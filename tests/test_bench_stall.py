"""The bench of the stall policy measures what it says: its rules, its shares, and that it asks as the governor asks."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench import stall
from bench.stall import GeminiCli, OpenHands, Ours, Score

from flyball.core.decision import Verb
from flyball.core.event import Start, Stepped, Work
from flyball.core.panel import Panel
from flyball.governor import Governor
from flyball.replay.recorded import BEGIN, LASTS, RecordedRun, RecordedStep
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock

ROOT = Path(__file__).parents[1]


def steps(text: str) -> list[Work]:
    """`a1 b!2`: calls with their results, `!` is an error."""
    return [Work(pattern="t", call=word[0], result=word[-1], error="!" in word) for word in text.split()]


@pytest.mark.parametrize(
    ("kind", "text", "at"),
    [
        (OpenHands, "a1 a1 a1 a1", 4),
        (OpenHands, "a1 a1 a2 a1 a1", None),
        (OpenHands, "a!1 a!2 a!3", 3),
        (OpenHands, "a!1 b!1 a!1", None),
        (OpenHands, "a1 b2 a1 b2 a1 b2", 6),
        (OpenHands, "a1 b2 a1 b2 a1 b3", None),
        (GeminiCli, "a1 a2 a3 a4 a5", 5),
        (GeminiCli, "a1 a2 b1 a3 a4 a5", None),
    ],
)
def test_rules_of_the_others(kind: Any, text: str, at: int | None) -> None:
    """As their projects describe them."""
    assert stall.watched(kind)(RecordedRun(steps=[]), steps(text)) == at


@pytest.mark.parametrize(
    ("rewards", "end", "expected"),
    [
        ((0, 0, 0, 0), 2, (1, 0, 2, 3)),
        ((0, 0, 1, 0), 2, (1, 1, 0, 1)),
        ((1, 0, 1, 0), 2, (1, 0, 2, 3)),
        ((0, 1, 0, 0), 4, (0, 0, 0, 2)),
        ((0, 1, 0, 0), None, (0, 0, 0, 2)),
    ],
    ids=str,
)
def test_shares(rewards: tuple[float, ...], end: int | None, expected: tuple[int, ...]) -> None:
    """A later step that gets further is a lost win; otherwise all later steps are saved. A stop at the end is none."""
    score = Score()
    score.add(RecordedRun(steps=[RecordedStep(reward=reward) for reward in rewards]), end)
    assert (score.fires, score.lost, score.saved, score.idle) == expected


RUNS = [
    "a1 a1 a1 a1 a1",
    "a!1 b!2 a!1 b!2 a!1 b!2",
    "a1 b2 c3 a1 b2 c3 a1 b2 c3",
    "a!1 b!1 c!1 d!1 e!1 f!1 g!1 h!1 i!1",
    "a1 b2 c3 d4 a1 e5 a1 f6 a1",
    "a!1 a!1 a2 b!1 b!1 b2 c!1 c!1 c2",
]
"""The last two get somewhere."""


@pytest.mark.parametrize("text", RUNS)
def test_ours_is_what_the_governor_says(text: str) -> None:
    """At every step, the same as a governor with the same policies on a store."""
    policies = stall.agent_policies()
    ours, clock = Ours(Panel(policies)), FakeClock(BEGIN)
    governor = Governor(policies, MemoryStore(), clock)
    governor.submit(Start(unit="agent", run="1"))
    answers = []
    for work in steps(text):
        clock.move(LASTS)
        said = governor.submit(Stepped(unit="agent", run="1", done=(work,))).verb >= Verb.FINISH
        assert ours.stops(work) is said
        answers.append(said)
    assert any(answers) is (text in RUNS[:-2])


def recorded(folder: Path, *, zipped: bool) -> Path:
    """A file of runs, some in circles."""
    lines = []
    for number in range(40):
        text = RUNS[number % len(RUNS)]
        made = [
            {
                "tool": "t",
                "args": word[0],
                "result": word[-1],
                "error": "!" in word,
                "reward": float(place == number % 9),
            }
            for place, word in enumerate(text.split())
        ]
        lines.append(json.dumps({"source": "test", "run": str(number), "steps": made}))
    path = folder / ("runs.jsonl.gz" if zipped else "runs.jsonl")
    data = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(data) if zipped else data)
    return path


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("how", [["bench/stall.py"], ["-m", "bench.stall"]], ids=["script", "module"])
def test_the_command(tmp_path: Path, how: list[str], zipped: bool) -> None:
    """As a script and as a module, on any file of that form; the halves make up the whole."""
    path = recorded(tmp_path, zipped=zipped)
    command = [sys.executable, *how, str(path), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    detectors = json.loads(done.stdout)["detectors"]
    assert len(detectors) == 10
    for score in detectors.values():
        assert score["runs"] == 40 == sum(half["runs"] for half in score["halves"])
        assert score["fires"] == sum(half["fires"] for half in score["halves"])
    assert detectors["default: nudge 4, refuse 5, stop 6"]["fires"] > detectors["Gemini CLI's loop detection"]["fires"]


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line a detector; a broken file is an error with its line."""
    path = recorded(tmp_path, zipped=False)
    assert stall.main([str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("40 runs, ")
    assert "OpenHands' stuck detector" in out
    path.write_text(path.read_text() + "\n{")
    assert stall.main([str(path)]) == 2
    assert f"{path}:41: " in capsys.readouterr().err
    assert stall.main([str(path), "--skip-broken"]) == 0


def test_growth_is_timed_at_both_ends() -> None:
    """Both are times; what they say is not judged here, for a busy machine would judge with."""
    early, late = stall.growth(steps=3_000)
    assert early > 0
    assert late > 0
