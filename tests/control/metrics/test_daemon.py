"""Metrics and logs of a real daemon, with real children."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from flyball.control.metrics.metrics import CONTENT_TYPE
from flyball.control.web.tokens import Tokens
from tests.control.metrics.scene import parsed
from tests.control.metrics.test_files import check
from tests.daemon.site import Site, until

STRANGE = "_.@+-Z"
CRASHES = {"command": ["sh", "-c", "exit 3"]}
SLEEPS = {"command": ["sleep", "1000"]}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A place with a port of its own."""
    place = Site(tmp_path, FLYBALL_HTTP__LISTEN="127.0.0.1:0")
    yield place
    place.clean()


def scrape(site: Site, token: str | None) -> httpx.Response:
    """What Prometheus gets."""
    address = json.loads((site.state / "http.json").read_text())["address"]
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    return httpx.get(f"{address}/metrics", headers=headers, timeout=20)


def table(site: Site, token: str) -> dict[tuple[str, ...], float]:
    return parsed(scrape(site, token).raise_for_status().text)


def test_a_real_scrape(site: Site) -> None:
    """S3-33 to S3-35: with a token that may look, a daemon tells of the restarts of its children, why, and how long
    they took; promtool has nothing to say about it. Without one: 401."""
    site.write({STRANGE: CRASHES, "sleeps": SLEEPS})
    site.flyball("up", "-d")
    token = Tokens(site.state).add("prometheus", "look").token
    restarts = ("flyball_restarts_total", "error", STRANGE)
    until(lambda: table(site, token).get(restarts, 0) >= 2, "two restarts")
    answer = scrape(site, token)
    told = parsed(answer.text)
    assert answer.headers["Content-Type"] == CONTENT_TYPE
    assert told["flyball_exits_total", "error", STRANGE] >= told[restarts]
    assert told["flyball_starts_total", "sleeps"] == 1
    assert told["flyball_recovery_seconds_count",] >= 2
    assert 0 < told["flyball_recovery_seconds_sum",] < 60
    assert told["flyball_units_running",] >= 1
    assert told["flyball_journal_lag_entries", "metrics"] == 0
    assert told["process_resident_memory_bytes",] > 0
    for wrong in (None, "flyball_wrong"):
        assert scrape(site, wrong).status_code == 401
    until(lambda: table(site, token)["flyball_logins_failed_total",] >= 1, "the failed login")
    done = check("check", "metrics", given=answer.text)
    assert done.stdout + done.stderr == ""


def lines(text: str) -> list[dict[str, Any]]:
    """Each line is an object."""
    found = [json.loads(line) for line in text.splitlines()]
    assert found
    assert all(isinstance(line, dict) for line in found)
    return found


@pytest.mark.slow
def test_a_log_of_json(site: Site) -> None:
    """Every line of the log is JSON with time, level and text; those about a unit name it, the event, the verdict and
    the codes of its reasons."""
    site.env["FLYBALL_LOGS__FORMAT"] = "json"
    site.write({"crashes": CRASHES, "sleeps": SLEEPS})
    site.flyball("up", "-d")
    until(lambda: site.status()["crashes"]["failures_in_a_row"] >= 1, "a failure")
    site.down()
    told = lines((site.state / "daemon.log").read_text())
    for line in told:
        assert {"time", "level", "logger", "text"} <= line.keys()
        assert datetime.fromisoformat(line["time"]).tzinfo is not None
        assert line["level"] in ("info", "warning", "error")
    exits = [line for line in told if line.get("unit") == "crashes" and line.get("event") == "exited"]
    assert exits
    assert exits[0]["verdict"] == "wait"
    assert exits[0]["codes"]
    assert exits[0]["run"]


@pytest.mark.slow
def test_in_the_foreground_too(site: Site) -> None:
    """Also what a daemon says that cannot start. What the command itself warns of is for whoever typed it."""
    site.env |= {"FLYBALL_LOGS__FORMAT": "json", "FLYBALL_HTTP__LISTEN": "192.0.2.1:1"}
    site.write({"sleeps": SLEEPS})
    done = site.flyball("up", code=2)
    told = lines("".join(line for line in done.stderr.splitlines(True) if not line.startswith("warning: ")))
    assert told[-1]["level"] == "error"
    assert "192.0.2.1" in told[-1]["text"]


@pytest.mark.slow
def test_spans_of_a_real_daemon(site: Site) -> None:
    """With an exporter in the settings each run of a child becomes a span, also those that live when the daemon
    ends."""
    site.env["FLYBALL_TRACES__EXPORTER"] = "console"
    site.write({"crashes": CRASHES, "sleeps": SLEEPS})
    site.flyball("up", "-d")
    until(lambda: site.status()["crashes"]["failures_in_a_row"] >= 1, "a failure")
    site.down()
    said = (site.state / "daemon.err").read_text()
    assert '"flyball.unit": "crashes"' in said
    assert '"flyball.cause": "error"' in said
    assert '"flyball.unit": "sleeps"' in said


@pytest.mark.slow
def test_an_exporter_that_is_not_there_is_told_by_up(site: Site) -> None:
    """What is missing and what to do, in a line or two; nothing is started."""
    site.env["FLYBALL_TRACES__EXPORTER"] = "nowhere"
    site.write({"sleeps": SLEEPS})
    done = site.flyball("up", "-d", code=2)
    assert "no exporter 'nowhere'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not site.ping()
