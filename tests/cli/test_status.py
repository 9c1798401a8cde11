"""`flyball status`."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import click
import pytest

from flyball.cli import main
from flyball.core.event import Held
from flyball.core.time import HOUR, MINUTE, SECOND
from tests.cli.running import FLYBALL, Place, Screen
from tests.cli.state import alone, ended, scene, spawn

WORDS = ("healthy", "degraded", "cooling", "quarantined", "halted", "paused", "finished", "stopped")


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "command", [["status"], ["status", "--check"], ["events"], ["reset", "--all", "--yes"], ["resume"]]
)
def test_nothing_yet(command: list[str], states: Path) -> None:
    """Where nothing ran yet, looking is fine and makes no files."""
    assert main(command) == 0
    assert not states.exists()


def test_nothing_yet_is_said(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status says that nothing ran here yet; for scripts, there are no units."""
    assert main(["status"]) == 0
    assert capsys.readouterr().out == "Nothing ran here yet.\n"
    assert main(["status", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["units"] == []
    assert said["fleet"]["state"] == "running"


def test_every_word(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """S0-39: status lists every unit with its word; what is quarantined is among them, with its reason."""
    with scene(states) as made:
        made.everything()
    assert main(["status", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {unit["name"]: unit["state"] for unit in said["units"]} == {f"{word}-one": word for word in WORDS}
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    for word in WORDS:
        [line] = [line for line in shown.splitlines() if line.startswith(f"{word}-one")]
        assert f"  {word}" in line
    assert "6 failures of exit 3 (abcdef01)" in shown
    assert "healthy-one      healthy (running)" in shown
    assert shown.startswith("Fleet running: 1 of 8 units run (1 cooling, 1 degraded, 1 finished, ")


def test_the_shape_for_scripts(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON has these keys, and they stay."""
    with scene(states) as made:
        made.quarantine("u")
        made.start("v")
    assert main(["status", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said) == {"fleet", "problems", "trouble", "units"}
    fleet = {"state", "held", "reasons", "breaker", "breakers", "storm", "units", "running", "counts", "orders", "at"}
    fleet |= {"hosts", "homeless"}
    assert set(said["fleet"]) == fleet
    unit = {"name", "state", "held", "running", "since", "until", "reasons", "restarts", "failures_in_a_row"}
    unit |= {"failures", "last_exit", "live", "budgets", "questions", "revision", "orders", "labels", "kind", "waiting"}
    unit |= {"host"}
    held, _ = said["units"]
    assert set(held) == unit
    assert set(held["reasons"][0]) == {"policy", "by", "verb", "code", "text", "remedy", "until"}
    assert set(held["failures"][0]) == {"fingerprint", "error", "count", "first", "last", "until", "quarantined"}
    assert set(held["last_exit"]) == {"at", "run", "cause", "error", "code", "signal", "fingerprint"}
    assert set(held["restarts"]) == {"last_hour", "total", "by_hand"}
    assert (held["name"], held["state"], held["failures"][0]["count"]) == ("u", "quarantined", 6)


def test_some_units(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only those that are asked for; an unknown one is an error that says what was meant."""
    with scene(states) as made:
        made.everything()
    assert main(["status", "paused-one"]) == 0
    assert "halted-one" not in capsys.readouterr().out
    assert main(["status", "xyz"]) == 2
    assert capsys.readouterr().err == (
        "error: no unit 'xyz'; there are cooling-one, degraded-one, finished-one, halted-one, healthy-one, paused-one, "
        "quarantined-one, stopped-one\n`flyball status` lists all units.\n"
    )


def test_check(states: Path) -> None:
    """--check exits 1 if something waits for a person, of the units that are asked for or in the fleet."""
    with scene(states) as made:
        made.start("fine")
        assert main(["status", "--check"]) == 0
        made.governor.submit(Held(unit="held"))
        assert main(["status", "--check"]) == 1
        assert main(["status", "--check", "fine"]) == 0
        made.governor.submit(Held(scope="fleet"))
        assert main(["status", "--check", "fine"]) == 1


def test_check_of_what_failed(states: Path) -> None:
    """A unit that failed and is not started again needs a person, though nothing holds it; also if somebody has seen
    it."""
    Path("flyball.yaml").write_text("units: {web: {command: [sleep, '1'], restart: never}}\n")
    with scene(states) as made:
        made.at(HOUR)
        made.fail("web")
    assert main(["status", "--check"]) == 1
    assert main(["ack", "web"]) == 0
    assert main(["status", "--check", "--json"]) == 1


def test_check_that_cannot_tell(states: Path) -> None:
    """Whoever cannot tell exits 2: settings that are wrong, a store that is damaged, a unit that is not there."""
    with scene(states) as made:
        made.start("fine")
    assert main(["status", "--check", "other"]) == 2
    Path("flyball.yaml").write_text("quarentine: {}\n")
    assert main(["status", "--check"]) == 2
    Path("flyball.yaml").unlink()
    assert main(["status", "--check"]) == 0
    for file in states.glob("state.db*"):
        file.unlink()
    (states / "state.db").write_bytes(b"not a database" * 100)
    assert main(["status", "--check"]) == 2


def test_units_of_the_settings(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Units that are defined and never ran are listed, and no files are made."""
    Path("flyball.yaml").write_text("units: {web: {command: [sleep, '1']}}\n")
    assert main(["status"]) == 0
    assert "not started yet" in capsys.readouterr().out
    assert not states.exists()


def test_settings_of_a_unit_count(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A unit is judged under its own safeguards: one that is never restarted has failed."""
    Path("flyball.yaml").write_text("units: {web: {command: [sleep, '1'], restart: never}}\n")
    with scene(states) as made:
        made.at(HOUR)
        made.fail("web")
    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["units"][0]["state"] == "failed"


def test_control_characters_do_not_reach_the_terminal(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a failing unit says of itself cannot steer the terminal."""
    with scene(states) as made:
        made.at(MINUTE)
        made.fail("u", error="\x1b[2Jevil\nnext")
    for command in (["status"], ["why", "u"], ["events"]):
        assert main(command) == 0
        assert "\x1b" not in capsys.readouterr().out


def _on_a_terminal(*arguments: str, **env: str) -> str:
    """What the real command prints on a terminal."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "flyball", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "COLUMNS": "70", "TERM": "xterm", **env},
    ) as process:
        os.close(slave)
        shown = b""
        try:
            while block := os.read(master, 65536):
                shown += block
        except OSError:  # the other side is gone
            pass
        process.wait(10)
    os.close(master)
    return shown.decode()


def test_colours_on_a_terminal(states: Path) -> None:
    """A terminal gets colours and lines that fit; with NO_COLOR, no colours."""
    with scene(states) as made:
        made.quarantine("u")
    shown = _on_a_terminal("status")
    assert "\x1b[31m" in shown
    assert all(len(click.unstyle(line)) <= 70 for line in shown.splitlines())
    assert "\x1b" not in _on_a_terminal("status", NO_COLOR="1")
    assert "\x1b" not in _on_a_terminal("status", "--color", "never")


def test_colours_where_there_is_no_terminal(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Elsewhere there are none, unless somebody wants them."""
    with scene(states) as made:
        made.quarantine("u")
    assert main(["status"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert main(["status", "--color", "always"]) == 0
    assert "\x1b[31m" in capsys.readouterr().out


def test_what_needs_a_person_comes_first(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What needs a person is above the table, with its reason and the command to type; what somebody has seen is only
    counted."""
    with scene(states) as made:
        made.everything()
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    assert shown.index("Needs you (2):") < shown.index("UNIT ")
    assert "    6 failures of exit 3 (abcdef01)" in shown
    for command in (["reset", "abcdef01"], ["resume", "halted-one"]):
        assert f"    $ flyball {' '.join(command)}\n" in shown
    assert main(["ack", "quarantined-one"]) == 0
    capsys.readouterr()
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    assert "Needs you (1):" in shown
    assert "And 1 that somebody has seen: `flyball problems`." in shown


def test_the_command_that_is_shown_puts_it_right(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is shown can be typed as it is."""
    with scene(states) as made:
        made.everything()
        made.at(0)
    assert main(["status"]) == 0
    typed = [line.split("$ flyball ")[1] for line in capsys.readouterr().out.splitlines() if "$ flyball " in line]
    assert [main(line.split()) for line in typed] == [0, 0]
    capsys.readouterr()
    assert main(["status"]) == 0
    assert "Needs you" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["*ed-one"], {"degraded-one", "finished-one", "halted-one", "paused-one", "quarantined-one", "stopped-one"}),
        (["h*", "paused-one"], {"healthy-one", "halted-one", "paused-one"}),
        (["--state", "halted", "--state", "cooling"], {"halted-one", "cooling-one"}),
        (["h*", "--state", "halted"], {"halted-one"}),
        (["--state", "failed"], set()),
    ],
)
def test_patterns_and_states(
    states: Path, arguments: list[str], names: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Only units of these names, and only those that are this; their problems, and no others."""
    with scene(states) as made:
        made.everything()
    assert main(["status", "--json", *arguments]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {unit["name"] for unit in said["units"]} == names
    assert {problem["unit"] for problem in said["problems"]} == names & {"quarantined-one", "halted-one"}
    assert main(["status", *arguments]) == 0
    assert ("No unit is failed." in capsys.readouterr().out) is (not names)


def test_a_pattern_that_matches_nothing(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is an error, as an unknown unit is."""
    with scene(states) as made:
        made.start("web")
    assert main(["status", "wbe*"]) == 2
    assert "no unit 'wbe*'" in capsys.readouterr().err


def test_a_unit_that_restarts_often_stands_out(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """S3-36: Its restarts are marked, and coloured where there are colours."""
    with scene(states) as made:
        made.at(HOUR // 2)
        for number in range(7):
            made.clock.move(2 * MINUTE)
            made.start("web", again=number > 0)
            made.clock.move(SECOND)
            made.exit("web", fingerprint=f"{number:016x}")
        made.start("calm")
    assert main(["status", "--color", "always"]) == 0
    web, calm = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("web", "calm"))][::-1]
    assert "/h\x1b[33m\x1b[1m (often)" in web
    assert "often" not in calm


def test_watch(states: Path) -> None:
    """Where there is no terminal, --watch prints a block for each change, and none for ages alone."""
    with scene(states) as made:
        made.at(0)
        made.start("u")
        process = spawn("status", "--watch", "--every", "100ms")
        assert process.stdout is not None
        try:
            assert "healthy (running)" in next(line for line in process.stdout if line.startswith("u "))
            made.governor.submit(Held(unit="v", by="ann"))
            block = [next(process.stdout) for _ in range(6)]
        finally:
            ended(process)
    assert [line.split()[:1] for line in block] == [[], ["Fleet"], [], ["UNIT"], ["u"], ["v"]]


def test_watch_as_json(states: Path) -> None:
    """For scripts: one object a line, for each change."""
    with scene(states) as made:
        made.at(0)
        made.start("u")
        process = spawn("status", "--watch", "--json", "--every", "100ms")
        assert process.stdout is not None
        try:
            first = json.loads(process.stdout.readline())
            made.governor.submit(Held(unit="v", by="ann"))
            second = json.loads(process.stdout.readline())
        finally:
            ended(process)
    assert [[unit["name"] for unit in said["units"]] for said in (first, second)] == [["u"], ["u", "v"]]


@pytest.mark.parametrize("command", ["status", "why"])
def test_watch_on_a_terminal(tmp_path: Path, command: str) -> None:
    """On a terminal it is drawn in place, on a screen of its own; Ctrl-C leaves the terminal as it was."""
    place = Place(tmp_path)
    with scene(place.state) as made:
        made.at(0)
        made.start("u")
        words = [command, *(["u"] if command == "why" else []), "--watch", "--every", "100ms"]
        with Screen(place, *words, command=FLYBALL) as screen:
            screen.shows(r"\x1b\[\?1049h")
            screen.shows("healthy")
            made.governor.submit(Held(unit="u", by="ann"))
            screen.shows("paused by ann")
            screen.type("\x03")
            screen.shows(r"\x1b\[\?25h\x1b\[\?1049l")
            assert screen.code() == 130


def test_watch_alone(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--watch has no end, so it has no exit code to check."""
    assert main(["status", "--watch", "--check"]) == 2
    assert "--watch goes on for ever" in capsys.readouterr().err
    assert main(["status", "--every", "1ms"]) == 2
    assert "is not between 0.1 s and 60 min" in capsys.readouterr().err


def test_a_damaged_store(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not ours is an error with a remedy, not a traceback, and stays as it is."""
    states.mkdir()
    file = states / "state.db"
    file.write_bytes(b"not a database" * 100)
    for command in (["status"], ["why", "u"], ["pause", "u"], ["reset", "--all", "--yes"]):
        assert main(command) == 2
        assert capsys.readouterr().err.startswith("error: ")
    assert file.read_bytes() == b"not a database" * 100


def test_bad_settings(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Settings that are wrong are said to be so, with their place."""
    Path("flyball.yaml").write_text("quarentine: {}\n")
    assert main(["status"]) == 2
    assert "flyball.yaml:1:1: unknown key 'quarentine'" in capsys.readouterr().err


def test_cost_of_a_large_fleet(states: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A status of 200 units is complete."""
    with scene(states) as made:
        made.at(SECOND)
        for number in range(200):
            made.start(f"unit-{number:03}")
    assert main(["status", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["fleet"]["running"] == 200
