"""What users are told: each of their own units, and of nobody else's."""

from flyball.control.alerts.channel import ForUser, Message
from flyball.control.alerts.groups import Group, Item
from flyball.control.alerts.wording import USERS_MAX, message_of
from flyball.core.time import SECOND

TEXT = "1.00 USD of 1.00 USD are spent"


def _message(*whose: str, over: int = 0) -> Message:
    """Of a budget that is spent, by these users' units, the newest last."""
    items = {
        f"unit-{number}": Item(f"unit-{number}", last=number * SECOND, labels={"user": user} if user else {})
        for number, user in enumerate(whose, start=1)
    }
    group = Group(
        "budget-1",
        "cost_budget_exceeded",
        "warning",
        text=TEXT,
        items={} if over else items,
        was=items if over else {},
        opened=7,
        over=over,
    )
    return message_of(group, 9 * SECOND)


def _by(message: Message) -> dict[str, ForUser]:
    return {one.user: one for one in message.users}


def test_each_of_their_own() -> None:
    """Each user is told of their own unit (S1-37); the text is of the newest, so only that one's user reads it."""
    told = _by(_message("ann@example.com", "bob@example.com", ""))
    assert set(told) == {"ann@example.com", "bob@example.com"}
    assert told["ann@example.com"].title == "unit-1 over its budget"
    assert told["bob@example.com"].title == "unit-2 over its budget"
    assert [one.text for one in told.values()] == ["", ""]
    assert _by(_message("ann@example.com"))["ann@example.com"].text == TEXT


def test_several_of_one() -> None:
    """Several units of one user are named in one."""
    told = _by(_message("ann@example.com", "ann@example.com", "bob@example.com"))
    assert told["ann@example.com"].title == "2 of your units: unit-1, unit-2 over its budget"


def test_once() -> None:
    """What a user was told keeps its id however many others come; that it is over has another, in the same thread."""
    first = _by(_message("ann@example.com"))["ann@example.com"]
    later = _by(_message("ann@example.com", "bob@example.com"))["ann@example.com"]
    over = _by(_message("ann@example.com", over=8))["ann@example.com"]
    assert first.id == later.id != over.id
    assert first.thread == later.thread == over.thread
    assert over.title == "Resolved: unit-1 over its budget"


def test_bounded() -> None:
    """One message tells so many users at most."""
    assert len(_message(*(f"u{number}@example.com" for number in range(USERS_MAX + 5))).users) == USERS_MAX
