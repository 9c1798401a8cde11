"""The quick way to start a process, which a supervisor takes that has sealed itself: nothing about it is different but
the time that it takes."""

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from flyball.core.event import Cause
from flyball.runtimes.process import spawn
from tests.runtimes.process.stage import Stage, run


@pytest.fixture
def leaked(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A sealed process, which was given a file by whoever started it; and no other way to start anything."""
    monkeypatch.setattr(spawn, "_sealed", False)
    descriptor = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    spawn.seal()

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("not in the quick way")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    yield descriptor
    os.close(descriptor)


def printed(stage: Stage, script: str) -> str:
    ending = run(stage.ending(stage.shell(script, cwd="")))
    assert ending.cause is Cause.DONE, ending
    return stage.log.decode().strip()


@pytest.mark.usefixtures("leaked")
def test_nothing_is_inherited(stage: Stage) -> None:
    """It reads nothing, and has no file open that the supervisor was given."""
    out = printed(stage, "cat; readlink /proc/self/fd/0; exec ls /proc/self/fd")
    assert out.split() == ["/dev/null", "0", "1", "2", "3"], "3 is the folder that ls looks at"


@pytest.mark.usefixtures("leaked")
def test_signals_are_as_usual(stage: Stage) -> None:
    """Python ignores SIGPIPE; its children do not."""
    ignored = int(printed(stage, "grep SigIgn /proc/self/status").split()[1], 16)
    assert not ignored & 1 << (signal.SIGPIPE - 1)
    assert not ignored & 1 << (signal.SIGXFSZ - 1)


@pytest.mark.usefixtures("leaked")
def test_it_leads_a_session_of_its_own(stage: Stage) -> None:
    """Pid, group and session are one number."""
    pid, group, session = printed(stage, "ps -o pid=,pgid=,sid= -p $$").split()
    assert pid == group == session


@pytest.mark.parametrize("command", ["/not/there", "/etc/passwd", "/etc", "{script}", "/bin/sh\0x"])
@pytest.mark.usefixtures("leaked")
def test_what_cannot_be_started_is_said_in_the_same_words(
    stage: Stage, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ending of a run that never lived does not depend on the way that was not taken."""
    script = stage.folder / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o700)
    given = command.format(script=script)
    quick = run(stage.ending(stage.hands(given, cwd="")))
    assert (quick.code, quick.signal, quick.cause) == (None, None, Cause.ERROR)
    monkeypatch.undo()
    assert quick == run(stage.ending(stage.hands(given, cwd="")))
