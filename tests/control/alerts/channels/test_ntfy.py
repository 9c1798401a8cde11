"""ntfy, by true traffic to a server that speaks its protocol."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from flyball import http_client
from flyball.config.alerts import Ntfy
from flyball.control.alerts.channel import TEXT_MAX, Action
from tests.control.alerts.channels.stage import HORSE, LINK, MESSAGE, QUICK, WRONG, failed, sent
from tests.servers import certificates
from tests.servers.http import Drop, Hang, HttpSite, Reply, replies
from tests.servers.ntfy import NtfyServer


def test_what_people_see() -> None:
    """The title, the text, how urgent it is, where it leads, and up to three buttons (S1-26)."""
    with NtfyServer() as server:
        sent(Ntfy(name="phone", topic="watch", url=server.url))
    (shown,) = server.shown["watch"].values()
    assert (shown["title"], shown["message"]) == (MESSAGE.title, MESSAGE.text)
    assert (shown["priority"], shown["tags"], shown["click"]) == (5, ["rotating_light", "quarantined"], MESSAGE.url)
    assert shown["actions"] == [
        {"action": "http", "label": "Reset 7f3a9c", "url": f"{LINK}one", "method": "POST", "clear": True},
        {"action": "view", "label": "Stop it", "url": f"{LINK}two"},
    ]


@pytest.mark.parametrize(
    ("severity", "resolved", "priority", "picture"),
    [
        ("info", False, 3, "information_source"),
        ("warning", False, 4, "warning"),
        ("critical", False, 5, "rotating_light"),
        ("critical", True, 2, "white_check_mark"),
    ],
)
def test_urgency(severity: str, resolved: bool, priority: int, picture: str) -> None:
    """What is worse is louder; what is over makes no sound."""
    with NtfyServer() as server:
        sent(Ntfy(name="phone", topic="watch", url=server.url), replace(MESSAGE, severity=severity, resolved=resolved))
    assert (server.published[0]["priority"], server.published[0]["tags"][0]) == (priority, picture)


def test_update() -> None:
    """A later message about the same takes the place of the first."""
    with NtfyServer() as server:
        settings = Ntfy(name="phone", topic="watch", url=server.url)
        first = sent(settings)
        again = sent(settings, replace(MESSAGE, title="4 units quarantined", id="quarantined:7f3a9c-1-2"), first)
    assert first == again
    assert [shown["title"] for shown in server.shown["watch"].values()] == ["4 units quarantined"]


def test_attempts_are_one_message() -> None:
    """An attempt whose answer was lost is not a second message; another message is."""
    with NtfyServer() as server:
        settings = Ntfy(name="phone", topic="watch", url=server.url)
        assert sent(settings) == sent(settings)
        sent(settings, replace(MESSAGE, id="another"))
    assert len(server.published) == 3
    assert len(server.shown["watch"]) == 2


def test_server_without_sequences() -> None:
    """An older server shows an update as a new message: none is lost."""
    with NtfyServer(knows_sequences=False) as server:
        settings = Ntfy(name="phone", topic="watch", url=server.url)
        sent(settings, previous=sent(settings))
    assert len(server.shown["watch"]) == 2


def test_long_and_many() -> None:
    """Texts are cut before the server makes a file of them, and buttons beyond three are left out."""
    actions = tuple(Action(label=f"b{number}", verb="reset", url=f"{LINK}{number}") for number in range(5))
    with NtfyServer() as server:
        sent(
            Ntfy(name="phone", topic="watch", url=server.url),
            replace(MESSAGE, text="€" * TEXT_MAX, actions=actions, tags=tuple("abcdefgh")),
        )
    shown = server.published[0]
    assert shown["message"].startswith("€€")
    assert shown["message"].endswith("…")
    assert [one["label"] for one in shown["actions"]] == ["b0", "b1", "b2"]
    assert len(shown["tags"]) == 5


def test_bare() -> None:
    """A message without a text, a link or an id is shown by its title."""
    with NtfyServer() as server:
        bare = replace(MESSAGE, text="", url="", actions=(), id="")
        assert sent(Ntfy(name="phone", topic="watch", url=server.url), bare)
    shown = server.published[0]
    assert shown["message"] == MESSAGE.title
    assert "click" not in shown
    assert "actions" not in shown


def test_token() -> None:
    """A topic that needs a token takes the right one; the wrong one, or none, is a failure that trying again does not
    mend."""
    with NtfyServer(token=HORSE) as server:
        sent(Ntfy(name="phone", topic="watch", url=server.url, token=HORSE))
        wrong = failed(Ntfy(name="phone", topic="watch", url=server.url, token=WRONG))
        none = failed(Ntfy(name="phone", topic="watch", url=server.url))
    assert len(server.published) == 1
    assert (wrong.retry, none.retry) == (False, False)
    assert "401 Unauthorized: unauthorized" in str(wrong)
    assert "403 Forbidden: forbidden" in str(none)


@pytest.mark.parametrize(
    ("reply", "retry", "after", "says"),
    [
        (
            Reply(429, b'{"error":"limit reached: too many requests"}', {"retry-after": "7"}),
            True,
            7.0,
            "too many requests",
        ),
        (Reply(500), True, 0.0, "500"),
        (Reply(503, b"", {"retry-after": "60"}), True, 60.0, "503"),
        (Reply(408), True, 0.0, "408"),
        (Reply(400, b'{"error":"actions invalid"}'), False, 0.0, "actions invalid"),
        (Reply(413), False, 0.0, "413"),
        (Reply(404, b"[[["), False, 0.0, "404"),
        (Reply(307, b"", {"location": "http://elsewhere.example/"}), False, 0.0, "has moved"),
        (Hang, True, 0.0, "within 0.5 s"),
        (Drop, True, 0.0, "closed the connection"),
    ],
    ids=["429", "500", "503", "408", "400", "413", "404", "307", "hang", "drop"],
)
def test_failures(reply: Reply | type[Exception], retry: bool, after: float, says: str) -> None:
    """What may pass is tried again, not before the server wants it; what is wrong with the message is not."""
    with HttpSite(replies(reply)) as site:
        error = failed(Ntfy(name="phone", topic="watch", url=site.url, timeout=QUICK))
    assert (error.retry, error.after) == (retry, after)
    assert says in str(error)
    assert len(site.asked) == 1


def test_no_redirect() -> None:
    """A redirect is not followed: what is sent goes to the host that was named."""
    with HttpSite(replies(Reply())) as other:
        with HttpSite(replies(Reply(308, b"", {"location": f"{other.url}/"}))) as site:
            failed(Ntfy(name="phone", topic="watch", url=site.url, token=HORSE))
        assert not other.asked


def test_nobody_there() -> None:
    """A server that is not up may be up later."""
    with HttpSite(replies(Reply())) as site:
        url = site.url
    error = failed(Ntfy(name="phone", topic="watch", url=url))
    assert error.retry
    assert "refused the connection" in str(error)


@pytest.mark.usefixtures("trust_anew")
def test_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that nobody signed is not trusted, and nothing is sent; trusted by the machine, it is."""
    made = certificates.make(tmp_path)
    with HttpSite(replies(Reply()), tls=made.server()) as site:
        settings = Ntfy(name="phone", topic="watch", url=site.url, token=HORSE)
        error = failed(settings)
        assert not site.asked
        monkeypatch.setenv("SSL_CERT_FILE", str(made.file))
        http_client.certificates.cache_clear()
        sent(settings)
    assert error.retry
    assert "is not trusted" in str(error)
    assert msgspec.json.decode(site.asked[0].body)["topic"] == "watch"
