"""Signed requests that go out: what a receiver gets, and that our own receiver takes it."""

from typing import Any

import pytest
from msgspec.structs import replace

from flyball.config.alerts import WebhookChannel
from flyball.config.rules import Webhook
from flyball.core.time import SECOND
from flyball.runtimes.rule.triggers.webhooks import ALREADY, BAD_SIGNATURE, Accepted, judge
from tests.control.alerts.channels.stage import AT, LINK, MESSAGE, QUICK, SIGNS, failed, sent
from tests.servers.http import Asked, Drop, Hang, HttpSite, Reply, replies


def _accepted(asked: Asked, secret: str = SIGNS, *, seen: bool = False) -> Any:
    now = int(asked.headers["webhook-timestamp"]) * SECOND
    return judge(Webhook(hook="alerts", secret=secret), asked.headers, asked.body, now, lambda _: seen)


def test_signed() -> None:
    """A receiver that checks signatures takes it, one with another secret does not, and it says everything."""
    with HttpSite(replies(Reply())) as site:
        id_ = sent(WebhookChannel(name="hook", url=f"{site.url}/in?key=1", secret=SIGNS))
    asked = site.asked[0]
    said = _accepted(asked)
    assert isinstance(said, Accepted)
    assert _accepted(asked, "another secret, as long") == BAD_SIGNATURE
    assert (asked.method, asked.path, asked.headers["content-type"]) == ("POST", "/in?key=1", "application/json")
    assert said.id == id_ == said.body["data"]["id"]
    assert (said.body["type"], said.body["timestamp"]) == ("alert.raised", AT / SECOND)
    data = said.body["data"]
    assert (data["title"], data["severity"], data["unit"]) == (MESSAGE.title, "critical", "coder-3")
    assert (data["group"], data["problem"], data["replaces"]) == (MESSAGE.group, MESSAGE.problem, "")
    assert data["actions"] == [
        {"label": "Reset 7f3a9c", "verb": "reset", "url": f"{LINK}one", "destructive": False},
        {"label": "Stop it", "verb": "stop", "url": f"{LINK}two", "destructive": True},
    ]


def test_attempts_have_one_id() -> None:
    """Each attempt has the same id, so a receiver that took the first knows the second; another message has another."""
    with HttpSite(replies(Reply(500), Reply())) as site:
        settings = WebhookChannel(name="hook", url=site.url, secret=SIGNS)
        assert failed(settings).retry
        first = sent(settings)
        other = sent(settings, replace(MESSAGE, id="another"))
    ids = [asked.headers["webhook-id"] for asked in site.asked]
    assert ids[:2] == [first, first]
    assert ids[2] == other != first
    assert _accepted(site.asked[1], seen=True) == ALREADY


def test_update_and_end() -> None:
    """A later message says which one it replaces, and the last one that it is over."""
    with HttpSite(replies(Reply())) as site:
        settings = WebhookChannel(name="hook", url=site.url, secret=SIGNS)
        sent(settings, replace(MESSAGE, id="2"), "msg_1")
        sent(settings, replace(MESSAGE, id="3", resolved=True), "msg_2")
    said = [asked.json for asked in site.asked]
    assert [one["type"] for one in said] == ["alert.updated", "alert.resolved"]
    assert [_data(one)["replaces"] for one in said] == ["msg_1", "msg_2"]


def _data(said: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = said["data"]
    return found


def test_without_secret() -> None:
    """Without a secret it is sent unsigned."""
    with HttpSite(replies(Reply())) as site:
        sent(WebhookChannel(name="hook", url=site.url))
    assert "webhook-signature" not in site.asked[0].headers


@pytest.mark.parametrize(
    ("reply", "retry"),
    [
        (Reply(400), False),
        (Reply(401), False),
        (Reply(404), False),
        (Reply(410), False),
        (Reply(302, b"", {"location": "/"}), False),
        (Reply(425), True),
        (Reply(429, b"", {"retry-after": "3"}), True),
        (Reply(502), True),
        (Hang, True),
        (Drop, True),
    ],
    ids=["400", "401", "404", "410", "302", "425", "429", "502", "hang", "drop"],
)
def test_failures(reply: Reply | type[Exception], retry: bool) -> None:
    """What may pass is tried again; what is wrong is not. Only an answer of 2xx is one that took it."""
    with HttpSite(replies(reply)) as site:
        error = failed(WebhookChannel(name="hook", url=site.url, secret=SIGNS, timeout=QUICK))
    assert error.retry is retry


@pytest.mark.parametrize("url", ["http://[", "http:///path", "ftp://example.org/", "http://127.0.0.1:99999/"])
def test_bad_address(url: str) -> None:
    """An address that is none is a failure that trying again does not mend."""
    assert not failed(WebhookChannel(name="hook", url=url, secret=SIGNS)).retry
