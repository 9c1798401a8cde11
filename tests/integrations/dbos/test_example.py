"""The example runs with one command, and ends by itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "dbos" / "poison.py"


@pytest.mark.slow
def test_the_example_ends_at_the_limit(tmp_path: Path) -> None:
    """The step that kills its worker is begun four times, what came before it once, and the reason is told."""
    env = {name: value for name, value in os.environ.items() if name != "DBOS_SYSTEM_DATABASE_URL"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        env={**env, "POISON_FOLDER": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "Maximum resume attempts exceeded (4/3)" in done.stdout
    assert "downloaded 1 times, resized 4 times" in done.stdout
