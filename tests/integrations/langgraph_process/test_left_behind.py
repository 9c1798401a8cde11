"""A program is killed while its graph runs: what the graph started and had left its process group is ended by whoever
runs the thread next, before that run begins."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import os, subprocess, sys, time
from pathlib import Path
from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from flyball.integrations.langgraph import guard


class State(TypedDict):
    number: int


def node(state):
    if sys.argv[1] == "hang":
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        Path("left").write_text(str(child.pid))
        Path("left").rename("ready")
        time.sleep(600)
    return {"number": 1}


builder = StateGraph(State)
builder.add_node("node", node)
builder.add_edge(START, "node")
builder.add_edge("node", END)
guard(builder, checkpointer=InMemorySaver()).invoke({"number": 0}, {"configurable": {"thread_id": "one"}})
"""


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_next_run_ends_what_was_left(tmp_path: Path) -> None:
    """kill -9 of the program kills the graph at once, but not what had a session of its own; the next run does."""
    env = {**os.environ, "FLYBALL_STATE_DIR": str(tmp_path / "state")}
    command = [sys.executable, "-c", PROGRAM]
    program = subprocess.Popen([*command, "hang"], cwd=tmp_path, env=env)
    try:
        ends = time.monotonic() + 60
        while not (tmp_path / "ready").exists() and time.monotonic() < ends:
            time.sleep(0.05)
        left = int((tmp_path / "ready").read_text())
    finally:
        program.kill()
        program.wait()
    try:
        assert lives(left)
        subprocess.run([*command, "go"], cwd=tmp_path, env=env, check=True, timeout=60)
        assert not lives(left)
    finally:
        if lives(left):
            os.kill(left, signal.SIGKILL)
