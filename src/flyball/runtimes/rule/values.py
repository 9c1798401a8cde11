"""What rules remember, by name, for the conditions and templates of all rules: any JSON, each a record of the store.

Here is the copy of it that is read. It changes when the record is written, and not before.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flyball.core.policy import Key

log = logging.getLogger(__name__)

VALUE: Final = "value"
"""The name of such a record, where policies have theirs."""
VALUE_MAX: Final = 16 * 1024
"""Bytes of one value, as JSON: a price, a date, a list of what was seen. What is larger belongs into a file."""
VALUES_MAX: Final = 1_000
"""Values of all rules. They are in memory, and a name that is made by a template must not fill the store."""
NAME_MAX: Final = 100
"""Characters of a name."""


class Unkept(Exception):
    """A value that cannot be remembered. The text says why, and what to do."""


class Values:
    """All of them. One for all rules of a daemon, used in its event loop."""

    def __init__(self, records: Mapping[Key, bytes] = {}) -> None:
        self._values: dict[str, Any] = {}
        for place, data in records.items():
            try:
                self._values[place.subject] = msgspec.json.decode(data)
            except (msgspec.MsgspecError, ValueError):
                log.error("the value %s cannot be read, and is forgotten", place.subject)
        self._taken = set(self._values)
        """Names that have a place: also those that are about to be written."""

    @property
    def now(self) -> Mapping[str, Any]:
        """What is remembered."""
        return self._values

    def encoded(self, given: Mapping[str, Any]) -> dict[Key, bytes | None]:
        """Values as their records, with a place for each; None forgets one. Unkept if one cannot be kept: then none
        is."""
        rows = {key(name): _encoded(name, value) for name, value in given.items()}
        new = {name for name, value in given.items() if value is not None}
        if len(self._taken | new) > VALUES_MAX:
            raise Unkept(f"{VALUES_MAX} values are remembered already; set those to null that are not needed any more")
        self._taken |= new
        return rows

    def take(self, rows: Mapping[Key, bytes | None]) -> None:
        """They are written."""
        for place, data in rows.items():
            if data is None:
                self._values.pop(place.subject, None)
                self._taken.discard(place.subject)
            else:
                self._values[place.subject] = msgspec.json.decode(data)


def key(name: str) -> Key:
    """Where a value is kept."""
    return Key(VALUE, "rule", name)


def _encoded(name: str, value: Any) -> bytes | None:
    if not name or len(name) > NAME_MAX:
        raise Unkept(f"the name of a value has 1 to {NAME_MAX} characters, not {len(name)}")
    if value is None:
        return None
    try:
        data = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise Unkept(f"{name} cannot be remembered: {error}; give plain data (texts, numbers, lists, maps)") from None
    if len(data) > VALUE_MAX:
        raise Unkept(f"{name} takes {len(data)} bytes; allowed: {VALUE_MAX}; put it into a file, and remember its name")
    return data
