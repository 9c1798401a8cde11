"""`flyball demo`, whole: a real daemon, real children, a real journal; and nothing is left of it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from flyball.demo.cast import everybody, install, is_installed
from flyball.scratch import MARK, is_alive, wait

COMMAND: Final = (sys.executable, "-m", "flyball", "demo")
WITHIN: Final = 240.0
"""Seconds for a tour and its end. On a quiet machine it takes 40."""
TAKEN_OUT: Final = Path(__file__).parent / "taken_out"
HIDDEN: Final = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in ("cel", "langgraph") else found(name, package)
"""
"""A Python that has not what two of the extras bring."""

pytestmark = pytest.mark.slow


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the demo makes its folder. Its path is short, for it is part of the addresses of sockets."""
    with tempfile.TemporaryDirectory(prefix="fb-") as name:
        yield Path(name).resolve()


def env(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder), **more}


def left(folder: Path) -> list[str]:
    """What is left there: files, and processes that were started there."""
    mark = f"{MARK}={folder}/".encode()
    processes = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes() and is_alive(int(entry.name)):
                processes.append((entry / "cmdline").read_text())
        except OSError:
            continue
    return [*processes, *map(str, folder.iterdir())]


def test_once(folder: Path) -> None:
    """Each unit ends in the state that it should, for the reason that it should; nothing is left behind. Where a
    person has to do something, there is a command for it."""
    command = [*COMMAND, "--once", "--json"]
    done = subprocess.run(command, env=env(folder), capture_output=True, text=True, timeout=WITHIN, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert said["ok"]
    there = [member for member in everybody("", in_browser=False) if not member.extra or is_installed(member.extra)]
    assert [member["name"] for member in said["members"]] == [member.name for member in there]
    for got, wanted in zip(said["members"], there, strict=True):
        assert set(got["units"].values()) == {wanted.state}, got
        assert got["code"] == wanted.code, got
        assert bool(got["type"]) == (wanted.state not in ("healthy", "finished")), got
    # The narration is of these very units, and the circuit was seen to open, to try, and to close.
    for told in ("Maximum resume attempts exceeded (4/3)", "5 flaps in a row", "the limit is 6", "no sign of life for"):
        assert told in done.stderr
    for told in ("circuit           opens: 5 failures", "opens again", "half-open", "closes"):
        assert told in done.stderr
    assert left(folder) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_told_to_end(folder: Path, number: signal.Signals) -> None:
    """Ctrl-C, SIGTERM and the end of a terminal, in the midst of the tour, leave nothing behind: no process, no
    folder."""
    with subprocess.Popen([*COMMAND, "--once"], env=env(folder), stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert any("failure 1 of " in line for line in demo.stdout)
        assert left(folder) != []
        demo.send_signal(number)
        demo.stdout.read()
        assert demo.wait(WITHIN) == 128 + number
    assert left(folder) == []


def test_killed(folder: Path) -> None:
    """Not even a kill -9 of the demo leaves anything behind."""
    with subprocess.Popen([*COMMAND, "--once"], env=env(folder), stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert any("failure 1 of " in line for line in demo.stdout)
        demo.kill()
    wait(lambda: left(folder) == [], WITHIN, "an empty folder")


def test_without_a_safeguard(folder: Path) -> None:
    """A flyball whose quarantine does nothing fails its own demo: it exits 1, and says of which unit."""
    path = os.pathsep.join([str(TAKEN_OUT), *sys.path])
    done = subprocess.run(
        [*COMMAND, "--once", "--http", "off"],
        env=env(folder, PYTHONPATH=path),
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "not as it should: invoice-parser: invoice-parser is halted, not quarantined" in done.stderr
    assert left(folder) == []


def test_left_out(folder: Path) -> None:
    """A unit whose extra is not installed is left out, and the tour says so with the command."""
    (folder / "path").mkdir()
    (folder / "path" / "sitecustomize.py").write_text(HIDDEN)
    (folder / "tmp").mkdir()
    command, path = [*COMMAND, "--once"], os.pathsep.join([str(folder / "path"), *sys.path])
    with subprocess.Popen(command, env=env(folder / "tmp", PYTHONPATH=path), stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        lines = [line for line, _ in zip(demo.stdout, range(20), strict=False)]
        demo.send_signal(signal.SIGINT)
        demo.stdout.read()
    for name, extra in (("buy-tea", "rules"), ("board@strategy", "langgraph")):
        assert any(line.startswith(f"  {name}") and install(extra) in line for line in lines), lines
    assert left(folder / "tmp") == []
