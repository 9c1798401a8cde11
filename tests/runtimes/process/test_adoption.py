"""Adoption: a run that outlived its supervisor goes on under the next one, and no other process is taken for it."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flyball.config.units import OnSupervisorDeath
from flyball.core.event import Cause
from flyball.core.time import SECOND
from flyball.runtimes.process import ProcessHands, kernel, watch
from flyball.runtimes.process.kernel import Kernel
from tests.runtimes.process.stage import HANGS, Stage, is_alive, no_subreaper, run, until

SUPERVISOR = """
import asyncio, os, sys
from pathlib import Path
from flyball.config.units import OnSupervisorDeath, Unit
from flyball.runtimes.process import ProcessHands

async def main(name, folder, script):
    unit = Unit(name=name, command=("/bin/sh", "-c", script), cwd=folder, on_supervisor_death=OnSupervisorDeath.KEEP)
    life = await ProcessHands(unit, logs=Path(folder) / "logs").begin(f"{name}.1", again=False)
    print(life.pid, life.started, flush=True)
    os.kill(os.getpid(), 9)

asyncio.run(main(*sys.argv[1:]))
"""


def orphan(stage: Stage, script: str) -> tuple[int, int]:
    """A kept unit whose supervisor was killed: its pid and start time. It comes to whoever reaps orphans here."""
    done = subprocess.run(
        [sys.executable, "-c", SUPERVISOR, stage.name, str(stage.folder), script],
        stdout=subprocess.PIPE,
        check=False,
        timeout=20,
    )
    assert done.returncode == -signal.SIGKILL
    pid, started = map(int, done.stdout.split())
    return pid, started


def hands_of(stage: Stage) -> ProcessHands:
    return stage.shell("unused", on_supervisor_death=OnSupervisorDeath.KEEP)


WAITS = "echo up > up; read code < gate; echo late; exit $code"


@pytest.fixture
def gate(stage: Stage) -> Path:
    os.mkfifo(stage.folder / "gate")
    return stage.folder / "gate"


def open_gate(gate: Path, code: int) -> None:
    with gate.open("w") as file:
        file.write(f"{code}\n")


@pytest.mark.parametrize("ours", [True, False], ids=["come to us", "a stranger"])
@pytest.mark.parametrize("code", [0, 7])
def test_adopted_and_exits(stage: Stage, gate: Path, code: int, ours: bool) -> None:
    """It lives on, its output goes on, and its exit is seen with its code, also where it is no child."""

    async def play() -> None:
        pid, started = orphan(stage, WAITS)
        await stage.appears("up")
        life = hands_of(stage).adopt(pid, started, f"{stage.name}.1")
        assert life is not None
        assert (life.pid, life.started, life.run) == (pid, started, f"{stage.name}.1")
        assert stage.processes() == [pid]
        open_gate(gate, code)
        ending = await life.ended()
        assert stage.log == b"late\n"
        if ours or kernel_tells():
            assert (ending.cause, ending.code) == (Cause.ERROR if code else Cause.DONE, code)
            assert ending.detail == ("late" if code else "")
        else:
            assert ending.cause is Cause.LOST

    kernel.detect()
    if ours:
        run(play())
    else:
        with no_subreaper():
            run(play())


def kernel_tells() -> bool:
    """Linux 6.15 tells how a stranger ended."""
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int(minor)) >= (6, 15)


def test_adopted_and_killed(stage: Stage) -> None:
    """A signal that ends it is seen, too."""

    async def play() -> None:
        pid, started = orphan(stage, f"echo up > up; {HANGS}")
        await stage.appears("up")
        life = hands_of(stage).adopt(pid, started, f"{stage.name}.1")
        assert life is not None
        life.signal(signal.SIGKILL)
        ending = await life.ended()
        assert ending.signal == signal.SIGKILL or ending.cause is Cause.LOST

    kernel.detect()
    with no_subreaper():
        run(play())


def test_adopted_and_ended_with_its_tree(stage: Stage) -> None:
    """It is ended like any other, with what it started before and after, wherever that went."""

    async def play() -> None:
        kid = 'trap "" TERM; echo $$ > kid; while :; do sleep 0.05; done'
        pid, started = orphan(stage, f"(setsid sh -c '{kid}' &); trap '' TERM; echo up > up; {HANGS}")
        child = int(await stage.appears("kid"))
        await stage.appears("up")
        life = hands_of(stage).adopt(pid, started, f"{stage.name}.1")
        assert life is not None
        await life.end(SECOND // 10)
        assert (await life.ended()).cause is Cause.STOPPED
        assert not is_alive(pid)
        assert not is_alive(child)

    kernel.detect()
    with no_subreaper():
        run(play())


def test_a_recycled_pid_is_refused(stage: Stage) -> None:
    """Another process with that number is not adopted and not touched: not by its time, and not by its mark."""

    async def play() -> None:
        other = await stage.begin(stage.hands("/bin/sleep", "60"))
        hands = hands_of(stage)
        assert hands.adopt(other.pid, other.started - 1, other.run) is None
        assert hands.adopt(other.pid, other.started, "another run") is None
        assert is_alive(other.pid)
        await other.end(0)
        assert hands.adopt(other.pid, other.started, other.run) is None

    run(play())


def test_nobody_there(stage: Stage) -> None:
    """A process that is gone is not adopted, and nothing is left open."""

    async def play() -> None:
        hands = hands_of(stage)
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the number is what counts
        assert hands.adopt(2**22 - 1, 1, "r") is None
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208

    run(play())


@pytest.mark.parametrize("means", [Kernel(False, False, True), Kernel(False, False, False)], ids=["proc", "ps"])
def test_adopted_without_pidfds(stage: Stage, monkeypatch: pytest.MonkeyPatch, means: Kernel) -> None:
    """Where there are no pidfds the end is seen a little later, and how it ended is not known: it is lost."""
    monkeypatch.setattr(watch, "LOOK_EVERY", 0.05)
    if not means.proc:
        monkeypatch.setattr("flyball.runtimes.holder.PROC", Path("/nowhere"))
    stage.means = means

    async def play() -> None:
        pid, started = orphan(stage, f"echo up > up; {HANGS}")
        await stage.appears("up")
        if not means.proc:
            from flyball.runtimes import holder

            started = holder.start_of(pid) or 0
        life = hands_of(stage).adopt(pid, started, f"{stage.name}.1")
        assert life is not None
        os.kill(pid, signal.SIGKILL)
        assert (await life.ended()).cause is Cause.LOST

    kernel.detect()
    with no_subreaper():
        run(play())


def test_many_are_adopted_quickly(stage: Stage) -> None:
    """To take over costs little: no process is waited for."""

    async def play() -> None:
        lives = [await stage.begin(stage.hands("/bin/sleep", "60")) for _ in range(50)]
        hands = hands_of(stage)
        loop = asyncio.get_running_loop()
        before = loop.time()
        for life in lives:
            assert hands.adopt(life.pid, life.started, life.run) is not None
        taken = loop.time() - before
        for life in lives:
            os.kill(life.pid, signal.SIGKILL)
            await life.ended()
        await until(lambda: not stage.processes())
        assert taken < 0.5

    run(play())
