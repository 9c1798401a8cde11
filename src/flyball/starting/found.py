"""What can be found in a folder: values, and how a name and a command are made fit for a settings file."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from flyball.core.name import NAME_MAX, name_from

WORDS_MAX: Final = 200
"""Words of a command that is offered. A longer one is nothing to be read in a comment."""
WORD_MAX: Final = 2_000
"""Characters of one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Something that could be a unit."""

    name: str
    source: str
    """Where it was found."""
    command: tuple[str, ...]
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the unit."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All that was found."""

    offers: tuple[Offer, ...] = ()
    notes: tuple[str, ...] = ()
    """What people should know, and that is no unit."""
    settings: tuple[str, ...] = ()
    """Files with settings that flyball reads already."""
    sources: tuple[str, ...] = ()
    """Files that were looked into."""


def is_fit(command: Sequence[object]) -> bool:
    """Whether it can be a command in a settings file, and be read there."""
    return (
        0 < len(command) <= WORDS_MAX
        and all(isinstance(word, str) and len(word) <= WORD_MAX and _is_plain(word) for word in command)
        and bool(command[0])
    )


def _is_plain(word: str) -> bool:
    return "\0" not in word and not any("\ud800" <= char <= "\udfff" for char in word)


def named(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """The same with names that a unit may have, each once."""
    taken: set[str] = set()
    found = []
    for offer in offers:
        name = _unused(name_from(offer.name, "unit"), taken)
        taken.add(name)
        found.append(replace(offer, name=name))
    return tuple(found)


def _unused(name: str, taken: Collection[str]) -> str:
    number, tried = 2, name
    while tried in taken:
        end = f"-{number}"
        tried = name[: NAME_MAX - len(end)] + end
        number += 1
    return tried
