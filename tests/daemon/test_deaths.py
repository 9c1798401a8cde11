"""The supervisor itself dies: nothing runs unguarded, nothing twice, and what is kept is adopted."""

import os
import signal
import subprocess
import sys

import pytest

from tests.daemon.site import Site, has_ended, until

pytestmark = pytest.mark.slow

TWENTY = {f"u{number}": {"command": "sleep 1000"} for number in range(20)}


def _dead(pid: int) -> None:
    until(lambda: has_ended(pid), f"the end of {pid}")


def _kill_daemon(site: Site) -> None:
    """kill -9, and wait until the guardian has done its work."""
    found = site.ping()
    os.kill(found["pid"], signal.SIGKILL)
    _dead(found["guardian"])


def test_kill_and_up_again(site: Site) -> None:
    """20 units, kill -9 of the daemon, up again: the status is complete, no unit runs twice, none runs
    unguarded."""
    site.write(TWENTY)
    site.flyball("up", "-d")
    first = site.all_up(*TWENTY)
    _kill_daemon(site)
    assert site.running() == {}
    site.flyball("up", "-d")
    second = site.all_up(*TWENTY)
    assert all(len(pids) == 1 for pids in second.values())
    assert not {pids[0] for pids in first.values()} & {pids[0] for pids in second.values()}
    assert {name: [pid] for name, pid in site.ping()["pids"].items()} == second
    status = site.status()
    assert status.keys() == TWENTY.keys()
    assert all(unit["last_exit"]["cause"] == "lost" for unit in status.values())
    site.down()
    assert site.running() == {}


def test_a_storm_is_judged_first(site: Site) -> None:
    """S0: a daemon that starts into a heap of fresh failures starts nothing, and waits for a person."""
    del site.env["FLYBALL_SAFETY__GLOBAL_FAILURE_THRESHOLD"]
    failing = {f"u{number}": {"command": ["sh", "-c", "exit 1"], "restart": "never"} for number in range(11)}
    site.write({**failing, "good": {"command": "sleep 1000"}})
    site.flyball("up", "-d")
    until(lambda: sum(unit["last_exit"] is not None for unit in site.status().values()) == 11, "11 failures")
    site.all_up("good")
    _kill_daemon(site)
    site.flyball("up", "-d")
    assert "restart storm" in site.log()
    assert site.running() == {}
    site.ask("resume")
    site.all_up("good")


def test_the_guardian_dies(site: Site) -> None:
    """kill -9 of the guardian: the daemon ends its units in order, by their stop signal, and goes."""
    site.write({"polite": {"command": ["sh", "-c", "trap 'echo told; exit 0' TERM; while :; do sleep 0.05; done"]}})
    site.flyball("up", "-d")
    site.all_up("polite")
    found = site.ping()
    os.kill(found["guardian"], signal.SIGKILL)
    _dead(found["pid"])
    site.gone()
    assert (site.state / "logs" / "polite.log").read_text().endswith("told\n")
    site.flyball("up", "-d")
    site.all_up("polite")


def test_both_are_killed_at_once(site: Site) -> None:
    """Daemon and guardian killed together leave processes that nobody guards: the next daemon ends them before it
    starts anything, so that none is doubled; what is kept is adopted, not ended."""
    kept = {"command": "sleep 1000", "on_supervisor_death": "keep"}
    site.write({**TWENTY, "kept": kept})
    site.flyball("up", "-d")
    first = site.all_up(*TWENTY, "kept")
    found = site.ping()
    for pid in (found["guardian"], found["pid"]):
        os.kill(pid, signal.SIGSTOP)
    for pid in (found["guardian"], found["pid"]):
        os.kill(pid, signal.SIGKILL)
    for pid in (found["guardian"], found["pid"]):
        _dead(pid)
    assert site.running() == first, "they outlived both"
    site.flyball("up", "-d")
    until(lambda: site.ping()["pids"].keys() == {*TWENTY, "kept"}, "all up")
    second = site.running()
    assert all(len(pids) == 1 for pids in second.values()), "none is doubled"
    assert second["kept"] == first["kept"]
    assert not {second[name][0] for name in TWENTY} & {first[name][0] for name in TWENTY}
    assert "20 processes were left" in site.log()


def test_stubborn_descendants(site: Site) -> None:
    """Nothing gets away: not what ignores SIGTERM, left the group, or has no parent any more."""
    stubborn = (
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1001' & (setsid sleep 1002 &); sleep 1003"
    )
    site.write({"stubborn": {"command": ["sh", "-c", stubborn]}})
    site.flyball("up", "-d")
    until(lambda: len(site.running().get("stubborn", [])) >= 5, "its descendants")
    _kill_daemon(site)
    assert site.running() == {}


def test_kept(site: Site) -> None:
    """`on_supervisor_death: keep`: it lives on, its output goes on, the next daemon adopts it, and ends it on `down`.
    Its neighbour does not live on."""
    talk = "while :; do echo line; sleep 0.05; done"
    site.write(
        {
            "kept": {"command": ["sh", "-c", talk], "on_supervisor_death": "keep"},
            "other": {"command": "sleep 1000"},
        }
    )
    site.flyball("up", "-d")
    pid = min(site.all_up("kept", "other")["kept"])
    _kill_daemon(site)
    log = site.state / "logs" / "kept.log"
    before = log.stat().st_size
    until(lambda: log.stat().st_size > before, "more output")
    assert site.running().keys() == {"kept"}
    site.flyball("up", "-d")
    site.all_up("kept", "other")
    assert site.ping()["pids"]["kept"] == pid
    status = site.status()["kept"]
    assert status["live"] is not None
    assert status["last_exit"] is None
    site.order("restart", "kept")
    until(lambda: site.ping()["pids"].get("kept", pid) != pid, "another process")
    site.down()
    assert site.running() == {}
    assert not list((site.state / "kept").glob("*"))


def test_kept_and_dead(site: Site) -> None:
    """One that was kept and died while nobody looked is lost, and started again."""
    site.write({"kept": {"command": "sleep 1000", "on_supervisor_death": "keep"}})
    site.flyball("up", "-d")
    (pid,) = site.all_up("kept")["kept"]
    _kill_daemon(site)
    os.kill(pid, signal.SIGKILL)
    _dead(pid)
    site.flyball("up", "-d")
    assert site.all_up("kept")["kept"] != [pid]
    assert site.status()["kept"]["last_exit"]["cause"] == "lost"


def test_kept_and_removed(site: Site) -> None:
    """One that was kept and is in the settings no more is ended: nobody would guard it."""
    site.write({"kept": {"command": "sleep 1000", "on_supervisor_death": "keep"}, "a": {"command": "sleep 1000"}})
    site.flyball("up", "-d")
    site.all_up("kept", "a")
    _kill_daemon(site)
    site.write({"a": {"command": "sleep 1000"}})
    site.flyball("up", "-d")
    site.all_up("a")


def test_the_guardian_dies_and_one_is_kept(site: Site) -> None:
    """When the guardian is killed, kept units live on as well."""
    site.write({"kept": {"command": "sleep 1000", "on_supervisor_death": "keep"}, "a": {"command": "sleep 1000"}})
    site.flyball("up", "-d")
    (pid,) = site.all_up("kept", "a")["kept"]
    found = site.ping()
    os.kill(found["guardian"], signal.SIGKILL)
    _dead(found["pid"])
    assert site.running() == {"kept": [pid]}
    site.flyball("up", "-d")
    assert site.all_up("kept", "a")["kept"] == [pid]


def test_without_a_subreaper(site: Site) -> None:
    """Where there is no sub-reaper (macOS), the units die with the daemon all the same."""
    site.env["FLYBALL_WITHOUT_SUBREAPER"] = "1"
    site.write(
        {"a": {"command": ["sh", "-c", "trap '' TERM; sleep 1000 & sleep 1001"]}, "b": {"command": "sleep 1000"}}
    )
    site.flyball("up", "-d")
    until(lambda: len(site.running().get("a", [])) == 3, "its descendants")
    _kill_daemon(site)
    site.gone()


def test_guardian_alone() -> None:
    """The guardian passes signals and exit codes on, and says what it cannot start."""
    from flyball.runtimes.guardian import command

    def run(*argv: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(command(argv), capture_output=True, text=True, timeout=20, check=False)

    assert run("sh", "-c", "exit 7").returncode == 7
    assert run("sh", "-c", "kill -9 $$").returncode == 128 + 9
    missing = run("/nowhere/at/all")
    assert missing.returncode == 2
    assert "/nowhere/at/all: No such file" in missing.stderr
    with subprocess.Popen(
        command(
            [sys.executable, "-uc", "import signal; signal.signal(15, lambda *_: exit(5)); print(1); signal.pause()"]
        ),
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        assert process.wait(20) == 5
