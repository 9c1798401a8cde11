"""The audit trail: who asked for what, through what, and what came of it. A line of the journal for everything that is
more than a look, also for what somebody tried who may not; a mistake (a unit that is not there) changes nothing and is
no line. Nothing here, nor any verb, changes a line that is written.

The orders themselves are in the journal too, and were there first: a line that could not be written loses the words,
not what was done.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from flyball.control.text import counted
from flyball.core.event import Ordered
from flyball.core.time import MINUTE, Instant, Span
from flyball.errors import FlyballError, StoreError

if TYPE_CHECKING:
    from flyball.control.context import Args, Command, Context

log = logging.getLogger(__name__)

FORBIDDEN: Final = "forbidden"
"""The code of what the caller may not do."""
REPEATED: Final[Span] = 1 * MINUTE
"""The same refusal of the same caller is written once in so long: whoever tries again and again does not fill the
journal."""
CALLERS_MAX: Final = 1_000
"""Refusals remembered for that. With more than this all are forgotten, and written once more."""
NAMED_MAX: Final = 5
"""Units named in an effect; of more, how many."""
UNSAID: Final = frozenset({"data"})
"""Arguments whose values may be secret, and may be long."""
VALUE_MAX: Final = 200
"""Characters of one argument."""


class Trail:
    """Writes it. Kept between commands."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, str, str], Instant] = {}

    def done(self, context: "Context", command: "Command", args: "Args", data: Any) -> None:
        """It was done, and this is its answer."""
        self._write(context, self.line(context, command.name, args, effect=effect_of(data)))

    def failed(self, context: "Context", command: "Command", args: "Args", error: FlyballError) -> None:
        """It was not done. Written if they may not do it."""
        if getattr(error, "code", "") != FORBIDDEN:
            return
        seen = (context.who, context.channel, command.name)
        now = context.governor.clock.now()
        if now - self._refused.get(seen, -REPEATED) < REPEATED:
            return
        if len(self._refused) >= CALLERS_MAX:
            self._refused.clear()
        self._refused[seen] = now
        self._write(context, self.line(context, command.name, args, effect=str(error), refused=FORBIDDEN))

    def line(self, context: "Context", verb: str, args: "Args", *, effect: str, refused: str = "") -> Ordered:
        """A line of it, not written yet."""
        return Ordered(
            unit=_only_unit(args),
            verb=verb,
            asked=in_words(args),
            effect=effect,
            refused=refused,
            by=context.who,
            channel=context.channel,
        )

    def _write(self, context: "Context", ordered: Ordered) -> None:
        try:
            context.governor.submit(ordered)
        except StoreError as error:
            log.error("not on the audit trail: %s by %s: %s", ordered.verb, context.who, error)


def in_words(args: "Args") -> str:
    """Arguments as one line; what may be secret is only named."""
    said = []
    for name, value in args.items():
        if value in (None, "", False) or value == []:
            continue
        if name in UNSAID:
            said.append(f"{name}=…")
        elif value is True:
            said.append(name)
        else:
            text = " ".join(value) if isinstance(value, list | tuple) else str(value)
            said.append(f"{name}={text[:VALUE_MAX]}")
    return ", ".join(said)


def effect_of(data: Any) -> str:
    """What came of it, by its answer."""
    plain = msgspec.to_builtins(data)
    if not isinstance(plain, Mapping):
        return ""
    parts = [str(plain["effect"])] if plain.get("effect") else []
    if plain.get("cleared"):
        failures = sum(len(one["failures"]) for one in plain["cleared"])
        kinds = "1 kind of failure" if failures == 1 else f"{failures} kinds of failures"
        parts.append(f"forgot {kinds} of {counted(len(plain['cleared']), 'unit')}")
    parts += [f"closed the circuit {one['name']}" for one in plain.get("closed") or ()]
    units = plain.get("units")
    if isinstance(units, Sequence) and units:
        named = ", ".join(f"{one['name']} {one['state']}" for one in units[:NAMED_MAX])
        parts.append(named + (f" and {len(units) - NAMED_MAX} more" if len(units) > NAMED_MAX else ""))
    return "; ".join(parts)


def _only_unit(args: "Args") -> str:
    """The unit that it is about, if it is about one."""
    units = args.get("units") or [args.get("unit") or args.get("rule") or ""]
    return str(units[0]) if len(units) == 1 else ""
