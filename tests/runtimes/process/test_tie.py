"""Ties: what the kernel kills when nobody is left who looks after it."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.daemon.site import has_ended, until

PROGRAM: Final = """
import os, sys, time
from flyball.config.units import Unit
from flyball.runtimes.process import spawn
line, tie = os.pipe()
spawn.seal()
if sys.argv[2] == "tied":
    spawn.tie(line)
units = [
    Unit(name="quick", command=("/bin/sleep", "1000")),
    Unit(name="popen", command=("sleep", "1000"), cwd=sys.argv[1]),
    Unit(name="shell", command=("sh", "-c", "sleep 1000 & wait"), files_max=64),
]
pids = [spawn.spawn(unit, "r", (), {}, streams=(-1, -1, -1)) for unit in units]
print(*pids, len(os.listdir("/proc/self/fd")), flush=True)
time.sleep(1000)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel does it on Linux alone")
@pytest.mark.parametrize("how", ["tied", "not tied"])
def test_whoever_looks_after_it_is_killed(how: str, tmp_path: Path) -> None:
    """Every process group that was started dies with the last one who holds the other end of the line, however it was
    started; nothing of the line stays open in who started it."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path), how], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    *pids, files = map(int, process.stdout.readline().split())
    everybody = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    members = [pid for pid in everybody if _group(pid) in pids]
    try:
        assert len(members) >= len(pids)
        assert files < 12
        process.kill()
        process.wait()
        if how == "tied":
            until(lambda: all(has_ended(pid) for pid in members), "the end of all of them")
        else:
            assert not any(has_ended(pid) for pid in members)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        for pid in pids:
            if not has_ended(pid):
                os.killpg(pid, signal.SIGKILL)


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0
