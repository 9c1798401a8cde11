"""Layers: defaults, below the file, below the environment. Every effective value knows where it came from.

Whatever is wrong in any of them is reported, all of it at once, each with its place.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from flyball.config.given import NOTHING, Given
from flyball.config.names import canonical, spelled
from flyball.config.problems import contradictions, in_order, wrong_values
from flyball.config.settings import Settings
from flyball.config.toml_text import read_toml
from flyball.config.variables import filled_in
from flyball.config.yaml_text import read_yaml
from flyball.errors import SettingsError

FILE_MAX: Final = 256 * 1024
"""Bytes of a settings file. All settings with their descriptions are a tenth of it; a thousand units fit."""

FILES: Final = ("flyball.yaml", "flyball.yml", "framework.yaml", "pyproject.toml")
"""Where settings are looked for, in this order; in pyproject.toml, in the table [tool.flyball]."""

PREFIX: Final = "FLYBALL_"
BETWEEN: Final = "__"
"""FLYBALL_SECTION__KEY is a setting. A name without two underscores (FLYBALL_STATE_DIR) is not."""

OTHER_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "DELIBERATION_TIMEOUT_SECONDS": ("graph", "timeout_seconds"),
    "MAX_COST_PER_SESSION": ("budget", "max_cost_per_session"),
}
"""Names that are known from elsewhere. A FLYBALL_ variable for the same key wins."""


def load(path: Path | None = None, *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Settings:
    """The settings in force: of that file, or of the one that is found, with the environment laid over it.
    SettingsError lists all that is wrong."""
    environment = os.environ if env is None else env
    problems: list[str] = []
    notes: list[str] = []
    file = path or _find(environment, cwd or Path(), notes)
    layers = [
        _layer(lambda: _read_file(file) if file else NOTHING, problems),
        _layer(lambda: _read_environment(environment, problems), problems),
    ]
    given = NOTHING
    for layer in layers:
        # Each by itself: what is wrong in the file is wrong also where the environment hides it.
        problems += wrong_values(layer)
        given = given.under(layer)
    problems += contradictions(given)
    if problems:
        raise SettingsError(in_order(problems))
    lacking: list[str] = []
    given = filled_in(given, environment, file.parent if file else cwd or Path(), lacking)
    return Settings.model_validate(given.plain()).born_of(given, str(file or ""), notes, in_order(lacking))


def _layer(read: Callable[[], Given], problems: list[str]) -> Given:
    try:
        return canonical(read(), problems)
    except SettingsError as error:
        problems += error.problems
        return NOTHING


# The file.


def _find(env: Mapping[str, str], cwd: Path, notes: list[str]) -> Path | None:
    """The first file that has settings. Others that are there too are noted."""
    chosen = env.get("FLYBALL_CONFIG")
    files = [cwd / chosen] if chosen else []
    files += [file for name in FILES if (file := cwd / name) not in files and file.is_file() and _is_for_us(file)]
    if len(files) > 1:
        how = " (FLYBALL_CONFIG)" if chosen else ""
        not_read = ", ".join(str(file) for file in files[1:])
        notes.append(f"settings are taken from {files[0]}{how}; not read: {not_read}")
    return files[0] if files else None


def _is_for_us(file: Path) -> bool:
    """A project may have a pyproject.toml for other reasons. It is not read any further then: it may even be broken."""
    return file.suffix != ".toml" or b"tool.flyball" in _bytes(file)


def _read_file(file: Path) -> Given:
    text = _decoded(_bytes(file), str(file))
    if file.suffix != ".toml":
        return read_yaml(text, str(file))
    given = read_toml(text, str(file), ("tool", "flyball"))
    if given is None:
        raise SettingsError([f"{file}: there is no table [tool.flyball] in it"])
    return given


def _bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            data = stream.read(FILE_MAX + 1)
    except OSError as error:
        raise SettingsError([f"{file}: {error.strerror or error}"]) from None
    except ValueError as error:
        raise SettingsError([f"{str(file)!r}: {error}"]) from None
    if len(data) > FILE_MAX:
        raise SettingsError([f"{file}: longer than {FILE_MAX // 1024} KiB: this is no settings file"])
    return data


def _decoded(data: bytes, name: str) -> str:
    """A file's text. SettingsError with the place of the first byte that is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        raise SettingsError([f"{name}:{line}:{column}: not UTF-8 text (byte 0x{data[error.start]:02x})"]) from None


# The environment.


def _read_environment(env: Mapping[str, str], problems: list[str]) -> Given:
    """All variables that are settings; an empty one is as good as none."""
    given = NOTHING
    variables = [(name, path) for name, path in OTHER_VARIABLES.items() if name in env]
    # In the order of their names: FLYBALL_BUDGET__TIERS comes before FLYBALL_BUDGET__TIERS__FREE, which refines it.
    for name in sorted(env):
        if name.startswith(PREFIX) and BETWEEN in name.removeprefix(PREFIX):
            variables.append((name, spelled(name.removeprefix(PREFIX).lower().split(BETWEEN))))
    for name, path in variables:
        if not env[name].strip():
            continue
        try:
            value = read_yaml(env[name], name, places=False)
        except SettingsError as error:
            problems += error.problems
            continue
        for key in reversed(path):
            value = Given({key: value}, name, name)
        given = given.under(value)
    return given
