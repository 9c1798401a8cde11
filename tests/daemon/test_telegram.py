"""The bot of a real daemon: true traffic to a server that speaks Telegram's protocol, and what comes of it in the
journal, in processes and in what people are shown."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.site import Site, until
from tests.servers.telegram import TOKEN, BotApi, Message

ANN, BOB, EVE = 100, 200, 666
SECRET = TOKEN.partition(":")[2]
SLEEPS = {"command": "sleep 1000"}
FAILS = {"command": ["sh", "-c", "exit 3"]}


@pytest.fixture
def api() -> Iterator[BotApi]:
    with BotApi(chats=(ANN, BOB, EVE)) as server:
        yield server


class Phone:
    """A daemon, and people with phones."""

    def __init__(self, site: Site, api: BotApi) -> None:
        self.site, self.api = site, api
        site.env["TELEGRAM_TOKEN"] = TOKEN
        self._seen = 0

    def up(self, units: dict[str, Any], **settings: Any) -> None:
        users = [{"id": ANN, "role": "operate", "name": "ann"}, {"id": BOB}]
        given = {"token": "${TELEGRAM_TOKEN}", "base_url": self.api.url, "users": users, **settings}
        self.site.write(units, telegram=given)
        self.site.flyball("up", "-d")

    def hears(self, chat: int = ANN) -> Message:
        """The next message, when it comes."""
        until(lambda: len(self.api.messages(chat)) > self._seen, "a message")
        self._seen += 1
        return self.api.messages(chat)[self._seen - 1]

    def says(self, text: str, **more: Any) -> Message:
        """The answer to that."""
        self.api.says(text, **more)
        return self.hears(more.get("user", ANN))

    def orders(self) -> list[dict[str, Any]]:
        """The audit trail."""
        return [one["data"] for one in self.site.ask("events", limit=10_000)["events"] if one["event"] == "ordered"]


@pytest.fixture
def phone(site: Site, api: BotApi) -> Phone:
    return Phone(site, api)


def test_commands(phone: Phone) -> None:
    """/status shows what is quarantined, /why says why, /pause ends a process, /resume starts it, /reset lifts the
    quarantine: each is done to real processes, and on the audit trail with who and by which channel."""
    site = phone.site
    phone.up({"a": SLEEPS, "bad": FAILS})
    until(lambda: site.status()["bad"]["state"] in ("quarantined", "halted"), "a hold")
    site.all_up("a")
    assert "bad quarantined" in phone.says("/status").text or "bad halted" in phone.api.messages(ANN)[0].text
    assert phone.says("/why a").text.startswith("a is healthy")
    assert "a is paused" in phone.says("/pause a").text
    until(lambda: not site.running().get("a"), "no process")
    assert "Done: resume." in phone.says("/resume a").text
    site.all_up("a")
    fingerprint = site.status()["bad"]["failures"][0]["fingerprint"]
    assert "Done: reset." in phone.says(f"/reset {fingerprint[:6]}").text
    done = [(one["by"], one["channel"], one["verb"]) for one in phone.orders()]
    assert done == [("telegram:ann", "telegram", verb) for verb in ("pause", "resume", "reset")]


def test_reset_all(phone: Phone) -> None:
    """/reset-all asks with the count; the yes is done once, and only by who asked."""
    site = phone.site
    phone.up({"bad": FAILS})
    until(lambda: site.status()["bad"]["held"], "a hold")
    question = phone.says("/reset-all")
    assert question.text.startswith("Forget 1 kind of failures of 1 unit")
    phone.api.taps(question, 0, user=BOB)
    until(lambda: phone.api.taps_answered, "an answer")
    assert phone.api.taps_answered[0]["text"] == "Only who asked may press this."
    phone.api.taps(question, 0)
    until(lambda: question.edits, "another text")
    assert question.text.startswith("Done: reset.")
    assert not question.buttons
    assert [(one["verb"], one["by"]) for one in phone.orders()] == [("reset", "telegram:ann")]


def test_who_may(phone: Phone) -> None:
    """Who may only look is refused, who is not listed too; both are on the audit trail, and nothing is done."""
    phone.up({"a": SLEEPS})
    before = phone.site.all_up("a")
    phone.api.says("/pause a", user=BOB)
    until(lambda: phone.api.messages(BOB), "an answer")
    assert "may look, but not `pause`" in phone.api.messages(BOB)[0].text
    phone.api.says("/pause a", user=EVE)
    until(lambda: phone.api.messages(EVE), "an answer")
    assert phone.api.messages(EVE)[0].text == "You are not listed here. Your id is 666."
    refused = [(one["by"], one["refused"]) for one in phone.orders()]
    assert refused == [("telegram:200", "forbidden"), ("telegram:666", "not_listed")]
    assert phone.site.running() == before


@pytest.mark.slow
def test_downtime(phone: Phone) -> None:
    """What was sent while no daemon ran is not done when one does, and told once. What it did before is not done
    again."""
    phone.up({"a": SLEEPS})
    phone.says("/pause a")
    phone.site.down()
    phone.api.says("/resume a", at=time.time() - 600)
    phone.api.says("/pause all", at=time.time() - 300)
    phone.site.flyball("up", "-d")
    told = phone.hears().text
    assert "• /resume a, 10 min" in told
    assert "• /pause all, 5 min" in told
    assert phone.says("/why a").text.startswith("a is paused")
    assert [one["verb"] for one in phone.orders() if one["channel"] == "telegram"] == ["pause"]


@pytest.mark.slow
def test_killed(phone: Phone) -> None:
    """A daemon that is killed does no command twice: what Telegram delivers again is known."""
    phone.up({"a": SLEEPS})
    again = []
    for text in ("/pause a", "/resume a"):
        with phone.api._lock:
            phone.api.says(text)
            again.append(dict(phone.api._updates[-1]))
        phone.hears()
    phone.site.clean()
    with phone.api._lock:
        phone.api._updates[:0] = again
    phone.site.flyball("up", "-d")
    phone.says("/help")
    assert [one["verb"] for one in phone.orders()] == ["pause", "resume"]


@pytest.mark.slow
def test_telegram_is_away(phone: Phone) -> None:
    """A daemon whose Telegram does not answer comes up, runs its units, and says what the trouble is; the token is in
    nothing that anybody can read."""
    phone.api.fails(401, "Unauthorized", times=1000)
    phone.up({"a": SLEEPS})
    site = phone.site
    site.all_up("a")
    until(lambda: "Telegram does not know this bot's token" in site.ask("status")["trouble"], "the trouble")
    said = [site.log(), site.flyball("status").stdout, site.flyball("config").stdout, site.flyball("events").stdout]
    said += [Path(f"/proc/{pid}/cmdline").read_text() for pid in (site.ping()["pid"], site.ping()["guardian"])]
    assert "does not know this bot's token" in said[0]
    assert not any(SECRET in text for text in said)


@pytest.mark.slow
def test_reload(phone: Phone) -> None:
    """Other people can be listed without a restart, and the bot can be taken away; units do not notice."""
    phone.up({"a": SLEEPS})
    before = phone.site.all_up("a")
    phone.says("/help")
    users = [{"id": BOB, "role": "operate"}]
    given = {"token": "${TELEGRAM_TOKEN}", "base_url": phone.api.url, "users": users}
    phone.site.write({"a": SLEEPS}, telegram=given)
    phone.site.flyball("reload")
    assert phone.says("/status").text == "You are not listed here. Your id is 100."
    phone.site.write({"a": SLEEPS})
    phone.site.flyball("reload")
    number = phone.api.says("/pause a", user=BOB)
    phone.site.flyball("status")
    assert phone.site.running() == before
    assert [update["update_id"] for update in phone.api._updates] == [number]


@pytest.mark.slow
def test_button_under_an_alert(phone: Phone) -> None:
    """An alert of a quarantine comes with a button; pressed, it lifts the quarantine."""
    site = phone.site
    channel = {"type": "telegram", "token": "${TELEGRAM_TOKEN}", "chats": [str(ANN)], "url": phone.api.url}
    site.env["FLYBALL_ALERTS__CHANNELS"] = json.dumps({"phone": channel})
    phone.up({"bad": {**FAILS, "restart": "on-failure"}})
    until(lambda: any(message.buttons for message in phone.api.messages(ANN)), "an alert with a button")
    alert = next(message for message in phone.api.messages(ANN) if message.buttons)
    label = next(button["text"] for button in alert.buttons if button["text"].startswith("Reset"))
    phone.api.taps(alert, label)
    until(phone.orders, "an order")
    assert [(one["by"], one["channel"], one["verb"]) for one in phone.orders()] == [
        ("telegram:ann", "telegram", "reset")
    ]


@pytest.mark.slow
def test_alerts_have_buttons_while_the_bot_listens(phone: Phone) -> None:
    """A bot that a reload brings is there for the buttons of alerts, too, although nothing of the alerts changed; and
    one that it takes away leaves none that nobody listens to."""
    site, api = phone.site, phone.api
    site.env |= {"FLYBALL_ALERTS__GROUP_WAIT_SECONDS": "0.05", "NO_PROXY": "127.0.0.1"}
    channel = {"type": "telegram", "token": "${TELEGRAM_TOKEN}", "chats": [ANN], "url": api.url}
    alerts = {"channels": {"chat": channel}}
    bot = {"token": "${TELEGRAM_TOKEN}", "base_url": api.url, "users": [{"id": ANN, "role": "operate"}]}

    def buttons(unit: str) -> list[dict[str, Any]]:
        def told() -> list[Message]:
            return [one for one in api.messages(ANN) if f"{unit} quarantined" in one.text]

        return until(told, f"an alert about {unit}")[0].buttons

    site.write({"first": FAILS}, alerts=alerts)
    site.flyball("up", "-d")
    assert buttons("first") == []
    site.write({"second": {"command": ["sh", "-c", "exit 4"]}}, alerts=alerts, telegram=bot)
    site.ask("reload")
    assert [one["text"] for one in buttons("second")][-1:] == ["Acknowledge"]
    site.write({"third": {"command": ["sh", "-c", "exit 5"]}}, alerts=alerts)
    site.ask("reload")
    assert buttons("third") == []
    site.down()
