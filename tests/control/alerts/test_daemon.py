"""Alerts of a real daemon, as they arrive at a server that people's phones listen to."""

import json
import os
import resource
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.site import Site, has_ended, until

FAILS = {"command": ["sh", "-c", "echo Boom >&2; exit 3"]}


class Phone:
    """What an ntfy server does: takes messages. It can be out of order."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.asked = 0
        self.works = True
        self.answers = threading.Event()
        self.answers.set()
        phone = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                phone.asked += 1
                if phone.works:
                    phone.got.append(body)
                phone.answers.wait(30)
                try:
                    self.send_response(200 if phone.works else 503)
                    self.send_header("content-type", "application/json")
                    self.end_headers()
                    self.wfile.write(b"{}")
                except OSError:
                    pass

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def titles(self) -> list[str]:
        return [body["title"] for body in self.got]

    def close(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def phone() -> Iterator[Phone]:
    found = Phone()
    yield found
    found.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    place = Site(tmp_path, FLYBALL_ALERTS__GROUP_WAIT_SECONDS="0.05", NO_PROXY="127.0.0.1")
    yield place
    place.clean()


def settings(phone: Phone, **more: Any) -> dict[str, Any]:
    return {"channels": {"phone": {"type": "ntfy", "url": phone.url, "topic": "t0p1c"}}, **more}


def kill(site: Site) -> None:
    """kill -9, the guardian included: nothing is told to end."""
    pids = site.ping()
    os.kill(pids["guardian"], signal.SIGKILL)
    os.kill(pids["pid"], signal.SIGKILL)
    until(lambda: has_ended(pids["pid"]) and has_ended(pids["guardian"]), "the death")


@pytest.mark.slow
def test_killed_before_it_was_sent(site: Site, phone: Phone) -> None:
    """An alert whose daemon was killed with -9 before the server answered is sent by the next daemon; and what the
    server took before is the same message for it."""
    site.write({"shop": FAILS}, alerts=settings(phone))
    phone.answers.clear()
    site.flyball("up", "-d")
    until(lambda: "shop quarantined" in phone.titles, "the first attempt")
    kill(site)
    phone.answers.set()
    first = [body for body in phone.got if body["title"] == "shop quarantined"]
    site.flyball("up", "-d")
    until(lambda: len(phone.got) > len(first), "the second attempt")
    told = [body for body in phone.got if body["title"] == "shop quarantined"]
    assert len({body["sequence_id"] for body in told}) == 1
    until(lambda: site.ask("alerts")["channels"][0]["pending"] == 0, "that it is written")
    site.down()


@pytest.mark.slow
def test_killed_while_the_server_was_down(site: Site, phone: Phone) -> None:
    """What could not be sent waits in the store, over a kill -9, until it can."""
    site.write({"shop": FAILS}, alerts=settings(phone))
    phone.works = False
    site.flyball("up", "-d")
    until(lambda: phone.asked, "an attempt")
    kill(site)
    phone.works = True
    site.flyball("up", "-d")
    until(lambda: "shop quarantined" in phone.titles, "the alert")
    site.ask("reset", all=True)
    site.down()


@pytest.mark.slow
def test_whole_way(site: Site, phone: Phone) -> None:
    """A rule's message, a test and its result, what is open and how the channel is: as people use it; and the topic,
    which is as good as a password, is shown nowhere."""
    rules = {"greet": {"triggers": [{"command": True}], "actions": [{"notify": "hello from a rule"}]}}
    site.write({"idle": {"command": "sleep 1000"}}, rules=rules, alerts=settings(phone))
    site.flyball("up", "-d")
    assert "phone: sent" in site.flyball("alerts", "test").stdout
    assert phone.titles == ["flyball: a test"]
    assert site.flyball("alerts", "test", "fone", code=2).stderr.startswith("error: no channel 'fone'; did you mean")
    site.ask("trigger", rule="greet")
    until(lambda: any(body["message"].startswith("hello from a rule") for body in phone.got), "the rule's message")
    shown = site.flyball("alerts").stdout
    assert "greet" in shown
    assert "works" in shown
    phone.works = False
    failed = site.flyball("alerts", "test", "phone", code=1).stdout
    assert "failing" in failed
    everything = (
        shown + failed + site.log() + site.flyball("config", str(site.file)).stdout + json.dumps(site.ask("audit"))
    )
    assert "t0p1c" not in everything
    site.down()
    site.flyball("alerts", "test", code=2)


@pytest.mark.slow
def test_reload(site: Site, phone: Phone) -> None:
    """A channel that a reload brings is used at once."""
    site.write({"idle": {"command": "sleep 1000"}})
    site.flyball("up", "-d")
    assert "no channels" in site.flyball("alerts").stdout
    site.write({"idle": {"command": "sleep 1000"}}, alerts=settings(phone))
    site.flyball("reload")
    assert "phone: sent" in site.flyball("alerts", "test").stdout
    site.down()


@pytest.mark.slow
def test_secrets_are_not_for_units(site: Site, phone: Phone) -> None:
    """No process of a unit has what people are reached with, neither from the start nor when a reload brings it; the
    daemon has it still."""
    site.env |= {"PHONE_TOKEN": "t0ken-of-the-phone", "SIGN": "s3cret-of-the-webhook"}
    channel = {"type": "ntfy", "url": phone.url, "topic": "t0p1c", "token": "${PHONE_TOKEN}"}
    calm = {"command": ["sleep", "1000"]}
    site.write({"first": calm}, alerts={"channels": {"phone": channel}})
    site.flyball("up", "-d")

    def environ(unit: str) -> bytes:
        return b"".join(Path(f"/proc/{pid}/environ").read_bytes() for pid in site.all_up(unit)[unit])

    assert b"t0ken" not in environ("first")
    assert b"s3cret" in environ("first")
    hook = {"type": "webhook", "url": phone.url, "secret": "${SIGN}"}
    site.write({"second": {**calm, "env": {"OWN": "1"}}}, alerts={"channels": {"phone": channel, "hook": hook}})
    site.flyball("reload")
    found = environ("second")
    assert b"OWN=1" in found
    assert b"t0ken" not in found
    assert b"s3cret" not in found
    site.ask("test_alert")
    until(lambda: phone.got, "a message with the token")
    site.down()


@pytest.mark.slow
def test_the_store_is_away(site: Site, phone: Phone) -> None:
    """A store that really fails (its disk is full) is told at once, without it, and once; that it is over is told too.
    What happened meanwhile was written down, and is told then."""
    dies = {"command": ["sh", "-c", "read x < gate; exit 3"], "cwd": str(site.folder), "restart": "never"}
    site.write(
        {"idle": {"command": "sleep 1000"}, "dies": dies}, alerts=settings(phone), exclusive={"lease_seconds": 3}
    )
    os.mkfifo(site.folder / "gate")
    site.flyball("up", "-d")
    site.all_up("idle", "dies")
    pid = site.ping()["pid"]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    until(lambda: "the store cannot be used" in phone.titles, "that people are told")
    [away] = [body for body in phone.got if body["title"] == "the store cannot be used"]
    assert "no room left" in away["message"]
    (site.folder / "gate").write_text("go\n")
    until(lambda: site.ping()["pids"].keys() == {"idle"}, "its exit")
    assert "dies failed" not in phone.titles
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    site.ask("resume")  # it looks again now, and not some seconds later
    until(lambda: "Resolved: the store cannot be used" in phone.titles, "that it is over")
    until(lambda: "dies failed" in phone.titles, "what happened meanwhile")
    assert phone.titles.count("the store cannot be used") == 1
    site.down()
