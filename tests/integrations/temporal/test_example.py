"""The example shows what it says."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "temporal"


@pytest.mark.slow
def test_the_example(tmp_path: Path) -> None:
    """Three starts, a hold that says what to do, and one more start when a person said so."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    before, _, after = done.stdout.partition("Attempt limit of the activity reached (4/3)")
    assert (before.count("thinks about flies"), after.count("thinks about flies")) == (3, 1)
    assert "all about flies" in after
