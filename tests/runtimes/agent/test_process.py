"""Agents in a process of their own: whatever they do, they are gone when their time is over, and it is known how."""

import asyncio
import functools
import os
import signal
import subprocess
import sys
import textwrap
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flyball
from flyball.core.event import Answered, Asked, Cause, Held
from flyball.core.time import HOUR, SECOND
from flyball.errors import FlyballError
from flyball.runtimes.agent.context import Context
from flyball.runtimes.agent.ending import GAVE_UP
from flyball.runtimes.process import kernel
from tests.runtimes.agent import crew
from tests.runtimes.agent.station import WITHIN, Station, processes, run, until

GRACE = 0.3
SLACK = 3.0
"""Seconds that a busy machine may be late. What is not killed stays for an hour."""


@pytest.fixture
def station(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Station]:
    """The claim of all: nothing is left running."""
    monkeypatch.setenv(crew.FOLDER, str(tmp_path))
    station = Station(tmp_path)
    yield station
    assert processes(station.mark) == []
    station.guard.close()


# Hangs.


@pytest.mark.parametrize("agent", crew.HANGS, ids=lambda agent: agent.__name__)
def test_every_kind_of_hang_ends(station: Station, agent: Callable[..., Any]) -> None:
    """What hangs in a process of its own is gone within its deadline and its grace, with all that it started;
    and it is known where it was."""
    name = station.agent(agent, deadline=3600, grace=GRACE)

    async def play() -> float:
        supervising = asyncio.ensure_future(station.guard.supervise())
        await station.begun(name)
        await station.passes(HOUR)
        told = time.monotonic()
        await supervising
        assert processes(station.mark) == []
        return time.monotonic() - told

    assert run(play()) < GRACE + SLACK
    (exited,) = station.exits(name)
    assert (exited.cause, exited.error) == (Cause.TIMEOUT, "timeout")
    # Who takes the signal away from the worker is only seen from outside: its loop waits.
    assert (agent.__name__ if agent is not crew.ignores_the_signal else "run_forever") in exited.detail


def test_deadline_of_a_part_of_a_second(station: Station) -> None:
    """A deadline counts from the leave to start: the time that an interpreter takes to start is a part of it."""
    name = station.agent(crew.spins, deadline=0.2, grace=GRACE)
    station.run()
    (exited,) = station.exits(name)
    assert exited.cause is Cause.TIMEOUT
    first, *_, last = station.store.entries()
    assert (last.at - first.at) / SECOND < 0.2 + GRACE + SLACK


def test_ends_in_order(station: Station) -> None:
    """One that listens is cancelled once, and has its grace to put things away; a person's order is no failure."""
    name = station.agent(crew.ends_in_order, grace=WITHIN)

    async def play() -> None:
        supervising = asyncio.ensure_future(station.guard.supervise())
        await station.begun(name)
        station.governor.submit(Held(unit=name))
        await supervising

    run(play())
    (exited,) = station.exits(name)
    assert exited.cause is Cause.STOPPED
    assert exited.signal is None
    assert "the_place_where_it_waits" in exited.detail
    assert (station.folder / f"{name}.ended").exists()


def test_program_that_ends_takes_them_along(station: Station) -> None:
    """When the program is told to end, its agents are ended in order, and none is counted as failed."""
    names = [station.agent(crew.ends_in_order), station.agent(crew.spins)]

    async def play() -> None:
        supervising = asyncio.ensure_future(station.guard.supervise())
        for name in names:
            await station.begun(name)
        supervising.cancel()
        with pytest.raises(asyncio.CancelledError):
            await supervising
        assert processes(station.mark) == []

    run(play())
    assert [exited.cause for name in names for exited in station.exits(name)] == [Cause.STOPPED, Cause.STOPPED]


# Endings.


@pytest.mark.parametrize(
    ("agent", "cause", "error", "detail"),
    [
        (crew.returns, Cause.DONE, "", ""),
        (crew.returns_from_a_thread, Cause.DONE, "", ""),
        (crew.leaves_a_thread, Cause.DONE, "", ""),
        (crew.leaves_a_held_lock, Cause.DONE, "", ""),
        (crew.ends_a_fork, Cause.DONE, "", ""),
        (crew.lets_a_fork_out, Cause.ERROR, "ValueError: this is the agent", ""),
        (crew.raises, Cause.ERROR, "ValueError: boom", "this was printed last"),
        (crew.raises, Cause.ERROR, "ValueError: boom", "in raises"),
        (crew.gives_up, Cause.STOPPED, GAVE_UP, "nothing left to do"),
        (crew.starves, Cause.STARVED, "flyball.runtimes.agent.ending.Starved: no quota", "in starves"),
        (crew.is_out_of_quota, Cause.STARVED, f"{crew.__name__}.QuotaGone: come back tomorrow", "in is_out_of_quota"),
        (crew.exits, Cause.ERROR, "RuntimeError: it called sys.exit(3)", ""),
        (crew.leaves_the_hard_way, Cause.ERROR, "exit 7", "error: cannot go on"),
        (crew.crashes, Cause.ERROR, "SIGSEGV", "error: about to crash"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_endings(station: Station, agent: Callable[..., Any], cause: Cause, error: str, detail: str) -> None:
    """S3-26, S3-27: how it ended is what it says itself; of one that could not, what was seen of it."""
    name = station.agent(agent, causes={crew.QuotaGone: Cause.STARVED})

    async def play() -> None:
        supervising = asyncio.ensure_future(station.guard.supervise())
        await until(lambda: station.exits(name))
        supervising.cancel()  # who starved waits for the resource
        await asyncio.wait((supervising,))

    run(play())
    (exited,) = station.exits(name)
    assert (exited.cause, exited.error) == (cause, error)
    assert detail in exited.detail
    assert bool(exited.fingerprint) is cause.failed


def test_output_is_in_its_log(station: Station) -> None:
    """What it prints is kept, where `flyball logs` finds it."""
    name = station.agent(crew.returns)
    station.run()
    assert station.log(name) == "all is well\n"


def test_same_failure_inline_and_in_a_process(station: Station) -> None:
    """Where an agent runs is no part of what went wrong: its failures have one fingerprint."""
    name = station.agent(crew.raises)
    station.run()
    inline = Station(station.folder / "inline")
    inline.guard.agent(name, restart="never")(crew.raises)
    inline.run()
    assert station.exits(name)[0].fingerprint == inline.exits(name)[0].fingerprint
    inline.guard.close()


# Work.


def test_memory_and_money_survive(station: Station) -> None:
    """S3-09: each run is another process; what it remembers and what it spent is in the store."""
    name = station.agent(crew.counts, restart="on-failure", budget="1")

    def exited_times(number: int) -> bool:
        return len(station.exits(name)) == number

    async def play() -> None:
        supervising = asyncio.ensure_future(station.guard.supervise())
        for run_number in (1, 2):
            await until(functools.partial(exited_times, run_number))
            await station.passes(HOUR)
        await supervising

    run(play())
    assert station.memory(name) == {"runs": 3, "again": True}
    assert [exited.cause for exited in station.exits(name)] == [Cause.ERROR, Cause.ERROR, Cause.DONE]


def test_iterations(station: Station) -> None:
    """An agent that is one iteration is repeated in its process."""
    name = station.agent(crew.iterates, every=0.001)
    station.run()
    assert station.memory(name) == {"iterations": 3}
    assert station.exits(name)[0].error == GAVE_UP


@pytest.mark.parametrize("agent", [crew.spends, crew.spends_and_does_not_listen], ids=lambda agent: agent.__name__)
def test_told_by_a_step(station: Station, agent: Callable[..., Any]) -> None:
    """S3-03: who is out of money ends, by itself or by force, and nothing is spent beyond."""
    name = station.agent(agent, budget="0.05", grace=GRACE)
    station.run()
    (exited,) = station.exits(name)
    assert (exited.cause, exited.error) == (Cause.STARVED, "cost_budget_exceeded")
    assert exited.policy == "budget"


def test_surroundings(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the environment that the program has now, nothing to read, and a session of its own."""
    first = station.agent(crew.returns)
    station.run()
    monkeypatch.setenv("FLYBALL_TEST_LATER", "now")
    name = station.agent(crew.looks_around)
    run(station.guard.supervise(name))
    assert station.exits(first)
    assert station.memory(name) == {"env": "now", "stdin": "", "leads": True}


def test_children_of_the_program_are_left_alone(station: Station) -> None:
    """The program may have processes of its own, whatever session they are in: they are nobody's agent."""
    name = station.agent(crew.raises)
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        station.run()
        assert other.poll() is None
        assert station.exits(name)
    finally:
        other.kill()
        other.wait()


def test_two_agents_are_two_runs(station: Station) -> None:
    """The end of one is not the end of another, though both are the first runs of their program."""
    lasting, short = station.agent(crew.ends_in_order), station.agent(crew.raises)

    async def play() -> None:
        supervising = asyncio.ensure_future(station.guard.supervise())
        await station.begun(lasting)
        await until(lambda: station.exits(short))
        assert processes(lasting)
        supervising.cancel()
        await asyncio.wait((supervising,))

    run(play())
    assert [exited.cause for exited in station.exits(lasting)] == [Cause.STOPPED]


def test_asks_a_person(station: Station) -> None:
    """A question goes to people from wherever it is asked, and the answer comes back there."""
    name = station.agent(crew.asks)

    async def play() -> None:
        supervising = asyncio.ensure_future(station.guard.supervise())
        await until(lambda: any(isinstance(event, Asked) for event in station.events(name)))
        (asked,) = (event for event in station.events(name) if isinstance(event, Asked))
        station.governor.submit(Answered(unit=name, id=asked.id, answer="yes", heard=True))
        await supervising

    run(play())
    assert station.memory(name) == {"answer": "yes"}


# What cannot be.


def test_functions_that_cannot_be_found(station: Station) -> None:
    """What another process cannot import is refused where it is defined."""

    async def local(ctx: Context) -> None:
        pass

    functions: list[Any] = [local, lambda _: None, functools.partial(crew.returns)]
    for function in functions:
        with pytest.raises(FlyballError, match="cannot be found by another process"):
            station.guard.agent("a", isolation="process")(function)


def test_function_under_another_name(station: Station) -> None:
    """What another process would find instead is not the agent: that is refused before anything is started."""
    hidden = types.FunctionType(crew.raises.__code__, vars(crew), "returns")
    hidden.__qualname__ = "returns"
    name = station.agent(hidden)
    with pytest.raises(FlyballError, match="not the same object"):
        station.run()
    assert station.events(name) == []


def test_what_cannot_be_copied(station: Station) -> None:
    """What another process cannot be told is refused before anything is started."""

    class OfThisTest(Exception):
        pass

    name = station.agent(crew.returns, causes={OfThisTest: Cause.STARVED})
    with pytest.raises(FlyballError, match="cannot be given to another process"):
        station.run()
    assert station.events(name) == []


def test_unknown_isolation(station: Station) -> None:
    """A word that means nothing is not taken for one that does."""
    with pytest.raises(FlyballError, match="thread"):
        station.agent(crew.returns, isolation="thread")


def test_scratch_store() -> None:
    """A store in memory cannot be seen by another process."""
    with flyball.open("program", scratch=True) as guard:
        guard.agent("a", isolation="process")(crew.returns)
        with pytest.raises(FlyballError, match="kept in memory"):
            guard.run()


# Programs.

PROGRAM = """
    import asyncio, sys
    from pathlib import Path
    import flyball

    here = Path(__file__).parent
    guard = flyball.open("program", state_dir=here)

    class Gone(Exception):
        pass

    @guard.agent("a-{mark}", isolation="process", restart="never", causes={{Gone: flyball.Cause.STOPPED}})
    async def agent(ctx):
        (here / "argv").write_text(" ".join(sys.argv[1:]))
        raise Gone("it is")

    {guarded}
        guard.run()
"""


@pytest.mark.parametrize("how", ["script", "module", "in a package"])
def test_program(station: Station, how: str) -> None:
    """A script with its guard and its agents in one file works as it is, however it is started."""
    place = {"script": "program.py", "module": "program.py", "in a package": "pack/program.py"}[how]
    file = station.folder / place
    file.parent.mkdir(exist_ok=True)
    file.write_text(textwrap.dedent(PROGRAM.format(mark=station.mark, guarded='if __name__ == "__main__":')))
    start = {"script": ["program.py"], "module": ["-m", "program"], "in a package": ["-m", "pack.program"]}[how]
    subprocess.run([sys.executable, *start, "x", "y"], cwd=station.folder, check=True, timeout=WITHIN)
    other = Station(file.parent)
    (exited,) = other.exits(f"a-{station.mark}")
    other.guard.close()
    assert (exited.cause, exited.error) == (Cause.STOPPED, "Gone: it is")
    assert f'{file}", line' in exited.detail
    assert (file.parent / "argv").read_text() == "x y"


def test_program_that_runs_when_it_is_imported(station: Station) -> None:
    """A program that would start all its agents again in each of their processes is told how to be written."""
    file = station.folder / "program.py"
    file.write_text(textwrap.dedent(PROGRAM.format(mark=station.mark, guarded="if True:")))
    subprocess.run([sys.executable, file], check=True, timeout=WITHIN)
    (exited,) = station.exits(f"a-{station.mark}")
    assert exited.cause is Cause.ERROR
    assert "would start all agents once more" in exited.detail


KILLED = """
    import flyball
    from tests.runtimes.agent import crew

    guard = flyball.open("program", state_dir={folder!r})
    for agent in (crew.spins, crew.holds_the_interpreter, crew.forks, crew.ends_in_order):
        guard.agent(f"{{agent.__name__}}-{mark}", isolation="process")(agent)

    if __name__ == "__main__":
        guard.run()
"""


LIFELINE = """
import fcntl, os, sys, time
if {without}:
    vars(fcntl).pop("F_SETSIG", None)
from flyball.runtimes.lifeline import die_with
die_with(0)
os.fork()
os.write(1, b"up\\n")
time.sleep(600)
"""


@pytest.mark.parametrize("without", [False, True], ids=["kernel", "thread"])
def test_lifeline(without: bool) -> None:
    """A closed lifeline ends a worker and what it started: by the kernel, or where that cannot, by a thread."""
    text = LIFELINE.format(without=without)
    command = [sys.executable, "-c", text]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert [child.stdout.readline(), child.stdout.readline()] == [b"up\n", b"up\n"]
        child.stdin.close()
        assert child.stdout.read() == b""  # at its end only when both are gone
        assert child.wait(WITHIN) == -signal.SIGKILL


def test_killed_program(station: Station) -> None:
    """Workers die with their program, also when it is killed and they hang; the next one finds their runs lost, counts
    each once, and starts it once."""
    file = station.folder / "program.py"
    file.write_text(textwrap.dedent(KILLED.format(folder=str(station.folder), mark=station.mark)))
    names = [station.name(what) for what in ("spins", "holds_the_interpreter", "forks", "ends_in_order")]
    program = subprocess.Popen([sys.executable, file], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        for name in names:
            run(station.begun(name))
    finally:
        program.kill()
        program.wait()
    run(until(lambda: not processes(station.mark)))
    assert [station.exits(name) for name in names] == [[], [], [], []]
    for name in names:
        station.guard.agent(name, isolation="process", restart="never")(crew.returns)
    station.run()
    for name in names:
        assert [exited.cause for exited in station.exits(name)] == [Cause.LOST, Cause.DONE]
        assert station.starts(name) == 2


def test_remains_of_a_killed_program(station: Station) -> None:
    """What had left the process group of a killed worker is ended before its agent is started again."""
    file = station.folder / "program.py"
    text = KILLED.format(folder=str(station.folder), mark=station.mark).replace("crew.spins", "crew.forks_away")
    file.write_text(textwrap.dedent(text))
    name = station.name("forks_away")
    program = subprocess.Popen([sys.executable, file], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        left = run(station.begun(name))
    finally:
        program.kill()
        program.wait()
    run(until(lambda: processes(station.mark) in ([left], [])))
    station.guard.agent(name, isolation="process", restart="never")(crew.returns)
    station.run()
    assert kernel.stat(left) is None or left not in processes(station.mark)
    assert [exited.cause for exited in station.exits(name)] == [Cause.LOST, Cause.DONE]


def test_fork_of_the_program_does_not_keep_workers(station: Station) -> None:
    """A fork of the program that outlives it does not count as the program."""
    file = station.folder / "program.py"
    text = KILLED.format(folder=str(station.folder), mark=station.mark).replace(
        "guard.run()", "import threading; threading.Timer(0, fork_soon).start(); guard.run()"
    )
    forking = f"""
import os, pathlib, time

def fork_soon():
    while not pathlib.Path({str(station.folder / station.name("spins"))!r}).exists():
        time.sleep(0.01)
    if os.fork() == 0:
        pathlib.Path({str(station.folder)!r}, "new").write_text(str(os.getpid()))
        pathlib.Path({str(station.folder)!r}, "new").rename({str(station.folder / "fork")!r})
        time.sleep(600)
        os._exit(0)
"""
    file.write_text(forking + textwrap.dedent(text))
    program = subprocess.Popen([sys.executable, file], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    fork = 0
    try:
        fork = run(station.begun("fork"))
        program.kill()
        run(until(lambda: not processes(station.mark)))
        assert kernel.stat(fork) is not None
    finally:
        program.kill()
        program.wait()
        if fork:
            os.kill(fork, signal.SIGKILL)
