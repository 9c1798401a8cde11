"""How a process ended is seen at once, and its code and its signal are kept apart."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from flyball.core.event import Cause
from tests.runtimes.process.stage import HANGS, SECONDS_10, Stage, run, until


def test_clean_exit(stage: Stage) -> None:
    """Exit 0 is done, and no failure."""
    ending = run(stage.ending(stage.hands("/bin/true")))
    assert (ending.cause, ending.code, ending.signal, ending.fingerprint) == (Cause.DONE, 0, None, "")


@pytest.mark.parametrize("code", [1, 3, 137, 255])
def test_exit_code(stage: Stage, code: int) -> None:
    """Another code is an error, with a name for people; 137 is a code here, not a signal."""
    ending = run(stage.ending(stage.shell(f"exit {code}")))
    assert (ending.cause, ending.code, ending.signal, ending.error) == (Cause.ERROR, code, None, f"exit {code}")
    assert ending.fingerprint


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_signal(stage: Stage, number: signal.Signals) -> None:
    """A signal that we did not send is an error with the signal's name and no code."""
    ending = run(stage.ending(stage.shell(f"kill -{number} $$")))
    assert (ending.cause, ending.code, ending.signal, ending.error) == (Cause.ERROR, None, number, number.name)


def test_crash_at_once_again_and_again(stage: Stage) -> None:
    """A process that is gone before anybody looks is not missed, and leaves no zombie."""

    async def play() -> list[int | None]:
        hands = stage.shell("exit 7")
        return [(await stage.ending(hands)).code for _ in range(30)]

    assert run(play()) == [7] * 30
    assert not stage.zombies()


def test_many_end_together(stage: Stage) -> None:
    """Runs that are killed together are all seen to end."""

    async def play() -> list[int | None]:
        lives = [await stage.begin(stage.hands("/bin/sleep", "60")) for _ in range(40)]
        for life in lives:
            os.kill(life.pid, signal.SIGKILL)
        return [(await life.ended()).signal for life in lives]

    assert run(play()) == [signal.SIGKILL] * 40
    assert not stage.zombies()


def test_ended_may_be_cancelled_and_awaited_again(stage: Stage) -> None:
    """Whoever stops waiting loses nothing."""

    async def play() -> int | None:
        life = await stage.begin(stage.shell("read x < gate; exit 5"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(life.ended(), 0.01)
        (stage.folder / "gate").write_text("go\n")
        return (await life.ended()).code

    os.mkfifo(stage.folder / "gate")
    gate = os.open(stage.folder / "gate", os.O_RDWR)
    try:
        assert run(play()) == 5
    finally:
        os.close(gate)


def test_pid_started_and_signal(stage: Stage) -> None:
    """A life tells its pid and start time, and passes a signal to its own process."""

    async def play() -> int | None:
        life = await stage.begin(stage.shell(f"trap 'exit 9' USR1; echo up > up; {HANGS}"))
        await stage.appears("up")
        assert stage.processes()
        assert life.started > 0
        assert os.getsid(life.pid) == os.getpgid(life.pid) == life.pid
        life.signal(signal.SIGUSR1)
        return (await life.ended()).code

    assert run(play()) == 9


def test_signal_after_the_end_reaches_nobody(stage: Stage) -> None:
    """The number of a process that is gone may be another's by now."""

    async def play() -> None:
        life = await stage.begin(stage.hands("/bin/true"))
        await life.ended()
        life.signal(signal.SIGKILL)
        await life.end(SECONDS_10)

    run(play())


def test_seen_at_once(stage: Stage) -> None:
    """From death to `ended` it takes milliseconds: nothing polls."""

    async def play() -> float:
        best = 1.0
        for _ in range(10):
            life = await stage.begin(stage.hands("/bin/sleep", "60"))
            before = time.perf_counter()
            os.kill(life.pid, signal.SIGKILL)
            await life.ended()
            best = min(best, time.perf_counter() - before)
        return best

    assert run(play()) < 0.01


def test_orphans_of_a_living_unit_are_reaped(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a unit's double-forked helpers leave behind does not stay a zombie for as long as the unit lives."""
    from flyball.runtimes.process import household

    monkeypatch.setattr(household, "TIDY_EVERY", 0.02)

    async def play() -> None:
        life = await stage.begin(stage.shell(f"(setsid sh -c 'echo $$ > helper' &) ; {HANGS}"))
        helper = int(await stage.appears("helper"))
        await until(lambda: not Path(f"/proc/{helper}").exists())
        await life.end(0)

    run(play())
