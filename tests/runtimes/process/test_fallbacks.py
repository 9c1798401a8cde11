"""Without what only Linux has, everything still works: no pidfd, no sub-reaper, no /proc."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.core.event import Cause
from flyball.core.time import SECOND
from flyball.runtimes.process import kernel
from flyball.runtimes.process.kernel import Kernel
from tests.runtimes.process.stage import HANGS, IGNORES_TERM, Stage, is_alive, no_subreaper, run, until

MEANS = {
    "no pidfd": Kernel(pidfd=False, subreaper=True, proc=True),
    "no sub-reaper": Kernel(pidfd=True, subreaper=False, proc=True),
    "no pidfd, no sub-reaper": Kernel(pidfd=False, subreaper=False, proc=True),
    "nothing": Kernel(pidfd=False, subreaper=False, proc=False),
}
KID = 'trap "" TERM; echo $$ > kid; while :; do sleep 0.05; done'


@pytest.fixture(params=MEANS)
def poor(request: pytest.FixtureRequest, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A stage on a machine that has less."""
    kernel.detect()
    stage.means = MEANS[request.param]
    if not stage.means.proc:
        monkeypatch.setattr("flyball.runtimes.holder.PROC", Path("/nowhere"))
    if stage.means.subreaper:
        yield stage
    else:
        with no_subreaper():
            yield stage
    if not stage.means.proc:  # what an escaped group is doing in the instant of its end cannot be proven there
        run(until(lambda: not stage.processes()))


def test_exits(poor: Stage) -> None:
    """Codes and signals are seen and kept apart."""

    async def play() -> list[tuple[int | None, int | None]]:
        endings = [await poor.ending(poor.shell(script)) for script in ("exit 0", "exit 3", "kill -9 $$")]
        return [(ending.code, ending.signal) for ending in endings]

    assert run(play()) == [(0, None), (3, None), (None, 9)]


def test_many_at_once(poor: Stage) -> None:
    """One that ends is not taken for another."""

    async def play() -> list[int | None]:
        lives = [await poor.begin(poor.shell(f"exit {code}")) for code in range(1, 11)]
        return [(await life.ended()).code for life in lives]

    assert run(play()) == list(range(1, 11))


def test_started_and_signal(poor: Stage) -> None:
    """A life is known by pid and start time, and can be signalled."""

    async def play() -> int | None:
        life = await poor.begin(poor.shell(f"trap 'exit 9' USR1; echo up > up; {HANGS}"))
        await poor.appears("up")
        assert life.started > 0
        life.signal(signal.SIGUSR1)
        return (await life.ended()).code

    assert run(play()) == 9


@pytest.mark.parametrize("how", ["sh -c '{kid}' &", "setsid sh -c '{kid}' &"], ids=["in the group", "in a session"])
def test_ended_with_its_tree(poor: Stage, how: str) -> None:
    """Grandchildren that ignore SIGTERM are gone, in the group and outside of it."""

    async def play() -> None:
        life = await poor.begin(poor.shell(f"{how.format(kid=KID)}\n{IGNORES_TERM} {HANGS}"))
        kid = int(await poor.appears("kid"))
        await life.end(SECOND // 10)
        assert (await life.ended()).cause is Cause.STOPPED
        assert not is_alive(kid)

    run(play())


def test_leftovers_in_the_group(poor: Stage) -> None:
    """What a process leaves in its group when it exits by itself is ended, too."""

    async def play() -> None:
        script = f"sh -c '{KID}' & until [ -s kid ]; do sleep 0.01; done; exit 6"
        ending = await poor.ending(poor.shell(script, grace=SECOND // 10))
        assert ending.code == 6
        assert poor.processes() == []

    run(play())


@pytest.mark.parametrize("poor", [name for name, means in MEANS.items() if means.proc], indirect=True)
def test_leftovers_outside_the_group(poor: Stage) -> None:
    """What has left the group by then is found by its mark, where there is a /proc. Where there is none, nobody knows
    where it came from."""

    async def play() -> None:
        script = f"(setsid sh -c '{KID}' &) ; until [ -s kid ]; do sleep 0.01; done; exit 6"
        ending = await poor.ending(poor.shell(script, grace=SECOND // 10))
        assert ending.code == 6
        assert poor.processes() == []

    run(play())


def test_limits(poor: Stage) -> None:
    """Limits need nothing of the kernel's but limits."""
    run(poor.ending(poor.shell("ulimit -n", files_max=50)))
    assert poor.log == b"50\n"


def test_a_loop_that_is_closed(poor: Stage) -> None:
    """A process whose loop is gone ends without a complaint."""

    async def play() -> int:
        return (await poor.begin(poor.shell(f"echo up > up; {HANGS}"))).pid

    pid = run(play())
    os.killpg(pid, signal.SIGKILL)

    async def wait() -> None:
        while poor.processes():
            await asyncio.sleep(0.005)

    run(wait())


def test_too_many_files(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no pidfd can be opened any more, a thread waits: the process that was just started is not left alone."""

    def full(pid: int) -> int:
        raise OSError(24, "Too many open files")

    async def play() -> int | None:
        monkeypatch.setattr(os, "pidfd_open", full)
        return (await stage.ending(stage.shell("exit 3"))).code

    kernel.detect()
    assert run(play()) == 3
