"""`flyball why`."""

import json
from pathlib import Path

import pytest

from flyball.cli import main
from flyball.core.event import Held, Revise
from flyball.core.time import HOUR
from tests.cli.state import alone, scene


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


def test_why(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The state, every safeguard's opinion, what happened last, the end of the failure, and what to do."""
    with scene(states) as made:
        made.quarantine("web")
        made.fail("web", "abcdef0123456789", detail="Traceback\nValueError: no such row")
        made.governor.submit(Revise(unit="other", revision="r1"))
        made.governor.submit(Held(unit="web", by="ann", note="via cli"))
    assert main(["why", "web"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("web is quarantined since ")
    for part in (
        "Last exit:  error: exit 3 (abcdef01), ",
        "Restarts:   0 in the last hour, 0 in all, 5 by hand",
        "Failure:    abcdef01 exit 3, 7 times, last ",
        "Order:      pause by ann via cli, ",
        "  quarantine: hold: 7 failures of exit 3 (abcdef01) within ",
        "  manual: hold: paused by ann: via cli [paused]",
        "  nothing against it: ",
        "What happened last:",
        "  exited: error: exit 3 (abcdef01); is held: ",
        "  paused by ann via cli",
        "  ValueError: no such row",
        "  Look into it, then `flyball reset abcdef01`",
        "  To go on: `flyball resume web`.",
    ):
        assert part in shown
    assert shown.endswith("  More: `flyball explain paused`, `flyball explain quarantined`.\n")


def test_why_it_waits(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wait says how long it lasts."""
    with scene(states) as made:
        made.at(0)
        made.flap("web", 3)
    assert main(["why", "web"]) == 0
    shown = capsys.readouterr().out
    assert "web is cooling since " in shown
    assert "flap 1 of 5: waits 30 s (until " in shown


def test_what_is_held_does_not_start_by_itself(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where a person is waited for, reasons to wait are shown, but nobody is told that it starts again by itself."""
    with scene(states) as made:
        made.at(HOUR * 7)
        for lives in (HOUR, HOUR, HOUR, HOUR, HOUR):
            made.fail("web", "abcdef0123456789", lives=lives)
        made.at(0)
        made.fail("web", "abcdef0123456789", lives=0)
    assert main(["why", "web"]) == 0
    shown, _, remedies = capsys.readouterr().out.partition("What to do:")
    assert "cooldown: wait: " in shown
    assert "by itself" not in remedies
    assert "`flyball reset abcdef01`" in remedies


def test_why_it_is_healthy(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A unit that runs says so, and nothing has to be done."""
    with scene(states) as made:
        made.at(0)
        made.start("web")
    assert main(["why", "web"]) == 0
    shown = capsys.readouterr().out
    assert "web is healthy since " in shown
    assert "; it runs for " in shown
    assert "What to do" not in shown


def test_why_of_a_lost_run(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run whose holder gave no sign of life is said to be lost."""
    with scene(states) as made:
        made.at(HOUR)
        made.start("web")
    assert main(["why", "web"]) == 0
    assert "was lost, and is counted as a failure at the next start" in capsys.readouterr().out


def test_json(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For scripts: these keys, and so many entries as were asked for."""
    with scene(states) as made:
        made.quarantine("web")
    assert main(["why", "web", "--json", "-n", "2"]) == 0
    said = json.loads(capsys.readouterr().out)
    keys = {"unit", "says", "opinions", "start", "detail", "events", "at", "session", "post_mortem", "rule"}
    assert set(said) == keys
    assert len(said["events"]) == 2
    assert said["unit"]["state"] == "quarantined"
    assert set(said["opinions"][0]) == {"policy", "by", "verb", "reasons"}


def test_unknown(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown unit: what was meant; where nothing ran yet, that."""
    assert main(["why", "web"]) == 2
    assert "no unit 'web'; nothing ran here yet" in capsys.readouterr().err
    with scene(states) as made:
        made.start("web")
    assert main(["why", "wbe"]) == 2
    assert "did you mean web?" in capsys.readouterr().err
