"""What people see of alerts, and how they try a channel."""

from typing import Any

import pytest

from flyball.config import Settings
from flyball.config.alerts import Alerts, Ntfy
from flyball.control.alerts import inbox
from flyball.control.alerts.book import Book
from flyball.control.alerts.channel import ChannelError
from flyball.control.alerts.notices import Notice, Seen
from flyball.control.alerts.records import INBOX, forget
from flyball.control.commands import answer
from flyball.control.context import CommandError, Context
from flyball.core.time import HOUR, SECOND
from flyball.governor import Governor
from flyball.store import Draft
from flyball.store.memory import MemoryStore
from flyball.testing.clock import FakeClock


class Scene:
    """A store with a book in it, and a person who asks."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.governor = Governor(Settings().policies(), MemoryStore(), self.clock)
        settings = Alerts(channels=(Ntfy(name="phone", topic="t"), Ntfy(name="mail", topic="t")))
        self.book = Book(settings, {})
        self.book.read_up_to(0)

    def write(self) -> None:
        rows = self.book.changes()
        self.governor.store.transact([*rows], lambda _: Draft(self.clock.now(), rows, None))
        self.book.written(rows)

    def ask(self, verb: str, *, daemon: bool = True, **args: Any) -> Any:
        poke = (lambda _unit, _verb: None) if daemon else None
        context = Context(governor=self.governor, settings=Settings(), who="ann", channel="test", poke=poke)
        return answer(context, verb, args)


def test_what_is_open() -> None:
    """The worst comes first; what somebody has seen says so; and each channel says how it is."""
    scene = Scene()
    now = scene.clock.now()
    scene.book.hear(
        [
            Notice(kind="timeout", severity="warning", at=now, unit="slow", subject="timeout", text="it took too long"),
            Notice(kind="quarantined", severity="critical", at=now, unit="shop", subject="Boom", ref="abcdef01"),
            Seen(at=now, problem="shop:quarantined:abcdef01", by="ann"),
        ]
    )
    scene.clock.move(10 * SECOND)
    scene.book.work(scene.clock.now())
    scene.book.failed("mail", scene.book.outboxes["mail"].pending[0], ChannelError("503", retry=True), now)
    scene.write()
    said = scene.ask("alerts")
    assert [(one["kind"], one["units"], one["acknowledged"]) for one in said["groups"]] == [
        ("quarantined", ["shop"], True),
        ("timeout", ["slow"], False),
    ]
    assert [(one["name"], one["type"], one["pending"], one["error"]) for one in said["channels"]] == [
        ("phone", "ntfy", 1, ""),
        ("mail", "ntfy", 1, "503"),
    ]


def test_fate_of_a_test() -> None:
    """Whoever tries a channel learns whether the message was sent, fails, or was given up."""
    scene = Scene()
    scene.write()
    asked = scene.ask("test_alert")
    assert asked["channels"] == ["phone", "mail"]
    (letter,) = inbox.read(scene.governor.store.read([INBOX]).records[INBOX])
    assert (letter.id, letter.test, letter.channel) == (asked["id"], True, "")
    assert scene.ask("alerts", test=asked["id"])["test"] == {"phone": None, "mail": None}
    now = scene.clock.now()
    scene.book.test(letter.id, letter.channel, now)
    (phone,), (mail,) = (scene.book.outboxes[name].pending for name in ("phone", "mail"))
    scene.book.sent("phone", phone, "id", now)
    scene.book.failed("mail", mail, ChannelError("503", retry=True), now)
    scene.write()
    fates = scene.ask("alerts", test=asked["id"])["test"]
    assert fates == {"phone": {"state": "sent", "error": ""}, "mail": {"state": "failing", "error": "503"}}
    scene.book.failed("mail", mail, ChannelError("401", retry=False), now + SECOND)
    scene.write()
    assert scene.ask("alerts", test=asked["id"])["test"]["mail"] == {"state": "given up", "error": "401"}


@pytest.mark.parametrize(
    ("channel", "daemon", "known", "code"),
    [("", False, True, "no_daemon"), ("", True, False, "no_channels"), ("fone", True, True, "not_found")],
)
def test_refused(channel: str, daemon: bool, known: bool, code: str) -> None:
    """What cannot be tried is told, and nothing is put into the inbox."""
    scene = Scene()
    if known:
        scene.write()
    with pytest.raises(CommandError) as refused:
        scene.ask("test_alert", daemon=daemon, channel=channel)
    assert refused.value.code == code
    assert INBOX not in scene.governor.store.states()


def test_inbox_is_bounded() -> None:
    """A rule that went wild fills no disk; the newest texts stay."""
    scene = Scene()
    for number in range(inbox.LETTERS_MAX + 5):
        inbox.put(scene.governor, unit="wild", text=f"{number} " + "x" * 5_000)
    letters = inbox.read(scene.governor.store.read([INBOX]).records[INBOX])
    assert len(letters) == inbox.LETTERS_MAX
    assert letters[-1].text.startswith(f"{inbox.LETTERS_MAX + 4} ")
    assert max(len(letter.text) for letter in letters) == inbox.LETTER_MAX


def test_without_channels_nothing_is_kept() -> None:
    """When nobody is told any more, what was known is forgotten: a later beginning is one from the journal's end."""
    scene = Scene()
    scene.write()
    forget(scene.governor)
    assert scene.governor.store.states("alerts") == {}
    assert scene.ask("alerts")["channels"] == []
    scene.clock.move(HOUR)
    forget(scene.governor)
