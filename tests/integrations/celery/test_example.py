"""The example runs with one command, and ends by itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.valkey import valkey

EXAMPLE = Path(__file__).parents[3] / "examples" / "celery" / "poison.py"

OFTEN = """
from celery.concurrency.asynpool import AsynPool
AsynPool.timers = property(lambda pool: {pool.maintain_pool: 0.1})
"""
"""Celery may notice a dead child only when it looks after its pool, which is every 5 s. The test does not wait."""


@pytest.mark.slow
def test_the_example_ends_at_the_limit(tmp_path: Path) -> None:
    """The message that kills its worker is begun three times and fails with the reason; the others are done."""
    (tmp_path / "sitecustomize.py").write_text(OFTEN)
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "POISON_FOLDER": str(tmp_path)}
    with valkey() as server:
        done = subprocess.run(
            [sys.executable, str(EXAMPLE)],
            env={**env, "CELERY_BROKER_URL": server.url()},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    assert done.returncode == 0, (done.stdout, done.stderr, (tmp_path / "worker.log").read_text())
    assert "huge.png: begun 3 times, FAILURE" in done.stdout
    assert "flyball resume resize" in done.stdout
    assert "three.png: begun 1 times, SUCCESS" in done.stdout
