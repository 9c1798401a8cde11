"""`flyball check`."""

import json
from pathlib import Path

import pytest

from flyball.cli import main
from flyball.config import Settings


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own, without variables of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    for name in ("FLYBALL_CONFIG", "MAX_COST_PER_SESSION", "DELIBERATION_TIMEOUT_SECONDS"):
        monkeypatch.delenv(name, raising=False)


SETTINGS = len(list(Settings().effective()))
GOOD = "rule: {timeout_seconds: 5}\n"
ODD = "circuit_breaker: {failure_threshold: 2}\n"
BAD = "quarentine: {}\nrule: {timeout_seconds: soon}\n"


@pytest.mark.parametrize("arguments", [["check"], ["check", "flyball.yaml"]])
def test_good(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A good file, named or found: one line, exit 0."""
    Path("flyball.yaml").write_text(GOOD)
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert shown.out == f"flyball.yaml: fine (1 given, {SETTINGS - 1} by default)\n"
    assert shown.err == ""


def test_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    """No file is fine too: all is at its default."""
    assert main(["check"]) == 0
    assert capsys.readouterr().out == f"no settings file: fine (0 given, {SETTINGS} by default)\n"


def test_warnings_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings do not make a file bad."""
    Path("flyball.yaml").write_text(ODD)
    assert main(["check"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("flyball.yaml: fine")
    assert shown.err.startswith(
        "warning: flyball.yaml:1:38: circuit_breaker.failure_threshold: 2 failures never open it"
    )


def test_bad(capsys: pytest.CaptureFixture[str]) -> None:
    """A bad file: every problem with FILE:LINE:COLUMN and the nearest key, exit 2."""
    Path("mine.yaml").write_text(BAD)
    assert main(["check", "mine.yaml"]) == 2
    shown = capsys.readouterr()
    first, second = shown.err.splitlines()
    assert first.startswith("mine.yaml:1:1: unknown key 'quarentine'; did you mean 'quarantine'?")
    assert second.startswith('mine.yaml:2:25: rule.timeout_seconds is "soon"; allowed: a number')
    assert shown.out == ""


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [(GOOD, 0, (True, 0, 0)), (ODD, 0, (True, 0, 1)), (BAD, 2, (False, 2, 0))],
)
def test_json(text: str, code: int, said: tuple[bool, int, int], capsys: pytest.CaptureFixture[str]) -> None:
    """The same for a script: whether it is good, its problems, its warnings."""
    Path("flyball.yaml").write_text(text)
    assert main(["check", "--json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], len(found["problems"]), len(found["warnings"])) == said


def test_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not there is a bad one."""
    assert main(["check", "nowhere.yaml"]) == 2
    assert capsys.readouterr().err == "nowhere.yaml: No such file or directory\n"
