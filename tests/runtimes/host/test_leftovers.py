"""Leftovers of an earlier daemon: real processes, known by their marks."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.runtimes import holder
from flyball.runtimes.host import leftovers
from tests.cli.running import until
from tests.daemon.site import has_ended

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

HOST = f"leftovers-{os.getpid()}"
GONE = f"{HOST}/{2**22 + 1}/1"


@pytest.fixture
def started() -> Iterator[dict[str, "subprocess.Popen[bytes]"]]:
    """A process for each mark."""
    marks = {
        "plain": f"{GONE}/daemon.1",
        "worker": f"{GONE}/daemon.1.worker",
        "kept": f"{GONE}/daemon/unit.3",
        "of a program": f"{GONE}.1",
        "of a unit named so": f"{GONE}/daemons.1",
        "of another host": f"x{GONE}/daemon.1",
        "of a living one": f"{holder.daemon(HOST)}.1",
        "of nobody": "",
    }
    made = {
        name: subprocess.Popen(
            ["sleep", "1000"], env={"FLYBALL_RUN": mark, "FLYBALL_UNIT": "unit", "PATH": "/bin:/usr/bin"}
        )
        for name, mark in marks.items()
    }
    yield made
    for process in made.values():
        process.kill()
        process.wait()


def test_what_is_ended(started: dict[str, "subprocess.Popen[bytes]"]) -> None:
    """All that a daemon of this host left that is gone, kept or not; and nothing of anybody else."""
    until(
        lambda: all(Path(f"/proc/{one.pid}/comm").read_text() == "sleep\n" for one in started.values()), "all of them"
    )
    assert leftovers.end(HOST) == 3
    assert {name for name, one in started.items() if has_ended(one.pid)} == {"plain", "worker", "kept"}
    assert leftovers.end(HOST) == 0
