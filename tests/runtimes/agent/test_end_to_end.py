"""Agents as people run them: a program of its own, a real store, the real command line beside it, and kill -9."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

WAIT_MAX = 30.0


class Program:
    """A script with agents, and the command line on its state folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "FLYBALL_STATE_DIR": str(folder / "state"), "NO_COLOR": "1"}
        self.running: list[subprocess.Popen[str]] = []

    def start(self, body: str) -> "subprocess.Popen[str]":
        """Run a script whose agents are in `body`."""
        script = self.folder / "program.py"
        head = "import asyncio, pathlib, sys, time\nimport flyball\nguard = flyball.open('program')\n"
        tail = "\nif __name__ == '__main__':\n    guard.run()\n    guard.close()\n"
        script.write_text(head + textwrap.dedent(body) + tail)
        process = subprocess.Popen(
            [sys.executable, str(script)], env=self.env, cwd=self.folder, stdout=subprocess.PIPE, text=True
        )
        self.running.append(process)
        return process

    def flyball(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """The command line."""
        command = [sys.executable, "-m", "flyball", *words]
        return subprocess.run(
            command, env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=60, check=False
        )

    def status(self, unit: str) -> dict[str, object]:
        """What `flyball status --json` says of a unit."""
        units = json.loads(self.flyball("status", "--json").stdout)["units"]
        found: dict[str, object] = next((one for one in units if one["name"] == unit), {})
        return found

    def wait_for(self, file: str) -> str:
        """Until an agent wrote that file; what is in it."""
        path = self.folder / file
        until = time.monotonic() + WAIT_MAX
        while not path.exists():
            assert time.monotonic() < until, f"{file} was not written"
            time.sleep(0.01)
        return path.read_text()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path)
    yield program
    for process in program.running:
        process.kill()
        process.communicate()


def test_memory_survives_kill_9(program: Program) -> None:
    """After kill -9 the memory is as it was after the last step that was made, and the lost run counts as a failure."""
    body = """
    @guard.agent("counter", grace=0.1)
    async def counter(ctx):
        pathlib.Path("seen").write_text(str(ctx.memory.get("count", 0)))
        while ctx.memory.get("count", 0) < 1000:
            async with ctx.step(f"count {ctx.memory.get('count', 0) % 50}"):
                ctx.memory["count"] = ctx.memory.get("count", 0) + 1
                if ctx.memory["count"] == 30 and not ctx.again:
                    pathlib.Path("thirty").write_text("")
                    await asyncio.sleep(3600)
            if ctx.again:
                ctx.give_up()
    """
    first = program.start(body)
    program.wait_for("thirty")
    first.send_signal(signal.SIGKILL)
    first.wait(WAIT_MAX)
    (program.folder / "seen").unlink()
    program.start(body)
    assert program.wait_for("seen") == "29"
    events = program.flyball("events", "--json").stdout
    assert '"lost"' in events


def test_a_person_answers(program: Program) -> None:
    """An agent asks, `flyball status` shows it, `flyball answer` answers it, and the agent goes on with the answer."""
    process = program.start("""
    @guard.agent("asker", idle=5)
    async def asker(ctx):
        pathlib.Path("asking").write_text("")
        answer = await ctx.ask_human("Deploy?", choices=["yes", "no"], timeout=60)
        pathlib.Path("answer").write_text(answer)
    """)
    program.wait_for("asking")
    until = time.monotonic() + WAIT_MAX
    while "Deploy?" not in program.flyball("status").stdout:
        assert time.monotonic() < until
    wrong = program.flyball("answer", "asker", "maybe")
    assert wrong.returncode == 2
    assert "yes" in wrong.stderr
    assert program.flyball("answer", "asker", "yes").returncode == 0
    assert program.wait_for("answer") == "yes"
    assert process.wait(WAIT_MAX) == 0


def test_orders_from_outside(program: Program) -> None:
    """`flyball pause` ends an agent of a running program at once; `flyball resume` lets it go on."""
    program.start("""
    @guard.agent("worker", grace=1)
    async def worker(ctx):
        pathlib.Path("up" if not pathlib.Path("up").exists() else "again").write_text("")
        await asyncio.sleep(3600)

    @guard.agent("other")
    async def other(ctx):
        await asyncio.sleep(3600)
    """)
    program.wait_for("up")
    assert program.flyball("pause", "worker").returncode == 0
    until = time.monotonic() + WAIT_MAX
    while program.status("worker")["running"]:
        assert time.monotonic() < until
    assert program.status("worker")["state"] == "paused"
    assert program.status("other")["running"]
    assert program.flyball("resume", "worker").returncode == 0
    program.wait_for("again")


def test_limits_given_in_code_are_shown(program: Program) -> None:
    """What only the program knows of an agent, such as its budget, the command line judges and shows by, too."""
    process = program.start("""
    @guard.agent("spender", budget="0.30")
    async def spender(ctx):
        async with ctx.step("model", cost="0.10"):
            pass
    """)
    assert process.wait(WAIT_MAX) == 0
    budgets = program.status("spender")["budgets"]
    assert [(one["limit"], one["spent"]) for one in budgets] == [(300_000, 100_000)]  # type: ignore[attr-defined]  # JSON


def test_ctrl_c_ends_in_order(program: Program) -> None:
    """S3-28: Ctrl-C ends all agents in order: their runs are stopped, not lost, and what they remember is kept."""
    process = program.start("""
    @guard.agent("worker")
    async def worker(ctx):
        async with ctx.step("first"):
            ctx.memory["n"] = 1
        try:
            pathlib.Path("up").write_text("")
            await asyncio.sleep(3600)
        finally:
            pathlib.Path("ended").write_text(str(ctx.memory["n"]))
    """)
    program.wait_for("up")
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_MAX) == 0
    assert program.wait_for("ended") == "1"
    assert program.status("worker")["last_exit"]["cause"] == "stopped"  # type: ignore[index]  # it is JSON


def test_second_ctrl_c_ends_what_hangs(program: Program) -> None:
    """An agent that blocks the loop for ever keeps nobody from ending the program: Ctrl-C twice, or SIGTERM twice."""
    process = program.start("""
    @guard.agent("worker")
    async def worker(ctx):
        pathlib.Path("up").write_text("")
        while True:
            pass
    """)
    program.wait_for("up")
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_MAX) == 128 + signal.SIGINT


def test_two_programs_run_an_agent_once(program: Program) -> None:
    """The same agent in two programs runs once; when the first is killed, the second takes over."""
    body = """
    @guard.agent("single")
    async def single(ctx):
        with open("lives", "a") as lives:
            lives.write("x")
        await asyncio.sleep(3600)
    """
    first = program.start(body)
    program.wait_for("lives")
    program.start(body)
    until = time.monotonic() + 1
    while time.monotonic() < until:
        assert program.wait_for("lives") == "x"
        time.sleep(0.1)
    first.kill()
    first.wait(WAIT_MAX)
    until = time.monotonic() + WAIT_MAX
    while program.wait_for("lives") == "x":
        assert time.monotonic() < until
        time.sleep(0.05)
    assert program.wait_for("lives") == "xx"
