"""`flyball demo`, whole: a real daemon, real children, a real journal; and nothing is left of it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import pytest

from flyball.demo.cast import everybody, install, is_installed
from flyball.runtimes.rule.browser import VARIABLE
from flyball.scratch import wait
from flyball.sweeper import MARK, is_alive

COMMAND: Final = (sys.executable, "-m", "flyball", "demo")
WITHIN: Final = 240.0
"""Seconds for a tour and its end. On a quiet machine it takes 40."""
CHANGED: Final = os.pathsep.join([str(Path(__file__).parent / "changed"), *sys.path])
"""A path on which every Python finds a demo of a few, to save time, and what else is changed."""
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
    done = subprocess.run(
        [*COMMAND, "--once", "--http", "off"],
        env=env(folder, PYTHONPATH=CHANGED, DEMO_CAST="mail-triage,invoice-parser", DEMO_WITHOUT_QUARANTINE="yes"),
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "not as it should: invoice-parser: invoice-parser is halted, not quarantined" in done.stderr
    assert left(folder) == []


def test_stays(folder: Path) -> None:
    """On a terminal it stays up when the tour is over, and can be played with from another one; what is done there is
    told. Ctrl-C ends it, well if the tour went well. Without a browser the rule is an HTTP request."""
    here, there = pty.openpty()
    given = env(folder, PYTHONPATH=CHANGED, COLUMNS="200", DEMO_CAST="mail-triage,buy-tea", **{VARIABLE: "none"})
    with (
        subprocess.Popen([*COMMAND, "--no-open"], env=given, stdin=there, stdout=there) as demo,
        os.fdopen(here, "rb") as screen,
    ):
        os.close(there)
        late = threading.Timer(WITHIN, demo.kill)
        late.start()
        text = until(screen, rb"Ctrl-C ends it")
        assert b"answered 404" in text
        assert install("browser,rules").encode() in text
        [state] = re.findall(rb"export FLYBALL_STATE_DIR=(\S+)", text)
        play = [sys.executable, "-m", "flyball", "pause", "mail-triage"]
        subprocess.run(play, env=env(folder, FLYBALL_STATE_DIR=state.decode()), capture_output=True, check=True)
        until(screen, rb"asked to pause .*mail-triage paused")
        demo.send_signal(signal.SIGINT)
        until(screen, rb"nothing is left behind")
        assert demo.wait() == 0
        late.cancel()
    assert left(folder) == []


def until(screen: BinaryIO, pattern: bytes) -> bytes:
    """Read until that was said; all that was said."""
    said = b""
    for line in screen:
        said += line
        if re.search(pattern, line):
            return said
    raise AssertionError(said.decode())


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
