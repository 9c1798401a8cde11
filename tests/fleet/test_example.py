"""The example of a fleet runs with one command, ends by itself, and leaves nothing behind."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "fleet" / "three_hosts.py"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a PostgreSQL that refuses to run as root can go in."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o711)
        yield Path(made)


@pytest.mark.slow
def test_three_hosts(folder: Path) -> None:
    """One host of three loses its power, one is frozen past its lease and thawed: both times 30 units run again, none
    twice at an instant, none for free."""
    before = set(Path("/proc").iterdir())
    env = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, str(SCRIPT), "--lease", "3"]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for seen in ("30 units run on three hosts", "took over from north", "doubles: 0", "free starts: 0"):
        assert seen in done.stdout
    assert not list(folder.iterdir())
    assert [path for path in set(Path("/proc").iterdir()) - before if _is_of(path, folder)] == []


def _is_of(path: Path, folder: Path) -> bool:
    """A process that was started by it."""
    try:
        return f"TMPDIR={folder}".encode() in (path / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
