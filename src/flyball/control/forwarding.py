"""What only one host of a fleet can do, asked for on another: to fire a rule. It is kept in the store until the host
that looks after the rules takes it, which is at once, for the store rings there. What it says may be secret, and may be
long, so it is in a record and not in the journal; that it was left there is."""

import logging
import secrets
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flyball.control.context import CommandError
from flyball.core.event import Ordered
from flyball.core.policy import Key
from flyball.core.time import MINUTE, Instant, Span
from flyball.governor import Governor, Rows
from flyball.store import Snapshot

log = logging.getLogger(__name__)

FORWARD: Final = "forward"
"""The verb of the line that rings; and the name of these records."""
FORWARDED: Final = "forwarded"
"""What became of it, as far as the host knows where it was asked for; and the verb of the line that it was taken."""
WAITING_MAX: Final = 100
"""Orders that wait. They are taken within a second; more than this is a host that nobody is."""
BYTES_MAX: Final = 64 * 1024
"""Of one order: as much as comes in over the socket."""
LASTS: Final[Span] = 5 * MINUTE
"""What waits for longer is not done any more: by then whoever asked for it does not expect it."""


class Forwarded(msgspec.Struct, frozen=True, omit_defaults=True):
    """An order on its way."""

    verb: str
    args: Mapping[str, Any]
    who: str
    at: Instant


def forward(governor: Governor, verb: str, args: Mapping[str, Any], who: str, *, rule: str, host: str) -> str:
    """Leave it to the host that can do it; its id. CommandError if it cannot wait."""
    given = {name: value for name, value in args.items() if value is not None}
    data = msgspec.json.encode(Forwarded(verb, given, who, governor.clock.now()))
    if len(data) > BYTES_MAX:
        text = f"`{verb}` with {len(data)} bytes, for another host; allowed: {BYTES_MAX}"
        raise CommandError("bad_argument", text, remedy="Say less, or ask the host that looks after the rules.")
    if len(governor.store.states(FORWARD)) >= WAITING_MAX:
        text = f"{WAITING_MAX} orders wait already for the host that looks after the rules"
        raise CommandError("busy", text, remedy="Look whether it lives: `flyball hosts`.")
    id_ = secrets.token_hex(6)
    effect = f"left to the host that looks after rules, by {host}"
    governor.submit(Ordered(unit=rule, verb=FORWARD, asked=verb, effect=effect, by=who), {_key(id_): data})
    return id_


def take(governor: Governor) -> list[Forwarded]:
    """What waits, the oldest first. Each is given to one who asks, and once; what came too late is dropped."""
    found = [one for key, data in governor.store.states(FORWARD).items() if (one := _taken(governor, key, data))]
    return sorted(found, key=lambda one: one.at)


def _taken(governor: Governor, key: Key, data: bytes) -> Forwarded | None:
    try:
        order = msgspec.json.decode(data, type=Forwarded)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        order = None
    late = order is None or governor.clock.now() - order.at > LASTS
    line = Ordered(verb=FORWARDED, by=order.who if order is not None else "", effect="too late" if late else "")

    def change(snapshot: Snapshot) -> Rows | None:
        return {key: None} if key in snapshot.records else None

    if governor.submit_changing(line, [key], change) is None:
        return None
    if late:
        log.warning("an order that was left to this host came too late, and is not carried out")
        return None
    return order


def _key(id_: str) -> Key:
    return Key(FORWARD, "fleet", id_)
