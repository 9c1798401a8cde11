"""A mass failure: whatever ended all units at once is not hit by all of them at once again."""

import os
import signal

import pytest

from tests.daemon.site import Site, until

pytestmark = pytest.mark.slow

UNITS = 20
WAIT, JITTER = 1.0, 0.5


def test_starts_after_a_mass_failure(site: Site) -> None:
    """Twenty units are killed in one instant: each waits as long as it has to, and their starts are spread over the
    jitter."""
    site.env["FLYBALL_CRASH_POLICY__TRANSIENT_DELAY_SECONDS"] = str(WAIT)
    names = {f"u{number}" for number in range(UNITS)}
    site.write({name: {"command": "sleep 1000"} for name in names}, restart_policy={"jitter": JITTER})
    site.flyball("up", "-d")
    first = until(lambda: (pids := site.ping()["pids"]).keys() == names and pids, "all up")
    for pid in first.values():
        os.kill(pid, signal.SIGKILL)

    def back() -> bool:
        now = site.ping()["pids"]
        return now.keys() == names and not set(now.values()) & set(first.values())

    until(back, "all back")
    allowed: dict[str, float] = {}
    late: list[float] = []
    for event in site.ask("events", limit=1000)["events"]:
        if event["event"] == "exited":
            allowed[event["unit"]] = event["until"]
        elif event["event"] == "start" and event["unit"] in allowed:
            late.append(event["at"] - allowed[event["unit"]])
    assert len(late) == UNITS
    assert min(late) >= 0
    assert max(late) - min(late) > WAIT * JITTER / 2, "they came back together"
