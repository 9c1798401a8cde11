"""Writing the file: never over another one that was not meant to be, and with the schema for editors beside it."""

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flyball.config import json_schema, load
from flyball.errors import FlyballError
from flyball.starting.text import SCHEMA

TITLE: Final = "flyball settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written."""

    file: str
    backup: str = ""
    """Where the file is that was there before; nothing: there was none."""
    schema: str = ""
    """Where the schema is; nothing: another file has its name."""


def check(text: str) -> None:
    """SettingsError if the text is no good settings file: nothing else is ever written."""
    with tempfile.TemporaryDirectory(prefix="flyball-init-") as folder:
        file = Path(folder, "flyball.yaml")
        file.write_text(text, encoding="utf-8")
        load(file, env={})


def write(file: Path, text: str, *, force: bool) -> Written:
    """Write it. FlyballError if there is one already, unless that is to be kept as a backup."""
    check(text)
    try:
        if file.exists() and not force:
            remedy = "`flyball check` says whether it is good, `--dry-run` prints another one, `--force` replaces it."
            raise FlyballError(f"{file} is there already", remedy=remedy)
        schema = _put_schema(file.with_name(SCHEMA))
        backup = _put(file, text.encode(), keep=True)
        return Written(file=str(file), backup=str(backup or ""), schema=schema)
    except OSError as error:
        remedy = "Check the owner and mode of the folder, and that its disk is not full."
        raise FlyballError(f"{file}: {error.strerror or error}", remedy=remedy) from None


def _put(file: Path, data: bytes, *, keep: bool = False) -> Path | None:
    """It is there whole, or not at all. `keep` what was there before: where that is then."""
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with new.open("xb") as stream:
            stream.write(data)
        backup = _kept(file) if keep and file.exists() else None
        new.rename(file)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return backup


def _kept(file: Path) -> Path:
    """Under a name that nothing has, so that no backup replaces another."""
    number = 1
    while (backup := file.with_name(f"{file.name}.{number}.bak")).exists():
        number += 1
    file.rename(backup)
    return backup


def _put_schema(file: Path) -> str:
    """It is made by us, so it is made anew; but a file of that name that is none of ours is left alone."""
    try:
        ours = not file.exists() or json.loads(file.read_bytes()).get("title") == TITLE
    except (ValueError, AttributeError):
        ours = False
    if ours:
        _put(file, json.dumps(json_schema(), indent=2).encode() + b"\n")
    return str(file) if ours else ""
