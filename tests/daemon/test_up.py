"""`flyball up` and `down`: what starts, in which order, and what is refused."""

import json
import signal
import socket
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from flyball.store.turn import Turn
from tests.daemon.site import Site, has_ended, until

SLEEPS = {"command": "sleep 1000"}


def test_up_and_down(site: Site) -> None:
    """`up -d` returns when the daemon answers, `down` when everything is gone; a second `down` has nothing to do."""
    site.write({"a": SLEEPS, "b": SLEEPS})
    site.flyball("up", "-d")
    found = site.ping()
    site.all_up("a", "b")
    assert (site.state / "flyball.sock").stat().st_mode & 0o777 == 0o600
    assert site.flyball("down").stdout == "down\n"
    assert site.running() == {}
    assert has_ended(found["pid"])
    assert has_ended(found["guardian"])
    assert not (site.state / "flyball.sock").exists()
    assert "no daemon" in site.flyball("down").stderr
    # What `down` ended was not a failure, and starts again.
    site.flyball("up", "-d")
    site.all_up("a", "b")
    assert all(unit["last_exit"]["cause"] == "stopped" for unit in site.status().values())


def test_down_is_answered(site: Site) -> None:
    """Whoever wants it down is answered before it goes, also where the store takes the line of the audit trail late."""
    site.write({"a": {"command": "true"}})
    site.flyball("up", "-d")
    until(lambda: site.status()["a"]["state"] == "finished", "nothing that has to be written any more")
    turn = Turn(site.state / "state.db")
    with ThreadPoolExecutor(1) as aside:
        with turn:
            asked = aside.submit(site.ask, "down")
            assert not wait([asked], timeout=0.5).done
        told = asked.result()
    turn.close()
    until(lambda: has_ended(told["guardian"]), "the end")
    lines = site.flyball("audit", "--json").stdout.splitlines()
    assert [json.loads(line)["verb"] for line in lines] == ["down"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_foreground(number: signal.Signals, site: Site) -> None:
    """In the foreground each decision is a line; SIGTERM, SIGINT or SIGQUIT to the guardian ends all units, exit code
    0. SIGUSR1 and SIGUSR2 mean nothing, and end nothing."""
    site.write({"a": SLEEPS, "fails": {"command": ["sh", "-c", "exit 3"], "restart": "never"}})
    with site.foreground() as process:
        until(lambda: site.running().keys() == {"a"}, "a")
        until(lambda: site.status()["fails"]["last_exit"], "an exit")
        for meaningless in (signal.SIGUSR1, signal.SIGUSR2):
            process.send_signal(meaningless)
        process.send_signal(number)
        output = process.communicate(timeout=20)[0]
    assert process.returncode == 0
    assert "flyball: a started\n" in output
    assert "flyball: fails exited: error: exit 3" in output
    assert "flyball: SIGUSR1 means nothing" in output
    assert "flyball: SIGUSR2 means nothing" in output
    assert "flyball: down\n" in output
    assert site.running() == {}


def test_second_daemon(site: Site) -> None:
    """A second daemon on the same state is refused, and names the process; the first is not disturbed."""
    site.write({"a": SLEEPS})
    site.flyball("up", "-d")
    before = site.all_up("a")
    refused = site.flyball("up", "-d", code=2)
    assert f"a daemon (pid {site.ping()['guardian']}) runs on this state already" in refused.stderr
    assert "flyball down" in refused.stderr
    assert site.flyball("up", code=2).stderr == refused.stderr
    assert site.running() == before


def test_stale_socket(site: Site) -> None:
    """A socket that a killed daemon left behind is replaced."""
    site.write({"a": SLEEPS})
    site.state.mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(site.state / "flyball.sock"))
    site.flyball("up", "-d")
    site.all_up("a")


def test_live_socket(site: Site) -> None:
    """A socket that somebody listens on is never replaced: the daemon does not start."""
    site.write({"a": SLEEPS})
    site.state.mkdir()
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(str(site.state / "flyball.sock"))
        live.listen()
        assert "listens there already" in site.flyball("up", "-d", code=2).stderr
    assert site.running() == {}


def test_bad_settings(site: Site) -> None:
    """Wrong settings: each problem with its place, exit code 2, nothing started, no state made."""
    site.write({"a": {"command": "sleep 1", "grace": "soon"}})
    refused = site.flyball("up", "-d", code=2)
    assert "flyball.yaml:" in refused.stderr
    assert "units.a.grace" in refused.stderr
    assert not site.state.exists()
    site.file.write_text("safety: {max_boots: 3}\n")
    assert "no units to run" in site.flyball("up", code=2).stderr
    site.write({"a": {"command": "sleep 1", "env": {"KEY": "${NOT_THERE_AT_ALL}"}}})
    assert "there is no variable NOT_THERE_AT_ALL" in site.flyball("up", code=2).stderr


def test_one_bad_unit(site: Site) -> None:
    """A command that does not exist is that unit's failure; the others run."""
    site.write({"bad": {"command": "/nowhere/at/all"}, "good": SLEEPS})
    site.flyball("up", "-d")
    site.all_up("good")
    until(lambda: site.status()["bad"]["state"] == "quarantined", "a quarantine")
    assert "command not found" in site.status()["bad"]["last_exit"]["error"]
    assert site.running().keys() == {"good"}


def test_order_of_start_and_end(site: Site) -> None:
    """A unit is started when those it comes after are up, and ended before them."""
    note = "echo {0} up >> notes; trap 'echo {0} down >> notes; exit' TERM; while :; do sleep 0.02; done"
    after = {"web": ["app"], "app": ["db"], "db": []}
    site.write(
        {
            name: {"command": ["sh", "-c", note.format(name)], "after": others, "cwd": str(site.folder)}
            for name, others in after.items()
        }
    )
    site.flyball("up", "-d")
    notes = site.folder / "notes"
    until(lambda: notes.exists() and notes.read_text().count("up") == 3, "all up")
    site.flyball("down")
    lines = notes.read_text().splitlines()
    assert lines[3:] == ["web down", "app down", "db down"]
    started = [line for line in site.log().splitlines() if line.endswith(" started")]
    assert [line.split()[-2] for line in started] == ["db", "app", "web"]


def test_secrets(site: Site) -> None:
    """Values of variables reach the unit and nobody else: not the log, the journal, a command line or an error."""
    site.env |= {"FROM_OUTSIDE": "hush-outside"}
    (site.folder / "my.env").write_text("# mine\nexport FROM_FILE='hush-file'\n")
    command = ["sh", "-c", "echo $A $B $FROM_FILE > seen; sleep 1000"]
    env = {"A": "hush-inside", "B": "${FROM_OUTSIDE}"}
    site.write({"a": {"command": command, "cwd": ".", "env": env, "env_file": "my.env"}})
    site.flyball("up", "-d")
    seen = site.folder / "seen"
    until(lambda: seen.exists() and seen.read_text(), "what it saw")
    assert seen.read_text() == "hush-inside hush-outside hush-file\n"
    said = [site.log(), site.flyball("config").stdout, site.flyball("status", "--json").stdout]
    said += [site.flyball("events", "--json").stdout, site.flyball("why", "a").stdout]
    for pid in site.running()["a"] + [site.ping()["pid"], site.ping()["guardian"]]:
        said.append(Path(f"/proc/{pid}/cmdline").read_text())
    said += [file.read_bytes().decode(errors="replace") for file in site.state.glob("state.db*")]
    assert not [text for text in said if "hush" in text]
