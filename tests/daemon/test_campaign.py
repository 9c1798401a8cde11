"""A campaign: the daemon is killed again and again while many units flap."""

import os
import random
import signal
import time

import pytest

from tests.daemon.site import Site, has_ended, until

UNITS = 50
KILLS = 5
STARTS_MAX = 7
"""crash_policy: 3 failing exits are a flap, the 5th flap in a row halts: that is the 7th exit, a lost one included."""

FLAPS = """
exec 9> "lock.$FLYBALL_UNIT"
flock -n 9 || echo "$FLYBALL_UNIT" >> doubled
echo start >> "starts.$FLYBALL_UNIT"
sleep 0.0$(( $$ % 9 ))
exit 1
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_kill_while_fifty_flap(seed: int, site: Site) -> None:
    """kill -9 of the daemon at random while 50 units flap: no unit has had more starts than its settings
    allow, no process is left that no one guards, none is doubled."""
    dice = random.Random(seed)
    names = [f"u{number}" for number in range(UNITS)]
    site.write({name: {"command": ["sh", "-c", FLAPS], "cwd": str(site.folder)} for name in names})
    for _ in range(KILLS):
        site.flyball("up", "-d")
        found = site.ping()
        time.sleep(dice.uniform(0, 0.6))  # the moment of the kill is what is varied
        os.kill(found["pid"], signal.SIGKILL)
        until(lambda pid=found["guardian"]: has_ended(pid), "the guardian's end")  # type: ignore[misc]
        assert site.running() == {}
    site.flyball("up", "-d")
    held = {"quarantined", "halted"}
    until(lambda: {unit["state"] for unit in site.status().values()} <= held, "every unit held")
    site.down()
    assert site.running() == {}
    starts = {name: (site.folder / f"starts.{name}").read_text().count("start") for name in names}
    assert max(starts.values()) <= STARTS_MAX, starts
    assert min(starts.values()) >= 1
    assert not (site.folder / "doubled").exists()
