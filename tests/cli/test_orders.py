"""`flyball pause`, `resume`, `reset`, `stop`, `start`, `restart`, `kill`: without a daemon, and with one."""

import json
import os
import pwd
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flyball.cli import main
from flyball.control.client import SOCKET
from flyball.control.commands import serve_line
from flyball.core.event import Start
from flyball.core.time import HOUR
from tests.cli.state import alone, scene
from tests.control.scene import Scene

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return alone(tmp_path, monkeypatch)


@pytest.fixture
def fleet(states: Path) -> Iterator[Scene]:
    """A unit for each word, seen at the present."""
    with scene(states) as made:
        made.everything()
        made.at(0)
        yield made


def _would(fleet: Scene, unit: str) -> tuple[str, ...]:
    return fleet.governor.look(Start(unit=unit)).codes


def test_pause_and_resume(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """A pause refuses every start, says who ordered it, and is ended by a resume."""
    assert main(["pause", "finished-one", "degraded-one", "--note", "for the night"]) == 0
    reason = f"paused: paused by {ME}: via cli: for the night"
    assert capsys.readouterr().out == f"degraded-one: {reason}\nfinished-one: {reason}\n"
    assert _would(fleet, "degraded-one") == ("paused",)
    assert main(["resume", "degraded-one"]) == 0
    assert capsys.readouterr().out.startswith("degraded-one: degraded: ")
    assert _would(fleet, "degraded-one") == ()
    assert _would(fleet, "finished-one") == ("paused",)


def test_resume_a_halted_unit(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """S4-17: a resume makes a halted unit healthy."""
    assert _would(fleet, "halted-one") == ("halted",)
    assert main(["resume", "halted-one"]) == 0
    assert capsys.readouterr().out.startswith("halted-one: healthy: ")
    assert _would(fleet, "halted-one") == ()


def test_resume_of_a_quarantine(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """A resume does not lift a quarantine: it says what does, and exits 1."""
    assert main(["resume", "quarantined-one"]) == 1
    shown = capsys.readouterr()
    assert shown.out.startswith("quarantined-one: quarantined: 6 failures")
    assert "`flyball reset abcdef01`" in shown.err


def test_the_fleet(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """A pause of all holds the fleet; `flyball resume` lets it go on and tells what is held all the same."""
    assert main(["pause", "--all"]) == 0
    assert capsys.readouterr().out.startswith(f"fleet: paused: paused by {ME}: via cli\n")
    assert "paused" in _would(fleet, "one-that-comes-later")
    assert main(["resume", "degraded-one"]) == 1, "the fleet holds it still"
    capsys.readouterr()
    assert main(["resume"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "fleet: running"
    assert [line.split(":")[0] for line in shown[1:]] == ["halted-one", "paused-one", "quarantined-one"]
    assert _would(fleet, "one-that-comes-later") == ()


def test_stop(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """A stop stands until it is taken back; without a daemon the order is in the store."""
    assert main(["stop", "healthy-one"]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"healthy-one: stopped: stopped by {ME}: via cli\n"
    assert "reads the order from the store" in shown.err
    assert "stopped" in _would(fleet, "healthy-one")


@pytest.mark.parametrize("verb", ["start", "restart"])
def test_nobody_to_start_it(fleet: Scene, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a daemon, start and restart say so, and how to get one."""
    assert main([verb, "stopped-one"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: no daemon runs here")
    assert "`flyball up -d`" in shown


def test_json(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """For scripts: how the units stand now."""
    assert main(["pause", "degraded-one", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["units"][0]["state"], said["daemon"]) == ("paused", False)


@pytest.mark.parametrize("verb", ["pause", "resume", "stop", "start", "restart", "kill"])
def test_unknown_unit(fleet: Scene, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown unit: what was meant, exit 2, and nothing changes."""
    before = fleet.governor.store.read(()).seq
    assert main([verb, "halted-one", "haltd-one"]) == 2
    assert "no unit 'haltd-one'; did you mean halted-one" in capsys.readouterr().err
    assert fleet.governor.store.read(()).seq == before


@pytest.mark.parametrize("command", [["pause", "x"], ["pause"], ["reset", "abc"], ["why", "x"], ["start", "x"]])
def test_a_mistake_makes_no_files(states: Path, command: list[str]) -> None:
    """Where nothing ran yet, an order that is wrong leaves nothing behind."""
    assert main(command) == 2
    assert not states.exists()


def test_an_order_before_anything_ran(states: Path) -> None:
    """A unit of the settings can be paused before it ever ran, and so can the fleet."""
    Path("flyball.yaml").write_text("units: {web: {command: [sleep, '1']}}\n")
    assert main(["pause", "web"]) == 0
    with scene(states) as made:
        made.at(0)
        assert _would(made, "web") == ("paused",)
    assert main(["pause", "--all"]) == 0


# Reset.


def test_reset(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """The first digits of a fingerprint are enough to lift its quarantine."""
    assert main(["reset", "abcd"]) == 0
    shown = capsys.readouterr().out
    assert shown == (
        "quarantined-one (quarantined): forgotten: abcdef01 exit 3 (6 times)\nquarantined-one: healthy: may start\n"
    )
    assert _would(fleet, "quarantined-one") == ()


def test_reset_of_what_is_not_clear(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """An ambiguous or unknown beginning: what there is, exit 2, and nothing changes."""
    before = fleet.governor.store.read(()).seq
    assert main(["reset", "0"]) == 2
    assert (
        "is the beginning of 7 fingerprints: 0000000000000002 (cooling-one: exit 3, once); 00"
        in capsys.readouterr().err
    )
    assert main(["reset", "zz"]) == 2
    assert "no failure has a fingerprint that begins with 'zz'" in capsys.readouterr().err
    assert main(["reset"]) == 2
    assert "a fingerprint, or --breaker, or --all" in capsys.readouterr().err
    assert main(["reset", "abcd", "--all"]) == 2
    assert fleet.governor.store.read(()).seq == before


def test_reset_all_asks(fleet: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal and without --yes nothing is forgotten: it lists what would be, and exits 2."""
    before = fleet.governor.store.read(()).seq
    with Path(os.devnull).open() as nobody:
        monkeypatch.setattr("sys.stdin", nobody)
        assert main(["reset", "--all"]) == 2
    shown = capsys.readouterr().err
    assert "quarantined-one (quarantined): would be forgotten: abcdef01 exit 3 (6 times)" in shown
    assert "Add --yes" in shown
    assert fleet.governor.store.read(()).seq == before


@pytest.mark.parametrize(("said", "code"), [("y\n", 0), ("n\n", 2), ("\n", 2)])
def test_reset_all_on_a_terminal(fleet: Scene, said: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal it asks, and no is the answer of whoever only presses Enter."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: said.strip())
    assert main(["reset", "--all"]) == code
    assert (_would(fleet, "quarantined-one") == ()) is (code == 0)


def test_reset_all(fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """With --yes all failures of all units are forgotten; a pause stays."""
    assert main(["reset", "--all", "--yes"]) == 0
    for unit in ("quarantined-one", "halted-one", "degraded-one", "cooling-one"):
        assert _would(fleet, unit) == ()
    assert _would(fleet, "paused-one") == ("paused",)
    capsys.readouterr()
    assert main(["reset", "--all", "--yes"]) == 0
    assert capsys.readouterr().out == "There is nothing to forget.\n"


# With a daemon.


@contextmanager
def daemon(states: Path, made: Scene) -> Iterator[list[tuple[str, str]]]:
    """Something that serves the socket of the state folder as the daemon does; what it was told."""
    poked: list[tuple[str, str]] = []
    context = made.context(who="peer", channel="socket", poke=lambda unit, verb: poked.append((unit, verb)))
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(states / SOCKET))
    server.listen()

    def serve() -> None:
        try:
            while True:
                connection, _ = server.accept()
                with connection, connection.makefile("rb") as lines:
                    for line in lines:
                        connection.sendall(serve_line(context, line))
        except OSError:
            return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield poked
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


def test_with_a_daemon(states: Path, fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """With a daemon every command goes to it, and it is told of every order."""
    with daemon(states, fleet) as poked:
        assert main(["pause", "degraded-one"]) == 0
        assert capsys.readouterr().out == "degraded-one: paused: paused by peer: via socket\n"
        assert main(["start", "degraded-one"]) == 0
        assert capsys.readouterr().out == "degraded-one: the daemon was told to start it\n"
        assert main(["kill", "healthy-one"]) == 0
        assert main(["start", "quarantined-one"]) == 1, "it is held still"
        assert main(["pause", "nobody"]) == 2
        assert main(["status", "--check"]) == 1
        assert main(["why", "halted-one"]) == 0
        assert main(["events", "-n", "3"]) == 0
    assert poked == [
        ("degraded-one", "pause"),
        ("degraded-one", "start"),
        ("healthy-one", "kill"),
        ("quarantined-one", "start"),
    ]


def test_what_is_not_started_is_not_said_to_be(states: Path, fleet: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """A resume starts nothing that is finished; under a stop of all nothing is started but by `start --all`: the lines
    and the exit code say so."""
    with daemon(states, fleet):
        assert main(["resume", "finished-one", "stopped-one"]) == 0
        finished, stopped = capsys.readouterr().out.splitlines()
        assert finished.startswith("finished-one: finished: its last run ended: done")
        assert stopped == "stopped-one: the daemon was told to start it"
        main(["stop", "--all"])
        capsys.readouterr()
        assert main(["start", "stopped-one"]) == 1
        shown = capsys.readouterr()
        assert "told to start" not in shown.out
        assert "To go on: `flyball resume`." in shown.err
        main(["start", "--all"])
        assert "stopped-one: the daemon was told to start it" in capsys.readouterr().out


def test_a_daemon_that_is_silent(
    states: Path, fleet: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that goes away without an answer: looking goes to the store, orders are an error."""
    fleet.clock.move(HOUR)
    monkeypatch.setattr("tests.cli.test_orders.serve_line", lambda *_: b"")
    with daemon(states, fleet):
        monkeypatch.setattr("flyball.control.client.Client.ask.__kwdefaults__", {"timeout": 0.05})
        assert main(["status"]) == 0
        assert "this is what the store says" in capsys.readouterr().err
        assert main(["status", "--check"]) == 2, "nobody can tell"
        capsys.readouterr()
        assert main(["pause", "halted-one"]) == 2
        assert "did not answer" in capsys.readouterr().err
