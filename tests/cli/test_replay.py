"""`flyball replay`: history under other settings, as people and scripts see it."""

import asyncio
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

import flyball
from flyball.cli import main
from flyball.core.event import Cause, Exited, Start, Step, Stepped, Work
from flyball.core.time import MINUTE, SECOND
from flyball.governor import Governor
from flyball.store.sqlite import SqliteStore
from flyball.testing.clock import FakeClock
from flyball.testing.simulator import default_policies
from tests.cli.state import alone, scene


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def runs_file(folder: Path, *, zipped: bool = False) -> Path:
    """Three runs: one in a circle that leads nowhere, one in a circle that it leaves in the end, and one that works."""

    def steps(calls: str, rewards: str) -> list[dict[str, Any]]:
        pairs = zip(calls, rewards, strict=True)
        return [
            {"tool": "bash", "args": c, "result": f"of {c}", "error": False, "reward": int(r), "cost": 0.5}
            for c, r in pairs
        ]

    runs = {"circle": ("aaaaaaaa", "00000000"), "late": ("bbbbbc", "000001"), "works": ("abcd", "0123")}
    lines = [json.dumps({"source": "bot", "run": name, "steps": steps(*run)}) for name, run in runs.items()]
    path = folder / ("runs.jsonl.gz" if zipped else "runs.jsonl")
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if zipped else data)
    return path


def settings(folder: Path, text: str) -> str:
    path = folder / "other.yaml"
    path.write_text(text)
    return str(path)


def asked(*words: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    """What it says, as data."""
    assert main(["replay", *words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


CAUTIOUS = "stall: {nudge_at: 4, refuse_at: 20, stop_at: 20, profile: cautious}\n"


@pytest.mark.parametrize("form", ["plain", "gzip", "stdin"])
def test_recorded_runs(
    states: Path, tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both settings beside the record: what is ended, what that saves in steps and money, which wins it loses."""
    path = runs_file(tmp_path, zipped=form == "gzip")
    if form == "stdin":
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    other = settings(tmp_path, CAUTIOUS)
    said = asked("-" if form == "stdin" else str(path), "--with", other, capsys=capsys)
    assert (said["of"], said["count"], said["rated_runs"], said["steps_after_last_gain"]) == ("runs", 3, 3, 7)
    recorded, present, others = said["recorded"], said["present"], said["other"]
    assert (recorded["steps"], recorded["ended"], recorded["spent"]) == (18, 0, {"usd": 9_000_000})
    assert (present["ended"], present["fires"], present["lost_wins"]) == (2, 2, 1)
    assert (present["steps"], present["saved_steps"], present["saved"]) == (12, 6, {"usd": 3_000_000})
    assert present["lost_percent"] == 50
    assert (others["settings"], others["ended"], others["saved_steps"], others["lost_wins"]) == (other, 2, 4, 1)
    assert [case["step"] for case in others["cases"]] == [5, 5]
    assert present["reasons"] == [{"policy": "stall", "code": "going_in_circles", "verb": "stop", "count": 2}]
    assert not list(states.glob("*"))


def test_in_words(states: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table with a column for each side, why, the first cases, and a chart; without it, plain."""
    path, other = runs_file(tmp_path), settings(tmp_path, CAUTIOUS)
    assert main(["replay", str(path), "--with", other]) == 0
    out = capsys.readouterr().out
    lines = {line.split("  ")[0]: line for line in out.splitlines() if "  " in line}
    assert out.startswith(f"3 recorded runs of {path}\n")
    assert lines["steps"].split() == ["steps", "18", "12", "14"]
    assert lines["lost wins"].split() == ["lost", "wins", "1", "(50.00", "%)", "1", "(50.00", "%)"]
    assert "3.00 USD" in lines["saved: money"]
    assert "bot/circle" in out
    assert "loses a win; a circle of one step since step 1" in out
    assert "steps made, by their number (a full block: 3)" in out
    assert main(["replay", str(path), "--plain"]) == 0
    assert "█" not in capsys.readouterr().out


def test_nothing_ran_here(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says so, and makes no files."""
    assert main(["replay"]) == 0
    assert capsys.readouterr().out == "Nothing ran here yet.\n"
    assert not list(states.glob("*"))


def agent_history(states: Path) -> None:
    """An agent in a circle, under the default settings but for a very patient stall policy."""
    clock = FakeClock()
    policies = default_policies("agent")
    states.mkdir(parents=True, exist_ok=True)
    with SqliteStore(states / "state.db") as store:
        governor = Governor(policies, store, clock)
        governor.submit(Start(unit="bot", run="1", holder="h"))
        for number in range(12):
            call = f"c{number}" if number < 4 else "same"
            governor.submit(Step(unit="bot", run="1", pattern="p", call=call))
            clock.move(SECOND)
            work = Work(pattern="p", call=call, result="r")
            if not governor.submit(Stepped(unit="bot", run="1", done=(work,))).proceeds:
                break
        governor.submit(Exited(unit="bot", run="1", cause=Cause.STOPPED))


def test_ones_own_journal_agrees(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the settings that it was recorded under, every decision comes out the same, and it says so. Units that
    report steps are taken for agents."""
    agent_history(states)
    assert main(["replay", "--check"]) == 0
    out = capsys.readouterr().out
    assert "all 18 decisions agree, bit for bit" in out
    said = asked(capsys=capsys)
    assert (said["of"], said["agrees"], said["differing"], said["decisions"]) == ("journal", True, 0, 18)
    assert said["recorded"]["ended"] == said["present"]["ended"] == 1
    assert said["other"] is None


def test_units_that_a_program_defines(states: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a program says of its agents and calls is no setting, but is kept: its journal comes out the same, too.
    Under other settings that stays as it is, and they say the rest."""
    with flyball.open("shop", state_dir=states) as guard:

        @guard.call("fetch", cost="0.10", budget="2.00", loop=(1000, 60))
        def fetch() -> None:
            """Costs money."""

        for _ in range(20):
            fetch()
        with pytest.raises(flyball.OutOfBudget):
            fetch()

        @guard.agent("reader", budget="0.30", restart="never")
        async def reader(ctx: flyball.Context) -> None:
            for number in range(10):
                async with ctx.step("read", call=number, cost="0.10") as step:
                    step.result(number)

        asyncio.run(guard.supervise())
    other = settings(tmp_path, "budget: {per_fleet: 1.50}\n")
    said = asked("--check", "--with", other, capsys=capsys)
    assert said["agrees"]
    spent = [said[side]["spent"]["usd"] for side in ("recorded", "present", "other")]
    assert spent == [2_300_000, 2_300_000, 1_500_000]
    later = asked("--with", settings(tmp_path, "budget: {per_fleet: 50.00}\n"), capsys=capsys)["other"]
    assert ("call_budget", "cost_budget_exceeded") in {
        (reason["policy"], reason["code"]) for reason in later["reasons"]
    }


def test_under_other_settings(states: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stricter ones would have ended it sooner; and where the present ones are not those of the record, it says where
    they part."""
    agent_history(states)
    stricter = settings(tmp_path, "stall: {nudge_at: 2, refuse_at: 2, stop_at: 4}\n")
    said = asked("--with", stricter, capsys=capsys)
    assert said["agrees"]
    assert (said["recorded"]["steps"], said["other"]["steps"], said["other"]["saved_steps"]) == (8, 6, 2)
    assert said["other"]["cases"][0]["unit"] == "bot"
    said = asked("--config", stricter, "--check", capsys=capsys, code=1)
    assert not said["agrees"]
    assert said["first_difference"]["unit"] == "bot"
    assert main(["replay", "--config", stricter]) == 0
    assert "decisions differ; the first is entry" in capsys.readouterr().out


def test_of_processes(states: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Starts that a stricter quarantine would have refused; and only those that are not older than so long."""
    with scene(states) as made:
        for number in range(4):
            made.at((40 - 10 * number) * MINUTE)
            made.fail("web", "f1")
    said = asked("--with", settings(tmp_path, "quarantine: {max_failures_before_quarantine: 2}\n"), capsys=capsys)
    assert said["agrees"]
    assert (said["recorded"]["starts"], said["other"]["starts"], said["other"]["saved_starts"]) == (4, 2, 2)
    assert said["other"]["starts_refused"] == 2
    assert asked("--since", "15m", capsys=capsys)["recorded"]["starts"] == 1


def test_a_journal_that_was_written_out(states: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`flyball events --json` in, the same figures out; if its beginning is missing, it says so."""
    agent_history(states)
    assert main(["events", "--json", "-n", "100"]) == 0
    lines = capsys.readouterr().out.splitlines()
    path = tmp_path / "journal.jsonl"
    path.write_text("\n".join(lines))
    said = asked(str(path), capsys=capsys)
    assert (said["of"], said["agrees"], said["count"], said["recorded"]["steps"]) == ("export", True, len(lines), 8)
    path.write_text("\n".join(lines[3:]))
    assert "It begins with entry 4" in asked(str(path), capsys=capsys)["notes"][0]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "there is nothing in it"),
        ("hello\n", ":1: neither a recorded run nor an entry of a journal: JSON is malformed"),
        ('{"a": 1}\n', ":1: neither a recorded run nor an entry of a journal: it has the keys a"),
        ('{"steps": []}\n\n{"steps": 3}\n', ":3: Expected `array`, got `int` - at `$.steps`"),
        ('{"seq": 1, "data": {}, "at": 1, "verb": "proceed"}\n', ":1: Object missing required field `event`"),
        ('{"seq": 1, "data": {"event": "beat"}, "at": 1, "verb": "go"}\n', ":1: verb is 'go'; allowed: proceed, wait"),
    ],
)
def test_broken_files(states: Path, tmp_path: Path, text: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong, in which line, and what to do; nothing is printed as if it were whole."""
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    assert main(["replay", str(path)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"error: {path}{'' if error.startswith(':') else ': '}{error}" in shown.err
    assert len(shown.err.splitlines()) == 2


def test_broken_lines_can_be_left_out(states: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If so told; and it says how many they were."""
    path = runs_file(tmp_path)
    path.write_text(path.read_text() + "{\nnull\n")
    assert main(["replay", str(path)]) == 2
    assert "--skip-broken" in capsys.readouterr().err
    assert asked(str(path), "--skip-broken", capsys=capsys)["broken_lines"] == 2


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["none.jsonl"], "none.jsonl: No such file or directory"),
        (["--with", "none.yaml"], "none.yaml: No such file or directory"),
        (["--since", "soon"], "'soon' is not a length of time"),
        (["runs.jsonl", "--since", "1h"], "--since is for journals"),
        (["--kind", "dog"], "is not one of"),
    ],
)
def test_bad_usage(
    states: Path, tmp_path: Path, words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A clear error, and code 2."""
    runs_file(tmp_path)
    assert main(["replay", *words]) == 2
    assert error in capsys.readouterr().err
