"""`flyball events`, and `flyball logs`."""

import json
from pathlib import Path

import pytest

from flyball.cli import main
from flyball.core.event import Held, Released
from flyball.core.time import HOUR, MINUTE
from flyball.runtimes.process.output import log_path
from tests.cli.state import alone, ended, scene, spawn


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def test_in_plain_words(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line each: when, who, what happened, and what was decided."""
    with scene(states) as made:
        made.at(MINUTE)
        made.fail("web", "abcdef0123456789")
        made.governor.submit(Held(unit="web", by="ann", note="via cli"))
        made.governor.submit(Released(unit="web", policies=("manual",), by="bob"))
        made.governor.submit(Held(scope="fleet", by="ann"))
        made.start("web", again=True)
    assert main(["events"]) == 0
    lines = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "web: started",
        "web: exited: error: exit 3 (abcdef01); waits 2 s: failure 1 of exit 3 (abcdef01): waits 1 s; "
        "a failing exit: waits 2 s",
        "web: paused by ann via cli",
        "web: released by bob: manual",
        "fleet: paused by ann for the fleet",
        "web: asked to start again; is held: paused by ann",
    ]


def test_some(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The newest so many, of one unit, not older than so long."""
    with scene(states) as made:
        made.at(3 * HOUR)
        made.start("old")
        made.at(MINUTE)
        made.start("new")
        made.start("newer")
    for arguments, units in (
        (["-n", "2"], ["new", "newer"]),
        (["old"], ["old"]),
        (["--since", "1h"], ["new", "newer"]),
        (["-n", "0"], []),
    ):
        assert main(["events", "--json", *arguments]) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [data["unit"] for data in found] == units
    assert main(["events", "odl"]) == 2
    assert "no unit 'odl'; did you mean old?" in capsys.readouterr().err
    assert main(["events", "--since", "soon"]) == 2
    assert "'soon' is not a length of time" in capsys.readouterr().err


def test_the_shape_for_scripts(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON object a line, with these keys."""
    with scene(states) as made:
        made.fail("web")
    assert main(["events", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert set(found[0]) == {"seq", "at", "unit", "event", "verb", "until", "text", "reasons", "data"}
    assert found[1]["data"]["cause"] == "error"


@pytest.mark.parametrize("fresh", [True, False])
def test_follow(states: Path, fresh: bool) -> None:
    """What comes is printed when it comes, also where nothing ran before."""
    if not fresh:
        with scene(states) as made:
            made.start("web")
    process = spawn("events", "web", "--follow")
    assert process.stdout is not None
    try:
        if not fresh:
            assert process.stdout.readline().endswith("web: started\n")
        with scene(states) as made:
            made.governor.submit(Held(unit="other"))
            made.governor.submit(Held(unit="web", by="ann"))
            assert process.stdout.readline().endswith("web: paused by ann\n")
    finally:
        ended(process)


# Logs.


def _log(states: Path, unit: str, text: str, older: str = "") -> Path:
    path = log_path(states / "logs", unit)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if older:
        path.with_name(f"{path.name}.1").write_text(older)
    return path


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["-n", "2"], "4\n5\n"),
        (["-n", "0"], ""),
        (["-n", "4"], "2\n3\n4\n5\n"),
        ([], "1\n2\n3\n4\n5\n"),
    ],
)
def test_last_lines(states: Path, arguments: list[str], shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The last lines, of the file before too if there are too few."""
    _log(states, "web", "4\n5\n", older="1\n2\n3\n")
    assert main(["logs", "web", *arguments]) == 0
    assert capsys.readouterr().out == shown


def test_a_large_log(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The end of a large file, and a last line that has no end yet; a line that was written over is one line."""
    _log(states, "web", "".join(f"line {number}\n" for number in range(50_000)) + "half")
    assert main(["logs", "web", "-n", "3"]) == 0
    assert capsys.readouterr().out == "line 49998\nline 49999\nhalf"
    _log(states, "bar", "1 %\r2 %\r3 %\nnext\n")
    assert main(["logs", "bar", "-n", "2"]) == 0
    assert capsys.readouterr().out.endswith("2 %\r3 %\nnext\n")


def test_no_log(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A unit that printed nothing yet is fine; an unknown one is an error, and cannot lead out of the folder."""
    with scene(states) as made:
        made.start("web")
    assert main(["logs", "web"]) == 0
    assert capsys.readouterr().err == "web has printed nothing yet.\n"
    assert main(["logs", "wbe"]) == 2
    assert "did you mean web?" in capsys.readouterr().err
    (states / "secret.log").write_text("secret")
    assert main(["logs", "../secret"]) == 2
    assert "secret\n" not in capsys.readouterr().out


def test_follow_a_log(states: Path) -> None:
    """What is added is printed; so is a new file in its place, and one that was cut back."""
    path = _log(states, "web", "1\n2\n")
    process = spawn("logs", "web", "-f", "-n", "1")
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "2\n"
        with path.open("a") as stream:
            stream.write("3\n")
        assert process.stdout.readline() == "3\n"
        path.rename(path.with_name("web.log.1"))
        path.write_text("4 and more\n")
        assert process.stdout.readline() == "4 and more\n"
        path.write_text("5\n")
        assert process.stdout.readline() == "5\n"
    finally:
        ended(process)
