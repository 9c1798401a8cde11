"""A journal that was written out by `flyball events --json`, read back. It has all that a decision is made from but the
states that the journal began with, and what was granted beyond one step."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from flyball.core.codec import decode_body
from flyball.core.decision import Decision, Reason, Verb
from flyball.core.event import AnyEvent, Event
from flyball.core.time import FOREVER, SECOND, Instant
from flyball.replay.lines import Lines
from flyball.store import Entry

VERBS: Final = {verb.name.lower(): verb for verb in Verb}


class Line(msgspec.Struct, frozen=True):
    """What of a line is needed."""

    seq: int
    at: float
    verb: str
    data: msgspec.Raw
    until: float | None = None
    reasons: tuple[Reason, ...] = ()


class Told(NamedTuple):
    """One entry of a journal, wherever it comes from."""

    seq: int
    at: Instant
    event: Event
    decision: Decision


_decode_line: Final = msgspec.json.Decoder(Line).decode
_decode_event: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(AnyEvent)


def told(entry: Entry) -> Told:
    """An entry of the store."""
    body = decode_body(entry.body)
    return Told(entry.seq, entry.at, body.event, body.decision)


def read(lines: Lines, *, skip: bool = False) -> Iterator[Told]:
    """The entries of an exported journal. BadLine for one that is none, or that is out of order; `skip` leaves such
    lines out."""
    before = 0
    for number, line in lines:
        try:
            entry = _entry(line)
            if entry.seq <= before:
                raise ValueError(f"entry {entry.seq} comes after entry {before}: a journal is in order")
        except (msgspec.MsgspecError, ValueError, OverflowError) as error:
            lines.leave_out(number, str(error), skip=skip)
            continue
        before = entry.seq
        yield entry


def _entry(data: bytes) -> Told:
    line = _decode_line(data)
    if line.verb not in VERBS:
        raise ValueError(f"verb is {line.verb!r}; allowed: {', '.join(VERBS)}")
    until = FOREVER if line.until is None else round(line.until * SECOND)
    decision = Decision(VERBS[line.verb], until, line.reasons)
    return Told(line.seq, round(line.at * SECOND), _decode_event.decode(line.data), decision)
