"""What units take from outside the settings file: variables for `${NAME}`, files of variables, and the file's folder
for paths that are relative to it.

What is not there is told, and not an error yet: whoever only looks need not have the secrets of whoever runs the units.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from flyball.config.given import Given

PATHS: Final = ("cwd", "beat_file", "env_file")
FILE_MAX: Final = 256 * 1024
"""Bytes of a file of variables. All variables of a process have to fit into 2 MiB."""
_NAME: Final = re.compile(r"\$(\$)?\{([A-Za-z_][A-Za-z0-9_]*)\}")
_LINE: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")


def filled_in(given: Given, env: Mapping[str, str], folder: Path, lacking: list[str]) -> Given:
    """The same with everything filled in that units take from outside. What is not there is added to `lacking`."""
    units = given.find(("units",))
    if units is None or not isinstance(units.value, dict):
        return given
    filled = {name: _unit(name, unit, env, folder, lacking) for name, unit in units.value.items()}
    return given._replace(value={**given.value, "units": units._replace(value=filled)})


def _unit(name: str, unit: Given, env: Mapping[str, str], folder: Path, lacking: list[str]) -> Given:
    if not isinstance(unit.value, dict):
        return unit
    filled: dict[str, Given] = dict(unit.value)
    for key in PATHS:
        path = filled.get(key)
        if path is not None and isinstance(path.value, str) and path.value:
            filled[key] = path._replace(value=os.path.normpath(folder.absolute() / Path(path.value).expanduser()))
    variables: dict[str, Given] = {}
    file = filled.get("env_file")
    if file is not None and isinstance(file.value, str) and file.value:
        variables |= {key: Given(value, file.at, file.key_at) for key, value in _read(name, file, lacking)}
    own = filled.get("env")
    if own is not None and not isinstance(own.value, dict):
        return unit._replace(value=filled)
    if own is not None:
        for key, value in own.value.items():
            variables[key] = value._replace(value=_text(f"units.{name}.env.{key}", value, env, lacking))
    if variables:
        around = own or file or unit
        filled["env"] = Given(variables, around.at, around.key_at)
    return unit._replace(value=filled)


def _text(key: str, given: Given, env: Mapping[str, str], lacking: list[str]) -> Any:
    """A value with each ${NAME} filled in; $${NAME} stands for ${NAME} itself."""

    def fill(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        if found[2] not in env:
            lacking.append(f"{given.at}: {key}: there is no variable {found[2]}")
        return env.get(found[2], found[0])

    return _NAME.sub(fill, given.value) if isinstance(given.value, str) else given.value


def _read(name: str, file: Given, lacking: list[str]) -> Iterator[tuple[str, str]]:
    """NAME=VALUE lines; empty ones and those that begin with # say nothing. A value may be in quotes."""
    key = f"units.{name}.env_file"
    try:
        with Path(file.value).open("rb") as stream:
            text = stream.read(FILE_MAX + 1).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        lacking.append(f"{file.at}: {key}: {file.value}: {said}")
        return
    if len(text) > FILE_MAX:
        lacking.append(f"{file.at}: {key}: {file.value}: longer than {FILE_MAX // 1024} KiB")
        return
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        found = _LINE.fullmatch(stripped)
        if found is None:
            lacking.append(f"{file.value}:{number}: should be NAME=VALUE")  # the line itself may be a secret
            continue
        value = found[2]
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        yield found[1], value[1:-1] if quoted else value
