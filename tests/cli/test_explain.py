"""`flyball explain`, and what leads to it."""

import json

import pytest

from flyball.cli import PLAIN, main
from flyball.control.context import CommandError
from flyball.errors import FlyballError, StoreFull
from flyball.explaining import KINDS, pages


def test_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    """What it means, why, what to do, which settings and commands."""
    assert main(["explain", "quarantined"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("quarantined: the same failure too often\n")
    for part in (
        "(HOLD, by the policy quarantine)",
        "The sixth failure with the same fingerprint",
        "What to do: look into it, then `flyball reset` the fingerprint.",
        "  quarantine.max_failures_before_quarantine\n",
        "  flyball reset FINGERPRINT\n",
    ):
        assert part in shown


def test_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a code each is there, once, with its line."""
    assert main(["explain"]) == 0
    shown = capsys.readouterr().out
    names = [line.split()[0] for line in shown.splitlines() if line.startswith("  ")]
    assert sorted(names) == sorted(pages())


def test_of_one_kind(capsys: pytest.CaptureFixture[str]) -> None:
    """Only what was asked for, also what is something else first."""
    assert main(["explain", "--kind", "policy"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(KINDS["policy"])
    assert "  flapping " in shown
    assert "store_full" not in shown


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """For scripts, one or all."""
    assert main(["explain", "cooling", "--json"]) == 0
    page = json.loads(capsys.readouterr().out)
    assert page["name"] == "cooling"
    assert page["kinds"] == ["reason", "state"]
    assert main(["explain", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(pages())


def test_an_unknown_code(capsys: pytest.CaptureFixture[str]) -> None:
    """It says what is near, and exits 2; and does not lead to a page of its own."""
    assert main(["explain", "quarantin"]) == 2
    said = capsys.readouterr().err
    assert "did you mean quarantine or quarantined?" in said
    assert "More:" not in said


@pytest.mark.parametrize(
    ("error", "leads"),
    [
        (StoreFull("no room"), "store_full"),
        (CommandError("no_daemon", "no daemon runs here", remedy="Start one."), "no_daemon"),
        (CommandError("unknown_unit", "no unit 'x'", remedy="Look."), ""),
        (FlyballError("something", remedy="Do."), ""),
    ],
)
def test_errors_lead_to_their_pages(
    error: FlyballError, leads: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the remedy; but not where the text says all there is."""

    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr("flyball.cli.group.run", fail)
    assert main(["check"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[1] == error.remedy
    assert said[2:] == ([f"More: flyball explain {leads}"] if leads else [])


def test_what_has_no_hint_has_a_page() -> None:
    """Even these can be looked up."""
    assert set(pages()) >= PLAIN
