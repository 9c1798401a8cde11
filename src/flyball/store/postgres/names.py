"""Names and JSON as PostgreSQL's text: it holds everything but the character NUL, and ours may have one in a name.

Where a name has one, \\x01 stands before what stands for it. Nobody has seen such a name yet; a store loses none.
"""

from typing import Final

KNOWN_MAX: Final = 65_536
"""Names that are kept encoded. More than this and all are encoded anew: a bound, not a tuning knob."""

_known: dict[str, bytes] = {}


def name(given: str) -> bytes:
    """A name as it is stored. ValueError if it cannot be."""
    found = _known.get(given)
    if found is None:
        if not isinstance(given, str):
            raise TypeError(f"a name is text, and not {type(given).__name__}")
        found = given.replace("\x01", "\x011").replace("\0", "\x010").encode()
        if len(_known) >= KNOWN_MAX:
            _known.clear()
        _known[given] = found
    return found


def to_name(stored: bytes) -> str:
    """The name that was stored."""
    given = stored.decode()
    return given.replace("\x010", "\0").replace("\x011", "\x01") if "\x01" in given else given


def text(data: bytes) -> bytes:
    """JSON, which is text without a NUL. ValueError if it is not."""
    if b"\0" in data:
        raise ValueError("a record is JSON, which has no NUL")
    data.decode()
    return data
