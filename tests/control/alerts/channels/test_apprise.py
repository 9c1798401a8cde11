"""Whatever Apprise knows, by true traffic to a server that one of its services talks to."""

import asyncio
import sys

import pytest
from msgspec.structs import replace

from flyball.config.alerts import AppriseChannel
from flyball.control.alerts.channel import ChannelError
from flyball.control.alerts.channels import open_channel
from flyball.control.alerts.channels.apprise import AppriseServices
from flyball.core.time import SECOND, Span
from flyball.errors import FlyballError
from tests.control.alerts.channels.stage import LINK, MESSAGE, failed, sent
from tests.servers.http import Hang, HttpSite, Reply, replies

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # one of its many services needs it


def _settings(*sites: HttpSite, timeout: Span = 20 * SECOND) -> AppriseChannel:
    urls = tuple(f"json://127.0.0.1:{site.port}/in" for site in sites)
    return AppriseChannel(name="all", urls=urls, timeout=timeout)


@pytest.mark.parametrize(
    ("severity", "resolved", "kind"),
    [
        ("info", False, "info"),
        ("warning", False, "warning"),
        ("critical", False, "failure"),
        ("critical", True, "success"),
    ],
)
def test_what_a_service_gets(severity: str, resolved: bool, kind: str) -> None:
    """The title, the text with its links, and how bad it is."""
    with HttpSite(replies(Reply())) as site:
        assert sent(_settings(site), replace(MESSAGE, severity=severity, resolved=resolved)) == ""
    said = site.asked[0].json
    assert (said["title"], said["type"]) == (MESSAGE.title, kind)
    text = str(said["message"])
    assert MESSAGE.text in text
    assert (f"Reset 7f3a9c: {LINK}one" in text) is not resolved


def test_one_service_fails() -> None:
    """When one service did not take it, the next attempt goes to that one alone."""
    with HttpSite(replies(Reply())) as good, HttpSite(replies(Reply(500), Reply())) as bad:

        async def play() -> None:
            channel = open_channel(_settings(good, bad))
            with pytest.raises(ChannelError) as caught:
                await channel.send(MESSAGE, None)
            assert caught.value.retry
            assert str(caught.value) == "not taken by address 2 (json)"
            await channel.send(MESSAGE, None)
            await channel.close()

        asyncio.run(play())
    assert (len(good.asked), len(bad.asked)) == (1, 2)


def test_silent_service() -> None:
    """A service that says nothing is left after the time that the channel has."""
    with HttpSite(replies(Hang)) as site:

        async def play() -> ChannelError:
            channel = open_channel(_settings(site, timeout=SECOND // 5))
            assert isinstance(channel, AppriseServices)
            await asyncio.wrap_future(channel._loaded)  # that takes longer than this
            with pytest.raises(ChannelError) as caught:
                await channel.send(MESSAGE, None)
            await channel.close()
            return caught.value

        error = asyncio.run(play())
    assert error.retry
    assert "within 0.2 s" in str(error)


@pytest.mark.parametrize("url", ["nonsense://x", "no address", "json://"])
def test_unknown_service(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """An address that Apprise does not know is named by its place, and not repeated; the log says so at once."""
    error = failed(AppriseChannel(name="all", urls=("json://127.0.0.1/", url)))
    assert "address 2" in str(error)
    assert url not in str(error)
    assert "channel all: address 2 is none" in caplog.text


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Apprise it says what to install."""
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(FlyballError, match="needs apprise") as caught:
        open_channel(AppriseChannel(name="all", urls=("json://127.0.0.1/",)))
    assert "flyball-governor[apprise]" in caught.value.remedy
