"""What each code means, why it is there, and what to do: pages, which are data in files beside this one.

A code is whatever people meet and may type: why a safeguard said no, why a run ended, what a unit is, an error, the
code of an answer, a safeguard itself, an alert, an exit code. One name has one page, which has all that it stands for.
The reference in the docs is made from the same pages, and a test compares their names with those in the source.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from flyball.errors import FlyballError

KINDS: Final = {
    "reason": "why a safeguard did not say yes",
    "verb": "what a decision says",
    "cause": "why a run ended",
    "state": "what a unit, a session or a host is",
    "policy": "a safeguard",
    "problem": "what waits for a person",
    "alert": "what people are told of",
    "error": "an error",
    "answer": "the code of an answer: what could not be done as it was asked",
    "webhook": "the answer to a webhook",
    "link": "the answer to a link in an alert",
    "exit": "an exit code",
}
"""What a name can stand for, in the order in which pages are listed, in words."""
FILES: Final = {"reasons": "reason", "policies": "policy", "words": "", "errors": "error", "answers": ""}
"""The files, each with what its pages are unless they say otherwise."""
LIMITS: Final = ("steps", "resumes")
"""Policies that are limits: what steers them is on that page."""
SUGGESTIONS_MAX: Final = 5
"""Names offered for one that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What there is to say of one name."""

    name: str
    kinds: tuple[str, ...]
    line: str
    """What it means, in one line."""
    why: str = ""
    """When it is said, by which numbers, and what it is good for."""
    do: str = ""
    settings: tuple[str, ...] = ()
    """Keys that steer it; `*` stands for any name."""
    commands: tuple[str, ...] = ()
    policy: str = ""
    """Of a reason: who gives it."""
    verb: str = ""
    """Of a reason: with which verb."""
    codes: tuple[str, ...] = ()
    """Of a safeguard: the codes that it gives."""


class NoPage(FlyballError):
    """There is no page of that name."""

    topic = ""


@lru_cache(maxsize=1)
def pages() -> Mapping[str, Page]:
    """All pages, by name."""
    read = {name: (kind, given) for file, kind in FILES.items() for name, given in _read(file).items()}
    policies = {name: given for name, (kind, given) in read.items() if "policy" in given.get("is", [kind])}
    found = {}
    for name, (kind, given) in read.items():
        policy = "limit" if given.get("policy") in LIMITS else given.get("policy", "")
        settings = given.get("settings", policies[policy]["settings"] if policy in policies else ())
        codes = [
            code
            for code, (_, one) in read.items()
            if name in policies and one.get("policy") in ((*LIMITS,) if name == "limit" else (name,))
        ]
        texts = {key: " ".join(given[key].split()) for key in ("line", "why", "do", "policy", "verb") if key in given}
        found[name] = Page(
            name=name,
            kinds=tuple(given.get("is", [kind])),
            settings=tuple(settings),
            commands=tuple(given.get("commands", ())),
            codes=tuple(codes),
            **texts,
        )
    return found


def find(name: str) -> Page:
    """The page of that name, however it is written: StoreFull, store-full and `store full` are store_full. NoPage names
    those that are near."""
    there = pages()
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip().strip("`\"'"))
    plain = re.sub(r"[\s-]+", "_", plain).lower().removeprefix("exit_")
    if plain in there:
        return there[plain]
    near = get_close_matches(plain, there, n=SUGGESTIONS_MAX)
    if not near and len(plain) > 2:
        near = [known for known in there if plain in known][:SUGGESTIONS_MAX]
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {len(there)} of them"
    raise NoPage(f"no code {name!r}; {hint}", remedy="`flyball explain` lists all codes.")


def _read(file: str) -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name(f"{file}.toml").read_text(encoding="utf-8"))
