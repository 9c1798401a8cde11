"""The names of settings: what a key is called, what else it may be called, and what was meant by a slip.

Everything is read from the table in `settings`; nothing is listed a second time.
"""

import functools
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from types import NoneType
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin

from pydantic import BaseModel

from flyball.config.given import Given
from flyball.config.settings import Settings

SUGGESTIONS_MAX: Final = 2
"""Names offered for one that is not known."""


class Key(NamedTuple):
    """One key of a section: its name in files, the other names it has, and its own keys if it is a section, or if it
    holds sections by names that people choose, or in a list."""

    name: str
    also: tuple[str, ...]
    section: type[BaseModel] | None
    by_name: bool
    listed: bool = False


def keys_of(section: type[BaseModel]) -> Iterator[Key]:
    """The keys of a section, in the order of the table."""
    for attribute, field in section.model_fields.items():
        name = field.alias or attribute
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        # `with_` is what Python calls `with`, and no other name of it.
        also = {attribute.rstrip("_"), str(extra.get("also", name))} - {name}
        kind = get_origin(field.annotation)
        yield Key(name, tuple(sorted(also)), _section_of(field.annotation), kind is dict, kind is tuple)


@functools.cache
def _known(section: type[BaseModel]) -> Mapping[str, Key]:
    """The keys of a section by all their names. Of a thousand units each has the same."""
    return {name: key for key in keys_of(section) for name in (key.name, *key.also)}


@functools.cache
def _settled(section: type[BaseModel]) -> frozenset[str]:
    """The names that stay as they are, and what is in them too: most rules have no others."""
    return frozenset(
        name for name, key in _known(section).items() if name == key.name and (key.section is None or key.listed)
    )


def _section_of(annotation: Any) -> type[BaseModel] | None:
    for kind in (annotation, *get_args(annotation)):
        plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        if isinstance(plain, type) and plain is not NoneType and issubclass(plain, BaseModel):
            return plain
    return None


def section_at(path: tuple[Any, ...]) -> type[BaseModel] | None:
    """The section at a path of names, if there is one."""
    section: type[BaseModel] | None = Settings
    chosen = False
    for name in path:
        if chosen or isinstance(name, int):
            chosen = False
            continue
        key = next((key for key in keys_of(section) if key.name == name), None) if section else None
        section, chosen = (key.section, key.by_name) if key else (None, False)
    return None if chosen else section


def canonical(given: Given, problems: list[str], section: type[BaseModel] = Settings) -> Given:
    """The same with every key under its one name. A key that is there under two names is a problem. A section that is
    empty (`quarantine:` and nothing more) is one without keys."""
    if given.value is None:
        return given._replace(value={})
    if not isinstance(given.value, dict):
        return given
    known = _known(section)
    if given.value.keys() <= _settled(section):
        return given
    renamed: dict[str, Given] = {}
    for name, value in given.value.items():
        key = known.get(name)
        if key is None:
            renamed[name] = value
            continue
        if key.name in renamed:
            problems.append(f"{value.key_at}: {key.name!r} is there already, at {renamed[key.name].key_at}")
        if key.section is None or key.listed:
            renamed[key.name] = value
        elif key.by_name and isinstance(value.value, dict):
            sections = {chosen: canonical(inner, problems, key.section) for chosen, inner in value.value.items()}
            renamed[key.name] = value._replace(value=sections)
        else:
            renamed[key.name] = canonical(value, problems, key.section)
    return given._replace(value=renamed)


def spelled(path: list[str]) -> tuple[str, ...]:
    """A path in small letters, as the environment has it, in the spelling of the table as far as it is known."""
    section: type[BaseModel] | None = Settings
    names: list[str] = []
    chosen = False
    for word in path:
        if chosen:
            names.append(word)
            chosen = False
            continue
        known = {} if section is None else {name.lower(): key for name, key in _known(section).items()}
        key = known.get(word)
        names.append(key.name if key else word)
        section, chosen = (key.section, key.by_name) if key else (None, False)
    return tuple(names)


def meant(name: str, section: type[BaseModel]) -> list[str]:
    """What somebody who wrote that name here may have meant: one like it, or the same one in another section."""
    here = _known(section)
    near = get_close_matches(name.lower(), here, n=SUGGESTIONS_MAX)
    if near:
        return list(dict.fromkeys(here[other].name for other in near))
    return [path for path, key in _everywhere(Settings) if name in (key.name, *key.also)][:SUGGESTIONS_MAX]


def _everywhere(section: type[BaseModel], above: str = "") -> Iterator[tuple[str, Key]]:
    for key in keys_of(section):
        yield above + key.name, key
        if key.section is not None:
            yield from _everywhere(key.section, f"{above}{key.name}.{'NAME.' if key.by_name else ''}")
