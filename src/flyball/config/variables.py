"""What units and rules take from outside the settings file: variables for `${NAME}`, files of variables, and the
file's folder for paths that are relative to it.

What is not there is told, and not an error yet: whoever only looks need not have the secrets of whoever runs them.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import is_
from pathlib import Path
from typing import Any, Final

from flyball.config.given import Given, Origin, dotted
from flyball.config.templates import escaped

PATHS: Final = ("cwd", "beat_file", "env_file")
SECRET: Final = frozenset({"env", "headers", "secret", "token", "password", "url", "urls", "topic", "store"})
"""Keys whose values are never shown."""
IN_FILES: Final = ("token", "secret", "password", "urls")
"""Keys of a channel of alerts that a file may hold, which is named by the key with `_file`."""
TO_PEOPLE: Final = ("FLYBALL_ALERTS__", "FLYBALL_TELEGRAM__", "FLYBALL_STORE")
"""What variables begin with that are settings of how people are told, or of where the memory is."""
COMMON: Final = frozenset({"HOME", "HOSTNAME", "LANG", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER"})
"""Variables that are no secret, wherever they are used."""
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
            folders = {name: origin.folder_of(name) for name in found.value}
            fillings = {folder: _Filling(env, folder, lacking) for folder in set(folders.values())}
            each = {name: fillings[folders[name]].rule(name, rule) for name, rule in found.value.items()}
        filled[section] = found._replace(value=each)
    telegram = given.find(("telegram",))
    if telegram is not None:
        filled["telegram"] = _bot(telegram, env, origin.folder, lacking)
    store = given.find(("store",))
    if store is not None:
        filled["store"] = store._replace(value=_text(("store",), store, env, lacking))
    channels = given.find(("alerts", "channels"))
    if channels is not None and isinstance(channels.value, dict):
        each = {name: _channel(name, channel, env, origin.folder, lacking) for name, channel in channels.value.items()}
        alerts = given.value["alerts"]
        filled["alerts"] = alerts._replace(value={**alerts.value, "channels": channels._replace(value=each)})
    return given._replace(value={**given.value, **filled}) if filled else given


def withheld(given: Given, env: Mapping[str, str]) -> tuple[str, ...]:
    """Variables that tell how people are reached, or where the memory is, and so are not for the units: whoever
    has them could speak to people as we do, or release himself. `given` is what was not filled in yet."""
    channels = given.find(("alerts", "channels"))
    each = channels.value.values() if channels is not None and isinstance(channels.value, dict) else ()
    names: set[str] = set()
    for section in (given.find(("telegram",)), *each):
        if section is not None and isinstance(section.value, dict):
            secrets = [value for key, value in section.value.items() if key in SECRET]
            texts = [text for one in secrets for text in (one.value if isinstance(one.value, list) else [one])]
            found = [_NAME.finditer(text.value) for text in texts if isinstance(text.value, str)]
            names |= {name[2] for one in found for name in one if not name[1]}
    store = given.find(("store",))
    if store is not None and isinstance(store.value, str):
        names |= {name[2] for name in _NAME.finditer(store.value) if not name[1]}
    names |= {name for name in env if name.startswith(TO_PEOPLE)}
    return tuple(sorted(names - COMMON))


def _channel(name: str, channel: Given, env: Mapping[str, str], folder: Path, lacking: list[str]) -> Given:
    """A channel of alerts: variables in all its texts, and what files hold in the place of their names."""
    if not isinstance(channel.value, dict):
        return channel
    path = ("alerts", "channels", name)
    filled: dict[str, Given] = {}
    for key, value in channel.value.items():
        if isinstance(value.value, list):
            texts = [one._replace(value=_text((*path, key), one, env, lacking)) for one in value.value]
            filled[key] = value._replace(value=texts)
        else:
            filled[key] = value._replace(value=_text((*path, key), value, env, lacking))
    for key in IN_FILES:
        file = filled.get(f"{key}_file")
        if file is None or key in filled or not isinstance(file.value, str) or not file.value:
            continue
        text = _held_by(absolute(file.value, folder), f"{file.at}: {dotted((*path, f'{key}_file'))}", lacking)
        if text is not None:
            filled[key] = filled.pop(f"{key}_file")._replace(value=text.strip())
    return channel._replace(value=filled)


def _unit(name: str, unit: Given, env: Mapping[str, str], folder: Path, lacking: list[str]) -> Given:
    if not isinstance(unit.value, dict):
        return unit
    filled: dict[str, Given] = dict(unit.value)
    for key in PATHS:
        path = filled.get(key)
        if path is not None and isinstance(path.value, str) and path.value:
            filled[key] = path._replace(value=absolute(path.value, folder))
    variables: dict[str, Given] = {}
    file = filled.get("env_file")
    if file is not None and isinstance(file.value, str) and file.value:
        variables |= {key: Given(value, file.at, file.key_at) for key, value in _read(name, file, lacking)}
    own = filled.get("env")
    if own is not None and not isinstance(own.value, dict):
        return unit._replace(value=filled)
    if own is not None:
        for key, value in own.value.items():
            variables[key] = value._replace(value=_text(("units", name, "env", key), value, env, lacking))
    if variables:
        around = own or file or unit
        filled["env"] = Given(variables, around.at, around.key_at)
    return unit._replace(value=filled)


def _bot(given: Given, env: Mapping[str, str], folder: Path, lacking: list[str]) -> Given:
    """The Telegram bot: its token, from a variable or a file."""
    if not isinstance(given.value, dict):
        return given
    filled: dict[str, Given] = dict(given.value)
    token, file = filled.get("token"), filled.get("token_file")
    if token is not None:
        filled["token"] = token._replace(value=_text(("telegram", "token"), token, env, lacking))
    elif file is not None and isinstance(file.value, str) and file.value:
        text = _held_by(absolute(file.value, folder), f"{file.at}: telegram.token_file", lacking)
        if text is not None:
            filled["token"] = filled.pop("token_file")._replace(value=text.strip())
    return given._replace(value=filled)


class _Filling:
    """Fills in the rules of one folder. What has nothing to be filled in stays as it is: most rules have nothing, and
    what aliases share must not be filled in twice."""

    def __init__(self, env: Mapping[str, str], folder: str, lacking: list[str]) -> None:
        self._env = env
        self._folder = Path(folder)
        self._lacking = lacking
        deed: dict[str, _Fill] = {
            "cwd": self._path,
            "env": self._texts,
            "http": partial(self._section, {"headers": self._texts}),
            "browser": partial(self._list, {"screenshot": self._path}),
        }
        self._rule: dict[str, _Fill] = {
            "triggers": partial(self._list, {"file": self._path, "secret": self._secret}),
            "actions": partial(self._list, {**deed, "undo": partial(self._section, deed)}),
        }

    def rule(self, name: str, rule: Given) -> Given:
        """Its triggers and its actions."""
        return self._section(self._rule, rule, ("rules", name))

    def _section(self, fills: "Mapping[str, _Fill]", given: Given, path: "_Path") -> Given:
        if not isinstance(given.value, dict) or fills.keys().isdisjoint(given.value):
            return given
        filled = {}
        for key in fills.keys() & given.value.keys():
            before = given.value[key]
            after = fills[key](before, (*path, key))
            if after is not before:
                filled[key] = after
        return given._replace(value={**given.value, **filled}) if filled else given

    def _list(self, fills: "Mapping[str, _Fill]", given: Given, path: "_Path") -> Given:
        if not isinstance(given.value, list):
            return given
        filled = [self._section(fills, each, (*path, place)) for place, each in enumerate(given.value)]
        same = all(map(is_, filled, given.value))
        return given if same else given._replace(value=filled)

    def _texts(self, given: Given, path: "_Path") -> Given:
        """They may have templates of their own; what a variable holds is none."""
        if not isinstance(given.value, dict):
            return given
        texts = {
            name: text._replace(value=_text((*path, name), text, self._env, self._lacking, escaped))
            for name, text in given.value.items()
        }
        return given._replace(value=texts)

    def _secret(self, text: Given, path: "_Path") -> Given:
        return text._replace(value=_text(path, text, self._env, self._lacking))

    def _path(self, text: Given, path: "_Path") -> Given:
        """Where it begins with a template, what is filled in later says where it is."""
        if not isinstance(text.value, str) or not text.value or text.value.startswith("{{"):
            return text
        return text._replace(value=absolute(text.value, self._folder))


_Path = tuple[str | int, ...]
_Fill = Callable[[Given, _Path], Given]


def absolute(path: str, folder: Path) -> str:
    """A path that is relative to that folder; `~` is whoever's home it names, if there is one."""
    # Not that of pathlib: it raises where nobody is called so.
    return os.path.normpath(folder.absolute() / os.path.expanduser(path))  # noqa: PTH111 - see above


def _text(
    path: _Path, given: Given, env: Mapping[str, str], lacking: list[str], put: Callable[[str], str] = str
) -> Any:
    """A value with each ${NAME} filled in; $${NAME} stands for ${NAME} itself."""

    def fill(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        if found[2] not in env:
            lacking.append(f"{given.at}: {dotted(path)}: there is no variable {found[2]}")
        return put(env[found[2]]) if found[2] in env else found[0]

    return _NAME.sub(fill, given.value) if isinstance(given.value, str) else given.value


def _read(name: str, file: Given, lacking: list[str]) -> Iterator[tuple[str, str]]:
    """NAME=VALUE lines; empty ones and those that begin with # say nothing. A value may be in quotes."""
    text = _held_by(file.value, f"{file.at}: units.{name}.env_file", lacking)
    if text is None:
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


def _held_by(path: str, where: str, lacking: list[str]) -> str | None:
    """The text of a file; None, and told, if it cannot be read."""
    try:
        with Path(path).open("rb") as stream:
            text = stream.read(FILE_MAX + 1).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        lacking.append(f"{where}: {path}: {said}")
        return None
    if len(text) > FILE_MAX:
        lacking.append(f"{where}: {path}: longer than {FILE_MAX // 1024} KiB")
        return None
    return text
