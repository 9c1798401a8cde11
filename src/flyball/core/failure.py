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

_MONTH: Final = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_CLOCK: Final = r"\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?(?:\s?[APap][Mm]\b)?(?:\s?(?:UTC|GMT|Z|[+-]\d\d:?\d\d)\b)?"
_PATH: Final = r"[^\s'\":,;)\]}>]+"

# In this order: what is longer and more specific goes first. Each with characters that are in every text it changes: to
# look for them costs a hundredth of the pattern.
_VOLATILE: Final = tuple(
    (needs, re.compile(pattern), replacement)
    for needs, pattern, replacement in (
        ("-", r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b", "<id>"),
        ("-", rf"\b\d{{4}}-\d\d-\d\d(?:[Tt ]{_CLOCK})?(?!\w)", "<time>"),
        ("", rf"\b{_MONTH}\s+\d{{1,2}},?\s+(?:\d{{4}}\b(?:\s+{_CLOCK})?|{_CLOCK}(?:\s+\d{{4}}\b)?)", "<time>"),
        ("", rf"\b\d{{1,2}}[ /-]{_MONTH}[ /-]\d{{4}}(?:[ :T]{_CLOCK})?", "<time>"),
        (":", r"\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b", "<time>"),
        ("/", rf"(?<!\w)(?:/private)?(?:/var/folders|/tmp|/var/tmp|/dev/shm)/{_PATH}", "<temp>"),
        ("\\", rf"\b[A-Za-z]:\\[^\s'\"]*\\[Tt](?:emp|EMP)\\{_PATH}", "<temp>"),
        ("tmp", r"\btmp(?=[a-z_]*\d)[a-z0-9_]{8}\b", "<temp>"),
        ("0x", r"\b0x[0-9a-fA-F]+\b", "<address>"),
        ("", r"\b[0-9A-Za-z]{12,}\b", lambda found: "<id>" if _is_id(found[0]) else found[0]),
        (".", r"\b1\d{9}\.\d+\b", "<time>"),
        (
            "",
            r"\b\d+(?:\.\d+)?\s?(?:h\s?\d+\s?)?(?:m(?:in)?\s?\d+(?:\.\d+)?\s?s"
            r"|ns|us|µs|ms|s|secs?|seconds?|mins?|minutes?|h|hours?|days?)\b",
            "<duration>",
        ),
        ("pid", r"\bpid[ =:]{1,2}\d+\b", "pid <id>"),
        (
            "",
            r"\b(?:req|run|job|task|msg|call|toolu|chatcmpl|session|trace|span)[-_](?=\w*\d)\w{6,}\b",
            "<id>",
        ),
    )
)


def _is_id(word: str) -> bool:
    """Whether a long word is an id: hex or digits of 12 and more; of 20 and more, whatever has several digits in it."""
    digits = sum(map(word.count, "0123456789"))
    if digits in (0, len(word)):
        return digits > 0
    return not word.strip("0123456789abcdefABCDEF") or (len(word) >= 20 and digits >= 3)


def normalise(message: str) -> str:
    """The message with ids, times, durations, addresses and temporary paths replaced. Plain numbers stay: "3 failed"
    to "2 failed" is progress."""
    # Cut twice: the first bounds the work, the second must not leave half of what would have been replaced.
    text = message[: 2 * MESSAGE_MAX]
    for needs, pattern, replacement in _VOLATILE:
        if needs in text:
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


def text_fingerprint(text: str) -> str:
    """The name of something that an agent said: normalised, like a result. It stands where a call's name does."""
    return digest(["text", normalise(text)])
