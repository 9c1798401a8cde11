"""Fingerprints: the stable name of one specific failure, call or result.

Made of stable things only: unit, error type, target, exit code, signal, status, and the normalised message or top
frames. Never of a run's id, a time or an address. Fields are length-prefixed, so that `a:b|c` is not `a|b:c`. Exit
codes, signals, HTTP statuses and errnos are fields of their own and never normalised away: 137 is not 1.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Final

FINGERPRINT_VERSION: Final = 1
"""Of the rule below. Stored with every failure: a new rule gives new names, and old ones are not mistaken for them."""

FINGERPRINT_LENGTH: Final = 16
"""Hex digits: 64 bits, so that a store would need billions of kinds of failures before two of them met."""

MESSAGE_MAX: Final = 2_000
"""Characters of a message that are looked at: errors say what they are at their beginning."""

FRAMES_MAX: Final = 3
"""Innermost frames that name a failure: enough to tell two bugs apart, too few to depend on the road to them."""

# In this order: what is longer and more specific goes first.
_VOLATILE: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<id>"),
        (r"\b\d{4}-\d\d-\d\d[t ]\d\d:\d\d(:\d\d)?([.,]\d+)?\s?(z\b|[+-]\d\d:?\d\d\b)?", "<time>"),
        (r"\b\d{4}-\d\d-\d\d\b", "<time>"),
        (r"\b\d{1,2}:\d\d:\d\d([.,]\d+)?\b", "<time>"),
        (r"(?<!\w)(/private)?(/var/folders|/tmp|/var/tmp|/dev/shm)/[^\s'\":,;)\]}>]+", "<temp>"),
        (r"\b[a-z]:\\[^\s'\"]*\\temp\\[^\s'\":,;)\]}>]+", "<temp>"),
        (r"\b0x[0-9a-f]+\b", "<address>"),
        (r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{12,}\b", "<id>"),
        (r"\b\d{12,}\b", "<id>"),
        (
            r"\b\d+(\.\d+)?\s?(ns|us|µs|ms|s|sec|secs|seconds?|min|mins|minutes?|h|hours?|days?)\b",
            "<duration>",
        ),
        (
            r"\b(req|run|job|task|msg|call|toolu|chatcmpl|session|trace|span)[-_](?=\w*\d)\w{6,}\b",
            "<id>",
        ),
    )
)


def normalise(message: str) -> str:
    """The message with ids, times, durations, addresses and temporary paths replaced. Plain numbers stay: "3 failed"
    to "2 failed" is progress."""
    # Cut twice: the first bounds the work, the second must not leave half of what would have been replaced.
    text = message[: 2 * MESSAGE_MAX]
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())[:MESSAGE_MAX]


def digest(fields: Iterable[str]) -> str:
    """A short hash of fields, each prefixed by its length."""
    hasher = hashlib.blake2b(digest_size=FINGERPRINT_LENGTH // 2)
    for field in fields:
        data = field.encode("utf-8", "surrogatepass")
        hasher.update(b"%d:" % len(data))
        hasher.update(data)
    return hasher.hexdigest()


def fingerprint(
    unit: str,
    error: str,
    *,
    target: str = "",
    message: str = "",
    frames: Iterable[str] = (),
    code: int | None = None,
    signal: int | None = None,
    status: int | None = None,
    errno: int | None = None,
) -> str:
    """The name of a failure. `target` is what it was about (a selector, a URL, a file); `frames` are the innermost
    places in the code, innermost last, and stand in for the message where they are given."""
    innermost = tuple(frames)[-FRAMES_MAX:]
    numbers = ["" if number is None else str(number) for number in (code, signal, status, errno)]
    why = innermost or (normalise(message),)
    return digest([str(FINGERPRINT_VERSION), unit, error, target, *numbers, *why])


def call_fingerprint(tool: str, arguments: bytes | str) -> str:
    """The name of a call: the tool and its arguments in canonical form, letter for letter."""
    text = arguments.decode("utf-8", "surrogateescape") if isinstance(arguments, bytes) else arguments
    return digest(["call", tool, text])


def result_fingerprint(result: str) -> str:
    """The name of a result: normalised, so that a time stamp in it does not make it look new."""
    return digest(["result", normalise(result)])
