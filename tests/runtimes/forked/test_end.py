"""Whatever a forked run does, it can be ended, with all that it started; and it does not outlive its program."""

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flyball.core.event import Start
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.policies import Exclusive
from flyball.runtimes.forked import Forked, Link, clear
from flyball.store.memory import MemoryStore
from tests.runtimes.forked.stage import WITHIN, Begin, gone, lives, take, until

ENDLESS = "import time; time.sleep(600)"


def sleeps(link: Link) -> None:
    link.send([])
    time.sleep(600)


def never_matches(link: Link) -> None:
    """In C, without ever letting go of the interpreter."""
    link.send([])
    re.match(r"(a+)+$", "a" * 60 + "b")


def ignores(link: Link) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    link.send([])
    while True:
        time.sleep(600)


def takes_its_time(link: Link) -> None:
    """It wants to end in order, and never does."""
    link.on_end(lambda: None)
    sleeps(link)


def has_threads(link: Link) -> None:
    for _ in range(10):
        threading.Thread(target=time.sleep, args=(600,)).start()
    sleeps(link)


def stops(link: Link) -> None:
    link.send([])
    os.kill(os.getpid(), signal.SIGSTOP)


def starts(link: Link) -> None:
    child = subprocess.Popen([sys.executable, "-c", ENDLESS])
    link.send([child.pid])
    time.sleep(600)


def starts_a_session(link: Link) -> None:
    child = subprocess.Popen([sys.executable, "-c", ENDLESS], start_new_session=True)
    link.send([child.pid])
    time.sleep(600)


def starts_without_a_mark(link: Link) -> None:
    child = subprocess.Popen([sys.executable, "-c", ENDLESS], env={}, start_new_session=True)
    link.send([child.pid])
    time.sleep(600)


def forks(link: Link) -> None:
    """A fork in a session of its own: it has no mark, because it starts no program."""
    pid = os.fork()
    if not pid:
        os.setsid()
        time.sleep(600)
        os._exit(0)
    link.send([pid])
    time.sleep(600)


def leaves_a_daemon(link: Link) -> None:
    """Forked twice, as daemons do, so that it has no parent in the run."""
    read, write = os.pipe()
    if not os.fork():
        os.setsid()
        pid = os.fork()
        if pid:
            os.write(write, str(pid).encode())
            os._exit(0)
        time.sleep(600)
        os._exit(0)
    os.wait()
    link.send([int(os.read(read, 20))])
    time.sleep(600)


BLOCKS = [sleeps, never_matches, ignores, takes_its_time, has_threads, stops]
LEAVES = [starts, starts_a_session, starts_without_a_mark, forks, leaves_a_daemon]


@pytest.mark.parametrize("grace", [0, 0.1], ids=["at once", "after a grace"])
@pytest.mark.parametrize("work", [*BLOCKS, *LEAVES], ids=lambda work: work.__name__)
def test_ends(begin: Begin, work: Callable[[Link], None], grace: float) -> None:
    """It is ended, and when that returns nothing of it is left."""
    forked = begin(work)
    started = take(forked)
    assert all(map(lives, started))
    forked.end(grace)
    assert not any(map(lives, [forked.pid, *started]))
    assert gone(forked).signal == signal.SIGKILL


def test_ends_its_own_forks(begin: Begin) -> None:
    """A run that ends in order can end what it forked off itself by a signal, as a pool of workers does."""

    def work(link: Link) -> None:
        link.on_end(lambda: None)
        pid = os.fork()
        if not pid:
            time.sleep(600)
            os._exit(0)
        os.kill(pid, signal.SIGTERM)
        link.send(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    assert take(begin(work)) == -signal.SIGTERM


@pytest.mark.parametrize("returns", [True, False], ids=["returns", "is ended"])
def test_forks_on(begin: Begin, returns: bool) -> None:
    """Also a line of processes is ended of which each forks the next and is gone, in a session of its own: the newest
    has no tie to the run but that its orphans come to it."""
    read, write = os.pipe()

    def work(link: Link) -> None:
        if not os.fork():
            while True:
                os.setsid()
                if os.fork():
                    time.sleep(0.01)
                    os._exit(0)
                os.write(write, b".")
        link.call("go")

    go = threading.Event()
    forked = begin(work, go=lambda: go.wait(WITHIN))
    os.close(write)
    assert [os.read(read, 1) for _ in range(5)] == [b"."] * 5
    if returns:
        go.set()
        assert gone(forked).code == 0
    else:
        forked.end(0)
        go.set()
    os.set_blocking(read, False)
    while os.read(read, 1_000):  # at its end, and not just empty, only when nobody is left who could write
        pass
    os.close(read)


@pytest.mark.parametrize("how", ["returns", "raises", "is killed"])
@pytest.mark.parametrize("session", [False, True], ids=["in its group", "in another session"])
def test_leftovers(begin: Begin, session: bool, how: str) -> None:
    """What a run leaves behind when it ends by itself is gone before the run is; how it ended is still known."""

    def work(link: Link) -> None:
        child = subprocess.Popen([sys.executable, "-c", ENDLESS], start_new_session=session)
        link.send(child.pid)
        if how == "raises":
            raise LookupError
        if how == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)

    forked = begin(work)
    pid = take(forked)
    if how == "raises":
        assert isinstance(take(forked).error, LookupError)
    ended = gone(forked)
    assert not lives(pid)
    assert (ended.code, ended.signal) == {"returns": (0, None), "raises": (1, None), "is killed": (None, 9)}[how]


def test_ends_in_order(begin: Begin) -> None:
    """A run that wants to end in order hears that it is to end, and has its grace for it."""

    def work(link: Link) -> None:
        over = threading.Event()
        link.on_end(over.set)
        link.send("up")
        over.wait(WITHIN)
        link.send("tidied up")

    forked = begin(work)
    assert take(forked) == "up"
    forked.end(WITHIN)
    assert take(forked) == "tidied up"
    assert gone(forked).code == 0


def test_grace(begin: Begin) -> None:
    """One that does not use its grace to end is killed after it, and not before."""
    forked = begin(takes_its_time)
    take(forked)
    begun = time.monotonic()
    forked.end(0.3)
    assert 0.3 <= time.monotonic() - begun < WITHIN
    assert gone(forked).signal == signal.SIGKILL


def test_ends_at_once(begin: Begin) -> None:
    """It can be ended before it has done anything, by many threads at once, and again."""
    for _ in range(10):
        forked = begin(sleeps)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(forked.end, [0.0] * 8))
        forked.end(0)
        forked.close()
        assert not lives(forked.pid)


def test_interrupt(begin: Begin) -> None:
    """Ctrl-C is for the program: a run is not interrupted by it, but what the run starts can be."""

    def work(link: Link) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        child = subprocess.Popen(["sleep", "600"])
        child.send_signal(signal.SIGINT)
        link.send(child.wait())

    assert take(begin(work)) == -signal.SIGINT


def test_handlers_of_the_program(begin: Begin) -> None:
    """A signal for the run runs no handler that the program has."""
    before = signal.signal(signal.SIGTERM, lambda *_: os._exit(99))
    try:
        forked = begin(sleeps)
        take(forked)
        os.kill(forked.pid, signal.SIGTERM)
        assert gone(forked).signal == signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("work", [never_matches, sleeps], ids=lambda work: work.__name__)
def test_where(begin: Begin, work: Callable[[Link], None]) -> None:
    """A run that hangs shows where, also when it holds the interpreter, or its program has a handler of its own for
    that signal; and is not ended by that."""
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        forked = begin(work)
    finally:
        signal.signal(signal.SIGUSR2, before)
    take(forked)
    until(lambda: f"in {work.__name__}" in forked.where())
    assert lives(forked.pid)
    forked.end(0)
    assert forked.where() == ""


def test_nothing_at_exit(begin: Begin, capfd: pytest.CaptureFixture[str]) -> None:
    """What was printed in the run is printed once; nothing that the program does at its exit is done in the run, and
    a thread that goes on does not keep it."""

    def work(link: Link) -> None:
        import atexit

        atexit.register(print, "at exit")
        print("from the run")
        threading.Thread(target=time.sleep, args=(600,)).start()

    print("from the program", end="")
    assert gone(begin(work)).code == 0
    assert capfd.readouterr().out == "from the programfrom the run\n"


def test_finalizers(begin: Begin) -> None:
    """What is garbage in the program is not finalized a second time in the run."""

    class Connection:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            os.write(write, b"closed")

    read, write = os.pipe()
    Connection()

    def work(link: Link) -> None:
        import gc

        gc.collect()
        os.set_blocking(read, False)
        try:
            link.send(os.read(read, 10))
        except BlockingIOError:
            link.send(b"")

    assert take(begin(work)) == b""
    import gc

    gc.collect()
    assert os.read(read, 10) == b"closed"
    os.close(read)
    os.close(write)


PROGRAM = """
import os, re, subprocess, sys, threading, time
from flyball.runtimes.forked import Forked

def nested(link):
    link.send(os.getpid())
    time.sleep(600)

def work(link):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    inner = Forked(nested, services={}, unit="nested", run="1")
    link.send([os.getpid(), child.pid, inner.receive()])
    re.match(r"(a+)+$", "a" * 60 + "b")

threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
runs = [Forked(work, services={}, unit="forked", run=str(number)) for number in range(2)]
for run in runs:
    print(*run.receive(), flush=True)
if sys.argv[1] == "killed":
    time.sleep(600)
"""


@pytest.mark.parametrize("how", ["killed", "ends"])
def test_dies_with_its_program(how: str) -> None:
    """When the program is killed, or just ends, its runs are killed with what they started, though they hang; also the
    runs of the runs."""
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as program:
        assert program.stdout is not None
        pids = [int(word) for _ in range(2) for word in program.stdout.readline().split()]
        assert len(pids) == 6
        if how == "killed":
            program.kill()
        program.wait(WITHIN)
        until(lambda: not any(map(lives, pids)))


def test_no_room(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there can be no other process, that is said, and nothing stays open."""

    def full() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    before = list(Path("/proc/self/fd").iterdir())
    monkeypatch.setattr(os, "fork", full)
    with pytest.raises(FlyballError, match="there is no room for a process of forked: Resource temporarily"):
        begin(sleeps)
    assert len(list(Path("/proc/self/fd").iterdir())) == len(before)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def test_no_thread(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody could look after the process, there is none."""

    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(threading.Thread, "start", full)
    with pytest.raises(FlyballError, match="there is no room for a process of forked: can't start new thread"):
        begin(lambda _: signal.pause())
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python does not warn of it")
def test_no_warning(begin: Begin) -> None:
    """Python's warning of forks is not shown for runs, and is for others; and the filter is put there once."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        filters = len(warnings.filters)
        for _ in range(2):
            gone(begin(lambda _: None))
        assert (warned, len(warnings.filters)) == ([], filters + 1)


def test_clear() -> None:
    """What is left of runs whose program was killed is found by its mark, and ended; what is of other runs stays."""
    governor = Governor([Exclusive()], MemoryStore())
    dead = subprocess.Popen(["true"])
    holder = f"{socket.gethostname()}/{dead.pid}/1"
    dead.wait()
    unit, run = secrets.token_hex(8), "1"
    governor.submit(Start(unit=unit, run=run, holder=holder))
    left = [
        subprocess.Popen(["sleep", "600"], env={**os.environ, "FLYBALL_UNIT": unit, "FLYBALL_RUN": of})
        for of in (run, "2")
    ]
    try:
        assert clear(governor, unit) == 1
        assert [lives(process.pid) for process in left] == [False, True]
        assert clear(governor, unit) == 0
    finally:
        for process in left:
            process.kill()
            process.wait()


def test_unit_in_the_text() -> None:
    """Who reads an error knows of which run it is."""
    forked = Forked(lambda _: os._exit(3), services={}, unit="research-42", run="1")
    assert str(gone(forked)) == "the process of research-42 ended with exit code 3"
