"""States, events and decisions as JSON, by msgspec. JSON and not a binary form, so that people can look into a store
with any SQLite tool. Fields at their default are left out; fields that a later version added get their default."""

from typing import Any, Final

import msgspec

from flyball.core.decision import Decision
from flyball.core.event import AnyEvent, Event
from flyball.core.policy import S, State
from flyball.errors import StoreCorrupt


class Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a journal entry says: what happened, what was answered, and what went wrong inside a policy."""

    event: AnyEvent
    decision: Decision
    faults: tuple[str, ...] = ()


_encoder: Final = msgspec.json.Encoder()
_body_decoder: Final = msgspec.json.Decoder(Body)
_event_decoder: Final = msgspec.json.Decoder[AnyEvent](AnyEvent)
_state_decoders: Final[dict[type[State], msgspec.json.Decoder[Any]]] = {}

decode_event = _event_decoder.decode


def encode(value: object) -> bytes:
    """Anything of ours as JSON. What is no text (the last lines of a process can be any bytes) is written as `?`: the
    fact counts all the same."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_readable(msgspec.to_builtins(value)))


def _readable(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_readable(key): _readable(part) for key, part in value.items()}
        case list() | tuple():
            return [_readable(part) for part in value]
    return value


def encode_body(event: Event, decision: Decision, faults: tuple[str, ...] = ()) -> bytes:
    """A journal entry's body."""
    return encode(Body(event, decision, faults))  # type: ignore[arg-type]  # Event is abstract: only the closed set exists


def decode_body(data: bytes) -> Body:
    """A journal entry's body. StoreCorrupt if the bytes are not one."""
    try:
        return _body_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"an entry of the journal cannot be read: {error}") from None


def decode_state(kind: type[S], data: bytes) -> S:
    """A policy's state. msgspec.DecodeError if the bytes are not one."""
    decoder = _state_decoders.get(kind)
    if decoder is None:
        decoder = _state_decoders[kind] = msgspec.json.Decoder(kind)
    state: S = decoder.decode(data)
    return state


def readable_state(kind: type[S], data: bytes) -> S | None:
    """A policy's state for whoever only shows it; None if the bytes are not one. Who has to act on it says so."""
    try:
        return decode_state(kind, data)
    except msgspec.MsgspecError:
        return None
