"""Alerts about hosts of a fleet, on simulated time."""

import pytest

from flyball.control.alerts.service import DIFFER_FOR
from flyball.core.event import Joined, Left
from flyball.core.host import encode, host_key
from flyball.core.time import DAY, MINUTE, SECOND
from tests.control.alerts.fixtures import Site
from tests.control.alerts.test_service import play
from tests.control.fleet import record


def _lose(site: Site, *hosts: str, runs: int = 4) -> None:
    site.submit(*(Left(host=host, holder=f"{host}/1/1", lost=True, runs=runs, by="a") for host in hosts))


def test_lost_and_back() -> None:
    """A host that is lost is told of, with how many runs it had and who found it out; when it joins again, that is over
    in the same message."""

    async def work(site: Site) -> None:
        _lose(site, "b")
        await site.passes(5 * SECOND)
        [message] = site.phone.pushed
        assert (message.title, message.severity) == ("host b lost", "warning")
        assert message.text.startswith("b: its lease ran out, a found; it had 4 runs, which others take over\n")
        assert [action.verb for action in message.actions] == ["acknowledge"]
        assert message.actions[0].args == {"problem": "host/b:host_lost"}
        site.submit(Joined(host="b", holder="b/2/2"))
        await site.passes(MINUTE)
        assert site.phone.titles[-1] == "Resolved: host b lost"
        assert len(site.phone.shown) == 1

    play(work)


def test_lost_together() -> None:
    """Hosts that are lost together are one message, with their names; one that is back is left out of it."""

    async def work(site: Site) -> None:
        _lose(site, "b", "c")
        await site.passes(5 * SECOND)
        [message] = site.phone.pushed
        assert message.title == "2 hosts lost"
        assert "Hosts: b, c" in message.text
        site.submit(Joined(host="c", holder="c/2/2"))
        await site.passes(MINUTE)
        assert site.phone.titles[-1] == "host b lost"
        assert "Hosts:" not in site.phone.sent[-1][0].text

    play(work)


@pytest.mark.parametrize(("name", "longer"), [("b", "bb"), ("abcdef", "abcdef01")])
def test_another_host_is_not_back(name: str, longer: str) -> None:
    """A host whose name begins alike is another one."""

    async def work(site: Site) -> None:
        _lose(site, longer)
        await site.passes(5 * SECOND)
        site.submit(Joined(host=name, holder=f"{name}/2/2"))
        await site.passes(MINUTE)
        assert site.phone.titles == [f"host {longer} lost"]

    play(work)


def test_left_in_order() -> None:
    """Whoever leaves in order is not told of."""

    async def work(site: Site) -> None:
        site.submit(Left(host="b", holder="b/1/1"))
        await site.passes(MINUTE)
        assert site.phone.sent == []

    play(work)


def test_never_back() -> None:
    """A host that does not come back within a day is not meant to: nobody is told of it for ever."""

    async def work(site: Site) -> None:
        _lose(site, "b")
        for _ in range(8):
            await site.passes(DAY // 6)
            site.service.poke()
        await site.passes(MINUTE)
        assert site.phone.titles[-1] == "Resolved: host b lost"

    play(work)


def test_different_settings() -> None:
    """Hosts that have different units or rules for a minute are told of, and that they have the same again; while
    they are changed one after the other, nobody is."""

    def put(site: Site, **settings: str) -> None:
        rows = {
            host_key(host): encode(record(host, site.governor.clock.now(), settings=digest, lease=DAY, until=2**60))
            for host, digest in settings.items()
        }
        site.governor.submit(Joined(host="a"), rows)
        site.service.poke()

    async def work(site: Site) -> None:
        put(site, a="new", b="old", c="old")
        await site.passes(DIFFER_FOR // 2)
        put(site, b="new", c="new")
        await site.passes(DIFFER_FOR)
        site.service.poke()
        await site.passes(5 * SECOND)
        assert site.phone.sent == []
        put(site, a="newer")
        await site.passes(DIFFER_FOR)
        site.service.poke()
        await site.passes(5 * SECOND)
        [message] = site.phone.pushed
        assert message.title == "hosts have different settings"
        assert message.text.startswith("the units or rules of a are not those of the other hosts\n")
        put(site, b="newer", c="newer")
        await site.passes(MINUTE)
        assert site.phone.titles[-1] == "Resolved: hosts have different settings"

    play(work)
