"""`flyball hosts`, `drain` and `move`; and hosts in what the others show."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.capture import CaptureResult

from flyball.cli import main
from flyball.core.host import decode, host_key
from flyball.core.time import MINUTE, SECOND
from tests.cli.state import alone, scene
from tests.control.fleet import join, lose, run_on
from tests.control.scene import Scene

SETTINGS = """\
units:
  free: {command: ["true"]}
  pinned: {command: ["true"], host: b}
  idle: {command: ["true"]}
"""


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    states = alone(tmp_path, monkeypatch)
    (tmp_path / "flyball.yaml").write_text(SETTINGS)
    return states


@pytest.fixture
def fleet(states: Path) -> Iterator[Scene]:
    """Host a, which runs nothing; b, which runs two units; and c, which is lost. Their leases are long, because the
    command has the machine's clock."""
    with scene(states) as made:
        made.at(MINUTE)
        join(made.governor, "a", until=made.now + 10 * MINUTE, version="1.2", labels={"zone": "north"}, units_max=9)
        join(made.governor, "b", until=made.now + 10 * MINUTE, page="https://b.example/")
        join(made.governor, "c")
        run_on(made.governor, "b", "free", "pinned")
        made.at(30 * SECOND)
        lose(made.governor, "c", runs=3, by="a")
        yield made


def _said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> "CaptureResult[str]":
    assert main([*words]) == code
    return capsys.readouterr()


def test_none(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where there are none that is said, it is fine, and nothing is made."""
    assert (
        _said(capsys, "hosts").out
        == "There are no hosts: they share a PostgreSQL (`store: postgresql://…`), and one runs where a daemon does.\n"
    )
    assert json.loads(_said(capsys, "hosts", "--json").out)["hosts"] == []
    assert not states.exists()


def test_hosts(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each, with what it is, runs and has; then what is wrong with them."""
    lines = _said(capsys, "hosts").out.splitlines()
    assert lines[0].split() == ["HOST", "STATE", "SINCE", "UNITS", "LEASE", "LABELS", "VERSION", "PAGE"]
    shown = {line.split()[0]: re.split(r" {2,}", line) for line in lines[1:4]}
    assert shown["a"][1] == "up"
    assert [shown["a"][3], *shown["a"][-3:]] == ["0 of 9", "zone=north", "1.2", "-"]
    assert (shown["b"][3], shown["b"][-1]) == ("2", "https://b.example/")
    assert (shown["c"][1], shown["c"][3]) == ("lost", "3")
    assert lines[5].startswith("host c lost, 30")
    assert lines[6] == "  its lease ran out, a found; it had 3 runs, which others take over"
    said = json.loads(_said(capsys, "hosts", "--json").out)
    assert [(host["name"], host["state"], host["units"]) for host in said["hosts"]] == [
        ("a", "up", 0),
        ("b", "up", 2),
        ("c", "lost", 3),
    ]


def test_drain(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """What would go and what would wait; then it is done, and undone."""
    would = _said(capsys, "drain", "b", "--dry-run").out.splitlines()
    assert would == [
        "free: would move",
        "pinned: would wait: no other host may run it",
        "Nothing was done: b drains: 1 unit left to others, 1 unit without a host until then",
    ]
    assert not _draining(fleet, "b")
    assert _said(capsys, "drain", "b").out.splitlines()[0] == "free: moves"
    assert _draining(fleet, "b")
    assert "  draining" in _said(capsys, "hosts").out
    assert "1 unit without a host" in _said(capsys, "problems").out
    assert _said(capsys, "drain", "b", "--undo").out == "b takes units again\n"
    assert not _draining(fleet, "b")
    lines = _said(capsys, "audit", "--json").out.splitlines()
    assert [json.loads(line)["verb"] for line in lines] == ["drain", "undrain"]


def _draining(fleet: Scene, host: str) -> bool:
    return decode(fleet.governor.store.states("host")[host_key(host)]).draining


def test_move(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """A unit, by name, to a host, by name."""
    assert _said(capsys, "move", "free", "a").out.splitlines() == ["free: moves", "free to a"]
    said = json.loads(_said(capsys, "move", "free", "a", "--dry-run", "--json").out)
    assert (said["moves"], said["host"]["name"], said["dry_run"]) == (["free"], "a", True)


@pytest.mark.parametrize(
    ("words", "text", "remedy"),
    [
        (["drain", "x"], "no host 'x'; there are a, b", "`flyball hosts` lists all hosts."),
        (["drain", "c"], "the host c is lost", "When it is back it joins by itself"),
        (["move", "pinned", "a"], "a does not fit: pinned asks for the host b", "It may run on b."),
        (["move", "fre", "a"], "no unit 'fre'; did you mean free?", "`flyball status` lists all units."),
        (["drain", "a", "--undo", "--force"], "--force goes with draining", ""),
    ],
)
def test_wrong_input(
    fleet: Scene, capsys: pytest.CaptureFixture[str], words: list[str], text: str, remedy: str
) -> None:
    """An error that says what is wrong and what to do, and exit code 2."""
    _, error = _said(capsys, *words, code=2)
    assert text in error
    assert remedy in error


def test_no_hosts_to_drain(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On one machine there is nothing to drain, and no store is made to find that out."""
    _, error = _said(capsys, "drain", "a", code=2)
    assert "this fleet has no hosts now" in error
    assert not states.exists()


def test_the_last_host(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """It takes --force."""
    _said(capsys, "drain", "a")
    _, error = _said(capsys, "drain", "b", code=2)
    assert "`flyball drain b --force`" in error
    _said(capsys, "drain", "b", "--force")


def test_status_and_why(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """The host of each running unit, on how many hosts the fleet is, and who is lost."""
    lines = _said(capsys, "status").out.splitlines()
    assert lines[0].startswith("Fleet running: 2 of 3 units run on 2 hosts, 1 lost (")
    [head] = [line for line in lines if line.startswith("UNIT")]
    assert head.split()[:3] == ["UNIT", "STATE", "HOST"]
    shown = {line.split()[0]: line.split() for line in lines if line.split()[:1] in (["free"], ["idle"])}
    assert shown["free"][1:4] == ["healthy", "(running)", "b"]
    assert shown["idle"][1:3] == ["healthy", "-"]
    assert "; it runs for 1 min on b\n" in _said(capsys, "why", "free").out


def test_no_column_without_hosts(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On one machine nothing names a host."""
    with scene(states) as made:
        made.start("free")
    assert "HOST" not in _said(capsys, "status").out


@pytest.mark.parametrize("here", [False, True])
def test_logs_are_elsewhere(fleet: Scene, states: Path, capsys: pytest.CaptureFixture[str], here: bool) -> None:
    """Of a unit that another host runs it is said where its log is; old lines from here are printed all the same."""
    unit = "free" if here else "pinned"
    if here:
        (states / "logs").mkdir()
        (states / "logs" / "free.log").write_text("from here\n")
    said = _said(capsys, "logs", unit)
    assert said.out == ("from here\n" if here else "")
    hint = f"{unit} runs on b: what it prints now is there. Its page: https://b.example/\n"
    assert said.err == ("" if here else hint), "with a log, only a daemon is asked"
