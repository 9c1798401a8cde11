"""Ending a run: asked first, then by force, and then there is nothing left of it, wherever it went."""

import asyncio
import os
import signal
import subprocess
import time

import pytest

from flyball.config.units import Unit
from flyball.core.event import Cause
from flyball.core.time import SECOND
from flyball.runtimes.process import ProcessHands, child, tree
from flyball.runtimes.process.kernel import Kernel, detect
from flyball.runtimes.process.tree import Kin
from tests.runtimes.process.stage import HANGS, IGNORES_TERM, SECONDS_10, Stage, is_alive, run, until

QUICK = SECOND // 5


def test_stop_signal_is_asked_first(stage: Stage) -> None:
    """A process that understands the stop signal ends in its own way, within the grace."""

    async def play() -> None:
        life = await stage.begin(
            stage.shell(f"trap 'echo bye > bye; exit 4' INT; echo up > up; {HANGS}", stop_signal=2)
        )
        await stage.appears("up")
        await life.end(SECONDS_10)
        ending = await life.ended()
        assert (ending.cause, ending.code, ending.signal) == (Cause.STOPPED, 4, None)
        assert await stage.appears("bye") == "bye"

    run(play())


def test_ignoring_the_stop_signal(stage: Stage) -> None:
    """After the grace it is killed, not before."""

    async def play() -> float:
        life = await stage.begin(stage.shell(f"{IGNORES_TERM} echo up > up; {HANGS}"))
        await stage.appears("up")
        before = time.monotonic()
        await life.end(QUICK)
        assert (await life.ended()).signal == signal.SIGKILL
        return time.monotonic() - before

    assert 0.2 <= run(play()) < 5


def test_a_stopped_process_ends_too(stage: Stage) -> None:
    """SIGSTOP does not keep it from hearing that it has to end."""

    async def play() -> None:
        life = await stage.begin(stage.hands("/bin/sleep", "60"))
        life.signal(signal.SIGSTOP)
        await life.end(SECONDS_10)
        assert (await life.ended()).signal == signal.SIGTERM

    run(play())


GRANDCHILDREN = {
    "in the group": "sh -c '{kid}' &",
    "in a session of its own": "setsid sh -c '{kid}' &",
    "double-forked": "(setsid sh -c '{kid}' & exit 0)",
    "double-forked in the group": "(sh -c '{kid}' & exit 0)",
    "without its environment": "(setsid env -i /bin/sh -c '{kid}' & exit 0)",
    "a chain of sessions": 'setsid sh -c "setsid sh -c \\"{kid}\\" & wait" &',
}
KID = 'trap "" TERM; echo $$ > kid; while :; do sleep 0.05; done'
KID_QUOTED = "trap : TERM; echo up > kid; while :; do sleep 0.05; done"


@pytest.mark.parametrize("how", GRANDCHILDREN)
@pytest.mark.parametrize("ends_itself", [False, True], ids=["ended", "exits by itself"])
def test_grandchildren_are_gone(stage: Stage, how: str, ends_itself: bool) -> None:
    """Whatever a process started and wherever that went, ignoring SIGTERM: nothing of it lives when the run is over,
    whether the run was ended or its own process exited by itself."""
    kid = KID_QUOTED if "chain" in how else KID
    script = GRANDCHILDREN[how].replace("{kid}", kid)
    after = "until [ -s kid ]; do sleep 0.01; done; exit 6" if ends_itself else f"{IGNORES_TERM} {HANGS}"

    async def play() -> None:
        life = await stage.begin(stage.shell(f"{script}\n{after}", grace=QUICK))
        word = await stage.appears("kid")
        if ends_itself:
            assert (await life.ended()).code == 6
        else:
            await life.end(QUICK)
            assert (await life.ended()).cause is Cause.STOPPED
        assert stage.processes() == []
        if word.isdecimal():
            assert not is_alive(int(word))
        assert not stage.zombies()

    run(play())


def test_leftovers_are_asked_before_they_are_killed(stage: Stage) -> None:
    """What a process leaves behind may end in order."""

    async def play() -> None:
        script = f"(trap 'echo bye > bye; exit 0' TERM; echo up > up; {HANGS}) & until [ -s up ]; do :; done"
        assert (await stage.ending(stage.shell(script))).cause is Cause.DONE
        assert (stage.folder / "bye").exists()

    run(play())


def test_another_units_helpers_are_left_alone(stage: Stage) -> None:
    """When one run ends, the helpers of a living one stay, though they are orphans as well: marked ones at once, others
    because the living run is old enough to have started them."""

    async def play() -> None:
        script = f"(setsid sh -c '{KID}' &); (setsid env -i /bin/sh -c '{KID.replace('kid', 'bare')}' &); {HANGS}"
        living = await stage.begin(stage.shell(script))
        kid, bare = int(await stage.appears("kid")), int(await stage.appears("bare"))
        await stage.ending(stage.shell("exit 1"))
        await (await stage.begin(stage.hands("/bin/sleep", "60"))).end(0)
        assert is_alive(kid)
        assert is_alive(bare)
        await living.end(0)
        assert not is_alive(kid)
        assert not is_alive(bare)

    run(play())


@pytest.mark.parametrize("reaps", [True, False], ids=["sub-reaper", "search"])
def test_runs_of_two_units_with_one_id(stage: Stage, reaps: bool) -> None:
    """A run is known by its unit and its id: each driver counts its runs from one. The end of the first run of one unit
    takes nothing from the first run of another."""
    stage.means = detect(reaps=reaps)

    async def play() -> None:
        living = await stage.shell(f"(setsid sh -c '{KID}' &); {HANGS}").begin("holder.1", again=False)
        kid = int(await stage.appears("kid"))
        other = ProcessHands(Unit(name=f"{stage.name}-2", command=("/bin/false",)), logs=stage.logs, means=stage.means)
        await (await other.begin("holder.1", again=False)).ended()
        assert is_alive(kid)
        await living.end(0)
        assert not is_alive(kid)

    run(play())


def test_what_the_supervisor_runs_for_itself_is_left_alone(stage: Stage) -> None:
    """A probe has a group of its own in our session, the unit's mark and no run's: it is neither killed nor reaped,
    also in the moment in which it has no environment yet."""

    async def play() -> tuple[int, int | None]:
        env = {"PATH": os.environ["PATH"], "FLYBALL_UNIT": stage.name}
        probes = [
            await asyncio.create_subprocess_exec(*command, env=env, process_group=0, stdout=subprocess.DEVNULL)
            for command in (["sleep", "0.2"], ["sh", "-c", "exit 3"])
        ]
        assert [(await stage.ending(stage.shell("exit 1"))).code for _ in range(5)] == [1] * 5
        codes = [await probe.wait() for probe in probes]
        return codes[0], codes[1]

    assert run(play()) == (0, 3)


def test_ending_twice_shortens_the_grace(stage: Stage) -> None:
    """A second, more urgent order is obeyed at once."""

    async def play() -> float:
        life = await stage.begin(stage.shell(f"{IGNORES_TERM} echo up > up; {HANGS}"))
        await stage.appears("up")
        patient = asyncio.create_task(life.end(60 * SECOND))
        await asyncio.sleep(0)
        before = time.monotonic()
        await life.end(0)
        await patient
        return time.monotonic() - before

    assert run(play()) < 5


def test_cancelled_end_goes_on(stage: Stage) -> None:
    """Whoever stops waiting for the end does not stop the end."""

    async def play() -> None:
        life = await stage.begin(stage.shell(f"{IGNORES_TERM} echo up > up; {HANGS}"))
        await stage.appears("up")
        task = asyncio.create_task(life.end(QUICK))
        await asyncio.sleep(0)
        task.cancel()
        assert (await life.ended()).signal == signal.SIGKILL

    run(play())


def test_end_races_with_exit(stage: Stage) -> None:
    """An order that meets the exit returns, and the run is over once."""

    async def play() -> None:
        for _ in range(20):
            life = await stage.begin(stage.hands("/bin/true"))
            await life.end(SECONDS_10)
            assert (await life.ended()).cause in (Cause.STOPPED, Cause.DONE)

    run(play())


def test_a_fork_bomb_of_sessions_is_ended(stage: Stage) -> None:
    """A chain that moves on by itself, each link in a new session, does not outrun its end."""
    script = "import os,time\nfor i in range(200):\n  if os.fork(): os._exit(0)\n  os.setsid(); time.sleep(0.01)\n"

    async def play() -> None:
        (stage.folder / "hop.py").write_text(script)
        life = await stage.begin(stage.shell(f"python3 hop.py & echo up > up; {HANGS}"))
        await stage.appears("up")
        await until(lambda: len(stage.processes()) > 1)
        await life.end(0)
        assert stage.processes() == []

    run(play())


def test_what_may_not_be_killed_is_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A run is not over before the proof is there: a process that may not be killed is named, and waited for."""
    allowed = False
    send = tree.send_to_all

    def refusing(kin: Kin, number: int, means: Kernel) -> None:
        if allowed:
            send(kin, number, means)

    async def play() -> None:
        nonlocal allowed
        life = await stage.begin(stage.shell(f"(setsid sh -c '{KID}' &); until [ -s kid ]; do :; done", grace=0))
        kid = int(await stage.appears("kid"))
        await until(lambda: str(kid) in caplog.text)
        assert life.ending is None
        allowed = True
        await life.ended()
        assert not is_alive(kid)

    monkeypatch.setattr(tree, "send_to_all", refusing)
    monkeypatch.setattr(child, "COMPLAIN_AFTER", 0.02)
    run(play())
