"""What units and rules take from outside the settings file: variables for `${NAME}`, files of variables, and the
file's folder for paths that are relative to it.

What is not there is told, and not an error yet: whoever only looks need not have the secrets of whoever runs them.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flyball.config.given import Given, Origin

PATHS: Final = ("cwd", "beat_file", "env_file")
SECRET: Final = frozenset({"env", "headers", "secret"})
"""Keys whose values are never shown."""
FILE_MAX: Final = 256 * 1024
"""Bytes of a file of variables. All variables of a process have to fit into 2 MiB."""
_NAME: Final = re.compile(r"\$(\$)?\{([A-Za-z_][A-Za-z0-9_]*)\}")
_LINE: Final = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")


def filled_in(given: Given, env: Mapping[str, str], origin: Origin, lacking: list[str]) -> Given:
    """The same with everything filled in that units and rules take from outside. What is not there is added to
    `lacking`."""
    filled: dict[str, Given] = {}
    for section in ("units", "rules"):
        found = given.find((section,))
        if found is None or not isinstance(found.value, dict):
            continue
        if section == "units":
            each = {name: _unit(name, unit, env, origin.folder, lacking) for name, unit in found.value.items()}
        else:
            each = {
                name: _Filling(f"rules.{name}", env, origin.folder_of(name), lacking).rule(rule)
                for name, rule in found.value.items()
            }
        filled[section] = found._replace(value=each)
    return given._replace(value={**given.value, **filled}) if filled else given


def _unit(name: str, unit: Given, env: Mapping[str, str], folder: Path, lacking: list[str]) -> Given:
    if not isinstance(unit.value, dict):
        return unit
    filled: dict[str, Given] = dict(unit.value)
    for key in PATHS:
        path = filled.get(key)
        if path is not None and isinstance(path.value, str) and path.value:
            filled[key] = path._replace(value=_absolute(path.value, folder))
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


@dataclass(frozen=True, slots=True)
class _Filling:
    """Fills in one rule. What has nothing to be filled in stays as it is: aliases may share it, and most rules have
    nothing."""

    key: str
    env: Mapping[str, str]
    folder: str
    lacking: list[str]

    def rule(self, rule: Given) -> Given:
        """Its triggers and its actions."""
        return self._each(rule, self.key, {"triggers": self._triggers, "actions": self._actions})

    def _triggers(self, triggers: Given, key: str) -> Given:
        return self._list(triggers, key, {"file": self._path, "secret": self._secret})

    def _actions(self, actions: Given, key: str) -> Given:
        return self._list(actions, key, {**self._deeds, "undo": self._undo})

    def _undo(self, undo: Given, key: str) -> Given:
        return self._each(undo, key, self._deeds)

    @property
    def _deeds(self) -> "Mapping[str, _Fill]":
        return {"cwd": self._path, "env": self._secrets, "http": self._http, "browser": self._steps}

    def _http(self, http: Given, key: str) -> Given:
        return self._each(http, key, {"headers": self._secrets})

    def _steps(self, steps: Given, key: str) -> Given:
        return self._list(steps, key, {"screenshot": self._path})

    def _secrets(self, named: Given, key: str) -> Given:
        if not isinstance(named.value, dict):
            return named
        return named._replace(value={name: self._secret(text, f"{key}.{name}") for name, text in named.value.items()})

    def _secret(self, text: Given, key: str) -> Given:
        return text._replace(value=_text(key, text, self.env, self.lacking))

    def _path(self, path: Given, key: str) -> Given:
        """Where it begins with a template, what is filled in later says where it is."""
        if not isinstance(path.value, str) or not path.value or path.value.startswith("{{"):
            return path
        return path._replace(value=_absolute(path.value, Path(self.folder)))

    def _list(self, given: Given, key: str, fills: "Mapping[str, _Fill]") -> Given:
        if not isinstance(given.value, list):
            return given
        filled = [self._each(each, f"{key}[{place}]", fills) for place, each in enumerate(given.value)]
        return given._replace(value=filled)

    def _each(self, given: Given, key: str, fills: "Mapping[str, _Fill]") -> Given:
        if not isinstance(given.value, dict):
            return given
        named = [name for name in given.value if name in fills]
        if not named:
            return given
        filled = {name: fills[name](given.value[name], f"{key}.{name}") for name in named}
        return given._replace(value={**given.value, **filled})


_Fill = Callable[[Given, str], Given]


def _absolute(path: str, folder: Path) -> str:
    return os.path.normpath(folder.absolute() / Path(path).expanduser())


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
