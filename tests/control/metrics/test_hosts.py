"""What a scraper reads of the hosts of a fleet."""

from flyball.control.metrics.tally import HOSTS_MAX
from flyball.core.event import Ordered
from flyball.core.host import encode, host_key
from flyball.core.time import SECOND
from tests.control.fleet import lose, record, three_hosts
from tests.control.metrics.scene import Scraped


def test_hosts() -> None:
    """Of each host of a fleet: whether it lives, what is left of its lease, what it runs; and how often one was taken
    over. A fleet on one machine has no such series."""
    scraped = Scraped()
    scraped.scene.at(0)
    assert not [name for name, *_ in scraped.table() if "host" in name or "takeover" in name]
    three_hosts(scraped.scene, {"a": ["web", "worker"]})
    scraped.scene.clock.move(5 * SECOND)
    scraped.table()
    lose(scraped.governor, "b", runs=2, by="a")
    told = {key: value for key, value in scraped.table().items() if "host" in key[0] or "takeover" in key[0]}
    assert told == {
        ("flyball_host_up", "a"): 1,
        ("flyball_host_up", "b"): 0,
        ("flyball_host_up", "c"): 1,
        ("flyball_host_units", "a"): 2,
        ("flyball_host_units", "c"): 0,
        ("flyball_host_lease_seconds", "a"): 10,
        ("flyball_host_lease_seconds", "c"): 10,
        ("flyball_takeovers_total", "a"): 0,
        ("flyball_takeovers_total", "b"): 1,
        ("flyball_takeovers_total", "c"): 0,
    }


def test_too_many_hosts() -> None:
    """Hosts beyond so many have no series: a sum of them would say nothing."""
    scraped = Scraped()
    scraped.scene.at(0)
    for number in range(HOSTS_MAX + 3):
        scraped.governor.submit(Ordered(), {host_key(f"h{number}"): encode(record(f"h{number}", scraped.scene.now))})
    assert len([name for name, *_ in scraped.table() if name == "flyball_host_up"]) == HOSTS_MAX
