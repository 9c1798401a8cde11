"""`flyball config`."""

import json
from pathlib import Path

import pytest

from flyball.cli import main
from flyball.config import Settings


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own, with one file and one variable."""
    monkeypatch.chdir(tmp_path)
    for name in ("FLYBALL_CONFIG", "MAX_COST_PER_SESSION", "DELIBERATION_TIMEOUT_SECONDS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLYBALL_BUDGET__TIERS__FREE", "0.25")
    Path("flyball.yaml").write_text("rule:\n  timeout_seconds: 5\n")


KEYS = [value.key for value in Settings().effective()]


def test_config(capsys: pytest.CaptureFixture[str]) -> None:
    """Every setting, one line each."""
    assert main(["config"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == KEYS
    assert lines[KEYS.index("rule.timeout_seconds")].split() == ["rule.timeout_seconds", "5.0"]


def test_origin(capsys: pytest.CaptureFixture[str]) -> None:
    """With --origin, where each came from: default, FILE:LINE:COLUMN, or the variable."""
    assert main(["config", "--origin"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["rule.timeout_seconds"].split() == ["5.0", "flyball.yaml:2:20"]
    assert lines["budget.tiers.free"].split() == ["0.25", "FLYBALL_BUDGET__TIERS__FREE"]
    assert lines["budget.tiers.pro"].split() == ["2.00", "default"]
    assert lines["quarantine.cooldown_ladder_seconds"].endswith("default")


def test_long_value(capsys: pytest.CaptureFixture[str]) -> None:
    """A value of many columns does not push the origins of the others out of sight."""
    Path("flyball.yaml").write_text(
        f"rules: {{r: {{triggers: [{{command: true}}], actions: [{{notify: {'x' * 500}}}]}}}}"
    )
    assert main(["config", "--origin"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {len(line) > 200 for line in lines if line.startswith("rules.r.actions")} == {True}
    assert max(len(line) for line in lines if not line.startswith("rules.r.actions")) < 200


@pytest.mark.parametrize("origin", [True, False])
def test_json(origin: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """The same for a script."""
    assert main(["config", "--json", *(["--origin"] if origin else [])]) == 0
    said = json.loads(capsys.readouterr().out)
    assert list(said) == KEYS
    expected = {"value": 5.0, "origin": "flyball.yaml:2:20"} if origin else 5.0
    assert said["rule.timeout_seconds"] == expected


def test_a_file_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is named is the one that is shown."""
    Path("other.yaml").write_text("rule: {timeout_seconds: 8}")
    assert main(["config", "--json", "other.yaml"]) == 0
    assert json.loads(capsys.readouterr().out)["rule.timeout_seconds"] == 8.0


def test_bad_settings(capsys: pytest.CaptureFixture[str]) -> None:
    """Bad settings are an error in one line each, exit 2, without a traceback."""
    Path("flyball.yaml").write_text("rool: 1\nrule: 2\n")
    assert main(["config"]) == 2
    first, second, remedy = capsys.readouterr().err.splitlines()
    assert first.startswith("error: flyball.yaml:1:1: unknown key 'rool'")
    assert second.startswith("error: flyball.yaml:2:7: rule is 2; allowed: a section with timeout_seconds")
    assert remedy == "Put that right, then try again."
