"""The examples run, with one command each, and end by themselves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"

SAYS = {"agents/fleet.py": "held for a person", "agents/circles.py": "going_in_circles", "calls.py": ""}
"""What each is there to show."""

GUARDED = {"report/worker.py": "python", "report/worker.sh": "sh"}
"""Those that are run by `flyball run`."""

ELSEWHERE = {"agents/budget.py", "crash_loop.sh"}
"""Run where its law is tested; and by `make demo`."""


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
