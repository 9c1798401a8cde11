"""The outbox of one channel: what waits to be sent, what was held back, how the channel is, and by which ids its
messages can be changed. A value; what happens to it gives another one.

What waits is sent in its order. Of one group only the newest message waits: nobody needs to see how it came about. A
channel that fails is left alone for a while, longer each time; after some failures in a row it is dead, which is an
alert on all others. It is tried all the same: it works again when it takes a message.
"""

from typing import Final

import msgspec

from flyball.control.alerts.channel import ID_MAX, ChannelError, Message
from flyball.core.time import MINUTE, SECOND, Instant, Span, later, span

PENDING_MAX: Final = 500
"""Messages that wait for one channel, each of another group. Beyond them the oldest are given up, and counted."""
HELD_MAX: Final = 200
"""Messages that are held back one by one in quiet hours; of more it is only known how many."""
TOLD_MAX: Final = 2_000
"""Groups of which it is known by which id their message can be changed."""
DEAD_AFTER: Final = 3
"""Failures in a row. One is a hiccup, two may be."""
RETRY_WAIT: Final[Span] = 5 * SECOND
RETRY_WAIT_MAX: Final[Span] = 15 * MINUTE
ERROR_MAX: Final = 300
"""Characters that are kept of why a channel failed."""
DOUBLINGS_MAX: Final = 16
REFUSALS_MAX: Final = 10
"""Messages that were given up and are known by name: enough for whoever waits for one."""


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message on its way."""

    message: Message
    fresh: bool = True
    """As a new one; otherwise the last one about the same is changed."""
    since: Instant = 0
    """When the first message of those that this one stands for was made."""
    tries: int = 0

    @property
    def group(self) -> str:
        """What it is about."""
        return self.message.group


class Outbox(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that is known of one channel."""

    pending: tuple[Delivery, ...] = ()
    held: dict[str, Message] = {}
    """Held back in quiet hours, by group."""
    held_more: int = 0
    told: dict[str, str] = {}
    """By group, the id of its last message here; nothing, if that one cannot be changed."""
    failures: int = 0
    """In a row."""
    refused: bool = False
    """It said itself that trying again is of no use."""
    next_at: Instant = 0
    """Not tried before."""
    worked_at: Instant = 0
    failed_at: Instant = 0
    error: str = ""
    sent: int = 0
    given_up: int = 0
    refusals: tuple[str, ...] = ()
    """The groups whose messages were given up last."""

    @property
    def dead(self) -> bool:
        """It does not work."""
        return self.refused or self.failures >= DEAD_AFTER


def put(box: Outbox, message: Message, *, fresh: bool, now: Instant) -> Outbox:
    """With a message to be sent. It takes the place of one about the same that was not sent yet."""
    before = next((one for one in box.pending if one.group == message.group), None)
    delivery = Delivery(
        message,
        fresh or (before is not None and before.fresh),
        before.since if before is not None else now,
        before.tries if before is not None else 0,
    )
    pending = [delivery if one is before else one for one in box.pending]
    if before is None:
        pending.append(delivery)
    beyond = max(0, len(pending) - PENDING_MAX)
    return msgspec.structs.replace(box, pending=tuple(pending[beyond:]), given_up=box.given_up + beyond)


def hold(box: Outbox, message: Message) -> Outbox:
    """With a message held back. It takes the place of one about the same."""
    if message.group not in box.held and len(box.held) >= HELD_MAX:
        return msgspec.structs.replace(box, held_more=box.held_more + 1)
    return msgspec.structs.replace(box, held={**box.held, message.group: message})


def emptied(box: Outbox) -> Outbox:
    """Without what was held back. Whoever reads of it in the summary knows of it."""
    told = {**box.told, **{group: "" for group, message in box.held.items() if group not in box.told}}
    return msgspec.structs.replace(box, held={}, held_more=0, told=_bounded(told))


def knows(box: Outbox, group: str) -> bool:
    """Whether people were told of a group here, or will be."""
    return group in box.told or group in box.held or any(one.group == group for one in box.pending)


def due(box: Outbox, now: Instant) -> Delivery | None:
    """What is to be sent now."""
    return box.pending[0] if box.pending and box.next_at <= now else None


def previous(box: Outbox, delivery: Delivery) -> str | None:
    """The id of the message that it changes; None: it is a new one."""
    return None if delivery.fresh else box.told.get(delivery.group) or None


def sent(box: Outbox, delivery: Delivery, id_: str, now: Instant) -> Outbox:
    """Once a message was taken. What came meanwhile about the same changes that one."""
    told = {**box.told, delivery.group: id_[:ID_MAX]}
    return msgspec.structs.replace(
        box,
        pending=_without(box, delivery, fresh=False),
        told=_bounded(told),
        failures=0,
        refused=False,
        next_at=0,
        worked_at=now,
        error="",
        sent=box.sent + 1,
    )


def failed(box: Outbox, delivery: Delivery, error: ChannelError, give_up_after: Span, now: Instant) -> Outbox:
    """Once a message was not taken."""
    failures = box.failures + 1
    tried = msgspec.structs.replace(delivery, tries=delivery.tries + 1)
    gives_up = not error.retry or later(delivery.since, give_up_after) <= now
    pending = (
        _without(box, delivery, fresh=True)
        if gives_up
        else tuple(tried if one == delivery else one for one in box.pending)
    )
    waits = min(RETRY_WAIT << min(failures - 1, DOUBLINGS_MAX), RETRY_WAIT_MAX)
    asked = min(span(max(0.0, error.after)), RETRY_WAIT_MAX)
    return msgspec.structs.replace(
        box,
        pending=pending,
        failures=failures,
        refused=not error.retry,
        next_at=later(now, max(waits, asked)),
        failed_at=now,
        error=str(error)[:ERROR_MAX],
        given_up=box.given_up + gives_up,
        refusals=(*box.refusals, delivery.group)[-REFUSALS_MAX:] if gives_up else box.refusals,
    )


def forgotten(box: Outbox, group: str) -> Outbox:
    """Without the id of a group that is over."""
    if group not in box.told:
        return box
    return msgspec.structs.replace(box, told={key: id_ for key, id_ in box.told.items() if key != group})


def _without(box: Outbox, delivery: Delivery, *, fresh: bool) -> tuple[Delivery, ...]:
    """What waits, without that one. If a newer one took its place meanwhile, that one waits still."""
    left = []
    for one in box.pending:
        if one.group != delivery.group:
            left.append(one)
        elif one.message != delivery.message:
            left.append(one if fresh else msgspec.structs.replace(one, fresh=one.fresh and not delivery.fresh))
    return tuple(left)


def _bounded(told: dict[str, str]) -> dict[str, str]:
    beyond = len(told) - TOLD_MAX
    return told if beyond <= 0 else dict(list(told.items())[beyond:])
