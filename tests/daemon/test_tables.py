"""The tables of exits and deaths, row by row, with real children under a real daemon. All rows play at the same time.

Times are shorter than the documents' by a factor: a window of 2 s instead of 60 s, and delays of 50 and 150 ms.
"""

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.daemon.site import Site, until

WINDOW, SHORT, LONG = 2.0, 0.05, 0.15
CALM = WINDOW + 0.3

PLAY = """
echo "$*" >> "starts.$FLYBALL_UNIT"
n=$(wc -l < "starts.$FLYBALL_UNIT")
set -- $PLAN
[ $n -gt $# ] && exec sleep 1000
shift $((n - 1))
sleep ${1#*@}
exit ${1%@*}
"""
"""Plays a plan of exits, one with each start: `1@0.3` is exit 1 after so many seconds. When there is none left it
lives."""

SPEND = """
import os, signal, socket
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
    said = f"X_FLYBALL_SPENT=1\\nX_FLYBALL_RUN={os.environ['FLYBALL_RUN']}"
    s.sendto(said.encode(), os.environ["NOTIFY_SOCKET"])
signal.pause()
"""


class Row(NamedTuple):
    """A plan of exits, and what is expected after the last of them."""

    plan: str
    state: str
    flaps: int
    delay: float | None
    """None: no other run follows."""


EXITS = {
    "clean": Row("0@0", "healthy", 0, None),
    "one-crash": Row("1@0", "healthy", 0, SHORT),
    "three-apart": Row("1@0 1@0.3 2@0.3", "degraded", 1, LONG),
    "three-at-once": Row("1@0 1@0 1@0", "degraded", 1, LONG),
    "seven-at-once": Row("1@0 2@0 3@0 4@0 5@0 6@0 7@0", "halted", 5, None),
    "flap-then-clean": Row("1@0 1@0 1@0 0@0", "healthy", 0, None),
    "flap-then-calm": Row(f"1@0 1@0 1@0 1@{CALM}", "healthy", 0, SHORT),
    "clean-and-failing": Row("1@0 1@0 0@0", "healthy", 0, None),
}


class Death(NamedTuple):
    """A unit that dies, how, and whether it is started again by itself."""

    unit: dict[str, Any]
    cause: str
    error: str
    again: bool


SLEEPS = ["sleep", "1000"]
DEATHS = {
    "error": Death({"command": ["sh", "-c", "exit 3"]}, "error", "exit 3", True),
    "signal": Death({"command": ["sh", "-c", "kill -KILL $$"]}, "error", "SIGKILL", True),
    "deadline": Death({"command": SLEEPS, "deadline": "100ms"}, "timeout", "timeout", True),
    "silence": Death({"command": SLEEPS, "idle": "100ms"}, "timeout", "idle_timeout", True),
    "watchdog": Death({"command": SLEEPS, "watchdog": "100ms"}, "timeout", "watchdog_timeout", True),
    "missing": Death({"command": "/nowhere/at/all"}, "error", "command not found", True),
    "balance": Death(
        {"command": [sys.executable, "-c", SPEND], "budget": 1, "grace": "100ms"},
        "stopped",
        "cost_budget_exceeded",
        False,
    ),
    "voluntary": Death({"command": "true"}, "done", "", False),
    "stopped": Death({"command": SLEEPS}, "stopped", "stopped", False),
    "not-to-be-restarted": Death({"command": "false", "restart": "never"}, "error", "exit 1", False),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A daemon under which all rows have been played."""
    place = Site(
        tmp_path_factory.mktemp("tables"),
        FLYBALL_CRASH_POLICY__FLAP_WINDOW_SECONDS=str(WINDOW),
        FLYBALL_CRASH_POLICY__TRANSIENT_DELAY_SECONDS=str(SHORT),
        FLYBALL_CRASH_POLICY__FLAPPING_DELAY_SECONDS=str(LONG),
        FLYBALL_QUARANTINE__MAX_FAILURES_BEFORE_QUARANTINE="1000",
    )
    plays = {"command": ["sh", "-c", PLAY, "sh"], "continue_args": "--continue", "cwd": str(place.folder)}
    units = {name: {**plays, "env": {"PLAN": row.plan}} for name, row in EXITS.items()}
    place.write(units | {name: death.unit for name, death in DEATHS.items()})
    try:
        place.flyball("up", "-d")
        place.order("stop", "stopped")
        until(lambda: _played(place), "the end of every plan")
        yield place
    finally:
        place.clean()


def _played(site: Site) -> bool:
    status = site.status()
    plans = all(len(_exits(site, name)) == len(row.plan.split()) for name, row in EXITS.items())
    wanted = {name: len(row.plan.split()) + (row.delay is not None) for name, row in EXITS.items()}
    follows = all(len(_starts(site, name)) == wanted[name] for name in EXITS)
    return plans and follows and all(status[name]["last_exit"] for name in DEATHS)


def _events(site: Site, unit: str, kind: str) -> list[dict[str, Any]]:
    found = site.ask("events", unit=unit, limit=1000)["events"]
    return [event for event in found if event["event"] == kind]


def _starts(site: Site, unit: str) -> list[str]:
    """What each start was given besides the command."""
    file = site.folder / f"starts.{unit}"
    return file.read_text().splitlines() if file.exists() else []


def _exits(site: Site, unit: str) -> list[dict[str, Any]]:
    return _events(site, unit, "exited")


@pytest.mark.parametrize("name", EXITS)
def test_exit(site: Site, name: str) -> None:
    """S4: each row of its table: the state, the flaps in a row, the delay; after a failure it goes on where it was,
    after a clean exit nothing follows by itself."""
    row = EXITS[name]
    last = _exits(site, name)[-1]
    found = site.ask("state", unit=name)
    assert (found["state"], found["consecutive_flaps"]) == (row.state, row.flaps)
    starts = _starts(site, name)
    assert starts[0] == ""
    assert set(starts[1:]) <= {"--continue"}
    if row.delay is None:
        assert len(starts) == len(row.plan.split())
        assert last["verb"] == ("hold" if row.state == "halted" else "finish")
    else:
        assert len(starts) == len(row.plan.split()) + 1
        assert last["until"] - last["at"] == pytest.approx(row.delay, abs=1e-4)
        started = _events(site, name, "start")[-1]
        assert started["at"] >= last["until"]


@pytest.mark.parametrize("name", DEATHS)
def test_death(site: Site, name: str) -> None:
    """S3: an error and a timeout are followed by another run, shutdown, a voluntary end and an empty balance are not;
    each is written down with its cause."""
    death = DEATHS[name]
    first = _exits(site, name)[0]["data"]
    assert (first["cause"], death.error in first.get("error", "")) == (death.cause, True)
    starts = _events(site, name, "start")
    granted = [event for event in starts if event["verb"] == "proceed"]
    if death.again:
        until(lambda: len(_exits(site, name)) > 1, "a second run")
    else:
        assert len(granted) == 1
        assert site.status()[name]["state"] in ("stopped", "finished", "failed")


def test_halted_is_left_by_a_person_alone(site: Site) -> None:
    """S4: still halted after the daemon was started anew; resumed by a person it is healthy again, and runs."""
    site.down()
    site.flyball("up", "-d")
    assert site.ask("state", unit="seven-at-once")["state"] == "halted"
    assert len(_starts(site, "seven-at-once")) == 7
    site.order("resume", "seven-at-once")
    until(lambda: site.status()["seven-at-once"]["running"], "a run")
    found = site.ask("state", unit="seven-at-once")
    assert (found["state"], found["consecutive_flaps"], found["exits_in_window"]) == ("healthy", 0, 0)
