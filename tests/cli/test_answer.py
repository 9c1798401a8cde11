"""`flyball answer`, and where open questions are shown: without a daemon, and through its socket."""

import json
import os
import pwd
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flyball.cli import main
from flyball.core.codec import decode_body
from flyball.core.event import Answered, Asked
from flyball.core.time import MINUTE, SECOND
from tests.cli.running import until
from tests.cli.state import alone, scene
from tests.cli.test_orders import daemon
from tests.control.scene import Scene

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


@pytest.fixture
def asking(states: Path) -> Iterator[Scene]:
    """A unit that has run for some seconds and asks; the clock stands at the present."""
    with scene(states) as made:
        made.at(5 * SECOND)
        made.start("deployer")
        _ask(made, "3fa90001", "Deploy to\nproduction?", choices=("yes", "no"), default="no", until=made.now + MINUTE)
        made.at(0)
        yield made


def _ask(made: Scene, id_: str, text: str, **more: Any) -> None:
    made.governor.submit(Asked(unit="deployer", run="r1", id=id_, text=text, **more))


def _last(made: Scene) -> Any:
    """The last order, before its line of the audit trail."""
    return decode_body(made.governor.store.last_entries(limit=2)[0].body).event


def test_answer(asking: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """It is written down with who gave it, and says what it was the answer to."""
    assert main(["answer", "deployer", "Yes"]) == 0
    assert capsys.readouterr().out == "deployer: answered yes: Deploy to production?\n"
    said = _last(asking)
    assert isinstance(said, Answered)
    assert (said.answer, said.by, said.note, said.heard) == ("yes", ME, "via cli", True)
    assert main(["answer", "deployer", "yes"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: deployer asks nothing\n")
    assert "`flyball status` shows who asks" in shown


def test_several_words_and_several_questions(asking: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """Words need no quotes; which question is meant is said by the first digits of its id."""
    _ask(asking, "77000001", "What else?")
    assert main(["answer", "deployer", "wait", "for", "Monday"]) == 2
    shown = capsys.readouterr().err
    assert "deployer asks 2 questions: 3fa90001: Deploy to" in shown
    assert "--id 3fa90001" in shown
    assert main(["answer", "deployer", "--id", "77", "wait", "for", "Monday", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["answer"], said["question"]["id"]) == ("wait for Monday", "77000001")
    assert [question["id"] for question in said["unit"]["questions"]] == ["3fa90001"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["deployr", "yes"], "did you mean deployer?"),
        (["deployer", "perhaps"], "'perhaps' is no answer"),
        (["deployer", "--id", "9", "yes"], "begins with '9'"),
        (["deployer"], "Missing argument 'TEXT...'"),
    ],
)
def test_mistakes(asking: Scene, words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What was wrong, exit 2, and the question stays open."""
    before = asking.governor.store.read(()).seq
    assert main(["answer", *words]) == 2
    assert says in capsys.readouterr().err
    assert asking.governor.store.read(()).seq == before


def test_where_nothing_ran(states: Path) -> None:
    """A mistake makes no files."""
    assert main(["answer", "x", "yes"]) == 2
    assert not states.exists()


def test_status(asking: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """The unit runs, and what it asks stands beside it; it waits for a person."""
    assert main(["status"]) == 0
    row = capsys.readouterr().out.splitlines()[-1]
    assert row.split()[:3] == ["deployer", "healthy", "(running)"]
    assert row.endswith("asks: Deploy to production? (yes, no)")
    assert main(["status", "--check"]) == 1
    _ask(asking, "77000001", "What else?")
    assert main(["status", "--check", "--json"]) == 1
    capsys.readouterr()
    assert main(["status"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("(and 1 more)")
    for id_ in ("3f", "77"):
        assert main(["answer", "deployer", "--id", id_, "yes"]) == 0
    assert main(["status", "--check"]) == 0


def test_a_hold_is_said_first(asking: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """What is held is ended: its question does not hide that."""
    assert main(["pause", "deployer"]) == 0
    assert "asks" not in capsys.readouterr().out


def test_why(asking: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """What it asks, since when, what it takes if nobody answers, and what to type."""
    assert main(["why", "deployer"]) == 0
    shown = capsys.readouterr().out
    # The past is made by another clock than it is looked at: on a busy machine some time has passed.
    line = r"Asks:       3fa90001 Deploy to production\? \(yes, no\), [\d.]+ s ago; takes no in (1 min|5[\d.]+ s)\n"
    assert re.search(line, shown)
    assert "Answer it: `flyball answer deployer TEXT`." in shown
    assert "asks a person: Deploy to production? (yes, no)" in shown
    _ask(asking, "77000001", "What else?", until=asking.now + MINUTE)
    assert main(["why", "deployer"]) == 0
    shown = capsys.readouterr().out
    assert "What else?" in shown
    assert "gives up in" in shown
    assert "`flyball answer deployer --id 77000001 TEXT`" in shown


def test_with_a_daemon(states: Path, asking: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer goes through its socket, and is the peer's."""
    with daemon(states, asking):
        assert main(["answer", "deployer", "no"]) == 0
        assert main(["answer", "deployer", "no"]) == 2
    assert capsys.readouterr().out == "deployer: answered no: Deploy to production?\n"
    said = _last(asking)
    assert (said.answer, said.by, said.note) == ("no", "peer", "via socket")


# Two processes.

PROGRAM = """
import os

from flyball import app
from flyball.config import load
from flyball.runtimes.holder import me
from flyball.runtimes.questions import ask_and_wait

governor = app.open_governor(load(), os.environ)
print(ask_and_wait(governor, "program", me(), {}, "Deploy?", choices=["yes", "no"]), flush=True)
"""


def _shown(capsys: pytest.CaptureFixture[str]) -> str:
    main(["status", "program"])
    return capsys.readouterr().out


@pytest.mark.parametrize("killed", [False, True])
def test_a_program_that_asks(states: Path, killed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """A program of one's own waits for the answer that is given at another terminal, without a daemon. If it is killed
    while it waits, nobody asks any more."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    try:
        until(lambda: "asks: Deploy? (yes, no)" in _shown(capsys), "the question")
        if killed:
            process.send_signal(signal.SIGKILL)
            process.wait(30)
            assert main(["answer", "program", "yes"]) == 2
            assert "program asks nothing" in capsys.readouterr().err
            assert "asks:" not in _shown(capsys)
        else:
            assert main(["answer", "program", "yes"]) == 0
            assert process.communicate(timeout=30)[0] == "yes\n"
    finally:
        process.kill()
        process.communicate(timeout=30)
