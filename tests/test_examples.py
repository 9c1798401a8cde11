"""The examples run, with one command each, and end by themselves."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flyball.runtimes.rule.browser import find_browser

EXAMPLES = Path(__file__).parent.parent / "examples"

SAYS = {
    "agents/fleet.py": "held for a person",
    "agents/circles.py": "going_in_circles",
    "calls.py": "",
}
"""What each is there to show."""

GUARDED = {"report/worker.py": "python", "report/worker.sh": "sh"}
"""Those that are run by `flyball run`."""

ENDLESS = "graphs/endless.py"

RESUME_LOOP = "sessions/resume_loop.py"

BAD_SELECTOR = "bad_selector"

ELSEWHERE = {
    "agents/budget.py",
    "celery/poison.py",
    "dbos/poison.py",
    "send_webhook.py",
    "sessions/worker.sh",
    ENDLESS,
    RESUME_LOOP,
    *(f"{BAD_SELECTOR}/{name}.py" for name in ("__main__", "page")),
    *(f"deliberation/{name}.py" for name in ("__main__", "board", "model", "scripted")),
    *(f"temporal/{name}.py" for name in ("__main__", "worker")),
    *(f"fleet/{name}.py" for name in ("database", "three_hosts", "worker")),
}
"""Run where its law is tested, or by another example."""


def test_none_is_forgotten() -> None:
    """Every example is run by a test."""
    there = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*") if path.suffix in (".py", ".sh")}
    assert there == {*SAYS, *GUARDED, *ELSEWHERE}


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(GUARDED))
def test_guarded_example(script: str, tmp_path: Path) -> None:
    """Under a budget that is too small it is told to wrap up, and does."""
    here = Path(sys.executable).parent
    env = {**os.environ, "FLYBALL_STATE_DIR": str(tmp_path / "state"), "PATH": f"{here}:{os.environ['PATH']}"}
    guarded = [GUARDED[script], str(EXAMPLES / script)]
    command = [sys.executable, "-m", "flyball", "run", "--no-tty", "--name", "w", "--budget", "0.10", "--", *guarded]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "told to wrap up" in done.stdout, done.stdout + done.stderr
    assert "summary of one" in done.stdout
    assert "summary of six" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(SAYS))
def test_example(script: str, tmp_path: Path) -> None:
    """It ends with 0, says what it is there to show, and leaves nothing behind."""
    env = {**os.environ, "FLYBALL_STATE_DIR": str(tmp_path / "state")}
    command = [sys.executable, str(EXAMPLES / script)]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert SAYS[script] in done.stdout
    assert not list(tmp_path.iterdir())


LAYERS = {
    1: "layer 1 (steps) ended it: max_steps: Step limit reached (56/55)",
    2: "layer 2 (preflight) ended it",
    3: "layer 3 (rounds) ended it: max_rounds: round 7 of 7",
    4: "layer 4 (time) ended it: timeout",
    5: "layer 5 (money) ended it: cost_budget_exceeded: 0.99 USD spent",
}


@pytest.mark.slow
@pytest.mark.parametrize("layer", LAYERS)
def test_endless_graph(layer: int, tmp_path: Path) -> None:
    """S1-02, S1-44: each of the five layers ends a graph that never ends, with the other four out of its way."""
    env = {**os.environ, "FLYBALL_STATE_DIR": str(tmp_path / "state")}
    command = [sys.executable, str(EXAMPLES / ENDLESS), "--only-layer", str(layer)]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert LAYERS[layer] in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_resume_loop(tmp_path: Path) -> None:
    """S2-13, S2-26, S2-30: a session that always pauses fails at its fourth resume, and the command line shows it."""
    env = {**os.environ, "FLYBALL_STATE_DIR": str(tmp_path)}
    command = [sys.executable, str(EXAMPLES / RESUME_LOOP)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Maximum resume attempts exceeded (4/3)" in done.stdout
    shows = [sys.executable, "-m", "flyball", "sessions", "--json"]
    shown = subprocess.run(shows, env=env, capture_output=True, text=True, timeout=120, check=False)
    [session] = json.loads(shown.stdout)["sessions"]
    assert (session["status"], session["failure_reason"]) == ("failed", "max_resume_attempts_exceeded")
    assert session["resumes"] == {"used": 3, "max": 3}


NO_BROWSER = pytest.mark.skipif(find_browser(os.environ) is None, reason="no Chromium here: apt-get install chromium")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "error"),
    [pytest.param("", "SelectorNotFound: ", marks=NO_BROWSER), ("--no-browser", "HttpStatus: ")],
    ids=["browser", "no browser"],
)
def test_bad_selector(option: str, error: str, tmp_path: Path) -> None:
    """S0-42, S0-46: a rule with a bad selector climbs the ladder, is quarantined, stays so over a kill -9, is cleared
    by a change, and runs afresh: eight steps, each seen through the command line, and nothing is left of them."""
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, str(EXAMPLES / BAD_SELECTOR), *option.split()]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    numbers = [line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert numbers == [*"12345678", "All"]
    for seen in (error, "failure 5 of ", "is quarantined; 6 starts, as before", "cleared by change", "exited: done"):
        assert seen in done.stdout
    assert not list(tmp_path.iterdir())


def test_circle() -> None:
    """Two rules that fire each other for ever are refused, and the circle is drawn."""
    command = [sys.executable, "-m", "flyball", "check"]
    done = subprocess.run(command, cwd=EXAMPLES / "circle", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert "make-report -> send-report" in said
    assert "send-report -> make-report" in said
