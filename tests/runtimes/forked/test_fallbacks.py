"""Without what only Linux has, a forked run is begun, heard and ended all the same."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flyball.runtimes import guardian
from flyball.runtimes.forked import Link, parent
from flyball.runtimes.process import kernel
from flyball.runtimes.process.kernel import Kernel
from tests.runtimes.forked.stage import Begin, gone, lives, take, until
from tests.runtimes.forked.test_end import never_matches, starts, takes_its_time

MEANS = {
    "no pidfd": Kernel(pidfd=False, subreaper=False, proc=True),
    "no proc": Kernel(pidfd=False, subreaper=False, proc=False),
}


@pytest.fixture(params=MEANS)
def poor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "detect", lambda **_: MEANS[request.param])
    monkeypatch.setenv(guardian.WITHOUT, "1")


@pytest.mark.usefixtures("poor")
def test_life(begin: Begin) -> None:
    """It says what it has to say, and its exit code is known."""
    forked = begin(lambda link: link.send(link.call("double", 21)), double=lambda number: 2 * number)
    assert take(forked) == 42
    assert gone(forked).code == 0


@pytest.mark.usefixtures("poor")
@pytest.mark.parametrize("work", [never_matches, starts, takes_its_time], ids=lambda work: work.__name__)
def test_ends(begin: Begin, work: Callable[[Link], None]) -> None:
    """It is ended, with what it started in its group."""
    forked = begin(work)
    started = take(forked)
    forked.end(0.05)
    assert not any(map(lives, [forked.pid, *started]))
    assert gone(forked).signal == signal.SIGKILL


@pytest.mark.usefixtures("poor")
def test_holds_the_socket(begin: Begin) -> None:
    """A process that has the run's socket open does not keep the program waiting for the run's end."""

    def work(link: Link) -> None:
        held = os.dup(link._channel.fileno())
        os.set_inheritable(held, True)
        subprocess.Popen(["sleep", "600"], close_fds=False)
        os.kill(os.getpid(), signal.SIGKILL)

    assert gone(begin(work)).signal == signal.SIGKILL


@pytest.mark.usefixtures("poor")
@pytest.mark.parametrize("crashes", [False, True], ids=["returns", "crashes"])
def test_leftovers(begin: Begin, crashes: bool) -> None:
    """What it leaves in its group when it ends by itself is ended, too."""

    def work(link: Link) -> None:
        link.send(subprocess.Popen(["sleep", "600"]).pid)
        if crashes:
            os.kill(os.getpid(), signal.SIGKILL)

    forked = begin(work)
    pid = take(forked)
    gone(forked)
    until(lambda: not lives(pid))


def test_reaped_by_the_program(begin: Begin) -> None:
    """In a program that lets the kernel reap its children, a run ends as well; how, nobody knows."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        ended = gone(begin(lambda _: None))
        assert (ended.code, ended.signal) == (None, None)
        assert "ended in an unknown way" in str(ended)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_closed_socket(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that has closed its socket can say nothing any more, and is killed."""
    monkeypatch.setattr(parent, "LINGERS_MAX", 0.05)

    def work(link: Link) -> None:
        link._channel.shutdown(socket.SHUT_RDWR)
        time.sleep(600)

    forked = begin(work)
    assert gone(forked).signal == signal.SIGKILL
    assert not Path(f"/proc/{forked.pid}").exists()
