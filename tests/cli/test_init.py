"""`flyball init`."""

import json
from pathlib import Path

import pytest

from flyball.cli import main
from tests.cli.state import alone


@pytest.fixture(autouse=True)
def _states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(tmp_path, monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    agent = tmp_path / "bin" / "claude"
    agent.parent.mkdir()
    agent.write_text("#!/bin/sh\n")
    agent.chmod(0o755)


def test_it_writes_a_good_file(capsys: pytest.CaptureFixture[str]) -> None:
    """With what was found, and with what to do next, in two lines; `flyball check` likes it."""
    Path("Procfile").write_text("web: python app.py\n")
    assert main(["init"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[:3] == [
        "found claude: PATH",
        "found web: Procfile",
        "wrote flyball.yaml with 2 units to choose from, as comments",
    ]
    assert len(shown) == 5
    assert "`flyball run -- claude …`" in shown[-1]
    assert main(["check"]) == 0
    assert Path("flyball.schema.json").is_file()


def test_never_over_another(capsys: pytest.CaptureFixture[str]) -> None:
    """What is there stays, unless that is said; then it is kept."""
    Path("flyball.yaml").write_text("# mine\n")
    assert main(["init"]) == 2
    assert "flyball.yaml is there already" in capsys.readouterr().err
    assert Path("flyball.yaml").read_text() == "# mine\n"
    assert not Path("flyball.schema.json").exists()
    assert main(["init", "--force"]) == 0
    assert "what was there is flyball.yaml.1.bak" in capsys.readouterr().out
    assert Path("flyball.yaml.1.bak").read_text() == "# mine\n"


@pytest.mark.parametrize(("name", "text"), [("framework.yaml", ""), ("pyproject.toml", "[tool.flyball]\n")])
def test_settings_of_another_name(name: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that flyball reads already would be hidden by a new one: so there is none, unless that is said."""
    Path(name).write_text(text)
    assert main(["init"]) == 2
    assert f"{name} has settings that flyball reads" in capsys.readouterr().err
    assert not Path("flyball.yaml").exists()
    assert main(["init", "--force"]) == 0


@pytest.mark.parametrize("arguments", [["--dry-run"], ["-"]])
def test_only_print(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is written; what is printed is a good file, and nothing else."""
    Path("flyball.yaml").write_text("# mine\n")
    assert main(["init", *arguments]) == 0
    shown = capsys.readouterr().out
    assert sorted(path.name for path in Path().iterdir()) == ["bin", "flyball.yaml"]
    Path("flyball.yaml").write_text(shown)
    assert main(["check"]) == 0


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """What was found, and what was written."""
    assert main(["init", "--json", "--dry-run"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [offer["name"] for offer in said["offers"]] == ["claude"]
    assert said["written"]["file"] == ""
    assert main(["init", "mine.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["written"]["file"] == "mine.yaml"
    assert Path("mine.yaml").is_file()
