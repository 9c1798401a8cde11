"""What alerts tell of themselves, as Prometheus sees it: read from their records, which are what they go by."""

from collections.abc import Iterable

import msgspec

from flyball.control.alerts.outbox import Outbox
from flyball.control.alerts.records import CHANNEL, CURSOR, RECORDS, Cursor
from flyball.control.metrics.readings import Reading
from flyball.store import Store


def of_alerts(store: Store) -> Iterable[Reading]:
    """Of each channel, what was sent and what waits; and how far the journal was read. What cannot be read is begun
    anew by alerts themselves, and says nothing until then."""
    last, waiting, channels = store.read(()).seq, 0, 0
    for key, data in store.states(RECORDS).items():
        try:
            if key == CURSOR:
                behind = last - msgspec.json.decode(data, type=Cursor).seq
                yield Reading("flyball_journal_lag_entries", max(0, behind), ("alerts",))
            elif key.subject.startswith(CHANNEL):
                box, channel = msgspec.json.decode(data, type=Outbox), key.subject.removeprefix(CHANNEL)
                channels += 1
                waiting += len(box.pending)
                yield Reading("flyball_alert_deliveries_total", box.sent, (channel, "delivered"))
                yield Reading("flyball_alert_deliveries_total", box.given_up, (channel, "given_up"))
                yield Reading("flyball_alert_failures", box.failures, (channel,))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    if channels:
        yield Reading("flyball_alerts_waiting", waiting)
