"""Without what only Linux has, a forked run is begun, heard and ended all the same."""

import signal
import threading
import time
from pathlib import Path

import pytest

from flyball.runtimes import guardian
from flyball.runtimes.forked import Forked, Link
from flyball.runtimes.process import kernel
from flyball.runtimes.process.kernel import Kernel
from tests.runtimes.forked.stage import Begin, gone, lives, take
from tests.runtimes.forked.test_end import never_matches, starts, takes_its_time

MEANS = {
    "no pidfd": Kernel(pidfd=False, subreaper=False, proc=True),
    "no proc": Kernel(pidfd=False, subreaper=False, proc=False),
}


@pytest.fixture(params=MEANS)
def poor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "detect", lambda *, reaps: MEANS[request.param])
    monkeypatch.setenv(guardian.WITHOUT, "1")


@pytest.mark.usefixtures("poor")
def test_life(begin: Begin) -> None:
    """It says what it has to say, and its exit code is known."""
    forked = begin(lambda link: link.send(link.call("double", 21)), double=lambda number: 2 * number)
    assert take(forked) == 42
    assert gone(forked).code == 0


@pytest.mark.usefixtures("poor")
@pytest.mark.parametrize("work", [never_matches, starts, takes_its_time], ids=lambda work: work.__name__)
def test_ends(begin: Begin, work: Link) -> None:
    """It is ended, with what it started in its group."""
    forked = begin(work)
    started = take(forked)
    forked.end(0.05)
    assert not any(map(lives, [forked.pid, *started]))
    assert gone(forked).signal == signal.SIGKILL


@pytest.mark.usefixtures("poor")
def test_holds_the_socket(begin: Begin) -> None:
    """Something that it leaves behind and that has its socket open does not keep the program waiting for its end."""

    def work(link: Link) -> None:
        threading.Thread(target=time.sleep, args=(600,)).start()
        signal.raise_signal(signal.SIGKILL)

    assert gone(begin(work)).signal == signal.SIGKILL


def test_reaped_by_the_program(begin: Begin) -> None:
    """In a program that lets the kernel reap its children, a run ends as well; how, nobody knows."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        ended = gone(begin(lambda link: None))
        assert (ended.code, ended.signal) == (None, None)
        assert "ended in an unknown way" in str(ended)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_closed_socket(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that closes every file that it has open can say nothing any more, and is killed."""
    from flyball.runtimes.forked import parent

    monkeypatch.setattr(parent, "LINGERS_MAX", 0.05)

    def work(link: Link) -> None:
        import os

        os.closerange(3, 100)
        time.sleep(600)

    forked: Forked = begin(work)
    assert gone(forked).signal == signal.SIGKILL
    assert not Path(f"/proc/{forked.pid}").exists()
