"""`flyball doctor`."""

import json
from pathlib import Path

import pytest

from flyball.cli import main
from tests.cli.state import alone


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def test_all_is_well(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, a remedy below where there is one, and a sum; it makes no state folder."""
    assert main(["doctor", "--only", "python,settings", "--only", "store"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in shown[:-2]] == [
        ["ok", "python"],
        ["ok", "settings"],
        ["ok", "store"],
        ["ok", "store"],
    ]
    assert shown[-1] == "4 ok, 0 warnings, 0 bad"
    assert not states.exists()


def test_something_is_bad(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what to do, and exits 1."""
    Path("flyball.yaml").write_text("budget: 3\n")
    assert main(["doctor", "--no-send"]) == 1
    shown = capsys.readouterr().out
    assert "flyball.yaml:1:9: budget is 3" in shown
    assert "Put it right; `flyball check` says whether it is." in shown


def test_warnings(states: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no failure, unless that is asked for."""
    monkeypatch.setenv("FLYBALL_STATEDIR", "x")
    assert main(["doctor", "--only", "variables"]) == 0
    assert "did you mean FLYBALL_STATE_DIR?" in capsys.readouterr().out
    assert main(["doctor", "--only", "variables", "--strict"]) == 1


def test_json(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For scripts."""
    Path("flyball.yaml").write_text("budget: 3\n")
    assert main(["doctor", "--only", "settings", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is False
    assert said["counts"] == {"ok": 0, "warning": 0, "bad": 1}
    assert set(said["findings"][0]) == {"check", "level", "text", "remedy"}


def test_another_file(states: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The settings may be named."""
    Path("other.yaml").write_text("units: {a: {command: [sh]}}\n")
    assert main(["doctor", "--only", "settings,units", "--config", "other.yaml"]) == 0
    assert "other.yaml: 1 value given, 1 unit" in capsys.readouterr().out


def test_an_unknown_check(capsys: pytest.CaptureFixture[str]) -> None:
    """It says what may have been meant."""
    assert main(["doctor", "--only", "stroe"]) == 2
    assert "no check 'stroe'; did you mean store?" in capsys.readouterr().err
