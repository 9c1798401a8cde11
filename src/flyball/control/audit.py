"""The command that shows the audit trail: who asked for what, through which channel, and what came of it. It only
reads; there is no verb that changes or removes a line.

Orders that have no line of their own are shown as what they are: those of a journal that is older than the trail, those
that a program gave, and those after which the daemon was killed before it could write the line.
"""

from collections.abc import Sequence
from typing import Any, Final

from flyball.control.context import Args, CommandError, Context, bounded
from flyball.control.text import entry_text
from flyball.core.codec import Body, decode_body
from flyball.core.event import Acknowledged, Answered, Held, Ordered, Raised, Released, Settled
from flyball.core.time import MINUTE, Instant, Span, seconds
from flyball.errors import StoreCorrupt
from flyball.store import Entry

LINES_MAX: Final = 1_000
"""Lines in one answer."""
ENTRIES_MAX: Final = 10_000
"""Entries that are read for one answer. Who wants what lies before them asks with `after`."""
COVERED: Final[Span] = 1 * MINUTE
"""An order is told by the line of its own caller that follows within so long: a verb takes seconds at most."""
KINDS: Final = ("ordered", "held", "released", "answered", "settled", "raised", "acknowledged")
"""Kinds of events that tell what people did."""
VIA: Final = "via "
"""How the note of an order begins that came by a verb; then the channel."""

Order = Held | Released | Answered | Settled | Raised | Acknowledged


def audit(context: Context, args: Args) -> Any:
    """The newest lines, or the first ones after a number; the oldest first."""
    limit, after = bounded(args, "limit", LINES_MAX), args["after"]
    if after is not None and after < 0:
        raise CommandError("bad_argument", f"after is {after}", remedy="Give the number of an entry, or 0.")
    store = context.governor.store
    # The end of the journal is read first: what comes in between is found the next time, and not missed.
    end = store.read(()).seq
    if after is None:
        entries = store.last_entries(limit=ENTRIES_MAX, events=KINDS)
    else:
        entries = store.entries(after=after, limit=ENTRIES_MAX, events=KINDS)
    now = max(context.governor.clock.now(), store.read(()).at)
    lines = [line for line in _lines(entries, now) if _is_wanted(line, args)]
    shown = (lines[-limit:] if after is None else lines[:limit]) if limit else []
    if after is not None and len(shown) < len(lines):
        last = shown[-1]["seq"] if shown else after
    elif len(entries) == ENTRIES_MAX:
        last = entries[-1].seq
    else:
        last = max(end, entries[-1].seq if entries else 0)
    return {"audit": shown, "last": last}


def _lines(entries: Sequence[Entry], now: Instant) -> list[dict[str, Any]]:
    """Each line of the trail, and each order that has none; the oldest first."""
    told: dict[tuple[str, str], Instant] = {}
    """Of each caller, when the line was written that comes next in the journal."""
    lines = []
    for entry in reversed(entries):
        try:
            body = decode_body(entry.body)
        except StoreCorrupt:
            continue
        match body.event:
            case Ordered() as ordered:
                told[ordered.by, ordered.channel] = entry.at
                lines.append(_line(entry, ordered))
            case Held() | Released() | Answered() | Settled() | Raised() | Acknowledged() as order if order.by:
                channel = _channel(order.note)
                # One that came by a verb a moment ago may have its line in a moment.
                line_at = told.get((order.by, channel), now)
                if not channel or line_at - entry.at > COVERED:
                    lines.append(_bare(entry, body, order, channel))
    return lines[::-1]


def _line(entry: Entry, ordered: Ordered) -> dict[str, Any]:
    return {
        "seq": entry.seq,
        "at": seconds(entry.at),
        "unit": entry.unit,
        "by": ordered.by,
        "channel": ordered.channel,
        "verb": ordered.verb,
        "asked": ordered.asked,
        "effect": ordered.effect,
        "refused": ordered.refused,
    }


def _bare(entry: Entry, body: Body, order: Order, channel: str) -> dict[str, Any]:
    """An order without a line: what it says itself."""
    return {
        "seq": entry.seq,
        "at": seconds(entry.at),
        "unit": entry.unit,
        "by": order.by,
        "channel": channel,
        "verb": _verb(order),
        "asked": "",
        "effect": entry_text(order, body.decision, entry.at),
        "refused": "",
    }


def _channel(note: str) -> str:
    """Through which channel an order came; nothing: none of ours."""
    return note[len(VIA) :].partition(":")[0] if note.startswith(VIA) else ""


def _verb(order: Order) -> str:
    match order:
        case Held(verb=verb):
            return {"HOLD": "pause", "STOP": "stop", "FINISH": "finish"}.get(verb.name, "hold")
        case Released(fingerprint=fingerprint):
            return "reset" if fingerprint else "resume"
        case Answered():
            return "answer"
        case Settled():
            return "settle"
        case Raised():
            return "raise"
    return "acknowledge"


def _is_wanted(line: dict[str, Any], args: Args) -> bool:
    return args["who"] in (None, line["by"]) and args["verb"] in (None, line["verb"])
