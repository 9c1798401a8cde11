"""Whoever began with the first flyball that kept anything goes on with this one: on the same file, with all that is in
it."""

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from flyball import app
from flyball.cli import main
from flyball.config import Settings
from flyball.core.codec import decode_body
from flyball.core.event import Start
from flyball.store import schema
from tests.daemon.site import Site

FILE = Path(__file__).parent / "first_state_file.sql"
STATES = {"live": "healthy", "mail": "paused", "shop": "finished", "web": "quarantined", "worker": "halted"}
"""What each unit was when its flyball was ended for the last time."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder as it was left."""
    for name in [name for name in os.environ if name.startswith("FLYBALL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "state"
    made.mkdir(mode=0o700)
    connection = apsw.Connection(str(made / "state.db"))
    connection.execute(FILE.read_text()).fetchall()
    connection.close()
    monkeypatch.setenv("FLYBALL_STATE_DIR", str(made))
    return made


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_units_are_what_they_were(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Held stays held, for the same reason, and what to do about it is told."""
    status = _json(capsys, "status")
    assert {unit["name"]: unit["state"] for unit in status["units"]} == STATES
    web = _json(capsys, "why", "web")
    assert web["start"]["verb"] == "hold"
    assert [failure["count"] for failure in web["unit"]["failures"]] == [6]
    assert _json(capsys, "why", "mail")["unit"]["reasons"][0]["text"] == "paused by ann: on holiday"
    assert _json(capsys, "budgets")["budgets"][0]["spent"] == 200_000


def test_journal_is_kept(folder: Path) -> None:
    """Every entry can be read, the numbers go on without a gap, and the file is as a new one would be."""
    with closing(app.open_store(Settings(), os.environ)) as store:
        entries = store.entries(limit=1000)
        assert [entry.seq for entry in entries] == list(range(1, 28))
        events = [decode_body(entry.body).event for entry in entries]
        assert [event.unit for event in events if isinstance(event, Start)] == ["web"] * 6 + ["shop", "live", "web"]
        assert list(store.integrity()) == []
    connection = apsw.Connection(str(folder / "state.db"))
    assert connection.pragma("user_version") == schema.VERSION
    connection.close()


def test_people_put_it_right(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was held then is let go now."""
    for words in (["reset", "abcdef01"], ["resume", "worker"], ["resume", "mail"]):
        assert main(words) == 0, capsys.readouterr().err
    capsys.readouterr()
    units = _json(capsys, "status")["units"]
    assert {unit["name"] for unit in units if unit["held"]} == set()


@pytest.mark.slow
def test_a_daemon_goes_on_with_it(folder: Path) -> None:
    """After years it wants to hear that its clock is right. Then it starts what was lost, and nothing that is held."""
    site = Site(folder.parent)
    try:
        site.write({"live": {"command": ["sleep", "1000"]}})
        site.flyball("up", "-d")
        assert site.ask("problems")["problems"][0]["code"] == "clock_jumped"
        site.flyball("resume")
        site.all_up("live")
        held = {name: unit["state"] for name, unit in site.status().items() if unit["held"]}
        assert held == {name: STATES[name] for name in ("mail", "web", "worker")}
        site.down()
    finally:
        site.clean()
