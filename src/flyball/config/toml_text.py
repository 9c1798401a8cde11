"""TOML to what was given. The parser does not tell places, so they are looked up in the text by a simple search."""

import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from flyball.config.given import DEPTH_MAX, Given
from flyball.errors import SettingsError

_HEADER: Final = re.compile(r"^\s*\[\[?\s*([^\]#]+?)\s*\]\]?")
_KEY: Final = re.compile(r"^\s*([A-Za-z0-9_.\"' -]+?)\s*=\s*")
_ERROR: Final = re.compile(r"^(.*) \(at line (\d+), column (\d+)\)$", re.DOTALL)


def read_toml(text: str, name: str, table: tuple[str, ...]) -> Given | None:
    """One table of a TOML text, or None if there is none of that name. SettingsError with what is wrong."""
    try:
        return _table(tomllib.loads(text), text, name, table)
    except tomllib.TOMLDecodeError as error:
        found = _ERROR.match(str(error))
        where, said = (f"{name}:{found[2]}:{found[3]}", found[1]) if found else (name, str(error))
        raise SettingsError([f"{where}: not TOML: {said}"]) from None
    except RecursionError:
        raise SettingsError([f"{name}: values lie too deep in each other (at most {DEPTH_MAX})"]) from None


def _table(values: Any, text: str, name: str, table: tuple[str, ...]) -> Given | None:
    for key in table:
        if not isinstance(values, dict) or key not in values:
            return None
        values = values[key]
    return _placed(values, table, _places(text, name), (name, name))


def _places(text: str, name: str) -> Mapping[tuple[str, ...], tuple[str, str]]:
    """Where keys and their values stand: found by looking at the beginnings of lines, which is where people put them.
    What is inside an inline table stands where the table does."""
    places: dict[tuple[str, ...], tuple[str, str]] = {}
    header: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if found := _HEADER.match(line):
            header = _path(found[1])
            path, column = header, found.start(1)
            value_column = column
        elif found := _KEY.match(line):
            path, column = (*header, *_path(found[1])), found.start(1)
            value_column = found.end()
        else:
            continue
        for length in range(1, len(path) + 1):
            key_at, at = f"{name}:{number}:{column + 1}", f"{name}:{number}:{value_column + 1}"
            places.setdefault(path[:length], (key_at, at))
    return places


def _path(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _placed(
    value: Any,
    path: tuple[str, ...],
    places: Mapping[tuple[str, ...], tuple[str, str]],
    around: tuple[str, str],
) -> Given:
    key_at, at = places.get(path, around)
    if isinstance(value, dict):
        return Given(
            {key: _placed(inner, (*path, key), places, (key_at, at)) for key, inner in value.items()}, at, key_at
        )
    if isinstance(value, list):
        return Given([_placed(inner, (*path, ""), places, (key_at, at)) for inner in value], at, key_at)
    return Given(value, at, key_at)
