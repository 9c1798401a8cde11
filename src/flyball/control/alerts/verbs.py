"""The verbs about alerts: what is open, how the channels are, and a message to try them with. They go by the store, so
looking needs no daemon."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from flyball.control.alerts import inbox
from flyball.control.alerts.groups import Group, silent_until
from flyball.control.alerts.outbox import Outbox
from flyball.control.alerts.records import CHANNEL, CHANNELS, CURSOR, GROUP, RECORDS, TEST, Cursor, record
from flyball.control.context import Args, CommandError, Context, meant
from flyball.core.policy import Key
from flyball.core.time import FOREVER, Instant, seconds

UNITS_MAX: Final = 10
"""Units of a group in an answer; how many there are is said."""

T = TypeVar("T")


def alerts(context: Context, args: Args) -> Any:
    """Groups that are open, the worst and oldest first; channels; and what became of a test."""
    store = context.governor.store
    snapshot, records = store.read(()), store.states(RECORDS)
    now = max(context.governor.clock.now(), snapshot.at)
    types = _types(records)
    boxes = {name: _read(records, CHANNEL + name, Outbox) or Outbox() for name in types}
    names = [key.subject for key in records if key.subject.startswith(GROUP)]
    groups = [group for name in names if (group := _read(records, name, Group)) is not None and not group.over]
    cursor = _read(records, CURSOR.subject, Cursor)
    severities = ("critical", "warning", "info")
    groups.sort(key=lambda group: (severities.index(group.severity), group.opened))
    return {
        "groups": [_group(group, now) for group in groups],
        "channels": [_channel(name, types[name], box) for name, box in boxes.items()],
        "unread": max(0, snapshot.seq - cursor.seq) if cursor is not None else 0,
        "test": {name: _fate(box, f"{TEST}{args['test']}") for name, box in boxes.items()} if args["test"] else None,
        "at": seconds(now),
    }


def test_alert(context: Context, args: Args) -> Any:
    """Have a message sent by one channel, or by all. What becomes of it is told by `alerts`, with its id."""
    names = [*_types(context.governor.store.states(RECORDS))]
    channel = args["channel"] or ""
    if context.poke is None:
        text = "no daemon runs here, so nobody sends alerts"
        raise CommandError("no_daemon", text, remedy="Start one: `flyball up -d`.")
    if not names:
        remedy = "Name one in the settings: `alerts: {channels: {phone: {type: ntfy, topic: …}}}`."
        raise CommandError("no_channels", "there are no channels for alerts", remedy=remedy)
    if channel and channel not in names:
        text = f"no channel {channel!r}; {meant(channel, names, nothing='there are none')}"
        raise CommandError("not_found", text, remedy="`flyball alerts` lists all channels.")
    sent = inbox.put(context.governor, test=True, channel=channel)
    sent.written.result()
    asked = [channel] if channel else names
    return {"id": sent.id, "channels": asked, "effect": f"a test message by {', '.join(asked)}"}


def _group(group: Group, now: Instant) -> dict[str, Any]:
    units = list(dict.fromkeys(item.unit for item in group.items.values() if item.unit))
    silent = silent_until(group, now)
    return {
        "id": group.key,
        "kind": group.kind,
        "severity": group.severity,
        "subject": group.subject,
        "text": group.text,
        "remedy": group.remedy,
        "units": units[:UNITS_MAX],
        "problems": len(group.items) + group.beyond,
        "count": max(1, group.count),
        "since": seconds(group.opened),
        "last": seconds(group.last),
        "channels": list(group.channels),
        "told": seconds(group.told_at) if group.told_at else None,
        "acknowledged": silent >= FOREVER,
        "snoozed_until": seconds(silent) if 0 < silent < FOREVER else None,
    }


def _channel(name: str, kind: str, box: Outbox) -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "dead": box.dead,
        "failures": box.failures,
        "error": box.error,
        "pending": len(box.pending),
        "held_back": len(box.held) + box.held_more,
        "sent": box.sent,
        "given_up": box.given_up,
        "worked": seconds(box.worked_at) if box.worked_at else None,
        "failed": seconds(box.failed_at) if box.failed_at else None,
    }


def _fate(box: Outbox, group: str) -> dict[str, Any] | None:
    """What became of a test: None if this channel has heard of none (yet)."""
    if group in box.told:
        return {"state": "sent", "error": ""}
    waiting = next((one for one in box.pending if one.group == group), None)
    if waiting is not None:
        return {"state": "failing" if waiting.tries else "waiting", "error": box.error if waiting.tries else ""}
    return {"state": "given up", "error": box.error} if group in box.refusals else None


def _types(records: Mapping[Key, bytes]) -> dict[str, str]:
    return _read(records, CHANNELS.subject, dict[str, str]) or {}


def _read(records: Mapping[Key, bytes], subject: str, kind: type[T]) -> T | None:
    """A record; None if it is not there, or cannot be read."""
    data = records.get(record(subject))
    try:
        return msgspec.json.decode(data, type=kind) if data is not None else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
