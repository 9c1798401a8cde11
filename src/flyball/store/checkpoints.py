"""Checkpoints of sessions: what a piece of work goes on from, as records of the store. Functions over any store, which
write nothing themselves: what is to be written are rows, for the transaction that reports what they are of.

Each checkpoint is a record of its own, with a sum over all that it says; a small index names those that are kept. A
damaged one is never used: the last good one is, and that is said. They are here, below runtimes and views, because both
need them.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from flyball.core.codec import encode
from flyball.core.event import NAME_MAX
from flyball.core.policy import Key
from flyball.core.time import Instant
from flyball.errors import FlyballError
from flyball.store import Store

log = logging.getLogger(__name__)

KEPT_MAX: Final = 5
"""Checkpoints of a session that are kept: enough to go back behind a bad one, and a few megabytes at most."""

BYTES_MAX: Final = 1024 * 1024
"""One checkpoint. It is written with every stage; what is larger belongs into a file that the checkpoint names."""

CHECKPOINT: Final = "checkpoint"
INDEX: Final = "checkpoints"
CHOSEN: Final = "resume_from"
"""The names of these records, where policies have theirs."""

Rows = Mapping[Key, bytes | None]
"""Records to be written, or, where they are None, to go."""


class CheckpointError(FlyballError):
    """A checkpoint cannot be used. Nothing was lost and nothing was begun."""


class CheckpointNotFound(CheckpointError):
    """There is no such checkpoint, or it is not kept any more."""


class CheckpointDamaged(CheckpointError):
    """What is stored is not what was written."""


class CheckpointChanged(CheckpointError):
    """It is of another version of the work, which may not understand it."""


class CheckpointRefused(CheckpointError):
    """It cannot be kept."""

    remedy = "Keep plain data (texts, numbers, lists, dicts) of at most a megabyte; put the rest into a file."


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """A checkpoint as the index has it."""

    number: int
    stage: str = ""
    """After which stage it was kept."""
    at: Instant = 0
    bytes: int = 0
    sum: str = ""

    @property
    def id(self) -> str:
        """By which people name it."""
        return str(self.number)


class Checkpoint(msgspec.Struct, frozen=True):
    """A checkpoint that was read and found whole."""

    number: int
    stage: str
    at: Instant
    version: str
    """Of the work that kept it."""
    data: bytes

    @property
    def id(self) -> str:
        """By which people name it."""
        return str(self.number)

    @property
    def values(self) -> dict[str, Any]:
        """What is in it, where that is a JSON object; CheckpointDamaged if it is not."""
        try:
            return msgspec.json.decode(self.data, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            text = f"checkpoint {self.number} is not a JSON object"
            raise CheckpointDamaged(text, remedy="Resume from another one, or with what wrote it.") from None


class _Envelope(msgspec.Struct, frozen=True, omit_defaults=True):
    """A checkpoint as it is stored. People can read what is text; what is not is base64."""

    number: int
    stage: str = ""
    at: Instant = 0
    version: str = ""
    sum: str = ""
    text: str | None = None
    base64: bytes = b""

    @property
    def data(self) -> bytes:
        return self.base64 if self.text is None else self.text.encode()


_index_decoder: Final = msgspec.json.Decoder(list[Kept])
_envelope_decoder: Final = msgspec.json.Decoder(_Envelope)


def read_index(store: Store, unit: str) -> list[Kept]:
    """The checkpoints of a session that are kept, the newest last. An index that cannot be read is made anew from the
    checkpoints themselves."""
    key = index_key(unit)
    data = store.read([key]).records.get(key)
    if data is None:
        return []
    try:
        return _index_decoder.decode(data)
    except msgspec.MsgspecError as error:
        log.warning(
            "the index of the checkpoints of %s cannot be read (%s): they are looked for one by one", unit, error
        )
    return _found(store, unit)


def load(store: Store, unit: str, id: str | None = None, *, version: str | None = None) -> Checkpoint | None:  # noqa: A002 - so people call it
    """The checkpoint of that id, or the last good one; None if there is none yet.

    CheckpointNotFound, CheckpointDamaged (a named one, or all of them), or, where a version is given, CheckpointChanged
    if it was kept by another one.
    """
    index = read_index(store, unit)
    checkpoint = _named(store, unit, index, id) if id else _last_good(store, unit, index)
    if checkpoint is not None and version is not None and checkpoint.version != version:
        raise CheckpointChanged(
            f"checkpoint {checkpoint.number} of {unit} was kept by version {checkpoint.version!r} of the work; "
            f"this is version {version!r}",
            remedy="Go on with the version that kept it, or give the new work a name of its own.",
        )
    return checkpoint


def add(
    index: Sequence[Kept], unit: str, stage: str, data: bytes, now: Instant, *, version: str = ""
) -> tuple[list[Kept], Rows]:
    """One more checkpoint: the index after it, and the rows to be written. The oldest one goes when there are too many.
    CheckpointRefused if it is too large."""
    if len(data) > BYTES_MAX:
        raise CheckpointRefused(f"a checkpoint of {unit} would take {len(data)} bytes; allowed: {BYTES_MAX}")
    number = max((kept.number for kept in index), default=0) + 1
    stage, version = stage[:NAME_MAX], version[:NAME_MAX]
    total = _sum([unit, number, stage, now, version], data)
    try:
        envelope = _Envelope(number, stage, now, version, total, text=data.decode())
    except UnicodeDecodeError:
        envelope = _Envelope(number, stage, now, version, total, base64=data)
    after = [*index, Kept(number, stage, now, len(data), total)]
    gone, after = after[:-KEPT_MAX], after[-KEPT_MAX:]
    rows: dict[Key, bytes | None] = {data_key(unit, kept.number): None for kept in gone}
    rows[data_key(unit, number)] = encode(envelope)
    rows[index_key(unit)] = encode(after)
    return after, rows


def rows(store: Store, unit: str, stage: str, data: bytes, now: Instant, *, version: str = "") -> Rows:
    """The rows of one more checkpoint, for whoever does not keep the index in mind."""
    return add(read_index(store, unit), unit, stage, data, now, version=version)[1]


def cleared(index: Sequence[Kept], unit: str) -> Rows:
    """The rows that forget the checkpoints of work that is done, because new work of that name begins."""
    return {
        **{data_key(unit, kept.number): None for kept in index},
        **({index_key(unit): None} if index else {}),
    }


# The one that a person chose to go on from.


def choose(unit: str, id: str | None) -> Rows:  # noqa: A002 - so people call it
    """The rows that say from which checkpoint the next resume goes on; None: from the last good one, as usual. Whoever
    resumes clears it with the leave that it gets."""
    return {chosen_key(unit): encode(id) if id else None}


def chosen(store: Store, unit: str) -> str | None:
    """The checkpoint that was chosen for the next resume, if any."""
    key = chosen_key(unit)
    data = store.read([key]).records.get(key)
    try:
        return None if data is None else msgspec.json.decode(data, type=str)
    except msgspec.MsgspecError:
        return None


# Where they are.


def index_key(unit: str) -> Key:
    """Where the index of a session is kept."""
    return Key(INDEX, "unit", unit)


def data_key(unit: str, number: int) -> Key:
    """Where one checkpoint is kept."""
    return Key(CHECKPOINT, "session", f"{unit}/{number:06}")


def chosen_key(unit: str) -> Key:
    """Where a person's choice is kept."""
    return Key(CHOSEN, "unit", unit)


# Reading.


def _named(store: Store, unit: str, index: Sequence[Kept], id: str) -> Checkpoint:  # noqa: A002 - as above
    for kept in index:
        if kept.id == str(id).strip().lstrip("0"):  # people give the number, too
            checkpoint = _read(store, unit, kept)
            if checkpoint is None:
                text = f"checkpoint {kept.number} of {unit} is damaged"
                raise CheckpointDamaged(text, remedy=f"Choose another: {_ids(index)}.")
            return checkpoint
    remedy = f"There are: {_ids(index)}." if index else "It has kept none yet: resume it without naming one."
    raise CheckpointNotFound(f"{unit} has no checkpoint {id!r}", remedy=remedy)


def _last_good(store: Store, unit: str, index: Sequence[Kept]) -> Checkpoint | None:
    for kept in reversed(index):
        checkpoint = _read(store, unit, kept)
        if checkpoint is not None:
            return checkpoint
        log.warning("checkpoint %s of %s is damaged, and not used: the one before it is", kept.number, unit)
    if index:
        text = f"all checkpoints of {unit} ({_ids(index)}) are damaged"
        raise CheckpointDamaged(
            text, remedy="Restore the store from a copy, or begin the work anew under another name."
        )
    return None


def _read(store: Store, unit: str, kept: Kept) -> Checkpoint | None:
    """That checkpoint, if it is there and is what was written."""
    key = data_key(unit, kept.number)
    data = store.read([key]).records.get(key)
    envelope = None if data is None else _opened(unit, data)
    if envelope is None or (envelope.number, envelope.sum) != (kept.number, kept.sum):
        return None
    return Checkpoint(envelope.number, envelope.stage, envelope.at, envelope.version, envelope.data)


def _opened(unit: str, data: bytes) -> _Envelope | None:
    try:
        envelope = _envelope_decoder.decode(data)
        total = _sum([unit, envelope.number, envelope.stage, envelope.at, envelope.version], envelope.data)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return envelope if envelope.sum == total else None


def _found(store: Store, unit: str) -> list[Kept]:
    """The good checkpoints of a session, found without the index."""
    subjects = f"{unit}/"
    opened = [
        envelope
        for key, data in store.states(CHECKPOINT).items()
        if key.subject.startswith(subjects) and (envelope := _opened(unit, data)) is not None
    ]
    found = [Kept(one.number, one.stage, one.at, len(one.data), one.sum) for one in opened]
    return sorted(found, key=lambda kept: kept.number)[-KEPT_MAX:]


def _sum(said: Sequence[str | int], data: bytes) -> str:
    hasher = hashlib.blake2b(encode(said), digest_size=16)
    hasher.update(b"\0" + data)
    return hasher.hexdigest()


def _ids(index: Sequence[Kept]) -> str:
    return ", ".join(kept.id for kept in index)
