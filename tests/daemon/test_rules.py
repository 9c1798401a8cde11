"""Rules under a real daemon, by the commands that people use: storms, a dead API, loops, approvals, and what dies."""

import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from flyball.control.client import connect
from flyball.control.context import CommandError
from flyball.runtimes.rule.firing import DEPTH_MAX
from tests.daemon.rule_site import ONCE, at_rest, exits, fire, journal, lines, rule_of, runs, starts
from tests.daemon.site import Site, has_ended, until

pytestmark = pytest.mark.slow

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
    api.gate.clear()  # nothing is answered from here on, so trials stay under way
    failed = sum(len(exits(site, name)) for name in names)
    assert 5 <= failed <= requests_max
    assert "circuit" in site.flyball("status").stdout
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


@pytest.mark.slow
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


# Loops.

LOOPS_AT = 10
"""Steps of one pattern within a minute: a loop. 100 by default; fewer take less time."""


def _stopped(site: Site, *names: str) -> str:
    """Wait until one of them was stopped for a loop: it was a link of the chain, so nothing more happens. Its name."""

    def stopped() -> list[str]:
        return [name for name in names if rule_of(site, name)["state"] == "stopped"]

    [name] = until(stopped, "a stop")
    at_rest(site, *names)
    assert "loop_detected" in site.flyball("status").stdout
    assert exits(site, name)[-1]["error"] == "loop_detected"
    assert len(starts(site, name)) == LOOPS_AT
    return name


def _file_trigger(site: Site, name: str) -> dict[str, Any]:
    return {"file": str(site.folder / "watched" / name)}


def _looping(site: Site, rules: dict[str, Any], **more: Any) -> None:
    (site.folder / "watched").mkdir()
    site.write({}, rules=rules, safety={"max_loop_iterations": LOOPS_AT}, **more)
    site.flyball("up", "-d")


def test_fires_itself_through_a_file(site: Site) -> None:
    """S0: a rule that changes the file that it watches is stopped at the limit, and waits for a person."""
    _looping(site, {"loop": runs(site, "echo x >> watched/a", _file_trigger(site, "a"))})
    (site.folder / "watched" / "a").touch()
    _stopped(site, "loop")
    (site.folder / "watched" / "a").write_text("changed")
    until(lambda: rule_of(site, "loop")["waiting"], "another firing, which waits")
    assert "flyball resume loop" in site.flyball("why", "loop").stdout
    assert len(starts(site, "loop")) == LOOPS_AT
    site.flyball("resume", "loop")
    until(lambda: len(starts(site, "loop")) > LOOPS_AT, "that it goes on when a person says so")


@pytest.mark.slow
def test_fire_each_other_through_files(site: Site) -> None:
    """Two that change each other's files likewise."""
    rules = {
        "ping": runs(site, "echo x >> watched/b", _file_trigger(site, "a")),
        "pong": runs(site, "echo x >> watched/a", _file_trigger(site, "b")),
    }
    _looping(site, rules)
    (site.folder / "watched" / "a").touch()
    _stopped(site, "ping", "pong")


@pytest.mark.slow
def test_fire_each_other_through_webhooks(site: Site) -> None:
    """One that posts to its own webhook, and two that post to each other's, likewise."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    site.env["HOOK_SECRET"] = "a secret that is long enough"  # noqa: S105 - of this test alone

    def posts(hook: str, to: str) -> dict[str, Any]:
        address = f"http://127.0.0.1:{port}/hooks/{to}"
        return runs(site, f"{sys.executable} {SEND} {address}", {"webhook": hook, "secret": "${HOOK_SECRET}"})

    rules = {"self": posts("self", "self"), "ping": posts("ping", "pong"), "pong": posts("pong", "ping")}
    _looping(site, rules, rule={"listen": f"127.0.0.1:{port}"})
    fire(site, "self")
    fire(site, "ping")
    _stopped(site, "self")
    _stopped(site, "ping", "pong")


def test_fired_by_a_unit(site: Site) -> None:
    """`flyball trigger` in a command of a unit is no person's word: what was stopped as a loop stays stopped, and rules
    that fire each other so are a chain like any other."""
    again = [sys.executable, "-m", "flyball", "trigger", "round"]
    action = {"run": again, "cwd": str(site.folder), "retry": ONCE}
    rules = {"often": runs(site, "echo x >> ran"), "round": {"triggers": [{"command": True}], "actions": [action]}}
    site.write({}, safety={"max_loop_iterations": 3, "loop_window_seconds": 5}, rules=rules)
    site.flyball("up", "-d")
    for _ in range(5):
        fire(site, "often")
    at_rest(site, "often")
    assert len(lines(site, "ran")) == 2
    site.env["FLYBALL_UNIT"] = "agent"
    site.flyball("trigger", "often")
    until(lambda: journal(site, "often")[-1]["event"] == "start", "that it asked")
    assert "ended_by_policy" in str(journal(site, "often")[-1])
    assert len(lines(site, "ran")) == 2
    del site.env["FLYBALL_UNIT"]
    until(lambda: "often: done" in site.flyball("trigger", "often", "--wait", code=None).stdout, "a person who may")

    site.write({}, rules=rules)
    site.flyball("reload")
    fire(site, "round")
    until(lambda: any(entry["data"].get("depth") == 2 for entry in journal(site, "round")), "the third link")


def test_fire_each_other_through_events(site: Site) -> None:
    """A circle of events whose conditions let `flyball check` hope for a way out: the chain is cut after 16."""
    event = {"on": ["done"]}
    rules = {
        "ping": runs(site, "true", {"event": "pong", **event}, when="time.unix > 0.0"),
        "pong": runs(site, "true", {"event": "ping", **event}, when="time.unix > 0.0"),
    }
    site.write({}, rules=rules)
    site.flyball("up", "-d")
    fire(site, "ping")
    entries = until(
        lambda: [entry for entry in journal(site) if entry["data"].get("dropped") == "chain_too_long"], "a cut"
    )
    assert len(entries) == 1
    at_rest(site, "ping", "pong")
    assert len(starts(site, "ping")) + len(starts(site, "pong")) == DEPTH_MAX + 1
    assert "looks like a circle" in site.log()


# Approvals.


def _asks(site: Site, **more: Any) -> dict[str, Any]:
    rule = runs(site, "echo $FLYBALL_FIRING >> ran")
    rule["actions"][0]["approve"] = {"text": "Pay {{ trigger.data }}?", **more}
    return rule


def test_approved(site: Site) -> None:
    """Runs that ask the same share one question: one `flyball answer` lets both go on. A no ends the run, which is no
    failure."""
    site.write({}, rules={"pay": {**_asks(site), "limits": {"concurrency": 2}}})
    site.flyball("up", "-d")
    for _ in range(2):
        fire(site, "pay", 5)
    until(
        lambda: len(site.ping() and rule_of(site, "pay")["queue"]) == 2 and site.ask("questions")["questions"], "asked"
    )
    until(lambda: sum(one["running"] for one in rule_of(site, "pay")["queue"]) == 2, "both")
    [question] = site.ask("questions")["questions"]
    assert question["text"] == "Pay 5?"
    site.flyball("answer", "pay", "yes")
    at_rest(site, "pay")
    assert len(lines(site, "ran")) == 2
    fire(site, "pay", 6)
    until(lambda: site.ask("questions")["questions"], "another question")
    site.flyball("answer", "pay", "no")
    at_rest(site, "pay")
    assert len(lines(site, "ran")) == 2
    assert [(one["cause"], one.get("error")) for one in exits(site, "pay")][-1] == ("stopped", "not_approved")
    assert rule_of(site, "pay")["state"] == "healthy"


@pytest.mark.parametrize("default", [True, False])
def test_nobody_answers(default: bool, site: Site) -> None:
    """After its deadline the default is taken for the answer."""
    site.write({}, rules={"pay": _asks(site, timeout="0.3s", default=default)})
    site.flyball("up", "-d")
    fire(site, "pay", 5)
    at_rest(site, "pay")
    assert len(lines(site, "ran")) == default
    assert exits(site, "pay")[-1]["cause"] == ("done" if default else "stopped")


def test_killed_while_it_waits_for_a_person(site: Site) -> None:
    """kill -9 while a question is open: the run is lost, the next one asks again, and only the new question counts."""
    site.write({}, rules={"pay": _asks(site)})
    site.flyball("up", "-d")
    fire(site, "pay", 5)
    until(lambda: site.ask("questions")["questions"], "a question")
    _kill_daemon(site)
    site.flyball("up", "-d")
    until(lambda: len(starts(site, "pay")) == 2 and len(site.ask("questions")["questions"]) == 1, "one question")
    site.flyball("answer", "pay", "yes")
    at_rest(site, "pay")
    assert len(lines(site, "ran")) == 1


# What dies, and what is told to end.


def _both_gone(site: Site) -> None:
    """kill -9 of daemon and guardian together: nobody is left to end anything."""
    found = site.ping()
    for pid in (found["guardian"], found["pid"]):
        os.kill(pid, signal.SIGSTOP)
    _kill(found["guardian"], found["pid"])


@pytest.mark.parametrize("kill", [_kill_daemon, _both_gone])
def test_killed_in_a_run(kill: Callable[[Site], None], site: Site) -> None:
    """What ran is ended, is lost, and is tried again as attempt 2, which is said. It has its slot back at once, also
    where rules may run one at a time."""
    script = "echo $FLYBALL_FIRING $FLYBALL_ATTEMPT >> ran; test $FLYBALL_ATTEMPT = 2 || exec sleep 1000"
    site.write({}, rules={"long": runs(site, script)}, rule={"max_running": 1})
    site.flyball("up", "-d")
    id_ = fire(site, "long")["id"]
    until(lambda: lines(site, "ran"), "its run")
    kill(site)
    site.flyball("up", "-d")
    at_rest(site, "long")
    assert lines(site, "ran") == [f"{id_} 1", f"{id_} 2"]
    assert [one["cause"] for one in exits(site, "long")] == ["lost", "done"]
    assert site.running() == {}
    assert "begun (attempt 1)" in site.log()


def test_killed_in_a_call(site: Site) -> None:
    """What a function started is ended as well, by the next daemon if there was no guardian left to do so."""
    (site.folder / "functions.py").write_text(
        "import os, pathlib, subprocess, time\n"
        "def work():\n"
        "    if pathlib.Path(os.environ['FLYBALL_SITE'], 'second').exists():\n"
        "        return\n"
        "    subprocess.Popen(['setsid', 'sleep', '1000'])\n"
        "    pathlib.Path(os.environ['FLYBALL_SITE'], 'second').touch()\n"
        "    time.sleep(1000)\n"
    )
    rule = {"triggers": [{"command": True}], "actions": [{"call": "functions:work", "retry": ONCE}]}
    site.write({}, rules={"calls": rule})
    site.flyball("up", "-d")
    fire(site, "calls")
    until((site.folder / "second").exists, "the call")
    _both_gone(site)
    site.flyball("up", "-d")
    at_rest(site, "calls")
    site.gone()
    assert [one["cause"] for one in exits(site, "calls")] == ["lost", "done"]


@pytest.mark.parametrize("action", ["run", "call"])
def test_process_is_killed(action: str, site: Site) -> None:
    """kill -9 of the command, or of the process of a call: a failure like any other, and it is tried again."""
    (site.folder / "functions.py").write_text("import time\ndef work(): time.sleep(1000)\n")
    deed: dict[str, Any] = {"run": ["sleep", "1000"]} if action == "run" else {"call": "functions:work"}
    rule = {"triggers": [{"command": True}], "actions": [{**deed, "retry": ONCE}]}
    site.write({}, rules={"dies": rule})
    site.flyball("up", "-d")
    fire(site, "dies")
    first = until(lambda: site.running().get("dies", []), "its process")
    _kill(*first)
    second = until(lambda: [pid for pid in site.running().get("dies", []) if pid not in first], "another process")
    failed = exits(site, "dies")[0]
    assert (failed["cause"], failed["error"], failed["signal"]) == ("error", "SIGKILL", 9)
    assert len(second) == 1


@pytest.mark.parametrize("way", ["down", "pause", "stop"])
def test_told_to_end_in_a_run(way: str, site: Site) -> None:
    """`flyball down`, `pause` and `stop` during a run end what it started, by its signal, which is no failure. What was
    paused, or was running when the daemon went down, is run again; what was stopped is not wanted any more."""
    script = "trap 'echo told >> ran; exit 1' TERM; echo begun >> ran; test -e go || while :; do sleep 0.02; done"
    site.write({}, rules={"long": runs(site, script)})
    site.flyball("up", "-d")
    fire(site, "long")
    until(lambda: lines(site, "ran"), "its run")
    if way == "down":
        site.flyball("down")
        assert site.running() == {}
        (site.folder / "go").touch()
        site.flyball("up", "-d")
    else:
        site.flyball(way, "long")
        until(lambda: not rule_of(site, "long")["running"], "its end")
        assert site.running() == {}
        assert rule_of(site, "long")["state"] == ("paused" if way == "pause" else "stopped")
        (site.folder / "go").touch()
        site.flyball("resume" if way == "pause" else "start", "long", code=None)
    at_rest(site, "long")
    again = way != "stop"
    assert lines(site, "ran") == ["begun", "told", *(["begun"] if again else [])]
    assert [one["cause"] for one in exits(site, "long")] == ["stopped", *(["done"] if again else [])]
    assert rule_of(site, "long")["state"] == "healthy"


def test_full_disk(site: Site) -> None:
    """Whoever fires a rule hears that nothing can be written down. A run under way waits with what it did, and does
    nothing more; that is no failure. When there is room again it goes on, and nothing was done twice."""
    rule = runs(site, "echo one >> ran; read x < gate")
    rule["actions"].append({"run": ["sh", "-c", "echo two >> ran"], "cwd": str(site.folder), "retry": ONCE})
    site.write({}, rules={"long": rule, "other": runs(site, "echo other >> ran")})
    os.mkfifo(site.folder / "gate")
    site.flyball("up", "-d")
    fire(site, "long")
    until(lambda: lines(site, "ran"), "its run")
    daemon = site.ping()["pid"]
    resource.prlimit(daemon, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    with pytest.raises(CommandError, match="no room left"):
        fire(site, "other")
    (site.folder / "gate").write_text("go\n")
    until(lambda: "no room left" in site.ask("status")["trouble"], "that it is noticed")
    assert lines(site, "ran") == ["one"]
    resource.prlimit(daemon, resource.RLIMIT_FSIZE, NO_LIMIT)
    at_rest(site, "long", "other")
    assert lines(site, "ran") == ["one", "two"]
    assert [one["cause"] for one in exits(site, "long")] == ["done"]
    assert not site.ask("status")["trouble"]
    assert fire(site, "other")["fate"] == "queued"
    at_rest(site, "other")
