"""Commands of rules: real processes."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from flyball.config.rules import Run
from flyball.runtimes.process.output import LogFile
from flyball.runtimes.rule import child
from flyball.runtimes.rule.actions.run import RESULT_MAX
from flyball.runtimes.rule.deed import TIMED_OUT, Scene
from tests.runtimes.process.stage import IGNORES_TERM, until
from tests.runtimes.rule.actions.stage import Guard, Stage, do, done, failed, mark, over, run


def shell(script: str, **settings: Any) -> Run:
    return Run(command=("/bin/sh", "-c", script), **settings)


def test_result(stage: Stage) -> None:
    """What a command prints is its result, each stream by itself; both are in the rule's log."""
    result = done(stage.scene(), shell("echo one; echo two >&2; echo; printf three"))
    assert result == {"code": 0, "stdout": "one\n\nthree", "stderr": "two"}
    assert all(word in stage.log for word in ("one", "two", "three"))


def test_result_is_cut(stage: Stage) -> None:
    """Of what is longer than a result may be the end is kept, and all of it is in the log."""
    script = f"import sys; sys.stdout.write('a' * {3 * RESULT_MAX} + 'end'); sys.stderr.write('b' * {2 * RESULT_MAX})"
    result = done(stage.scene(), Run(command=(sys.executable, "-c", script)))
    assert len(result["stdout"]) == len(result["stderr"]) == RESULT_MAX
    assert result["stdout"].endswith("aend")
    assert len(stage.log) == 5 * RESULT_MAX + 3


def test_result_is_any_bytes(stage: Stage) -> None:
    """What is no text becomes text that says so."""
    assert done(stage.scene(), shell(r"printf 'a\377b'"))["stdout"] == "a�b"


@pytest.mark.parametrize("word", ["two words", "$(id)", "; id", "'", '"', "*", "-rf", "line\nbreak", "ünï", ""])
def test_words_stay_words(stage: Stage, word: str) -> None:
    """No shell looks at a word, whatever a template put into it."""
    script = "import sys, json; json.dump(sys.argv[1:], sys.stdout)"
    result = done(stage.scene(), Run(command=(sys.executable, "-c", script, word, "last")))
    assert json.loads(result["stdout"]) == [word, "last"]


@pytest.mark.parametrize("size", [0, 10, 200_000])
def test_what_it_is_told(stage: Stage, size: int) -> None:
    """A command can read what fired the rule, however long that is, and sees which firing and which attempt it is."""
    data = {"kind": "command", "data": "x" * size}
    script = "import os, sys, json; print(json.dumps([json.load(sys.stdin)['data'].__len__(), dict(os.environ)]))"
    scene = stage.scene(data)
    length, env = json.loads(done(scene, Run(command=(sys.executable, "-c", script)))["stdout"])
    assert length == size
    assert env["FLYBALL_FIRING"] == scene.firing.id
    assert (env["FLYBALL_ATTEMPT"], env["FLYBALL_TRIGGER"]) == ("1", "command")
    assert (env["FLYBALL_UNIT"], env["FLYBALL_RUN"]) == (stage.name, scene.run)


def test_folder_and_environment(stage: Stage) -> None:
    """It runs where it is told to, with what it is given."""
    result = done(stage.scene(), shell("pwd; echo $COLOUR", cwd=str(stage.folder), env={"COLOUR": "red"}))
    assert result["stdout"].splitlines() == [str(stage.folder), "red"]


TRACE = "def work():\n    raise KeyError({!r})\nwork()"

FAILURES: dict[str, tuple[Run, dict[str, Any]]] = {
    "code": (shell("exit 3"), {"error": "exit 3", "code": 3, "text": "exit 3"}),
    "another code": (shell("exit 4"), {"error": "exit 4", "code": 4}),
    "message": (shell("echo error: no such table; exit 3"), {"error": "exit 3", "text": "error: no such table"}),
    "other message": (shell("echo error: disk is on fire; exit 3"), {"error": "exit 3", "code": 3}),
    "signal": (shell("kill -SEGV $$"), {"error": "SIGSEGV", "signal": signal.SIGSEGV}),
    "traceback": (
        Run(command=(sys.executable, "-c", TRACE.format("apples"))),
        {"error": "KeyError", "code": 1, "target": "<string>:<module>, <string>:work", "text": "'apples'"},
    ),
    "command not there": (Run(command=("no-such-command",)), {"error": "command not found", "final": True}),
    "folder not there": (shell("true", cwd="/nowhere"), {"error": "bad folder", "final": True}),
    "not executable": (Run(command=("/etc/passwd",)), {"error": "not executable", "final": True}),
    "word with a zero byte": (Run(command=("/bin/echo", "a\0b")), {"error": "bad command", "final": True}),
    "too many words": (Run(command=("/bin/echo", "x" * 1_000_000)), {"error": "cannot start", "final": True}),
    "no memory": (Run(command=(sys.executable, "-c", "raise MemoryError")), {"error": "MemoryError", "starved": True}),
    "no memory in C": (
        shell("echo terminate called after throwing an instance of std::bad_alloc; exit 134"),
        {"error": "exit 134", "starved": True},
    ),
    "disk full": (shell("echo 'write error: No space left on device' >&2; exit 1"), {"starved": True}),
}


@pytest.mark.parametrize("case", FAILURES)
def test_failures(stage: Stage, case: str) -> None:
    """Each way to fail has its name, and says whether another attempt could help."""
    deed, expected = FAILURES[case]
    error = failed(stage.scene(), deed)
    seen = {
        "error": error.error,
        "text": str(error),
        "target": error.target,
        "code": error.code,
        "signal": error.signal,
        "final": error.final,
        "starved": error.starved,
    }
    assert seen == {**seen, "final": False, "starved": False, **expected}


def test_fingerprints(stage: Stage) -> None:
    """The same failure has the same fingerprint in every run, and no two failures share one."""
    first = {case: mark(failed(stage.scene(), deed)) for case, (deed, _) in FAILURES.items()}
    again = {case: mark(failed(stage.scene(), deed)) for case, (deed, _) in FAILURES.items()}
    assert first == again
    assert len(set(first.values())) == len(first)


def test_fingerprint_without_what_differs(stage: Stage) -> None:
    """What a traceback says of this one time is not part of the failure's name."""
    marks = {mark(failed(stage.scene(), Run(command=(sys.executable, "-c", TRACE.format(key))))) for key in "ab"}
    assert len(marks) == 1


@pytest.mark.parametrize(("then", "error"), [("exit 1", "exit 1"), ("sleep 60", TIMED_OUT)])
def test_detail(stage: Stage, then: str, error: str) -> None:
    """People see the last lines, also of one whose time was over, without the secrets of its environment."""
    script = f"echo token $TOKEN; {then}"
    found = failed(stage.scene(), shell(script, env={"TOKEN": "hunter2hunter2"}), seconds=0.5)
    assert (found.error, found.detail) == (error, "token ***")
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    ("script", "counted", "starved"),
    [
        ("kill -KILL $$", (7, 8), True),
        ("exit 137", (7, 8), True),
        ("kill -KILL $$", (7, 7), False),
        ("exit 1", (7, 8), False),
    ],
)
def test_out_of_memory(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, script: str, counted: tuple[int, int], starved: bool
) -> None:
    """Who is killed while the kernel kills for want of memory is starved, and has no bug."""
    before, after = counted
    counter = stage.file("vmstat", f"nr_free_pages 1\noom_kill {before}\nother 1\n")
    monkeypatch.setattr(child, "VMSTAT", str(counter))
    assert failed(stage.scene(), shell(f"sed -i 's/{before}/{after}/' {counter}; {script}")).starved is starved


def test_without_a_count_of_the_kernel(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel does not say whom it killed, a killed process is one that was killed."""
    monkeypatch.setattr(child, "VMSTAT", str(stage.folder / "nothing"))
    assert not failed(stage.scene(), shell("kill -KILL $$")).starved


# The end.

TREE = "(setsid sleep 60 &) ; sleep 60 & echo up > up; wait"
"""Two children, of which one left the group and its parent."""


@pytest.mark.parametrize("how", ["timeout", "cancelled", "cancelled twice"])
def test_end(stage: Stage, how: str) -> None:
    """When its time is over, or it is cancelled, all that it started is gone before anybody goes on."""

    async def play() -> None:
        scene = stage.scene()
        deed = shell(TREE, cwd=str(stage.folder))
        doing = asyncio.ensure_future(do(scene, deed, 0.5 if how == "timeout" else 60.0))
        await until(lambda: (stage.folder / "up").exists() and len(stage.processes()) >= 3)
        if how != "timeout":
            doing.cancel()
            if how == "cancelled twice":
                await asyncio.sleep(0)
                doing.cancel()
        await asyncio.wait((doing,))
        assert stage.processes() == []
        if how == "timeout":
            error = doing.exception()
            assert getattr(error, "error", None) == TIMED_OUT
        else:
            assert doing.cancelled()

    run(play())


def test_cancelled_again_takes_the_grace(stage: Stage) -> None:
    """Who is told a second time to end is killed at once, and does not have the rest of its grace."""

    async def play() -> float:
        deed = shell(f"{IGNORES_TERM} echo up > up; while :; do sleep 0.05; done", cwd=str(stage.folder))
        doing = asyncio.ensure_future(do(stage.scene(), deed, 60.0))
        await until((stage.folder / "up").exists)
        began = asyncio.get_running_loop().time()
        doing.cancel()
        await asyncio.sleep(0)
        doing.cancel()
        await asyncio.wait((doing,))
        return asyncio.get_running_loop().time() - began

    assert run(play()) < 4.0


def test_leaves_nothing_behind(stage: Stage) -> None:
    """What a command leaves behind when it ends by itself is ended before the next action begins."""
    assert done(stage.scene(), shell("(setsid sleep 60 &) ; echo done"))["stdout"] == "done"
    assert stage.processes() == []


def test_guardian_knows(stage: Stage) -> None:
    """The guardian is told of it, and told again when it is gone."""
    guard: Any = Guard()
    done(stage.scene(guard=guard), shell("true"))
    failed(stage.scene(guard=guard), shell("exit 1"))
    failed(stage.scene(guard=guard), Run(command=("no-such-command",)))
    assert len(guard.noted) == 2
    assert not guard.known


def test_two_at_the_same_time(stage: Stage) -> None:
    """Two runs of one rule do not end each other, nor take each other's output."""

    async def one(scene: Scene, word: str) -> str:
        script = (
            f"(setsid sleep 60 &) ; echo {word} > {word}; while ! test -e go-{word}; do sleep 0.01; done; echo {word}"
        )
        return str((await do(scene, shell(script, cwd=str(stage.folder))))["stdout"])

    async def play() -> None:
        first = asyncio.ensure_future(one(stage.scene(), "first"))
        second = asyncio.ensure_future(one(stage.scene(), "second"))
        await until(lambda: (stage.folder / "first").exists() and (stage.folder / "second").exists())
        stage.file("go-first", "")
        assert await first == "first"
        assert not second.done()
        assert len(stage.processes()) >= 2, "what the second one started is still there"
        stage.file("go-second", "")
        assert await second == "second"

    run(play())
    assert sorted(stage.log.split()) == ["first", "second"]


def test_one_log_file_for_two(tmp_path: Path) -> None:
    """Two that write to one file turn it over once, and each byte is in one of the files."""
    path = tmp_path / "x.log"
    one, two = LogFile(path, 1_000, 5), LogFile(path, 1_000, 5)
    two.write(b"2" * 10)
    for _ in range(12):
        one.write(b"1" * 100)
        two.write(b"2" * 100)
    one.close()
    two.close()
    files = [path, *sorted(tmp_path.glob("x.log.*"))]
    written = b"".join(file.read_bytes() for file in files)
    assert (written.count(b"1"), written.count(b"2")) == (1_200, 1_210)
    assert len(files) == 2
    assert all(file.stat().st_size <= 2_000 for file in files)


def test_many_fast(stage: Stage) -> None:
    """A rule's commands can follow each other quickly: nothing of one is in the way of the next."""

    async def play() -> None:
        scene = stage.scene()
        for number in range(20):
            assert (await do(scene, shell(f"echo {number}")))["stdout"] == str(number)
        await over(scene)

    run(play())
    assert stage.log.split() == [str(number) for number in range(20)]
