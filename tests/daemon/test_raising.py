"""Money for what stands still: raised through a real daemon, what ended for want of it goes on by itself."""

import os
import signal
import sys
from typing import Any

import pytest

from tests.daemon.site import Site, has_ended, until

pytestmark = pytest.mark.slow

SPENDS = """
import json, os, signal, socket
s, path = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), os.environ["NOTIFY_SOCKET"]
s.bind("")
with open("starts", "a") as starts: starts.write("s")
print("spends", flush=True)
s.sendto(("X_FLYBALL_RUN=" + os.environ["FLYBALL_RUN"] + "\\nX_FLYBALL_SPENT=0.30").encode(), path)
s.recv(9999)
signal.pause()
"""
"""Says that it spent thirty cents, then waits."""


@pytest.fixture
def broke(site: Site) -> Site:
    """A daemon with a unit that has spent all it may."""
    unit = {"command": [sys.executable, "-c", SPENDS], "kind": "agent", "grace": "0.1s", "cwd": str(site.folder)}
    site.write({"broke": unit}, budget={"per_unit": 0.3})
    site.flyball("up", "-d")
    until(lambda: site.status()["broke"]["state"] == "stopped", "the end of its money")
    return site


def starts(site: Site) -> int:
    return len((site.folder / "starts").read_text())


def budget(site: Site) -> tuple[int, int, int]:
    """Spent, limit and raised, in cents."""
    [mine] = [one for one in site.ask("budgets")["budgets"] if one["unit"] == "broke"]
    return mine["spent"] // 10_000, mine["limit"] // 10_000, mine["raised"] // 10_000


def offered(site: Site) -> dict[str, Any]:
    """The problem that it is."""
    [found] = site.ask("problems")["problems"]
    return dict(found)


def test_it_goes_on(broke: Site) -> None:
    """The problem names the one safe thing to do; that done, it runs again, with the money that was added and the
    settings as they were. Everything of it is told afterwards."""
    site = broke
    problem = offered(site)
    assert (problem["id"], problem["title"]) == ("broke:cost_budget_exceeded", "broke over budget")
    action = problem["actions"][0]
    assert (action["verb"], action["args"]) == ("raise", {"unit": "broke", "more": "1.00", "resume": True})
    said = site.ask("raise", unit="broke", more="0.50", resume=True, note="go on")
    assert (said["resumed"], said["limit"]) == (["broke"], 800_000)
    until(lambda: starts(site) == 2, "its second run")
    until(lambda: budget(site) == (60, 80, 50), "its second thirty cents")
    assert site.all_up("broke")
    assert site.ask("problems")["problems"] == []
    [line] = [line for line in site.ask("audit")["audit"] if line["verb"] == "raise"]
    assert (line["channel"], line["asked"]) == ("socket", "unit=broke, more=0.50, resume, note=go on")
    assert line["effect"] == "broke: 0.50 USD more, 0.80 USD in all; 1 unit resumed"
    assert [point[1] for point in site.ask("spend", unit="broke")["points"]][-1] == 600_000
    assert [one["error"] for one in site.ask("history", unit="broke")["exits"]] == ["cost_budget_exceeded"]
    assert site.ask("logs", unit="broke")["lines"] == ["spends", "spends"]


def test_killed_between_the_raise_and_the_resume(broke: Site) -> None:
    """The money that was added is there when the daemon comes again, once; and the unit waits for a person still."""
    site = broke
    site.ask("raise", unit="broke", more="0.50")
    told = site.ping()
    os.kill(told["pid"], signal.SIGKILL)
    until(lambda: has_ended(told["guardian"]), "the end of the guardian")
    site.flyball("up", "-d")
    assert budget(site) == (30, 80, 50)
    assert (starts(site), site.status()["broke"]["state"]) == (1, "stopped")
    site.order("resume", "broke")
    until(lambda: budget(site) == (60, 80, 50), "its second thirty cents")
    assert starts(site) == 2
