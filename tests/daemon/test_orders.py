"""Units under a daemon: orders, dependencies, groups, signs of life."""

import sys
import textwrap

import pytest

from tests.daemon.site import Site, has_ended, until

SLEEPS = {"command": "sleep 1000"}


def test_dependency_held(site: Site) -> None:
    """A unit whose dependency is held waits, and goes on when that is resumed."""
    site.write({"db": SLEEPS, "web": {**SLEEPS, "after": ["db"]}})
    site.flyball("pause", "db", code=None)
    site.flyball("up", "-d")
    assert site.running() == {}
    site.order("resume", "db")
    site.all_up("db", "web")


def test_ready_by_probe(site: Site) -> None:
    """`ready: probe`: what comes after it waits until its probe succeeds."""
    flag = site.folder / "flag"
    probe = {"command": ["test", "-e", str(flag)], "every": 0.05}
    site.write(
        {
            "first": {"command": "sleep 1000", "ready": "probe", "probe": probe},
            "second": {"command": "sleep 1000", "after": ["first"]},
        }
    )
    site.flyball("up", "-d")
    site.all_up("first")
    flag.touch()
    site.all_up("first", "second")


def test_ready_by_notify(site: Site) -> None:
    """`ready: notify`: what comes after it waits for READY=1; one that reports nothing else is not restarted. What it
    says of itself by STATUS is shown by `why`."""
    ready = textwrap.dedent("""
        import os, pathlib, signal, socket, time
        while not pathlib.Path("go").exists(): time.sleep(0.01)
        said = b"READY=1\\nSTATUS=12 of 40 files"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s: s.sendto(said, os.environ["NOTIFY_SOCKET"])
        signal.pause()
    """)
    command = {"command": [sys.executable, "-c", ready], "cwd": str(site.folder), "ready": "notify"}
    site.write({"first": command, "second": {**SLEEPS, "after": ["first"]}})
    site.flyball("up", "-d")
    site.all_up("first")
    (site.folder / "go").touch()
    site.all_up("first", "second")
    assert "it says: 12 of 40 files" in site.flyball("why", "first").stdout


def test_hung(site: Site) -> None:
    """A unit that has to say WATCHDOG=1 and does not is ended; that is a timeout, and counts."""
    site.write({"a": {**SLEEPS, "watchdog": "50ms", "restart": "never"}})
    site.flyball("up", "-d")
    exit_ = until(lambda: site.status()["a"]["last_exit"], "an exit")
    assert exit_["cause"] == "timeout"
    assert site.running() == {}


def test_order_during_a_wait(site: Site) -> None:
    """An order given during a wait is obeyed at once, and one given during a run too."""
    site.env["FLYBALL_CRASH_POLICY__TRANSIENT_DELAY_SECONDS"] = "3600"
    site.write({"a": {"command": ["sh", "-c", "test -e good && exec sleep 1000; exit 1"], "cwd": str(site.folder)}})
    site.flyball("up", "-d")
    until(lambda: site.status()["a"]["state"] == "cooling", "a wait of an hour")
    (site.folder / "good").touch()
    site.ask("reset", all=True)
    (pid,) = site.all_up("a")["a"]
    site.order("pause", "a")
    site.gone()
    assert has_ended(pid)
    assert site.status()["a"]["state"] == "paused"
    site.order("resume", "a")
    site.all_up("a")


def test_kill_and_restart(site: Site) -> None:
    """`kill` does not wait for the grace; `restart` gives a new process, and is counted as done by hand."""
    site.write(
        {"a": {"command": ["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"], "grace": "1h"}, "b": SLEEPS}
    )
    site.flyball("up", "-d")
    before = site.all_up("a", "b")
    site.order("kill", "a")
    site.all_up("b")
    assert site.status()["a"]["state"] == "stopped"
    site.order("restart", "b")
    until(lambda: site.running().get("b") not in (None, [], before["b"]), "another process")
    assert "b started" in site.log()


def test_finished_stays_finished(site: Site) -> None:
    """What is done is not done again because flyball was started again, or resumed; `start` does it again."""
    site.write({"job": {"command": ["sh", "-c", "echo x >> done"], "cwd": str(site.folder)}})
    done = site.folder / "done"
    for _ in range(2):
        site.flyball("up", "-d")
        until(lambda: site.status()["job"]["state"] == "finished", "the end of the job")
        site.down()
    assert done.read_text() == "x\n"
    site.flyball("up", "-d")
    site.order("resume", "job")
    site.ask("stop", all=True)
    site.order("start", "job")
    assert done.read_text() == "x\n"
    site.ask("start", all=True)
    until(lambda: done.read_text() == "x\nx\n", "a second run")


REPORTS = """
import json, os, pathlib, signal, socket, sys
def say(**pairs):
    run = "X_FLYBALL_RUN=" + os.environ["FLYBALL_RUN"]
    s.sendto("\\n".join([run, *(f"X_FLYBALL_{key}={value}" for key, value in pairs.items())]).encode(), path)
    return json.loads(s.recv(9999))["verb"]
s, path = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), os.environ["NOTIFY_SOCKET"]
s.bind("")
with open("starts." + os.environ["FLYBALL_UNIT"], "a") as starts: starts.write("s")
if sys.argv[1] == "spends": say(SPENT="0.30")
step = json.dumps({"pattern": "read", "call": "same", "result": "same"})
while sys.argv[1] == "circles" and say(STEPPED=step) in ("proceed", "wait"): pass
signal.pause()
"""


def test_ended_for_good(site: Site) -> None:
    """What ended for its money, or because it went in circles, does not start again with the daemon: a person starts
    or resumes it. What the end of the daemon ended does start again."""
    broke = {
        "command": [sys.executable, "-c", REPORTS, "spends"],
        "budget": 0.30,
        "grace": "0.1s",
        "cwd": str(site.folder),
    }
    circles = {
        "command": [sys.executable, "-c", REPORTS, "circles"],
        "kind": "agent",
        "grace": "0.1s",
        "cwd": str(site.folder),
    }
    site.write({"broke": broke, "circles": circles, "plain": SLEEPS})

    def both_ended() -> bool:
        status = site.status()
        return all(status[name]["state"] == "stopped" for name in ("broke", "circles"))

    def starts(name: str) -> int:
        return len((site.folder / f"starts.{name}").read_text())

    site.flyball("up", "-d")
    until(both_ended, "their ends")
    site.down()
    site.flyball("up", "-d")
    site.all_up("plain")
    site.ask("resume")  # the fleet: it is not about them
    status = site.status()
    assert both_ended()
    assert "cost_budget_exceeded" in status["broke"]["reasons"][0]["text"]
    assert status["circles"]["reasons"][0]["code"] == "ended_by_policy"
    assert (starts("broke"), starts("circles")) == (1, 1)
    site.order("resume", "broke")
    site.order("start", "circles")
    until(lambda: (starts("broke"), starts("circles")) == (2, 2), "a second run of both")


@pytest.mark.parametrize("strategy", ["one-for-one", "all-for-one", "rest-for-one"])
def test_groups(strategy: str, site: Site) -> None:
    """When one of a group fails: it alone, all, or it and those after it are restarted."""
    names = ("one", "two", "three")
    wait = "while ! test -e fail; do sleep 0.02; done; rm fail; exit 1"
    fails = {"command": ["sh", "-c", wait], "cwd": str(site.folder)}
    site.write({"one": SLEEPS, "two": fails, "three": SLEEPS}, groups={"g": {"strategy": strategy, "units": [*names]}})
    site.flyball("up", "-d")
    site.all_up(*names)
    before = dict(site.ping()["pids"])
    (site.folder / "fail").touch()
    changed = {"one-for-one": {"two"}, "all-for-one": {*names}, "rest-for-one": {"two", "three"}}[strategy]

    def other() -> bool:
        pids = site.ping()["pids"]
        return pids.keys() == set(names) and {name for name in names if pids[name] != before[name]} == changed

    until(other, "other processes")
    status = site.status()
    assert status["two"]["last_exit"]["cause"] == "error"
    for name in changed - {"two"}:
        assert status[name]["last_exit"]["cause"] == "stopped"


def test_close_a_circuit(site: Site) -> None:
    """A unit that waits for an open circuit, of its provider and of the fleet, is started as soon as somebody closes
    both."""
    del site.env["FLYBALL_CIRCUIT_BREAKER__FAILURE_THRESHOLD"]
    fails_once = ["sh", "-c", "test -e failed && exec sleep 1000; touch failed; exit 1"]
    unit = {"command": fails_once, "cwd": str(site.folder), "labels": {"provider": "x"}}
    breaker = {"failure_threshold": 1, "min_units": 1, "recovery_timeout_seconds": 3600, "labels": ["provider"]}
    site.write({"a": unit}, circuit_breaker=breaker)
    site.flyball("up", "-d")
    until(lambda: site.status()["a"]["reasons"] and "circuit_open" in str(site.status()["a"]), "an open circuit")
    assert {one["name"] for one in site.ask("status")["fleet"]["breakers"]} == {"fleet", "provider:x"}
    assert "circuit provider:x (open): closed" in site.flyball("reset", "--breaker", "provider:x").stdout
    assert site.running() == {}
    site.flyball("reset", "--breaker", "fleet")
    site.all_up("a")
