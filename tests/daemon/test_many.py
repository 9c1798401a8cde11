"""More units than ask for their first start at once; and what a daemon keeps to itself."""

import os
from pathlib import Path

from flyball.fleet import STARTED_TOGETHER
from tests.daemon.site import Site, until

UNITS = STARTED_TOGETHER + 5


def test_all_are_started_whatever_their_number(site: Site) -> None:
    """Those of the first hundred and those after it run, each once; one down ends them all."""
    site.write({f"u{number}": {"command": ["/bin/sleep", "1000"]} for number in range(UNITS)})
    site.flyball("up", "-d")
    until(lambda: len(site.ping()["pids"]) == UNITS, "all units")
    running = site.running()
    assert len(running) == UNITS
    assert {len(pids) for pids in running.values()} == {1}
    site.down()
    site.gone()


def test_units_have_no_file_of_the_daemon(site: Site) -> None:
    """Neither its plan, which may hold another unit's secrets, nor its lock, nor the pipe of who waits for it."""
    site.write({"u": {"command": ["/bin/sleep", "1000"]}})
    site.flyball("up", "-d")
    (pid,) = site.all_up("u")["u"]
    assert sorted(os.listdir(f"/proc/{pid}/fd")) == ["0", "1", "2"]  # noqa: PTH208 - numbers are wanted, not paths
    guardian = site.ping()["guardian"]
    held = [str(file.readlink()) for file in Path(f"/proc/{guardian}/fd").iterdir()]
    assert not [name for name in held if "flyball-plan" in name]
    site.down()
