"""A state folder for the commands, without variables of whoever runs the tests."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.control.scene import Scene, scene_in

PYTHON = sys.executable


def alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in that folder, with states in a folder of its own that is not there yet."""
    for name in [name for name in os.environ if name.startswith("FLYBALL_")]:
        monkeypatch.delenv(name)
    for name in ("MAX_COST_PER_SESSION", "DELIBERATION_TIMEOUT_SECONDS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    states = folder / "states"
    monkeypatch.setenv("FLYBALL_STATE_DIR", str(states))
    return states


@contextmanager
def scene(states: Path) -> Iterator[Scene]:
    """Make a past in that folder."""
    made = scene_in(states)
    try:
        yield made
    finally:
        made.governor.store.close()


def spawn(*arguments: str) -> "subprocess.Popen[str]":
    """The real command, in a process of its own."""
    return subprocess.Popen(
        [PYTHON, "-u", "-m", "flyball", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """End it; what it printed and has not been read yet."""
    process.terminate()
    return process.communicate(timeout=10)
