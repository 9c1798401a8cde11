"""Rules under a real daemon, by the commands that people use: storms, a dead API, loops, approvals, and what dies."""

import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from flyball.control.client import connect
from tests.daemon.rule_site import ONCE, at_rest, exits, fire, journal, lines, rule_of, runs
from tests.daemon.site import Site, has_ended, until

NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
SEND = Path(__file__).parents[2] / "examples" / "send_webhook.py"


def _kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        until(lambda pid=pid: has_ended(pid), f"the end of {pid}")  # type: ignore[misc]


def _kill_daemon(site: Site) -> None:
    """kill -9, and wait until the guardian has done its work."""
    found = site.ping()
    _kill(found["pid"])
    until(lambda: has_ended(found["guardian"]), "the guardian's end")


# The way.


def test_by_hand(site: Site) -> None:
    """`flyball trigger --wait` says how it ended, `flyball rules` and `why` show it, `flyball logs` what it printed."""
    site.write(
        {}, rules={"good": runs(site, "echo done by $FLYBALL_UNIT"), "bad": runs(site, "exit 3", restart="never")}
    )
    site.flyball("up", "-d")
    assert "good: done" in site.flyball("trigger", "good", "--wait").stdout
    assert "exit 3" in site.flyball("trigger", "bad", "--wait", code=1).stdout
    assert "exit 3" in site.flyball("why", "bad").stdout
    assert "done by good" in site.flyball("logs", "good").stdout
    shown = site.flyball("rules").stdout
    assert "exit 3" in shown
    assert "done" in shown


# Storms.


def test_storm_then_kill_then_paused(site: Site) -> None:
    """S0: 15 failures within 5 minutes, kill -9, start: paused. Nothing is run, what waits still does, cooldowns and
    quarantines are as they were, until a person resumes; and then still those."""
    for name in ("SAFETY__GLOBAL_FAILURE_THRESHOLD", "QUARANTINE__COOLDOWN_LADDER_SECONDS"):
        del site.env[f"FLYBALL_{name}"]
    held = {"held": runs(site, "echo $FLYBALL_UNIT >> ran; exit 1")}
    site.write({}, rules=held, quarantine={"cooldown_ladder_seconds": [0.01], "max_failures_before_quarantine": 2})
    site.flyball("up", "-d")
    fire(site, "held")
    until(lambda: rule_of(site, "held")["state"] == "quarantined", "a quarantine")

    names = [f"r{number:02}" for number in range(13)]
    failing = {name: runs(site, "echo $FLYBALL_UNIT >> ran; exit 1") for name in names}
    rules = {**held, **failing, "good": runs(site, "echo $FLYBALL_UNIT >> ran")}
    ladder = {"cooldown_ladder_seconds": [3600], "max_failures_before_quarantine": 2}
    site.write({}, rules=rules, quarantine=ladder)
    site.flyball("reload")
    for name in names:
        fire(site, name)
    until(lambda: all(site.status()[name]["state"] == "cooling" for name in names), "13 failures more")
    before = {name: (unit["state"], unit["until"]) for name, unit in site.status().items()}
    ran = lines(site, "ran")
    assert len(ran) == 15
    _kill_daemon(site)

    site.flyball("up", "-d")
    assert "restart storm" in site.log()
    said = fire(site, "good")
    assert said["fate"] == "queued"
    until(lambda: any(entry["event"] == "start" for entry in journal(site, "good")), "that it was refused")
    status = site.status()
    assert "paused" in site.flyball("status").stdout
    assert {status[name]["state"] for name in names} == {"paused"}
    assert all(rule_of(site, name)["waiting"] == 1 for name in (*names, "held", "good"))
    assert lines(site, "ran") == ran

    assert "flyball reset" in site.flyball("resume", "--all", code=1).stderr, "one is still quarantined"
    at_rest(site, "good")
    assert lines(site, "ran") == [*ran, "good"]
    status = site.status()
    assert {name: (status[name]["state"], status[name]["until"]) for name in names} == {
        name: before[name] for name in names
    }
    assert status["held"]["state"] == "quarantined"
    assert all(rule_of(site, name)["waiting"] == 1 for name in (*names, "held"))


def test_storm_of_triggers(site: Site) -> None:
    """10,000 requests while the queue holds 100: no more than those wait, the rest is refused and counted, others are
    answered meanwhile, and memory is bounded."""
    site.write({}, rules={"busy": runs(site, "read x < gate; echo $FLYBALL_FIRING >> ran")})
    os.mkfifo(site.folder / "gate")
    site.flyball("up", "-d")
    found = site.ping()
    before = _memory(found["pid"])
    requests, clients = 10_000, 20

    def storm(_: int) -> list[str]:
        client = connect(site.state)
        assert client is not None
        with client:
            return [
                client.ask("trigger", {"rule": "busy", "data": "x" * 1000})["fate"] for _ in range(requests // clients)
            ]

    with ThreadPoolExecutor(clients) as pool:
        storming = [pool.submit(storm, number) for number in range(clients)]
        until(lambda: len(rule_of(site, "busy")["queue"]) == 100, "a full queue")
        assert site.status()["busy"]
        fates = [fate for one in storming for fate in one.result()]
    assert len(fates) == requests
    assert fates.count("queued") == 100
    assert fates.count("queue_full") == requests - 100
    assert rule_of(site, "busy")["counts"] == {"queued": 100, "queue_full": requests - 100}
    assert len(rule_of(site, "busy")["queue"]) == 100
    assert _memory(found["pid"]) - before < 50 * 1024 * 1024
    dropped = [entry for entry in journal(site, "busy") if entry["data"].get("dropped")]
    assert len(dropped) == 1, "said once"
    site.flyball("queue", "busy", "--clear")
    assert len(rule_of(site, "busy")["queue"]) <= 1, "what runs goes on"


def _memory(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


# A dead API.


class _Api:
    """A server that is dead, then well again; and counts."""

    def __init__(self) -> None:
        self.requests = 0
        self.under_way = 0
        self.most = 0
        self.well = False
        self.gate = threading.Event()
        self.gate.set()
        self._lock = threading.Lock()
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with api._lock:
                    api.requests += 1
                    api.under_way += 1
                    api.most = max(api.most, api.under_way)
                api.gate.wait(60)
                status = 200 if api.well else 503
                with api._lock:
                    api.under_way -= 1
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def api() -> Iterator[_Api]:
    server = _Api()
    yield server
    server.close()


@pytest.mark.parametrize(("running_max", "requests_max"), [(1, 5), (10, 14)])
def test_dead_api(running_max: int, requests_max: int, site: Site, api: _Api) -> None:
    """S0: with 20 rules on it, the breaker opens after 5 failures: those that were under way then are the only
    requests more. It lets 3 trials through, at no time more, and closes after 3 successes; then all 20 are done."""
    del site.env["FLYBALL_CIRCUIT_BREAKER__FAILURE_THRESHOLD"]
    names = [f"r{number:02}" for number in range(20)]
    action = {"http": api.url, "retry": ONCE}
    rule = {"triggers": [{"command": True}], "actions": [action]}
    breaker = {"recovery_timeout_seconds": 3}
    site.write({}, rules=dict.fromkeys(names, rule), rule={"max_running": running_max}, circuit_breaker=breaker)
    site.flyball("up", "-d")
    for name in names:
        fire(site, name)
    [circuit] = until(lambda: site.ask("status")["fleet"]["breakers"], "an open circuit")
    until(lambda: not api.under_way and not any(rule["running"] for rule in site.ask("rules")["rules"]), "a rest")
    assert 5 <= api.requests <= requests_max
    assert sum(len(exits(site, name)) for name in names) == api.requests
    assert "circuit" in site.flyball("status").stdout
    failed = api.requests

    api.gate.clear()
    trials = min(3, running_max)
    until(lambda: api.under_way == trials, f"{trials} trials")
    if running_max > trials:
        until(lambda: site.log().count("3 trial runs are in flight") >= 20 - trials, "that all the others wait")
    assert api.requests == failed + trials
    api.well = True
    api.gate.set()
    at_rest(site, *names)
    assert not site.ask("status")["fleet"]["breakers"]
    assert api.requests == failed + 20
    assert all(exits(site, name)[-1]["cause"] == "done" for name in names)
    assert circuit["name"] == "fleet"


def test_dead_api_fails_its_trials(site: Site, api: _Api) -> None:
    """A trial that fails opens the circuit again: at most 3 requests for each time that it was open."""
    del site.env["FLYBALL_CIRCUIT_BREAKER__FAILURE_THRESHOLD"]
    names = [f"r{number:02}" for number in range(20)]
    rule = {"triggers": [{"command": True}], "actions": [{"http": api.url, "retry": ONCE}]}
    site.write({}, rules=dict.fromkeys(names, rule), circuit_breaker={"recovery_timeout_seconds": 0.5})
    site.flyball("up", "-d")
    for name in names:
        fire(site, name)
    until(lambda: site.ask("status")["fleet"]["breakers"], "an open circuit")
    until(lambda: not api.under_way, "a rest")
    before, api.most, began = api.requests, 0, time.monotonic()
    until(lambda: api.requests >= before + 6, "two times of trials")
    times_open = (time.monotonic() - began) / 0.5 + 1
    assert api.most <= 3
    assert api.requests - before <= 3 * times_open
