"""The file through which a command gets its checkpoint, and hands over a new one.

It lies in a folder of the unit's own that only the unit's user can enter, so what is in there is that user's word and
nothing more. It is never written through: a new file takes its place. It is never trusted: a plain file of that user is
read, up to a limit, and nothing that merely leads to one.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from flyball.core.failure import digest
from flyball.errors import FlyballError
from flyball.runtimes.notify import shared_folder
from flyball.store.checkpoints import BYTES_MAX

NAME: Final = "checkpoint"
_NEW: Final = ".checkpoint.new"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Not to wait: what is called so may be a pipe that nobody writes into."""


class WorkFile:
    """The checkpoint file of one unit."""

    def __init__(self, folder: Path, unit: str, *, uid: int | None = None) -> None:
        """Below that folder; but if the unit runs as another user, who cannot get there, where that one can."""
        own = os.geteuid()
        self._uid = own if uid is None else uid
        self._shared = self._uid != own
        self._folder = folder / unit
        if self._shared:
            self._folder = shared_folder(own) / f"session-{digest([str(self._folder)])}"

    @property
    def path(self) -> Path:
        """What the command is told."""
        return self._folder / NAME

    def put(self, data: bytes) -> None:
        """Have the file say this, whatever it said or was before. OSError if that cannot be done."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._shared and self._folder.lstat().st_uid != self._uid:
            os.chown(self._folder, self._uid, -1, follow_symlinks=False)
        with _opened(self._folder, _FOLDER) as folder:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_NEW, dir_fd=folder)
            with _opened(_NEW, _WRITE, folder) as number, open(number, "wb", closefd=False) as file:
                if self._shared:
                    os.fchown(number, self._uid, -1)
                file.write(data)
            os.replace(_NEW, NAME, src_dir_fd=folder, dst_dir_fd=folder)

    def take(self) -> bytes:
        """What the file says. FlyballError if there is none, or it is not one that may be read."""
        try:
            with _opened(self._folder, _FOLDER) as folder, _opened(NAME, _READ, folder) as number:
                self._check(os.fstat(number))
                with open(number, "rb", closefd=False) as file:
                    data = file.read(BYTES_MAX + 1)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._refused("is a link; a plain file has to be there") from None
            raise self._refused(f"cannot be read: {error.strerror or error}") from None
        if not data:
            raise self._refused("is empty: there would be nothing to go on from. Write it first, then report it")
        if len(data) > BYTES_MAX:
            raise self._refused(_too_large(f"over {BYTES_MAX}"))
        return data

    def remove(self) -> None:
        """No run needs it any more. What else the command left in the folder stays."""
        with contextlib.suppress(OSError), _opened(self._folder, _FOLDER) as folder:
            for name in (_NEW, NAME):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
            self._folder.rmdir()

    def _check(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise self._refused("is no plain file")
        if found.st_uid != self._uid or found.st_nlink != 1:
            raise self._refused("is somebody else's file, or has a second name")
        if found.st_size > BYTES_MAX:
            raise self._refused(_too_large(str(found.st_size)))

    def _refused(self, why: str) -> FlyballError:
        return FlyballError(
            f"the checkpoint {self.path} {why}; the last one that was kept stands",
            remedy="Write it to the file that FLYBALL_CHECKPOINT names, then report it.",
        )


@contextlib.contextmanager
def _opened(path: Path | str, flags: int, folder: int | None = None) -> Iterator[int]:
    """That very file, by its number: in that very folder, whatever is put in the place of either meanwhile."""
    number = os.open(path, flags, 0o600, dir_fd=folder)
    try:
        yield number
    finally:
        os.close(number)


def _too_large(size: str) -> str:
    return f"has {size} bytes; allowed: {BYTES_MAX}. Put what is large into a file of its own, and its name here"
