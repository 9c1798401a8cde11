"""Calls of rules: real functions, in a real process."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from flyball.config.rules import Call, Run
from flyball.core import event, failure
from flyball.runtimes.process import kernel, strays
from flyball.runtimes.rule import marks, wire
from flyball.runtimes.rule.deed import TIMED_OUT, ActionFailed
from tests.runtimes.process.stage import is_alive, until
from tests.runtimes.rule.actions.stage import Guard, Stage, do, done, failed, mark, over, run

MODULE = """
import asyncio, ctypes, os, pathlib, signal, subprocess, sys, time

class Odd(Exception):
    pass

class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text")

class Place:
    @staticmethod
    def inside(word="x"):
        return word

NUMBER = 5
COUNT = 0

def add(one, two=2):
    return one + two

def count():
    global COUNT
    COUNT += 1
    return COUNT

async def later(word):
    await asyncio.sleep(0)
    return word

async def fails_later():
    await asyncio.sleep(0)
    raise Odd("later")

def awaits():
    return later("awaited")

def says(word):
    print("out", word)
    print("err", word, file=sys.stderr)
    sys.stdout.write("no line break")

def fails(word="x"):
    raise Odd(f"at 12:00:01 {word}")

def fails_deeply(word="x"):
    fails(word)

def silent():
    raise Silent

def leaves(code=0):
    sys.exit(code)

def vanishes(code=0):
    print("last words", flush=True)
    os._exit(code)

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def crashes():
    ctypes.string_at(0)

def forks():
    if os.fork() == 0:
        return "child"
    return "parent"

def hangs(folder):
    pathlib.Path(folder, "up").touch()
    while True:
        time.sleep(0.01)

def hangs_in_c(folder):
    import re
    pathlib.Path(folder, "up").touch()
    re.match(r"(a+)+b", "a" * 60)

def clings(folder):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["setsid", "sleep", "60"])
    pathlib.Path(folder, "up").touch()
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass

def starts():
    return subprocess.Popen(["sleep", "60"]).pid

def starts_and_lets_go():
    subprocess.Popen(["setsid", "-f", "sleep", "60"]).wait()

def no_memory():
    raise MemoryError("none left")

def no_files():
    import errno
    raise OSError(errno.EMFILE, "Too many open files")

def not_there():
    open("/nowhere/at/all")

def starved():
    import flyball
    raise flyball.Starved("quota")

def closes():
    os.closerange(3, 100)
    return 1

def thing():
    return object()

def much(size):
    return "x" * size

def leaves_one(folder):
    subprocess.Popen(["sleep", "60"], start_new_session=True)
    hangs(folder)

def where(word):
    seen = pathlib.Path("/proc/self/cmdline").read_text() + repr(dict(os.environ))
    told = [os.environ["FLYBALL_RUN"], os.environ["FLYBALL_FIRING"], sys.stdin.read(), word in seen]
    return [os.getcwd(), sys.path[0], *told]
"""


@pytest.fixture
def module(stage: Stage) -> str:
    """Where a rule's own functions are."""
    name = f"m{stage.name[2:]}"
    stage.file(f"{name}.py", textwrap.dedent(MODULE))
    return name


def call(stage: Stage, place: str, **arguments: Any) -> Call:
    return Call(function=place, arguments=arguments, path=str(stage.folder))


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("add", {"one": 1}, 3),
        ("add", {"one": [1], "two": [2, {"a": None}]}, [1, 2, {"a": None}]),
        ("later", {"word": "ünï"}, "ünï"),
        ("awaits", {}, "awaited"),
        ("Place.inside", {}, "x"),
        ("Place.inside", {"word": "y"}, "y"),
        ("says", {"word": "x"}, None),
        ("forks", {}, "parent"),
        ("much", {"size": 200_000}, "x" * 200_000),
    ],
)
def test_result(stage: Stage, module: str, name: str, arguments: dict[str, Any], result: Any) -> None:
    """What a function returns is the action's result; coroutines are waited for."""
    assert done(stage.scene(), call(stage, f"{module}:{name}", **arguments)) == {"result": result}


def test_prints_into_the_log(stage: Stage, module: str) -> None:
    """What a function prints is in the rule's log."""
    done(stage.scene(), call(stage, f"{module}:says", word="x"))
    assert "out x" in stage.log
    assert "err x" in stage.log
    assert "no line break" in stage.log


def test_where_it_is(stage: Stage, module: str) -> None:
    """Its folder is that of the rule's file, first on the path as well; it knows its firing, and has no input. What it
    is given cannot be seen in the list of processes."""
    scene = stage.scene()
    place, first, *told = done(scene, call(stage, f"{module}:where", word="hunter2hunter2"))["result"]
    assert place == first == str(stage.folder)
    assert told == [marks.of_worker(scene.run), scene.firing.id, "", False]


def test_guardian_knows(stage: Stage, module: str) -> None:
    """The guardian is told of the worker, and told again when it is gone."""
    guard: Any = Guard()
    done(stage.scene(guard=guard), call(stage, f"{module}:count"))
    assert (len(guard.noted), guard.known) == (1, set())


def test_one_worker_for_a_run(stage: Stage, module: str) -> None:
    """The calls of a run share a process, also after one of them failed; those of another run have another."""

    async def play() -> list[Any]:
        found = []
        for _ in range(2):
            scene = stage.scene()
            for _ in range(2):
                found.append((await do(scene, call(stage, f"{module}:count")))["result"])
                with pytest.raises(ActionFailed):
                    await do(scene, call(stage, f"{module}:fails"))
            await over(scene)
            assert stage.processes() == []
        return found

    assert run(play()) == [1, 2, 1, 2]


FAILURES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "raises": ("fails", {}, {"error": "{module}.Odd", "target": "{module}.py:fails"}),
    "raises deeper": (
        "fails_deeply",
        {},
        {"error": "{module}.Odd", "target": "{module}.py:fails_deeply, {module}.py:fails"},
    ),
    "raises later": ("fails_later", {}, {"error": "{module}.Odd", "target": "{module}.py:fails_later"}),
    "raises without a text": ("silent", {}, {"error": "{module}.Silent", "target": "{module}.py:silent"}),
    "exits": ("leaves", {}, {"error": "SystemExit", "target": "{module}.py:leaves"}),
    "no memory": ("no_memory", {}, {"error": "MemoryError", "starved": True}),
    "no files": ("no_files", {}, {"error": "OSError", "errno": 24, "starved": True}),
    "no quota": ("starved", {}, {"error": "flyball.runtimes.agent.ending.Starved", "starved": True}),
    "file not there": ("not_there", {}, {"error": "FileNotFoundError", "errno": 2}),
    "no such function": ("nothing", {}, {"error": "FunctionNotFound", "final": True}),
    "no function": ("NUMBER", {}, {"error": "FunctionNotFound", "final": True}),
    "wrong arguments": ("add", {"three": 3}, {"error": "BadArguments", "final": True}),
    "no JSON": ("thing", {}, {"error": "ResultNotJson", "final": True}),
    "too much": ("much", {"size": wire.RESULT_MAX}, {"error": "ResultTooLong", "final": True}),
    "process ended": ("vanishes", {}, {"error": "ProcessEnded", "code": 0, "detail": "last words"}),
    "process ended with a code": ("vanishes", {"code": 3}, {"error": "exit 3", "code": 3, "detail": "last words"}),
    "process killed": ("killed", {}, {"error": "SIGKILL", "signal": signal.SIGKILL}),
    "process crashed": ("crashes", {}, {"error": "SIGSEGV", "signal": signal.SIGSEGV}),
}


def seen(error: ActionFailed) -> dict[str, Any]:
    names = ("error", "target", "code", "signal", "errno", "final", "starved", "detail")
    return {name: getattr(error, name) for name in names}


@pytest.mark.parametrize("case", FAILURES)
def test_failures(stage: Stage, module: str, case: str) -> None:
    """Each way to fail has its name, and the same fingerprint each time; nothing of it is left."""
    name, arguments, expected = FAILURES[case]
    errors = [failed(stage.scene(), call(stage, f"{module}:{name}", **arguments)) for _ in range(2)]
    filled = {key: value.format(module=module) if isinstance(value, str) else value for key, value in expected.items()}
    found = seen(errors[0])
    assert found == {**found, "final": False, "starved": False, **filled}
    assert mark(errors[0]) == mark(errors[1])


def test_what_it_says_is_not_its_name(stage: Stage, module: str) -> None:
    """The same failure with other words has the same fingerprint; people see the words, and the stack."""
    errors = [failed(stage.scene(), call(stage, f"{module}:fails", word=word)) for word in ("red", "green")]
    assert mark(errors[0]) == mark(errors[1])
    assert str(errors[1]) == "at 12:00:01 green"
    assert "in fails" in errors[1].detail
    assert "worker.py" not in errors[1].detail


@pytest.mark.parametrize(
    ("place", "text", "error", "final"),
    [
        ("nowhere:f", "", "FunctionNotFound", True),
        ("nowhere.at.all:f", "", "FunctionNotFound", True),
        ("broken:f", "import nowhere", "ModuleNotFoundError", False),
        ("broken:f", "def f(:", "SyntaxError", False),
        ("broken:f", "1 / 0", "ZeroDivisionError", False),
        ("broken:f", "import sys; sys.nothing", "AttributeError", False),
        ("broken", "", "FunctionNotFound", True),
        (":f", "", "FunctionNotFound", True),
        ("..broken:f", "", "FunctionNotFound", True),
    ],
)
def test_modules(stage: Stage, place: str, text: str, error: str, final: bool) -> None:
    """A module that is not there, and one that cannot be imported, are two things."""
    stage.file("broken.py", text)
    found = failed(stage.scene(), call(stage, place))
    assert (found.error, found.final) == (error, final)


def test_a_repaired_module(stage: Stage) -> None:
    """What could not be imported is looked at again by the next attempt, in the same worker."""

    async def play() -> Any:
        scene = stage.scene()
        with pytest.raises(ActionFailed):
            await do(scene, call(stage, "mends:f"))
        stage.file("mends.py", "def f(): return 1")
        try:
            return (await do(scene, call(stage, "mends:f")))["result"]
        finally:
            await over(scene)

    assert run(play()) == 1


def test_too_much_is_asked(stage: Stage, module: str) -> None:
    """What is longer than a question may be is not sent, and starts nothing."""
    scene = stage.scene()
    found = failed(scene, call(stage, f"{module}:add", one="x" * wire.ASKED_MAX))
    assert (found.error, found.final, scene.worker) == ("TooLong", True, None)


# The end.


@pytest.mark.parametrize("name", ["hangs", "hangs_in_c"])
def test_timeout(stage: Stage, module: str, name: str) -> None:
    """A function that takes too long is ended, wherever it is; people see where it was."""
    found = failed(stage.scene(), call(stage, f"{module}:{name}", folder=str(stage.folder)), seconds=2.0)
    assert found.error == TIMED_OUT
    assert name in found.detail
    assert stage.processes() == []


def test_next_attempt_has_a_new_worker(stage: Stage, module: str) -> None:
    """After a timeout, and after the process is gone, the next attempt is made in a new one."""

    async def play() -> list[Any]:
        scene, found = stage.scene(), []
        for name, seconds in (("hangs", 1.0), ("count", 20.0), ("killed", 20.0), ("count", 20.0)):
            arguments = {"folder": str(stage.folder)} if name == "hangs" else {}
            try:
                found.append((await do(scene, call(stage, f"{module}:{name}", **arguments), seconds))["result"])
            except ActionFailed as error:
                found.append(error.error)
        await over(scene)
        return found

    assert run(play()) == [TIMED_OUT, 1, "SIGKILL", 1]


@pytest.mark.parametrize("name", ["hangs", "clings"])
def test_cancelled(stage: Stage, module: str, name: str) -> None:
    """When it is cancelled, all that it started is gone before anybody goes on, whatever it holds on to."""

    async def play() -> None:
        scene = stage.scene()
        doing = asyncio.ensure_future(do(scene, call(stage, f"{module}:{name}", folder=str(stage.folder)), 60.0))
        await until((stage.folder / "up").exists)
        doing.cancel()
        if name == "clings":  # its grace would be five seconds
            await asyncio.sleep(0)
            doing.cancel()
        await asyncio.wait((doing,))
        assert doing.cancelled()
        assert stage.processes() == []
        await over(scene)

    run(play())


def test_cancelled_while_it_starts(stage: Stage, module: str) -> None:
    """There is no moment in which a worker has nobody who ends it."""

    async def play() -> None:
        for turns in range(0, 12, 2):
            scene = stage.scene()
            doing = asyncio.ensure_future(do(scene, call(stage, f"{module}:count"), 60.0))
            for _ in range(turns):
                await asyncio.sleep(0)
            doing.cancel()
            await asyncio.wait((doing,))
            await over(scene)
            assert stage.processes() == []

    run(play())


def test_what_it_started_ends_with_the_run(stage: Stage, module: str) -> None:
    """What a function started lives as long as the run, also beside a command that ends; then it is ended."""

    async def play() -> None:
        scene = stage.scene()
        pid = (await do(scene, call(stage, f"{module}:starts")))["result"]
        await do(scene, call(stage, f"{module}:starts_and_lets_go"))
        await do(scene, Run(command=("/bin/sh", "-c", "(setsid sleep 60 &) ; true")))
        assert is_alive(pid)
        kept = [found for found in stage.processes() if b"sleep" in _command(found)]
        assert len(kept) == 2, "what the function started, and nothing of the command's"
        await over(scene)
        assert stage.processes() == []

    run(play())


def _command(pid: int) -> bytes:
    return kernel._read(f"/proc/{pid}/cmdline")


@pytest.mark.parametrize("name", ["hangs", "hangs_in_c"])
def test_dies_with_the_daemon(stage: Stage, module: str, name: str) -> None:
    """When the daemon is killed the worker dies, whatever it is doing."""
    with _daemon(stage, f"{module}:{name}"):
        assert stage.processes()
    run(until(lambda: stage.processes() == []))


@contextlib.contextmanager
def _daemon(stage: Stage, place: str) -> Iterator[None]:
    """Another process that calls that; as soon as the function is at work. It is killed in the end."""
    text = f"""
        import asyncio
        from pathlib import Path
        from flyball.config.rules import Call
        from tests.runtimes.rule.actions.stage import Stage, do

        async def play():
            folder = {str(stage.folder)!r}
            stage = Stage(Path(folder))
            stage.name = {stage.name!r}
            deed = Call(function={place!r}, arguments=dict(folder=folder), path=folder)
            await do(stage.scene(), deed, 60.0)

        asyncio.run(play())
    """
    daemon = subprocess.Popen([sys.executable, "-c", textwrap.dedent(text)], start_new_session=True)
    try:
        run(until((stage.folder / "up").exists))
        yield
    finally:
        os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()


def test_what_is_left_when_all_were_killed(stage: Stage, module: str) -> None:
    """What had left the worker's group, and outlived the daemon and its guardian, is found by its mark."""
    scene = stage.scene()
    with _daemon(stage, f"{module}:leaves_one"):
        pass
    run(until(lambda: [b"sleep" in _command(pid) for pid in stage.processes()] == [True]))
    assert strays.end({(stage.name, scene.run)}, kernel.detect()) == 0
    assert strays.end({(stage.name, marks.of_worker(scene.run))}, kernel.detect()) == 1


def test_nobody_asks() -> None:
    """Started by hand it does nothing, and says nothing."""
    ended = subprocess.run(
        [sys.executable, "-m", "flyball.runtimes.rule.worker"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, b"", b"")


def test_closes_what_is_not_its_own(stage: Stage, module: str) -> None:
    """A function that closes all files is a failure, and not a hang."""
    found = failed(stage.scene(), call(stage, f"{module}:closes"))
    assert found.error in ("SIGKILL", "SIGTERM", "OSError", "exit 3")


def test_bounds_are_those_of_an_exit() -> None:
    """A worker does not import what says how much is kept: it says the same."""
    assert (wire.DETAIL_MAX, wire.FRAMES_MAX) == (event.DETAIL_MAX, failure.FRAMES_MAX)
