"""kill -9 of a daemon with rules, at random instants, while times, files, webhooks and people fire them: while a firing
is written down, between its start and its action, in the action, while its end is written, while the next daemon
begins. Sometimes its guardian is killed alone, or both.

Whatever the instant: what was accepted is done, nothing is done twice without being told, nothing is done that was not
granted. `FLYBALL_KILLS` sets how many kills there are, `FLYBALL_SEED` which ones.
"""

import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from examples.send_webhook import headers_of

from flyball.control.client import connect
from flyball.control.context import CommandError
from flyball.core.codec import decode_body
from flyball.core.event import Cause, Event, Exited, Fired, Start
from flyball.governor import Governor
from flyball.runtimes.rule.firing import FIRING
from flyball.store import Entry
from flyball.store.sqlite import SqliteStore
from tests.daemon.rule_site import at_rest
from tests.daemon.site import Site, has_ended, until

KILLS = int(os.environ.get("FLYBALL_KILLS", "12"))
SEED = os.environ.get("FLYBALL_SEED", "1")
ALIVE_MAX = 0.8
"""Seconds that a daemon lives, at most: time for some dozens of runs."""
SECRET = "a secret that is long enough"  # noqa: S105 - of this test alone
NO_LIMITS = {
    "quarantine": {"max_failures_before_quarantine": 100_000},
    "crash_policy": {"flap_threshold": 10, "halt_threshold": 10_000},
    "restart_policy": {
        "max_restarts_per_hour": 100_000,
        "max_restarts_in_a_row": 100_000,
        "max_total_restarts_per_hour": 100_000,
    },
    "safety": {"max_loop_iterations": 1_000_000},
}
"""What is tested here is counted, not held."""

SCRIPT = 'echo "$FLYBALL_UNIT $FLYBALL_FIRING $FLYBALL_ATTEMPT $1" >> "$FLYBALL_SITE/ran"; sync "$FLYBALL_SITE/ran"'

pytestmark = pytest.mark.slow


def _rule(about: str, *triggers: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    action = {"run": ["sh", "-c", SCRIPT, "sh", about], "retry": {"max_attempts": 1}}
    return {"triggers": [*triggers], "actions": [action], "limits": {"queue": 10_000, **more}}


def _rules(site: Site, every: str) -> dict[str, Any]:
    return {
        "timer": _rule("-", {"every": every}),
        "file": _rule("{{ trigger.name }}", {"file": str(site.folder / "inbox" / "*.txt")}),
        "hook": _rule("{{ trigger.id }}", {"webhook": "hook", "secret": SECRET}),
        "command": _rule("{{ trigger.data }}", {"command": True}, concurrency=3),
        "after": _rule("{{ trigger.run }}", {"event": "command", "on": ["done"]}),
    }


class Driver:
    """Fires rules from outside, all the time, whether a daemon is there or not; and remembers what was accepted."""

    def __init__(self, site: Site, port: int) -> None:
        self.commands: dict[str, str] = {}
        """Numbers that were accepted, by the id of their firing."""
        self.hooks: list[str] = []
        self.files: list[str] = []
        self._site, self._address = site, ("127.0.0.1", port)
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._go_on, args=(way,)) for way in (self._ask, self._post, self._put)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _go_on(self, way: Callable[[int], float]) -> None:
        number = 0
        while not self._ended.wait(way(number)):
            number += 1

    def _ask(self, number: int) -> float:
        with suppress(CommandError, OSError):
            client = connect(self._site.state)
            if client is not None:
                with client:
                    said = client.ask("trigger", {"rule": "command", "data": str(number)})
                assert said["fate"] == "queued"
                self.commands[said["id"]] = str(number)
                return 0.02
        return 0.05

    def _post(self, number: int) -> float:
        """Until it was heard, the same again and again: only then is it known that it was taken."""
        id_, body = f"msg_{number}", b"{}"
        while not self._ended.is_set():
            with suppress(OSError, HTTPException):
                connection = HTTPConnection(*self._address, timeout=5)
                try:
                    headers = headers_of(body, SECRET, id_, int(time.time()))
                    connection.request("POST", "/hooks/hook", body, headers)
                    status = connection.getresponse().status
                finally:
                    connection.close()
                assert status in (200, 202)
                self.hooks.append(id_)
                return 0.05
            time.sleep(0.05)  # nobody is there
        return 0

    def _put(self, number: int) -> float:
        name = f"{number}.txt"
        inbox = self._site.folder / "inbox"
        (inbox / "being-written").write_text(name)
        (inbox / "being-written").rename(inbox / name)
        self.files.append(name)
        return 0.2


def test_killed_at_any_instant(tmp_path: Path) -> None:
    """Law 1 for rules: a crash loses nothing, and runs nothing twice without saying so."""
    site = Site(tmp_path)
    (tmp_path / "inbox").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    more = {"rule": {"listen": f"127.0.0.1:{port}", "max_runs_per_minute": 1_000_000}, **NO_LIMITS}
    site.write({}, rules=_rules(site, "50ms"), **more)
    try:
        _begin_watching(site)
        driver = Driver(site, port)
        try:
            _campaign(site, random.Random(SEED))
        finally:
            driver.end()
        site.write({}, rules=_rules(site, "1h"), **more)
        site.ask("reload")
        at_rest(site, *_rules(site, ""))
        until(lambda: {line.about for line in _lines(site, "file")} >= set(driver.files), "all files")
        at_rest(site, *_rules(site, ""))
        assert "quarantined" not in site.flyball("status").stdout
        site.down()
        assert site.running() == {}
        _check(site, driver)
    finally:
        site.clean()


def _ping(site: Site) -> dict[str, Any]:
    """What a daemon says of itself; nothing if there is none, or one that is dying."""
    try:
        return site.ping()
    except CommandError:
        return {}


def _begin(site: Site) -> "subprocess.Popen[bytes]":
    """`flyball up -d`. A daemon answers; it may still be beginning."""
    starting = subprocess.Popen(
        [sys.executable, "-m", "flyball", "up", "-d"],
        cwd=site.folder,
        env=site.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: _ping(site), "a daemon")
    return starting


def _begin_watching(site: Site) -> None:
    """The first daemon. Files that are there before it has listed them fire nothing."""
    with _begin(site) as starting:
        assert starting.wait(60) == 0
    numbers = itertools.count()

    def is_seen() -> bool:
        (site.folder / "inbox" / f"first-{next(numbers)}.txt").touch()
        return bool(_lines(site, "file"))

    until(is_seen, "that files are seen")
    found = site.ping()
    _kill("daemon", found["pid"], found["guardian"])


def _campaign(site: Site, dice: random.Random) -> None:
    """Kill, start, kill; at last one lives."""
    for _ in range(KILLS):
        with _begin(site) as starting:
            found = until(lambda: _ping(site), "a daemon")
            if dice.random() < 0.6:
                starting.wait(60)
            time.sleep(dice.uniform(0, ALIVE_MAX))  # the instant of the kill is what is varied
            whom = dice.choices(("daemon", "guardian", "both"), (6, 1, 3))[0]
            _kill(whom, found["pid"], found["guardian"])
    with _begin(site) as starting:
        assert starting.wait(60) == 0


def _kill(whom: str, daemon: int, guardian: int) -> None:
    pids = {"daemon": [daemon], "guardian": [guardian], "both": [guardian, daemon]}[whom]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in (guardian, daemon):
        until(lambda pid=pid: has_ended(pid), f"the end of {pid}")  # type: ignore[misc]


class Line(NamedTuple):
    """What an action wrote."""

    rule: str
    firing: str
    attempt: int
    about: str

    @property
    def run(self) -> str:
        return f"{self.firing}.{self.attempt}"


def _lines(site: Site, rule: str = "") -> list[Line]:
    file = site.folder / "ran"
    texts = file.read_text().splitlines() if file.exists() else []
    found = [
        Line(name, firing, int(attempt), about)
        for name, firing, attempt, about in (text.split(maxsplit=3) for text in texts)
    ]
    return [line for line in found if rule in ("", line.rule)]


def _check(site: Site, driver: Driver) -> None:
    """What was done fits with what was accepted, and with what the journal says."""
    done = _lines(site)
    by_about: dict[tuple[str, str], set[str]] = defaultdict(set)
    for line in done:
        by_about[line.rule, line.about].add(line.firing)
    with SqliteStore(site.state / "state.db") as store:
        assert store.integrity() == []
        assert store.states(FIRING) == {}, "the queue is empty"
        assert Governor((), store).live_runs() == []
        entries = _entries(store)
    events = [(body.event, body.decision) for body in (decode_body(entry.body) for entry in entries)]
    granted = Counter(event.run for event, said in events if isinstance(event, Start) and said.proceeds)
    ended = _ends(event for event, _ in events)
    fired = {event.id for event, _ in events if isinstance(event, Fired) and not event.dropped}

    # Nothing that was accepted is lost.
    assert driver.commands.keys() <= {line.firing for line in done}
    assert {("hook", id_) for id_ in driver.hooks} <= by_about.keys()
    assert driver.files
    assert {("file", name) for name in driver.files} <= by_about.keys()
    commands = {run.rpartition(".")[0] for run, end in ended.items() if end is Cause.DONE} & driver.commands.keys()
    followed = {line.about.rpartition(".")[0] for line in done if line.rule == "after"}
    assert commands <= followed, "what follows from it neither"

    # One cause fires once.
    twice = {key: ids for key, ids in by_about.items() if key[0] != "timer" and len(ids) > 1}
    assert not twice

    # Nothing is done that was not fired and granted, and nothing is granted twice.
    assert {line.firing for line in done} <= fired
    assert {line.run for line in done} <= granted.keys()
    assert set(granted.values()) == {1}
    assert granted.keys() == ended.keys(), "whatever was granted has an end"

    # What was done twice says so: by its attempt, and by the end of the one before.
    assert max(Counter(line.run for line in done).values()) == 1
    for run in granted:
        firing, _, attempt = run.rpartition(".")
        before = [ended[f"{firing}.{number}"] for number in range(1, int(attempt))]
        assert Cause.DONE not in before, "what is done is not done again"
        assert set(before) <= {Cause.LOST, Cause.STOPPED}
    lost = sum(end is Cause.LOST for end in ended.values())
    assert lost, "some were killed in a run"
    assert any(line.attempt > 1 for line in done)
    assert "not brought to its end; it is tried again" in site.log()


def _ends(events: Iterable[Event]) -> dict[str, Cause]:
    ends: dict[str, Cause] = {}
    for event in events:
        if isinstance(event, Exited):
            assert event.run not in ends, "each ends once"
            ends[event.run] = event.cause
    return ends


def _entries(store: SqliteStore) -> list[Entry]:
    found: list[Entry] = []
    while some := store.entries(after=found[-1].seq if found else 0):
        found += some
    assert found[0].seq == 1, "all of it is there"
    return found
