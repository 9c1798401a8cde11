"""The judge of the fleet sees what he is there to see, and nothing else."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.daemon.site import until
from tests.fleet import witness
from tests.fleet.witness import NOTES, Life, lives, overlaps, spent


def _start(notes: Path, unit: str, run: str, *options: str) -> "subprocess.Popen[bytes]":
    env = {**os.environ, NOTES: str(notes), "FLYBALL_UNIT": unit, "FLYBALL_RUN": run}
    return subprocess.Popen([sys.executable, "-I", "-S", str(witness.__file__), *options], env=env)


def _lives(notes: Path, run: str) -> bool:
    return any(life.run == run and life.last > life.first for life in lives(notes))


def test_two_that_live_at_once(tmp_path: Path) -> None:
    """Two runs of a unit that live at the same instant are found, with both their names; one after another is fine,
    and so is another unit at the same time."""
    first = _start(tmp_path, "a", "one")
    until(lambda: _lives(tmp_path, "one"))
    other = _start(tmp_path, "b", "other")
    until(lambda: _lives(tmp_path, "other"))
    assert overlaps(lives(tmp_path)) == []
    second = _start(tmp_path, "a", "two")
    until(lambda: _lives(tmp_path, "two"))
    for process in (first, second, other):
        process.kill()
        process.wait()
    [found] = overlaps(lives(tmp_path))
    assert (found.unit, found.older.run, found.newer.run) == ("a", "one", "two")
    third = _start(tmp_path, "a", "three")
    until(lambda: _lives(tmp_path, "three"))
    third.kill()
    third.wait()
    assert len(overlaps(lives(tmp_path))) == 1


@pytest.mark.parametrize("thawed", [False, True])
def test_a_frozen_one(thawed: bool, tmp_path: Path) -> None:
    """Who is frozen and killed so does not live meanwhile; who is thawed while another lives, does."""
    first = _start(tmp_path, "a", "one")
    until(lambda: _lives(tmp_path, "one"))
    first.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WNOWAIT)
    last = max(life.last for life in lives(tmp_path))
    second = _start(tmp_path, "a", "two")
    until(lambda: _lives(tmp_path, "two"))
    if thawed:
        first.send_signal(signal.SIGCONT)
        until(lambda: any(life.run == "one" and life.last > last for life in lives(tmp_path)))
    for process in (first, second):
        process.kill()
        process.wait()
    assert len(overlaps(lives(tmp_path))) == thawed


@pytest.mark.parametrize(
    ("older", "newer", "at_once"),
    [((1, 5), (6, 9), 0), ((1, 6), (6, 9), 0), ((1, 7), (6, 9), 1), ((1, 20), (6, 9), 1), ((6, 9), (6, 9), 1)],
)
def test_intervals(older: tuple[int, int], newer: tuple[int, int], at_once: int) -> None:
    """Only instants that both are known to have lived at count; two processes of one run are one."""
    found = [Life("a", "one", 1, *older), Life("a", "two", 2, *newer)]
    assert len(overlaps(found)) == len(overlaps(found[::-1])) == at_once
    assert overlaps([life._replace(run="same") for life in found]) == []


def test_a_cut_line_and_a_number_given_out_again(tmp_path: Path) -> None:
    """A line that a kill cut off is none, and a pid that comes back is another process."""
    (tmp_path / "a").write_text("b 10 7 one\n. 11 7\nb 20 7 two\n. 22 7\n. 30 7")
    assert lives(tmp_path) == [Life("a", "one", 7, 10, 11), Life("a", "two", 7, 20, 22)]
    (tmp_path / witness.SPENT).write_text("10 a 5\n11 b 7\n")
    assert spent(tmp_path) == 12


def test_its_first_instant_is_its_making(tmp_path: Path) -> None:
    """It began when the kernel made it, not when it first had something to say."""
    before = witness.now()
    process = _start(tmp_path, "a", "one")
    made = witness.now()
    until(lambda: _lives(tmp_path, "one"))
    process.kill()
    process.wait()
    [life] = lives(tmp_path)
    assert before <= life.first <= made + witness.TICK
    assert life.last <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def test_its_child_is_of_the_same_run(tmp_path: Path) -> None:
    """A descendant in a session of its own bears witness too, for the same run."""
    process = _start(tmp_path, "a", "one", "--child")
    found = until(lambda: (len(told := lives(tmp_path)) == 2 and told) or [])
    assert {life.run for life in found} == {"one"}
    for life in found:
        os.kill(life.pid, signal.SIGKILL)
    process.wait()
