"""Orders that reach a unit by the journal: what an entry means for whoever runs the unit on another host than the one
where it was ordered. A function of the entry; the policies know the order already, so whoever is poked only asks
earlier than it would have, and ends faster where that was ordered."""

from collections.abc import Mapping
from typing import Final

from flyball.control.forwarding import FORWARD
from flyball.control.past import RULE
from flyball.core.codec import decode_body
from flyball.core.decision import Verb
from flyball.core.event import Held, Ordered, Raised, Released
from flyball.errors import StoreCorrupt
from flyball.store import Entry

HEARD: Final = ("held", "released", "raised", "ordered")
"""Kinds of events that can be orders to a unit. What waits for an answer hears of that by itself."""
ONE_BY_ONE: Final = ("kill", "restart")
"""Orders that would do harm to units that they do not mean. All others only make a unit ask, and it is told what it is
told in any case."""
_HELD: Final = {Verb.HOLD: "pause", Verb.STOP: "stop", Verb.FINISH: "finish"}

Labels = Mapping[str, Mapping[str, str]]
"""Of each unit."""
NOBODY: Final[Labels] = {}


def pokes(entry: Entry, *, here: str = "", labels: Labels = NOBODY) -> list[tuple[str, str]]:
    """Which units (all: "") are to be poked, each with which verb. Nothing for what was ordered `here`: it was obeyed
    then. `labels` are those of the units that run here: by them a kill of all that a user has finds its units."""
    if entry.event not in HEARD:
        return []
    try:
        event = decode_body(entry.body).event
    except StoreCorrupt:
        return []
    match event:
        case Held() | Released() if here and event.host == here:
            return []
        case Held():
            return _of(event, event.order or _HELD.get(event.verb, "pause"), labels)
        case Released():
            return _of(event, event.order or "resume", labels)
        case Raised():
            return _of(event, "raise", labels)
        case Ordered(verb=verb) if verb == FORWARD:
            return [("", FORWARD)]
        case Ordered(unit=unit, verb=verb, channel=channel, refused="") if unit and channel == RULE:
            return [(unit, verb)]  # a rule starts what nobody holds: there is nothing to release
    return []


def _of(event: Held | Released | Raised, verb: str, labels: Labels) -> list[tuple[str, str]]:
    if event.unit and event.scope in ("unit", "run"):
        return [(event.unit, verb)]
    if verb not in ONE_BY_ONE:
        return [("", verb)]
    if event.scope in event.labels:
        value = event.labels[event.scope]
        return [(unit, verb) for unit, own in labels.items() if own.get(event.scope) == value]
    # Of what is restarted together, each has an entry of its own: this one only lets them.
    return [("", "resume" if verb == "restart" else verb)]
