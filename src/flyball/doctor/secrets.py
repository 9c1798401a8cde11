"""Files that hold secrets, and whether others may read them: those of the state folder, those that the settings name,
and the settings file itself, if it has some in it."""

import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from flyball.config.variables import absolute
from flyball.config.yaml_text import read_yaml
from flyball.control.links import FILE as LINKS
from flyball.control.text import counted
from flyball.control.web import ADDRESS
from flyball.control.web.tokens import FILE as TOKENS
from flyball.doctor.finding import Finding, bad, ok, warning
from flyball.doctor.scene import Scene
from flyball.doctor.socket import Owned, owned
from flyball.errors import FlyballError

IN_STATE: Final = ("state.db", TOKENS, LINKS, ADDRESS)
INLINE: Final = frozenset(("token", "secret", "password"))
"""Keys whose values are secrets, unless they only name a variable."""
FILE_MAX: Final = 4 * 2**20
_VARIABLE: Final = re.compile(r"^\$\{[A-Za-z_][A-Za-z0-9_]*\}$")
_URL_WITH_PASSWORD: Final = re.compile(r"^[a-z]+://[^/@:]+:[^@]+@")


def check(scene: Scene) -> Iterator[Finding]:
    """Whatever can be found: a broken settings file names its files all the same, if it can be read at all."""
    files = [(path, "of the state folder") for name in IN_STATE if owned(path := scene.folder / name)]
    source = settings_file(scene)
    given = _given(source) if source is not None else {}
    if source is not None:
        files += [(Path(path), f"named by {key}") for key, path in named_files(given, source.parent)]
        inline = next(inline_secrets(given), "")
        if inline:
            files.append((source, f"has {inline} in it"))
    wrong = [finding for path, what in files if (found := owned(path)) is not None for finding in judge(found, what)]
    yield from wrong
    if not wrong:
        yield ok(f"{counted(len(files), 'file')} with secrets, none of which others may read")


def judge(found: Owned, what: str) -> Iterator[Finding]:
    """Whoever reads it has what is in it; whoever writes it decides what is in it."""
    if not stat.S_ISREG(found.mode):
        return
    text = f"{found.path} ({what}) has the mode {found.shown}"
    if found.mode & 0o022:
        yield bad(f"{text}: others can write it", f"`chmod 0600 {found.path}`.")
    elif found.mode & 0o044:
        yield warning(f"{text}: others can read it", f"`chmod 0600 {found.path}`.")


def settings_file(scene: Scene) -> Path | None:
    """The file of the settings, also if it is wrong. A pyproject.toml is everybody's, and holds no secrets."""
    from flyball.config.layers import FILES  # noqa: PLC0415 - with all of the settings

    chosen = str(scene.config or scene.env.get("FLYBALL_CONFIG", ""))
    names = [chosen] if chosen else [name for name in FILES if not name.endswith(".toml")]
    return next((path for name in names if (path := scene.cwd / name).is_file()), None)


def named_files(given: Any, folder: Path, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """All `…_file` of the settings that hold secrets, each with its key."""
    if isinstance(given, Mapping):
        for key, value in given.items():
            here = (*path, str(key))
            if isinstance(value, str) and str(key).endswith("_file") and key != "beat_file" and value:
                yield ".".join(here), absolute(value, folder)
            yield from named_files(value, folder, here)


def inline_secrets(given: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Keys whose value is a secret itself, and not the name of a variable that holds it."""
    if isinstance(given, Mapping):
        for key, value in given.items():
            here = (*path, str(key))
            if isinstance(value, str) and value and not _VARIABLE.match(value):
                if key in INLINE or _URL_WITH_PASSWORD.match(value):
                    yield ".".join(here)
            else:
                yield from inline_secrets(value, here)
    elif isinstance(given, list):
        for place, value in enumerate(given):
            yield from inline_secrets(value, (*path, str(place)))


def _given(file: Path) -> Any:
    try:
        with file.open("rb") as stream:
            return read_yaml(stream.read(FILE_MAX).decode("utf-8-sig"), str(file)).plain()
    except (OSError, UnicodeDecodeError, FlyballError):
        return {}
