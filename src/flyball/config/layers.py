"""Layers: defaults, below the file, below the environment. Every effective value knows where it came from.

Whatever is wrong in any of them is reported, all of it at once, each with its place.
"""

import contextlib
import gc
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from flyball.config.given import NOTHING, Given, Origin
from flyball.config.names import canonical, spelled
from flyball.config.problems import in_order, validated, wrong_values
from flyball.config.settings import Settings
from flyball.config.toml_text import read_toml
from flyball.config.variables import absolute, filled_in, withheld
from flyball.config.yaml_text import read_yaml
from flyball.errors import SettingsError

FILE_MAX: Final = 4 * 2**20
"""Bytes of one file. All settings with their descriptions are a hundredth of it; ten thousand rules fit."""
FILES_MAX: Final = 1_000
"""Files of a folder of rules."""
FOLDER_MAX: Final = 16 * 2**20
"""Bytes of all of them: they are read in seconds."""
RULE_FILES: Final = (".yaml", ".yml", ".json")

FILES: Final = ("flyball.yaml", "flyball.yml", "framework.yaml", "pyproject.toml")
"""Where settings are looked for, in this order; in pyproject.toml, in the table [tool.flyball]."""

PREFIX: Final = "FLYBALL_"
BETWEEN: Final = "__"
"""FLYBALL_SECTION__KEY is a setting. A name without two underscores (FLYBALL_STATE_DIR) is not."""

OTHER_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "DELIBERATION_TIMEOUT_SECONDS": ("graph", "timeout_seconds"),
    "MAX_COST_PER_SESSION": ("budget", "max_cost_per_session"),
    "FLYBALL_STORE": ("store",),
}
"""Names that are known from elsewhere, for which a FLYBALL_ variable for the same key wins; and that of a key in no
section."""


def load(path: Path | None = None, *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Settings:
    """The settings in force: of that file, or of the one that is found, with the environment laid over it.
    SettingsError lists all that is wrong."""
    with _uncollected():
        return _load(path, os.environ if env is None else env, cwd or Path())


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Nothing of what is read becomes garbage before it is judged; to look for some takes a third of the time. What was
    made meanwhile counts as old, so that nobody looks at once when this is over."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def _load(path: Path | None, env: Mapping[str, str], cwd: Path) -> Settings:
    problems: list[str] = []
    notes: list[str] = []
    lacking: list[str] = []
    file = path or _find(env, cwd, notes)
    origin = Origin(file, file.parent if file else cwd)
    below = _layer(lambda: _read_all(file, origin, problems) if file else NOTHING, problems)
    over = _layer(lambda: _read_environment(env, problems), problems)
    problems += _hidden(below, over)
    bare = below.under(over)
    given = filled_in(bare, env, origin, lacking)
    settings, wrong = validated(given, origin)
    problems += wrong
    if settings is None or problems:
        raise SettingsError(in_order(problems))
    return settings.born_of(given, origin, notes, in_order(lacking), withheld(bare, env))


def _layer(read: Callable[[], Given], problems: list[str]) -> Given:
    try:
        return canonical(read(), problems)
    except SettingsError as error:
        problems += error.problems
        return NOTHING


def _hidden(below: Given, over: Given) -> list[str]:
    """What is wrong in the file is wrong also where the environment hides it."""
    if not isinstance(below.value, dict):
        return wrong_values(below)
    hidden = {key: section for key, section in below.value.items() if key in over.value}
    return wrong_values(below._replace(value=hidden)) if hidden else []


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


def _read_all(file: Path, origin: Origin, problems: list[str]) -> Given:
    """A file, with the rules of the folder that it names."""
    given = _read_file(file)
    folder = given.find(("rules_dir",))
    if folder is None or not isinstance(folder.value, str) or not folder.value:
        return given
    path = Path(absolute(folder.value, origin.folder))
    own = given.find(("rules",))
    if own is not None and own.value is not None and not isinstance(own.value, dict):
        return given
    rules = dict(own.value or {}) if own is not None else {}
    for name, rule in _rules_in(path, folder, origin, problems):
        if name in rules:
            problems.append(f"{rule.key_at}: the rule {name!r} is there already, at {rules[name].key_at}")
            continue
        rules[name] = rule
        origin.folders[name] = str(path)
    around = own or folder
    return given._replace(value={**given.value, "rules": around._replace(value=rules)})


def _rules_in(path: Path, named: Given, origin: Origin, problems: list[str]) -> Iterator[tuple[str, Given]]:
    """The rules of a folder."""
    try:
        files = sorted(file for file in path.iterdir() if _is_of_rules(file))
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        problems.append(f"{named.at}: rules_dir: {path}: {said}")
        return
    origin.sources.append(path)
    if len(files) > FILES_MAX:
        problems.append(f"{named.at}: rules_dir: {path}: more than {FILES_MAX} files")
        return
    left = FOLDER_MAX
    for file in files:
        try:
            data = _bytes(file)
            left -= len(data)
            if left < 0:
                raise SettingsError([f"{named.at}: rules_dir: {path}: longer than {FOLDER_MAX // 2**20} MiB in all"])
            given = read_yaml(_decoded(data, str(file)), str(file))
        except SettingsError as error:
            problems += error.problems
            if left < 0:
                return
            continue
        if isinstance(given.value, dict) and given.value.keys() == {"rules"}:
            at = given.value["rules"].key_at
            problems.append(f"{at}: in a folder of rules they stand at the top of each file: leave `rules:` out")
        elif isinstance(given.value, dict):
            yield from given.value.items()
        elif given.value is not None:
            problems.append(f"{given.at}: should have rules by their names")


def _is_of_rules(file: Path) -> bool:
    """Those whose names begin with a dot are of editors. What is there and no file, such as a pipe, is never opened; a
    link to nowhere is told."""
    named = file.suffix in RULE_FILES and not file.name.startswith(".")
    return named and (file.is_file() or not file.exists())


def _bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            data = stream.read(FILE_MAX + 1)
    except OSError as error:
        raise SettingsError([f"{file}: {error.strerror or error}"]) from None
    except ValueError as error:
        raise SettingsError([f"{str(file)!r}: {error}"]) from None
    if len(data) > FILE_MAX:
        raise SettingsError([f"{file}: longer than {FILE_MAX // 2**20} MiB: this is no settings file"])
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
