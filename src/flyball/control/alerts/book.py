"""The book of alerts: all groups and all outboxes, what happens to them, and what of it has to be written down.

It has no clock and touches no store: whoever keeps it says what happened and when, writes `changes()` in one
transaction, and says `written()`. So a crash between two writes finds either all of a batch, its place in the journal
included, or nothing of it.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from flyball.config.alerts import Alerts
from flyball.control.alerts import groups as grouping
from flyball.control.alerts import outbox as boxes
from flyball.control.alerts.channel import ChannelError, Message
from flyball.control.alerts.groups import Group, Telling
from flyball.control.alerts.notices import KINDS, News, Notice, Over, Seen
from flyball.control.alerts.outbox import Delivery, Outbox
from flyball.control.alerts.quiet import channels_for, is_held_back, quiet_until
from flyball.control.alerts.records import CHANNEL, CHANNELS, CURSOR, GROUP, TEST, Cursor, record
from flyball.control.alerts.wording import message_of, summary_of
from flyball.core.policy import Key
from flyball.core.time import FOREVER, Instant

log = logging.getLogger(__name__)

GROUPS_MAX: Final = 500
"""Groups at a time. What would be one more is told together with all others of its kind."""
OTHERS: Final = "others"
LEFT_UNWRITTEN_MAX: Final = 1_000
"""Entries that are read again after a crash at most, because they said nothing."""


class Book:
    """For one keeper at a time."""

    def __init__(self, settings: Alerts, records: Mapping[Key, bytes]) -> None:
        self.settings = settings
        self.cursor: int | None = None
        """None: the journal was never read."""
        self.groups: dict[str, Group] = {}
        self.outboxes: dict[str, Outbox] = {channel.name: Outbox() for channel in settings.channels}
        self._changed: dict[Key, None] = {}
        self._cursor_written: int | None = None
        self._types = msgspec.json.encode({channel.name: channel.TYPE for channel in settings.channels})
        if records.get(CHANNELS) != self._types:
            self._changed[CHANNELS] = None
        for key, data in records.items():
            self._read(key, data)

    def _read(self, key: Key, data: bytes) -> None:
        try:
            if key == CURSOR:
                self.cursor = self._cursor_written = msgspec.json.decode(data, type=Cursor).seq
            elif key.subject.startswith(GROUP):
                group = msgspec.json.decode(data, type=Group)
                if group.kind in KINDS:
                    self.groups[group.key] = group
            elif key.subject.startswith(CHANNEL):
                name = key.subject.removeprefix(CHANNEL)
                if name in self.outboxes:
                    self.outboxes[name] = msgspec.json.decode(data, type=Outbox)
                else:  # it is no longer in the settings: what waits for it has nowhere to go
                    self._changed[key] = None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.error("a record of alerts cannot be read, and is begun anew: %s: %s", key.subject, error)
            self._changed[key] = None

    # What happens.

    def hear(self, news: Iterable[News]) -> None:
        """What the journal, or a channel, said."""
        for one in news:
            match one:
                case Notice():
                    self._notice(one)
                case Over():
                    for group in [group for group in self.groups.values() if group.kind in one.kinds]:
                        self._put_group(group, grouping.ended(group, one, self.settings))
                case Seen():
                    for group in [*self.groups.values()]:
                        self._put_group(group, grouping.acknowledged(group, one))

    def _notice(self, notice: Notice) -> None:
        if not notice.counts and self._known(notice):
            return
        channels = channels_for(notice, self.settings)
        key = grouping.key_of(notice.kind, notice.subject)
        group = self.groups.get(key)
        if group is None and not channels:
            return
        if group is None and len(self.groups) >= GROUPS_MAX:
            notice = msgspec.structs.replace(notice, subject=OTHERS)
            group = self.groups.get(grouping.key_of(notice.kind, OTHERS))
        if group is None:
            self._put_group(None, grouping.opened(notice, channels))
        else:
            self._put_group(group, grouping.heard(group, notice, channels))

    def _known(self, notice: Notice) -> bool:
        """Whether it is in some group of its kind already."""
        item = grouping.item_key(notice)
        groups = [group for group in self.groups.values() if group.kind == notice.kind]
        return any(item in group.items or item in group.others for group in groups)

    def read_up_to(self, seq: int) -> None:
        """The journal was read so far. That alone is not worth a write, unless it is far."""
        self.cursor = seq

    # What is to be told.

    def work(self, now: Instant) -> None:
        """Put into the outboxes what is to be told by now, and forget what is over."""
        for group in [*self.groups.values()]:
            said = grouping.telling(group, self.settings, now)
            if said is not None:
                self._tell(group, said, now)
                self._put_group(group, grouping.was_told(group, said, now))
            elif grouping.is_past(group, now):
                self._drop(group)
        if self._is_loud(now):
            self._tell_what_was_held(now)

    def _tell(self, group: Group, said: Telling, now: Instant) -> None:
        message = message_of(group, now, url=self._url(group))
        held = is_held_back(self.settings.quiet, group.severity, now)
        for name in group.channels:
            box = self.outboxes.get(name)
            if box is None:
                continue
            known = boxes.knows(box, group.key)
            if said.over and not known and not group.owed:
                continue
            if held:
                self._put_box(name, boxes.hold(box, message))
            elif said.fresh or said.over or not known or self._can_change(box, group):
                # The end of what was told in a message that can be changed changes that message.
                self._put_box(name, boxes.put(box, message, fresh=said.fresh or not known, now=now))

    def _can_change(self, box: Outbox, group: Group) -> bool:
        """Not every channel can: there, people are told again only when it got worse."""
        return bool(box.told.get(group.key)) or any(one.group == group.key for one in box.pending)

    def _url(self, group: Group) -> str:
        if not self.settings.url:
            return ""
        units = {item.unit for item in (group.items or group.was).values() if item.unit}
        return f"{self.settings.url}/#/unit/{units.pop()}" if len(units) == 1 else f"{self.settings.url}/"

    def _is_loud(self, now: Instant) -> bool:
        waits = any(box.held or box.held_more for box in self.outboxes.values())
        return waits and not quiet_until(self.settings.quiet, now)

    def _tell_what_was_held(self, now: Instant) -> None:
        for name, box in self.outboxes.items():
            if box.held or box.held_more:
                summary = summary_of([*box.held.values()], box.held_more, now, url=self.settings.url)
                self._put_box(name, boxes.put(boxes.emptied(box), summary, fresh=True, now=now))

    def test(self, id_: str, channel: str, now: Instant) -> None:
        """Put a message into the outbox of that channel, or of all, to see whether it arrives."""
        for name, box in self.outboxes.items():
            if channel in ("", name):
                text = "If you can read this, alerts reach you this way."
                group = f"{TEST}{id_}"
                message = Message(
                    title="flyball: a test", text=text, severity="info", kind="test", at=now, group=group, id=group
                )
                for old in [key for key in box.told if key.startswith(TEST)]:
                    box = boxes.forgotten(box, old)  # noqa: PLW2901 - the box as it is by now
                self._put_box(name, boxes.put(box, message, fresh=True, now=now))

    # What was sent.

    def sent(self, channel: str, delivery: Delivery, id_: str, now: Instant) -> None:
        """A channel took a message."""
        self._put_box(channel, boxes.sent(self.outboxes[channel], delivery, id_, now))
        self.hear([Over(at=now, kinds=frozenset({"channel_dead"}), ref=channel)])

    def failed(self, channel: str, delivery: Delivery, error: ChannelError, now: Instant) -> None:
        """A channel did not take a message."""
        before = self.outboxes[channel]
        box = boxes.failed(before, delivery, error, self.settings.give_up_after, now)
        self._put_box(channel, box)
        if box.given_up > before.given_up:
            log.error("alert given up: %s: %r: %s", channel, delivery.message.title, box.error)
        if box.dead:
            if not before.dead:
                log.error("the alert channel %s does not work: %s", channel, box.error)
            text = f"{box.failures} message{'s' * (box.failures != 1)} in a row could not be sent: {box.error}"
            remedy = f"Put it right, then try it: `flyball alerts test {channel}`."
            kind = "channel_dead"
            self.hear(
                [
                    Notice(
                        kind=kind,
                        severity=KINDS[kind].severity,
                        at=now,
                        subject=channel,
                        ref=channel,
                        text=text,
                        remedy=remedy,
                        counts=False,
                    )
                ]
            )

    def next_at(self, now: Instant) -> Instant:
        """When there is something to do by itself."""
        times = [grouping.next_at(group, self.settings, now) for group in self.groups.values()]
        if any(box.held or box.held_more for box in self.outboxes.values()):
            times.append(quiet_until(self.settings.quiet, now) or now)
        return min(times, default=FOREVER)

    # What has to be written.

    def changes(self, *, place: bool = False) -> dict[Key, bytes | None]:
        """The records that differ from what is written; also if that is only the `place` in the journal."""
        rows = {key: self._encoded(key) for key in self._changed}
        seq, before = self.cursor, self._cursor_written
        if seq is not None and seq != before:
            far = before is None or seq < before or seq - before >= LEFT_UNWRITTEN_MAX
            if rows or far or place:
                rows[CURSOR] = msgspec.json.encode(Cursor(seq))
        return rows

    def written(self, rows: Mapping[Key, bytes | None]) -> None:
        """They are written."""
        for key in rows:
            self._changed.pop(key, None)
        if CURSOR in rows:
            self._cursor_written = self.cursor

    def _encoded(self, key: Key) -> bytes | None:
        if key == CHANNELS:
            return self._types
        if key.subject.startswith(GROUP):
            group = self.groups.get(key.subject.removeprefix(GROUP))
            return msgspec.json.encode(group) if group is not None else None
        box = self.outboxes.get(key.subject.removeprefix(CHANNEL))
        return msgspec.json.encode(box) if box is not None and box != Outbox() else None

    def _put_group(self, before: Group | None, group: Group) -> None:
        if group is not before:
            self.groups[group.key] = group
            self._changed[record(f"{GROUP}{group.key}")] = None

    def _drop(self, group: Group) -> None:
        del self.groups[group.key]
        self._changed[record(f"{GROUP}{group.key}")] = None
        for name, box in self.outboxes.items():
            self._put_box(name, boxes.forgotten(box, group.key))

    def _put_box(self, name: str, box: Outbox) -> None:
        if box is not self.outboxes[name]:
            self.outboxes[name] = box
            self._changed[record(f"{CHANNEL}{name}")] = None
