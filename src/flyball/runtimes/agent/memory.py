"""An agent's memory: a mapping that outlives its runs, its process and its host's.

It is kept as one record of the store, written in the transaction that reports a step: so after a crash it is as it was
after the last step that was made, never half of one. Values are JSON, and come back as they were: what JSON would make
something else of is refused, not changed. (But a tuple is a list.) What a failed step changed is taken back.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, ClassVar, Final

import msgspec

from flyball.core.policy import Key
from flyball.errors import FlyballError

NAME: Final = "memory"
"""The name of its record, where policies have theirs."""

BYTES_MAX: Final = 1024 * 1024
"""A memory is written again with each step that changes it. What is larger belongs into a file or a database."""

_EMPTY: Final = b"{}"


class MemoryRefused(FlyballError):
    """It cannot be kept; the memory is as it was after the last step."""

    remedy = "Keep plain data (texts, numbers, lists, dicts) of at most a megabyte; put the rest into a file."


class Memory(MutableMapping[str, Any]):
    """What an agent remembers. Used like a dict."""

    WORD: ClassVar = "memory"
    """What it is called where it cannot be kept."""

    def __init__(self, unit: str, data: bytes | None = None) -> None:
        self._unit = unit
        self._saved = data or _EMPTY
        self._is_kept = True
        """Whether the store has that, as far as is known."""
        self._values: dict[str, Any] = msgspec.json.decode(self._saved)

    @staticmethod
    def key(unit: str) -> Key:
        """Where the memory of a unit is kept."""
        return Key(NAME, "unit", unit)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if not isinstance(name, str):
            raise MemoryRefused(f"{name!r} is no name: names in the {self.WORD} of {self._unit} are texts")
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def changed(self) -> dict[Key, bytes | None]:
        """The record to be written, if it is another than the last one. MemoryRefused if it cannot be kept."""
        if not self._values and self._saved is _EMPTY and self._is_kept:
            return {}
        data = self._encoded()
        if data == self._saved and self._is_kept:
            return {}
        self._saved, self._is_kept = data, True
        return {self.key(self._unit): None if data == _EMPTY else data}

    def not_kept(self) -> None:
        """What changed could not be written: it is written with the next step."""
        self._is_kept = False

    def discard(self) -> None:
        """Forget what changed since the last step."""
        self._values = msgspec.json.decode(self._saved)

    def _encoded(self) -> bytes:
        values = dict(self._values)  # as they are now: steps in other threads go on
        try:
            data = msgspec.json.encode(values)
            if data != self._saved:
                _check_comes_back(values, data)
        except (TypeError, ValueError, RecursionError) as error:
            self.discard()
            raise MemoryRefused(f"the {self.WORD} of {self._unit} cannot be kept: {error}") from None
        if len(data) > BYTES_MAX:
            self.discard()
            raise MemoryRefused(f"the {self.WORD} of {self._unit} would take {len(data)} bytes; allowed: {BYTES_MAX}")
        return data


_SUCH_AS: Final = "no number (NaN, infinity), a key that is no text, bytes, a set, a time, a Decimal, an object"


def _check_comes_back(values: Mapping[str, Any], data: bytes) -> None:
    """ValueError if the next run would find something else than this one has put there."""
    kept = msgspec.json.decode(data)
    if kept == values:
        return
    for name, value in values.items():
        if not _is_alike(value, kept.get(name)):
            raise ValueError(f"{name!r} has something in it that would not come back as it is: {_SUCH_AS}")


def _is_alike(value: object, kept: object) -> bool:
    """Whether what is kept is that value, but for tuples, which come back as lists."""
    match value:
        case dict():
            return (
                isinstance(kept, dict)
                and value.keys() == kept.keys()
                and all(_is_alike(part, kept[name]) for name, part in value.items())
            )
        case list() | tuple():
            return (
                isinstance(kept, list)
                and len(kept) == len(value)
                and all(_is_alike(part, other) for part, other in zip(value, kept, strict=True))
            )
    return value == kept
