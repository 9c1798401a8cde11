"""What a session was begun with, kept as a record: whoever resumes it, in whichever process, has the same input."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flyball.core.policy import Key
from flyball.errors import FlyballError
from flyball.governor import Rows
from flyball.store import Store

NAME: Final = "session_input"
"""The name of the record, where policies have theirs."""

BYTES_MAX: Final = 1024 * 1024
"""As large as a checkpoint. What is larger belongs into a file, and its name here."""


def encoded(unit: str, given: Mapping[str, Any] | None) -> bytes | None:
    """An input as it is kept; None: it was not given. FlyballError if it cannot be kept."""
    if given is None:
        return None
    remedy = "Give a dict of plain data (texts, numbers, lists, dicts) of at most a megabyte; files by their names."
    if not isinstance(given, Mapping):
        raise FlyballError(f"{unit}: its input is a {type(given).__name__}", remedy=remedy)
    try:
        data = msgspec.json.encode(dict(given), order="sorted")
    except (TypeError, ValueError, RecursionError) as error:
        raise FlyballError(f"{unit}: its input cannot be kept: {error}", remedy=remedy) from None
    if len(data) > BYTES_MAX:
        raise FlyballError(f"{unit}: its input takes {len(data)} bytes; allowed: {BYTES_MAX}", remedy=remedy)
    return data


def rows(unit: str, data: bytes | None) -> Rows:
    """What is to be written when new work begins."""
    return {key(unit): data or b"{}"}


def is_known(store: Store, unit: str) -> bool:
    """Whether a session of that name was ever begun."""
    return key(unit) in store.read([key(unit)]).records


def read(store: Store, unit: str) -> dict[str, Any]:
    """What the session was begun with."""
    data = store.read([key(unit)]).records.get(key(unit))
    try:
        return msgspec.json.decode(data or b"{}", type=dict[str, Any])
    except msgspec.MsgspecError as error:
        text = f"the input of {unit} cannot be read: {error}"
        raise FlyballError(
            text, remedy="Restore the store from a copy, or begin the work under another name."
        ) from None


def check(store: Store, unit: str, data: bytes | None) -> None:
    """FlyballError if work that was begun is to go on with another input."""
    if data is not None and data != store.read([key(unit)]).records.get(key(unit)):
        raise FlyballError(
            f"{unit} was begun with another input, and is not done",
            remedy="Leave `input` out to go on with the one it has, or give the new work a name of its own.",
        )


def key(unit: str) -> Key:
    """Where it is kept."""
    return Key(NAME, "unit", unit)
