"""The outbox of one channel, and what is bounded."""

import pytest

from flyball.config.alerts import Alerts, Ntfy
from flyball.control.alerts import outbox
from flyball.control.alerts.book import GROUPS_MAX, Book
from flyball.control.alerts.channel import ChannelError, Message
from flyball.control.alerts.groups import ITEMS_MAX, OTHERS_MAX
from flyball.control.alerts.notices import Notice, Over
from flyball.control.alerts.outbox import HELD_MAX, PENDING_MAX, RETRY_WAIT_MAX, TOLD_MAX, Outbox
from flyball.control.alerts.records import CHANNEL, CURSOR, GROUP, record
from flyball.core.time import DAY, HOUR, SECOND

NOW = 10**15
DOWN = ChannelError("503", retry=True)
SETTINGS = Alerts(channels=(Ntfy(name="phone", topic="t"),))


def message(group: str, text: str = "") -> Message:
    return Message(title=group, text=text, group=group)


def notice(unit: str, subject: str = "same", **more: int) -> Notice:
    return Notice(kind="quarantined", severity="critical", at=more.get("at", NOW), unit=unit, subject=subject)


def test_the_newest_of_a_group_waits() -> None:
    """A message takes the place of an older one about the same, and its place in the line."""
    box = outbox.put(Outbox(), message("a", "old"), fresh=True, now=NOW)
    box = outbox.put(box, message("b"), fresh=True, now=NOW)
    box = outbox.put(box, message("a", "new"), fresh=False, now=NOW + SECOND)
    assert [(one.message.text, one.fresh, one.since) for one in box.pending] == [("new", True, NOW), ("", True, NOW)]


def test_newer_one_while_it_is_sent() -> None:
    """What came while a message was sent waits still, and changes that one."""
    box = outbox.put(Outbox(), message("a", "old"), fresh=True, now=NOW)
    sending = outbox.due(box, NOW)
    assert sending is not None
    box = outbox.put(box, message("a", "new"), fresh=False, now=NOW)
    box = outbox.sent(box, sending, "id-1", NOW)
    (left,) = box.pending
    assert left.message.text == "new"
    assert outbox.previous(box, left) == "id-1"


def test_waits_longer_each_time() -> None:
    """A channel that fails is left alone for longer each time, up to a bound; or for as long as it asks."""
    box = outbox.put(Outbox(), message("a"), fresh=True, now=NOW)
    waits = []
    for _ in range(12):
        box = outbox.failed(box, box.pending[0], DOWN, DAY, NOW)
        waits.append((box.next_at - NOW) // SECOND)
    assert waits[:4] == [5, 10, 20, 40]
    assert waits[-1] == RETRY_WAIT_MAX // SECOND
    asked = outbox.failed(box, box.pending[0], ChannelError("429", retry=True, after=1e9), DAY, NOW)
    assert asked.next_at == NOW + RETRY_WAIT_MAX
    assert outbox.due(box, NOW) is None


@pytest.mark.parametrize(("failures", "dead"), [(1, False), (2, False), (3, True)])
def test_dead(failures: int, dead: bool) -> None:
    """Three failures in a row are no hiccup; one success, and it lives."""
    box = outbox.put(Outbox(), message("a"), fresh=True, now=NOW)
    for _ in range(failures):
        box = outbox.failed(box, box.pending[0], DOWN, DAY, NOW)
    assert box.dead is dead
    assert not outbox.sent(box, box.pending[0], "", NOW).dead


def test_everything_is_bounded() -> None:
    """What waits, what is held back and what is remembered has its end; what is given up is counted."""
    box = Outbox()
    for number in range(PENDING_MAX + 10):
        box = outbox.put(box, message(f"g{number}"), fresh=True, now=NOW)
    assert (len(box.pending), box.given_up) == (PENDING_MAX, 10)
    for number in range(HELD_MAX + 10):
        box = outbox.hold(box, message(f"g{number}"))
    assert (len(box.held), box.held_more) == (HELD_MAX, 10)
    box = Outbox(told={f"g{number}": "" for number in range(TOLD_MAX)})
    box = outbox.put(box, message("new"), fresh=True, now=NOW)
    box = outbox.sent(box, box.pending[0], "x" * 10_000, NOW)
    assert len(box.told) == TOLD_MAX
    assert len(box.told["new"]) == 200


def test_more_groups_than_there_may_be() -> None:
    """What would be one group too many is told together with all others of its kind, and not lost."""
    book = Book(SETTINGS, {})
    book.hear(notice(f"u{number}", f"error {number}") for number in range(GROUPS_MAX + 50))
    assert len(book.groups) == GROUPS_MAX + 1
    assert max(len(group.items) for group in book.groups.values()) == 50


def test_more_units_than_a_group_knows() -> None:
    """Of more problems than it knows one by one a group knows whose they are: each counts once, however often it is
    told of, and it is not over before the last of them is."""
    book = Book(SETTINGS, {})
    for _ in range(3):
        book.hear(notice(f"u{number}") for number in range(ITEMS_MAX + 50))
    (group,) = book.groups.values()
    assert (len(group.items), len(group.others), group.more) == (ITEMS_MAX, 50, 0)
    book.work(NOW + HOUR)
    (told,) = book.outboxes["phone"].pending
    assert told.message.title == f"{ITEMS_MAX + 50} units quarantined"
    kinds = frozenset({"quarantined"})
    book.hear(Over(at=NOW + HOUR, kinds=kinds, unit=f"u{number}") for number in range(ITEMS_MAX))
    (group,) = book.groups.values()
    assert group.is_open
    assert [item.unit for item in group.items.values()] == [f"u{ITEMS_MAX + number}" for number in range(50)]
    book.hear(Over(at=NOW + HOUR, kinds=kinds, unit=f"u{ITEMS_MAX + number}") for number in range(50))
    assert all(group.over for group in book.groups.values())


def test_more_units_than_a_group_lists() -> None:
    """Beyond that it is only known that there were some; they are over with the last that it knows."""
    book = Book(SETTINGS, {})
    book.hear(notice(f"u{number}") for number in range(ITEMS_MAX + OTHERS_MAX + 1))
    (group,) = book.groups.values()
    assert (len(group.items), len(group.others), group.more) == (ITEMS_MAX, OTHERS_MAX, 1)
    book.hear([Over(at=NOW + HOUR, kinds=frozenset({"quarantined"}), everyone=True)])
    assert all(group.over for group in book.groups.values())


def test_records() -> None:
    """What is written is all that is needed: another book goes on where this one was; a channel that no settings
    name, and what cannot be read, is dropped."""
    book = Book(SETTINGS, {})
    book.read_up_to(7)
    book.hear([notice("u")])
    book.work(NOW + HOUR)
    rows = {key: data for key, data in book.changes().items() if data is not None}
    assert rows.keys() >= {CURSOR, record(f"{CHANNEL}phone")}
    rows[record(f"{CHANNEL}gone")] = b"{}"
    rows[record(f"{GROUP}broken")] = b"\xff{"
    other = Book(SETTINGS, rows)
    assert (other.cursor, other.groups, other.outboxes) == (7, book.groups, book.outboxes)
    assert other.changes() == {record(f"{CHANNEL}gone"): None, record(f"{GROUP}broken"): None}


def test_nothing_new_is_nothing_to_write() -> None:
    """How far was read is written with what it said, or when it was far; not by itself."""
    book = Book(SETTINGS, {})
    book.read_up_to(7)
    book.written(book.changes())
    book.read_up_to(500)
    assert book.changes() == {}
    book.read_up_to(2_000)
    assert book.changes().keys() == {CURSOR}
