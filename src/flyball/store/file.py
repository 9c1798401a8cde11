"""The SQLite file: whether it may be opened, how it is opened, and what SQLite's errors mean. No tables, no threads.

A file that is not ours, or newer than we are, is looked at through a read-only connection and left as it is. It is
never opened in another way: closing a plain file handle would drop the locks that SQLite holds in this process.
"""

import errno
import os
from pathlib import Path
from typing import Final

import apsw

from flyball.errors import StoreCorrupt, StoreError, StoreFull, StoreReadOnly, StoreTooNew, StoreUnsafe
from flyball.store import schema

SQLITE_MIN: Final = (3, 51, 3)
"""SQLite before 3.51.3 can corrupt a WAL file that several connections write and checkpoint."""

BUSY_MAX: Final = 10_000
"""Milliseconds to wait for somebody who writes without taking turns, such as a person in a SQLite shell."""

WAL_BYTES_MAX: Final = 64 * 1024 * 1024
"""The WAL file is cut back to this after it had to grow, for example because a reader was slow."""

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_LEAVE: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


def check_library() -> None:
    """Refuse a SQLite that is known to lose data."""
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")) < SQLITE_MIN:
        safe = ".".join(str(part) for part in SQLITE_MIN)
        raise StoreUnsafe(
            f"SQLite {version} can corrupt a file that several processes write; {safe} is the first safe one"
        )


def prepare(path: Path) -> None:
    """Make the folder and an empty file, for nobody else to read, where there is none. Refuse what is not ours."""
    try:
        _make_folder(path.parent)
        if path.exists():
            _refuse_foreign(path)
        else:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        pass  # another process was quicker, and made it the same way
    except OSError as error:
        raise explain(error, path) from error


def _make_folder(folder: Path) -> None:
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _refuse_foreign(path: Path) -> None:
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_busy_timeout(BUSY_MAX)
            connection.execute("BEGIN")  # one look: another process may be making its tables right now
            application: int = connection.pragma("application_id")
            version: int = connection.pragma("user_version")
            tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
        finally:
            connection.close()
    except apsw.Error as error:
        raise explain(error, path) from error
    if application != schema.APPLICATION_ID and (application or version or tables):
        raise StoreCorrupt(f"{path} is a SQLite file of another program")
    if version > schema.VERSION:
        raise StoreTooNew(f"{path} has version {version}; this flyball knows versions up to {schema.VERSION}")


def connect(path: Path) -> apsw.Connection:
    """A connection for writing."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(BUSY_MAX)
        connection.transaction_mode = "IMMEDIATE"
        if connection.readonly("main"):
            raise StoreReadOnly(f"{path} cannot be written")
        mode = connection.pragma("journal_mode", "wal")
        if mode != "wal":
            raise StoreError(
                f"{path}: its disk does not allow SQLite's WAL mode",
                remedy="Use a folder on a local disk: set FLYBALL_STATE_DIR.",
            )
        connection.pragma("journal_size_limit", WAL_BYTES_MAX)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: Path) -> apsw.Connection:
    """A connection that only reads. It is not opened read-only: a reader too takes part in the WAL's locking."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(BUSY_MAX)
    connection.pragma("query_only", 1)
    return connection


def explain(error: BaseException, path: Path, connection: apsw.Connection | None = None) -> StoreError:
    """What an error of SQLite or of the system means here."""
    if isinstance(error, StoreError):
        return type(error)(str(error), remedy=error.remedy)
    number = error.errno if isinstance(error, OSError) else connection.system_errno if connection else 0
    if isinstance(error, apsw.FullError) or (isinstance(error, OSError | apsw.IOError) and number in _NO_ROOM):
        return StoreFull(f"{path}: no room left on the disk; nothing was written")
    if isinstance(error, apsw.NotADBError | apsw.CorruptError):
        return StoreCorrupt(f"{path} is damaged or not a SQLite file: {error}")
    if isinstance(error, apsw.ReadOnlyError) or (isinstance(error, OSError) and number in _NO_LEAVE):
        return StoreReadOnly(f"{path} cannot be written: {error}")
    if isinstance(error, apsw.CantOpenError) and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return StoreReadOnly(f"{path} or its folder cannot be written")
    if isinstance(error, apsw.BusyError):
        return StoreError(
            f"{path} is locked by another program; nothing was written",
            remedy="Close the SQLite tool that is writing to it.",
        )
    return StoreError(f"{path}: {str(error) or type(error).__name__}; nothing was written")
