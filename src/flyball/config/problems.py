"""What is wrong with what was given, one line each: where it stands, what it is, and what is allowed."""

import json
import re
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from flyball.config.given import Given, Origin, dotted
from flyball.config.names import keys_of, meant, section_at
from flyball.config.schema import allowed
from flyball.config.section import CONTRADICTION, Fault
from flyball.config.settings import Settings
from flyball.config.variables import SECRET

SHOWN_MAX: Final = 60
"""Characters of a wrong key or value that are repeated in the message."""

WITH_SECRETS: Final = frozenset({"units", "rules", "alerts", "telegram", "store"})
"""Sections that may hold some."""

PROBLEMS_MAX: Final = 100
"""Problems that are listed. Whoever has more has given the wrong file."""


def validated(given: Given, origin: Origin) -> tuple[Settings | None, list[str]]:
    """The settings in it, or all that is wrong with it."""
    try:
        return Settings.model_validate(given.plain(), context=origin), []
    except ValidationError as error:
        return None, [problem for detail in error.errors(include_url=False) for problem in _problems(detail, given)]


def wrong_values(given: Given) -> list[str]:
    """Keys that are not known, and values that are wrong by themselves, not beside others."""
    try:
        Settings.model_validate(given.plain())
    except ValidationError as error:
        details = error.errors(include_url=False)
        return [_problem(detail, given) for detail in details if detail["type"] != CONTRADICTION]
    return []


def in_order(problems: list[str]) -> list[str]:
    """As they stand in the file: line 9 before line 10. At most PROBLEMS_MAX, and how many more there are."""
    once = dict.fromkeys(problems)
    ordered = sorted(once, key=lambda problem: [part.zfill(10) for part in re.split(r"(\d+)", problem)])
    more = len(ordered) - PROBLEMS_MAX
    return [*ordered[:PROBLEMS_MAX], f"and {more} more"] if more > 0 else ordered


def _problems(detail: ErrorDetails, given: Given) -> list[str]:
    if detail["type"] != CONTRADICTION:
        return [_problem(detail, given)]
    return [told(fault, given, detail["loc"]) for fault in detail["ctx"]["faults"]]


def _problem(detail: ErrorDetails, given: Given) -> str:
    """One line: where, what was given, what is allowed."""
    path: tuple[str | int, ...] = detail["loc"]
    if detail["type"] == "extra_forbidden":
        return _unknown(path, given)
    context: dict[str, Any] = detail.get("ctx", {})
    found = given.find(path) or given
    if detail["type"] == "too_long":
        most, count = context["max_length"], context["actual_length"]
        return f"{found.at}: {dotted(path)}: has {count or f'more than {most}'} entries; allowed: at most {most}"
    shown = _shown_of_unit(path, found) if path and path[0] in WITH_SECRETS else _shown(found)
    if detail["type"] == "value_error":
        return f"{found.at}: {dotted(path)} is {shown}; it {context['error']}"
    return f"{found.at}: {dotted(path) or 'the file'} is {shown}; allowed: {allowed(path)}"


def told(fault: Fault, given: Given, above: tuple[str | int, ...] = ()) -> str:
    """What is wrong, or odd: where, and what. What nobody gave stands where the next thing above it does."""
    path = (*above, *fault.path)
    found = given.find(path)
    up = next((up for end in range(len(path), 0, -1) if (up := given.find(path[:end]))), given)
    place = found.place_in(fault.column) if found and not fault.at_key else up.key_at if fault.at_key else up.at
    return f"{place}: {dotted(path)}: {fault.text}" if place else f"{dotted(path)}: {fault.text}"


def _unknown(path: tuple[str | int, ...], given: Given) -> str:
    *above, name = path
    found = given.find(path) or given
    section = section_at(tuple(above)) or Settings
    inside = f" in {dotted(tuple(above))}" if above else ""
    near = " or ".join(repr(other) for other in meant(str(name), section))
    hint = f" did you mean {near}?" if near else ""
    names = ", ".join(key.name for key in keys_of(section))
    return f"{found.key_at}: unknown key {_cut(repr(name))}{inside};{hint} allowed: {names}"


def _shown(given: Given) -> str:
    return _cut(json.dumps(given.plain(), default=str, ensure_ascii=False))


def _shown_of_unit(path: tuple[str | int, ...], given: Given) -> str:
    """A unit's or a rule's variables and a channel's keys may be secrets, and so may what holds them."""
    if isinstance(given.value, dict | list):
        return "a mapping" if isinstance(given.value, dict) else "a list"
    return "something else" if SECRET.intersection(path) else _shown(given)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"
