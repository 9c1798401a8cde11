"""A full disk under the daemon. Its writes are refused by a limit on the size of files, as a full disk refuses them."""

import os
import resource

import pytest

from flyball.control.context import CommandError
from tests.daemon.site import Site, until

pytestmark = pytest.mark.slow

NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def test_full_disk(site: Site) -> None:
    """People are told, what runs goes on, nothing that happens is lost, orders and other settings are refused and
    change nothing; when there is room again it recovers by itself."""
    dies = {"command": ["sh", "-c", "echo s >> starts; read x < gate; exit 3"], "cwd": str(site.folder)}
    units = {"steady": {"command": "sleep 1000"}, "dies": dies}
    site.write(units, exclusive={"lease_seconds": 3})
    os.mkfifo(site.folder / "gate")
    site.flyball("up", "-d")
    until(lambda: site.ping()["pids"].keys() == units.keys(), "both up")
    found = site.ping()
    resource.prlimit(found["pid"], resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))

    until(lambda: "no room left" in site.ask("status")["trouble"], "that it is noticed")
    shown = site.flyball("status", "--check", code=1).stdout
    assert "Free some disk space" in shown
    with pytest.raises(CommandError, match="no room left") as refused:
        site.order("pause", "steady")
    assert "Free some disk space" in refused.value.remedy
    site.write({"dies": dies, "new": units["steady"]}, exclusive={"lease_seconds": 3})
    with pytest.raises(CommandError, match="no room left"):
        site.ask("reload")
    (site.folder / "gate").write_text("go\n")
    until(lambda: site.ping()["pids"].keys() == {"steady"}, "its exit")
    assert site.ping()["pids"]["steady"] == found["pids"]["steady"], "neither the disk nor the reload ended it"
    assert (site.folder / "starts").read_text() == "s\n"

    resource.prlimit(found["pid"], resource.RLIMIT_FSIZE, NO_LIMIT)
    site.ask("resume")  # it looks again now, and not some seconds later
    until(lambda: not site.ask("status")["trouble"], "that it is over")
    until(lambda: (site.folder / "starts").read_text() == "s\ns\n", "the second start")
    assert site.status()["dies"]["last_exit"]["error"] == "exit 3"
    assert site.ping()["pids"]["steady"] == found["pids"]["steady"]
    assert "can be written down again" in site.log()
    site.ask("reload")
    site.all_up("dies", "new")
