"""`flyball simulate`: what it prints, for a script and for a person, and what it says to bad input."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from flyball.cli import main
from flyball.runtimes.scenarios import SCENARIOS

EXAMPLES = Path(__file__).parents[2] / "examples" / "scenarios"


@pytest.fixture(autouse=True)
def _no_settings_nearby(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["simulate", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize("changing", [False, True])
@pytest.mark.parametrize("uptime", ["0s", "1ms", "3s", "29s", "45s", "10m", "6h", "23h59m"])
def test_always_fails(capsys: pytest.CaptureFixture[str], uptime: str, changing: bool) -> None:
    """For any uptime it is held, within the bound that is printed beside it."""
    found = data(capsys, "always-fails", "--uptime", uptime, *(["--changing-error"] if changing else []))
    assert found["held"] is True
    assert found["held_by"]
    assert found["starts"] <= found["bound"]["starts"] == 51
    assert found["spans_seconds"] > 0
    assert len(found["runs"]) == found["starts"]


def test_fails_once_a_day(capsys: pytest.CaptureFixture[str]) -> None:
    """It is never held, and not started more often than it fails."""
    found = data(capsys, "fails-once-a-day", "--days", "60")
    assert found["held"] is False
    assert found["held_by"] == []
    assert found["starts"] == 60
    assert found["spans_seconds"] is None


@pytest.mark.parametrize(
    ("arguments", "starts", "ended", "by"),
    [
        (["flaps"], 7, "hold", ["flapping"]),
        (["flaps", "--uptime", "10m"], 16, "hold", ["quarantine"]),
        (["loops"], 1, "stop", ["stall"]),
        (["loops", "--kind", "rule"], 1, "stop", ["loop"]),
        (["loops", "--kind", "process"], 1, None, []),
        (["overspends"], 1, "finish", ["budget"]),
        (["hangs"], 6, "hold", ["quarantine"]),
        (["hangs", "--kind", "process", "--days", "1"], 1, None, []),
        (["resumes"], 4, "hold", ["resumes"]),
        (["always-fails", "--starts-max", "2"], 2, None, []),
    ],
)
def test_scenarios(
    capsys: pytest.CaptureFixture[str], arguments: list[str], starts: int, ended: str | None, by: list[str]
) -> None:
    """Each way to misbehave is ended by the safeguard that is there for it; what none is there for is said to go on."""
    unit = data(capsys, *arguments)["units"]["unit"]
    assert (unit["starts"], unit["ended"], unit["ended_by"]) == (starts, ended, by)


def test_storm_pauses_everybody(capsys: pytest.CaptureFixture[str]) -> None:
    """After a restart into many fresh failures nothing starts until a person says so."""
    found = data(capsys, "storm", "--units", "12")
    assert found["held_by"] == ["storm"]
    assert (found["starts"], found["boots"]) == (12, 2)


def test_cascade_holds_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    """An outage of ten minutes that is over leaves nobody held."""
    found = data(capsys, "cascade", "--units", "20")
    assert found["held"] is False
    assert len(found["units"]) == 20


def test_seed(capsys: pytest.CaptureFixture[str]) -> None:
    """The same seed gives the same answer, another seed another."""
    arguments = ["random-faults", "--units", "5", "--days", "1", "--seed"]
    assert data(capsys, *arguments, "3") == data(capsys, *arguments, "3")
    assert data(capsys, *arguments, "3") != data(capsys, *arguments, "4")


def test_settings_count(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Other settings, another answer: also the bound is computed from them."""
    file = tmp_path / "mine.yaml"
    file.write_text(
        "quarantine: {max_failures_before_quarantine: 3, cooldown_ladder_seconds: [1, 2]}\n"
        "restart_policy: {max_restarts_in_a_row: 20}\n"
    )
    found = data(capsys, "always-fails", "--config", str(file))
    assert found["settings"] == str(file)
    assert found["starts"] == 3
    assert found["bound"]["starts"] == 21
    assert data(capsys, "always-fails")["settings"] == "default settings"


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    """A person gets the starts with their waits and reasons, how it ended, the bound, and a chart."""
    code, out, err = run(capsys, "always-fails", "--uptime", "29s")
    assert (code, err) == (0, "")
    assert "Held by quarantine after 6 starts, 38 min 31 s after the first." in out
    assert "at most 51 starts, for any uptime below 1 d; this unit: 6." in out
    assert "waits 30 min" in out
    assert "starts over time" in out
    assert "wait before each start, logarithmic scale" in out
    assert "█" in out


def test_long_tables_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """Of fifty starts the first and the last are shown, and how many are not."""
    _, out, _ = run(capsys, "always-fails", "--uptime", "45s", "--changing-error")
    assert "… 31 more" in out


def test_fleet_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Of many units each is a row."""
    _, out, _ = run(capsys, "storm", "--units", "12")
    assert "12 starts of 12 units in 1 min 10 s; 12 of 12 held, by storm." in out
    assert "unit-12" in out


def test_no_scenario_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name: all of them, with a line each."""
    code, out, _ = run(capsys)
    assert code == 0
    assert all(name in out for name in SCENARIOS)
    assert set(data(capsys)) == set(SCENARIOS)


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_examples(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """The scenarios that come with the project run."""
    found = data(capsys, "--scenario", str(EXAMPLES / name))
    assert found["starts"] > 0


def test_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """--png writes a picture, and says so apart from what is printed."""
    from PIL import Image

    code, out, err = run(capsys, "always-fails", "--png", str(tmp_path / "a.png"), "--json")
    assert code == 0
    assert json.loads(out)["starts"] == 6
    assert "wrote" in err
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "PNG"
        assert len(image.convert("RGB").getcolors(100_000) or []) > 5


@pytest.mark.parametrize("arguments", [["loops"], ["random-faults", "--days", "1"], ["always-fails", "--uptime", "0s"]])
def test_picture_of_anything(capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str]) -> None:
    """One start or hundreds: there is a picture."""
    code, _, _ = run(capsys, *arguments, "--png", str(tmp_path / "a.png"))
    assert code == 0
    assert (tmp_path / "a.png").stat().st_size > 1_000


def test_picture_without_pillow(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the extra is missing, the message names the command that installs it."""
    monkeypatch.setitem(sys.modules, "PIL", None)
    code, _, err = run(capsys, "always-fails", "--png", "a.png")
    assert code == 2
    assert 'pip install "flyball-governor[png]"' in err


def test_picture_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is not there: said, without a traceback."""
    code, _, err = run(capsys, "always-fails", "--png", "nowhere/a.png")
    assert code == 2
    assert "cannot write nowhere/a.png" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["always-fail"], "did you mean always-fails"),
        (["nonsense"], "there are always-fails"),
        (["always-fails", "--uptime", "3x"], "is not a length of time"),
        (["always-fails", "--uptime", "-3s"], "is not a length of time"),
        (["always-fails", "--uptime", "99999d"], "longer than"),
        (["always-fails", "--uptime", "nan"], "is not a length of time"),
        (["always-fails", "--days", "0"], "not between"),
        (["always-fails", "--days", "nan"], "not between"),
        (["always-fails", "--days", "x"], "not a valid float"),
        (["always-fails", "--units", "3"], "--units means nothing to always-fails"),
        (["loops", "--changing-error"], "--changing-error means nothing to loops"),
        (["cascade", "--units", "0"], "--units"),
        (["always-fails", "--kind", "robot"], "robot"),
        (["always-fails", "--starts-max", "0"], "--starts-max"),
        (["always-fails", "--seed", "-1"], "--seed"),
        (["always-fails", "--scenario", "x.yaml"], "not both"),
        (["--scenario", "x.yaml", "--uptime", "3s"], "belongs into the scenario file"),
        (["--scenario", "x.yaml"], "x.yaml"),
        (["always-fails", "--config", "x.yaml"], "x.yaml"),
    ],
)
def test_bad_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    """Exit code 2, and a message that says what is wrong; never a traceback."""
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert says in err
    assert "Traceback" not in err


UNIT = "units:\n  - name: a\n    runs:\n      - "


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "s.yaml:1:1: a scenario is a mapping with `units`"),
        ("- 1", "s.yaml:1:1: a scenario is a mapping"),
        ("units: [", "s.yaml:1:9"),
        ("units: []", "s.yaml:1:1: units"),
        ("kinds: 3\nunits: []", "s.yaml:1:1: unknown key 'kinds'; allowed: units, kind"),
        (UNIT + "uptim: 3s", "s.yaml:4:9: unknown key 'uptim'; allowed: uptime"),
        (UNIT + "uptime: 3x", "s.yaml:4:9: units[0].runs[0].uptime: '3x' is not a length of time"),
        (UNIT + "uptime: [3]", "should be a length of time"),
        (UNIT + "uptime: .nan", "is not a length of time"),
        (UNIT + "cause: bored", "there is no 'bored'; allowed: done, stopped, error"),
        (UNIT + "{steps: [{cost: -1}]}", "s.yaml:4:19: units[0].runs[0].steps[0].cost: should be an amount"),
        (UNIT + "{steps: [{call: a}], pace: 0}", "needs a `pace` above 0"),
        ("units: [{name: a}]", "'runs' is missing"),
        ("units: [{name: a, kind: robot, runs: [{}]}]", "there is no 'robot'; allowed: process, agent"),
        ("units:\n  - {name: a, name: b, runs: [{}]}", "s.yaml:2:15: 'name' is given twice"),
        ("units: [{name: a, runs: [{}]}, {name: a, runs: [{}]}]", "two units are called 'a'"),
        ("units: [{name: a, count: 900, runs: [{}]}, {name: b, count: 900, runs: [{}]}]", "1800 units"),
        ("units: [{name: a, every: 1h, resumes_after: 1h, runs: [{}]}]", "a trigger"),
        ("units: [{name: a, runs: [{}]}]\npeople: [{at: 1s, order: release, unit: b}]", "there is no unit 'b'"),
        ("units: &a [*a]", "s.yaml:1:12: aliases are not allowed"),
        ("[" * 3_000, "nested too deeply"),
        ("\0", "s.yaml"),
    ],
)
def test_bad_scenario_file(capsys: pytest.CaptureFixture[str], text: str, says: str) -> None:
    """Every mistake is told with its place and with what is allowed; exit code 2."""
    Path("s.yaml").write_text(text)
    code, out, err = run(capsys, "--scenario", "s.yaml")
    assert (code, out) == (2, "")
    assert says in err


def test_scenario_file_that_is_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes that are not UTF-8, and a file that nobody wrote by hand."""
    Path("s.yaml").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in run(capsys, "--scenario", "s.yaml")[2]
    Path("s.yaml").write_bytes(b"#" * 1_000_001)
    assert "at most 1000000" in run(capsys, "--scenario", "s.yaml")[2]


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """--help shows commands that can be copied."""
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "flyball simulate always-fails --uptime 29s" in out
