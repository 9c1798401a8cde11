"""A real daemon, its channels at real servers, and a person who acts by the link in the alert."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from flyball.config.rules import Webhook
from flyball.core.time import SECOND
from flyball.runtimes.rule.triggers.webhooks import Accepted, judge
from tests.control.alerts.channels.stage import SIGNS
from tests.daemon.site import Site, until
from tests.servers.http import HttpSite, Reply, replies
from tests.servers.ntfy import NtfyServer
from tests.servers.smtp import MailServer, Received
from tests.servers.telegram import TOKEN, BotApi

FAILS = {"command": ["sh", "-c", "echo Boom >&2; exit 3"], "labels": {"user": "ann@example.com"}}
TITLE = "shop quarantined"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = Site(
        tmp_path,
        FLYBALL_ALERTS__GROUP_WAIT_SECONDS="0.05",
        FLYBALL_ALERTS__URL=f"http://127.0.0.1:{port}",
        FLYBALL_HTTP__LISTEN=f"127.0.0.1:{port}",
        NO_PROXY="127.0.0.1",
    )
    yield place
    place.clean()


def _links(ntfy: NtfyServer) -> dict[str, str]:
    """By label, where the buttons of the alert lead to."""
    said: list[dict[str, Any]] = [one for one in ntfy.published if one["title"] == TITLE]
    return {action["label"]: action["url"] for action in said[-1].get("actions", [])} if said else {}


def _is_first(received: Received) -> bool:
    return received.to == ["ops@example.org"] and received.mail["In-Reply-To"] is None


@pytest.mark.slow
def test_every_channel_and_a_link(site: Site) -> None:
    """A quarantine (S0-36) reaches ntfy, a signed webhook, mail, the user by mail and Telegram; to open its link does
    nothing, to press its button lifts the quarantine, once, and that is on the audit trail."""
    with NtfyServer() as ntfy, HttpSite(replies(Reply())) as hook, MailServer() as mail, BotApi() as bot:
        channels = {
            "phone": {"type": "ntfy", "url": ntfy.url, "topic": "watch"},
            "hook": {"type": "webhook", "url": f"{hook.url}/in", "secret": SIGNS},
            "mail": {
                "type": "email",
                "host": "127.0.0.1",
                "port": mail.port,
                "security": "none",
                "sender": "flyball@example.org",
                "to": ["ops@example.org", "user"],
            },
            "chat": {"type": "telegram", "url": bot.url, "token": TOKEN, "chats": [100]},
        }
        site.write({"shop": FAILS}, alerts={"channels": channels})
        site.flyball("up", "-d")
        until(lambda: _links(ntfy), "the alert")
        until(lambda: any(TITLE in message.text for message in bot.messages()), "the chat")
        until(lambda: [one for one in mail.mails if one.to == ["ann@example.com"]], "the user's mail")
        until(lambda: [one for one in hook.asked if one.json["data"]["title"] == TITLE], "the hook")  # type: ignore[index]

        asked = hook.asked[-1]
        now = int(asked.headers["webhook-timestamp"]) * SECOND
        rule = Webhook(hook="in", secret=SIGNS)
        assert isinstance(judge(rule, asked.headers, asked.body, now, lambda _: False), Accepted)

        link = next(url for label, url in _links(ntfy).items() if label.startswith("Reset"))
        for _ in range(3):
            assert httpx.get(link).status_code == 200
        assert site.status()["shop"]["state"] == "quarantined"
        done = httpx.post(link)
        assert (done.status_code, "forgot 1 kind of failure of 1 unit" in done.text) == (200, True)
        assert httpx.post(link).status_code == 401
        (line,) = [one for one in site.ask("audit")["audit"] if one["channel"] == "link"]
        assert (line["verb"], line["by"], line["refused"]) == ("reset", "link:phone", "")

        # Links that are out stay good when the daemon is another, and used ones stay used.
        (body,) = [
            one.mail.get_body(("plain",)) for one in mail.mails if one.mail["Subject"] == TITLE and _is_first(one)
        ]
        assert body is not None
        second = re.findall(r"^Reset \w+: (\S+)", body.get_content(), re.MULTILINE)[0]
        assert second != link
        site.down()
        site.flyball("up", "-d")
        assert httpx.get(second).status_code == 200
        assert httpx.post(link).status_code == 401
        site.down()
    for told in (message for message in mail.mails if message.to == ["ann@example.com"]):
        assert "/act/" not in told.mail.as_string()
    key = (site.state / "links.key").read_bytes()
    assert key.hex() not in site.log()
    assert "/act/" not in site.log()


@pytest.mark.slow
def test_timeout(site: Site) -> None:
    """A run that took too long is ended, and the administrator's phone says so (S1-26)."""
    with NtfyServer(token=SIGNS) as ntfy:
        phone = {"type": "ntfy", "url": ntfy.url, "topic": "watch", "token": SIGNS}
        site.write({"slow": {"command": "sleep 1000", "deadline": "200ms"}}, alerts={"channels": {"phone": phone}})
        site.flyball("up", "-d")
        until(lambda: [one for one in ntfy.published if one["title"] == "slow timed out"], "the alert")
        site.down()
    assert SIGNS not in site.log()
