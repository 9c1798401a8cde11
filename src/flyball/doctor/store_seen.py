"""A look into the store that changes nothing: of a file, a copy is opened; a database is only read."""

import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from flyball import app
from flyball.errors import FlyballError
from flyball.store import schema
from flyball.store.address import without_password
from flyball.store.file import BUSY_MAX, explain

if TYPE_CHECKING:
    from flyball.config import Settings
    from flyball.core.time import Instant
    from flyball.store.postgres.health import Health

NAME: Final = "state.db"
COPY_MAX: Final = 2 * 2**30
"""Bytes of a file that is copied to be looked at. A million entries are a third of it; to copy more takes too long."""
TRIES_MAX: Final = 5
"""Copies that are tried while somebody writes. Most writers rest for longer than a copy takes."""
REST: Final = 0.05
"""Seconds between two tries."""
PARTS: Final = ("", "-wal")
"""The file, and what was written and is not in it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen of a store."""

    where: str
    shared: bool = False
    """It is a database."""
    there: bool = True
    bytes: int = 0
    copied: bool = False
    """It could be looked into: else `why_not` says why it could not, and `error` what is wrong with it."""
    why_not: str = ""
    error: FlyballError | None = None
    version: int = 0
    newest: int = schema.VERSION
    last_at: "Instant | None" = None
    """When the journal's last entry was made; None: there is none."""
    entries: int = 0
    problems: tuple[str, ...] = ()
    health: "Health | None" = None
    """Of a database."""


def look(settings: "Settings", folder: Path) -> Seen:
    """Look into the store of these settings."""
    return _database(settings.store) if settings.store else _file(settings, folder / NAME)


def _file(settings: "Settings", path: Path) -> Seen:
    where = str(path)
    try:
        if not path.exists():
            return Seen(where=where, there=False)
        size = sum(part.stat().st_size for part in _parts(path))
        with tempfile.TemporaryDirectory(prefix="flyball-doctor-") as folder:
            room = shutil.disk_usage(folder).free
            if size > COPY_MAX or size * 2 > room:
                why = f"it has {size / 2**20:.0f} MiB, and a copy has room for {min(COPY_MAX, room // 2) / 2**20:.0f}"
                return Seen(where=where, bytes=size, why_not=why)
            if not _copied(path, Path(folder)):
                _backed_up(path, Path(folder))
            return _opened(settings, Path(folder), where, size)
    except apsw.Error as error:
        return Seen(where=where, error=explain(error, path))
    except OSError as error:
        return Seen(where=where, error=FlyballError(f"{path}: {error.strerror or error}", remedy=_MODE))


_MODE: Final = "Check the owner and mode of the file and its folder."


def _copied(path: Path, folder: Path) -> bool:
    """A copy of the whole, as it was at one instant: nobody wrote to it meanwhile."""
    for _ in range(TRIES_MAX):
        before = _marks(path)
        for part in _parts(path):
            with suppress(FileNotFoundError):  # whoever closed it last took it away; the marks tell
                shutil.copyfile(part, folder / part.name)
        if _marks(path) == before:
            return True
        for part in _parts(folder / path.name):
            part.unlink()
        time.sleep(REST)
    return False


def _backed_up(path: Path, folder: Path) -> None:
    """The same where somebody writes all the time: SQLite itself copies what one reader sees. Whoever writes has made
    all the files that a reader needs, so this makes none."""
    reading = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        reading.set_busy_timeout(BUSY_MAX)
        writing = apsw.Connection(str(folder / path.name))
        try:
            with writing.backup("main", reading, "main") as backup:
                backup.step(-1)
        finally:
            writing.close()
    finally:
        reading.close()


def _parts(path: Path) -> list[Path]:
    return [part for end in PARTS if (part := path.with_name(path.name + end)).exists()]


def _marks(path: Path) -> list[tuple[str, int, int, int]]:
    return [(part.name, stat.st_mtime_ns, stat.st_size, stat.st_ino) for part in _parts(path) if (stat := part.stat())]


def _opened(settings: "Settings", folder: Path, where: str, size: int) -> Seen:
    """Open the copy as the real one would be opened, and look whether it is sound."""
    version = _version(folder / NAME)
    try:
        store = app.open_store(settings, {"FLYBALL_STATE_DIR": str(folder)})
    except FlyballError as error:
        return Seen(where=where, bytes=size, error=_of_original(error, folder, where), version=version)
    try:
        end = store.read(())
        found = tuple(problem.replace(str(folder.resolve() / NAME), where) for problem in store.integrity())
        return Seen(
            where=where,
            bytes=size,
            copied=True,
            version=version,
            last_at=end.at if end.seq else None,
            entries=end.seq,
            problems=found,
        )
    except FlyballError as error:
        return Seen(where=where, bytes=size, error=_of_original(error, folder, where), version=version)
    finally:
        store.close()


def _of_original(error: FlyballError, copy: Path, where: str) -> FlyballError:
    """What is wrong with the copy is wrong with the file that it is of."""
    return type(error)(str(error).replace(str(copy.resolve() / NAME), where), remedy=error.remedy)


def _version(copy: Path) -> int:
    """The version of the file, as it was; 0: it has none, or is no such file."""
    with suppress(apsw.Error):
        connection = apsw.Connection(str(copy))
        try:
            return int(connection.pragma("user_version"))
        finally:
            connection.close()
    return 0


def _database(url: str) -> Seen:
    where = without_password(url)
    try:
        from flyball.store.postgres.health import VERSION, health  # noqa: PLC0415 - only where the settings want it
    except ModuleNotFoundError as error:
        remedy = "Install it: `pip install 'flyball-governor[fleet]'`."
        return Seen(where=where, shared=True, error=FlyballError(f"{error.name} is not installed", remedy=remedy))
    try:
        found = health(url)
    except FlyballError as error:
        return Seen(where=where, shared=True, error=error)
    return Seen(
        where=where,
        shared=True,
        there=bool(found.version),
        copied=True,
        version=found.version,
        newest=VERSION,
        last_at=found.last_at,
        entries=found.entries,
        problems=found.problems,
        health=found,
    )
