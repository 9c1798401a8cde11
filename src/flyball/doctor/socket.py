"""The state folder and the daemon's socket in it: whose they are, and who else may use them."""

import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flyball.control.client import ADDRESS_MAX, SOCKET
from flyball.doctor.finding import Finding, bad, ok, warning
from flyball.doctor.scene import Scene
from flyball.errors import FlyballError


@dataclass(frozen=True, slots=True)
class Owned:
    """A file or folder: whose it is, and who may do what."""

    path: str
    mode: int
    """All of it, its kind included."""
    owner: int

    @property
    def shown(self) -> str:
        """As `chmod` takes it."""
        return f"{stat.S_IMODE(self.mode):04o}"


def check(scene: Scene) -> Iterator[Finding]:
    """Neither need be there."""
    folder = owned(scene.folder)
    if folder is None and is_hidden(scene.folder):
        yield bad(f"{scene.folder} may not be looked at by you", "Ask as its owner, or set FLYBALL_STATE_DIR.")
    elif folder is None:
        yield ok(f"{scene.folder}: there is no state folder yet; the first run makes it, for you alone")
    else:
        yield from judge_folder(folder, os.geteuid())
    path = scene.folder / SOCKET
    yield from judge_length(path, linux=sys.platform.startswith("linux"))
    found = owned(path)
    if found is not None:
        yield from judge_socket(found, listened=scene.ping)


def judge_folder(folder: Owned, me: int) -> Iterator[Finding]:
    """Whoever can write there can change every count; whoever can read there sees logs and tokens."""
    if not stat.S_ISDIR(folder.mode):
        yield bad(f"{folder.path} is no folder", "Move it away, or set FLYBALL_STATE_DIR.")
        return
    text = f"{folder.path} has the mode {folder.shown} and is owned by uid {folder.owner}"
    if me not in (0, folder.owner):
        yield bad(f"{text}; you are uid {me}", "Ask as its owner, or set FLYBALL_STATE_DIR to a folder of your own.")
    if folder.mode & 0o022:
        yield bad(f"{text}: others can write there", f"`chmod 0700 {folder.path}`.")
    elif folder.mode & 0o077:
        yield warning(f"{text}: others can look into it", f"`chmod 0700 {folder.path}`.")
    elif me in (0, folder.owner):
        yield ok(text)


def judge_length(path: Path, *, linux: bool) -> Iterator[Finding]:
    """An address of a socket is short. Where there is /proc, a longer one is reached through its folder."""
    length = len(os.fsencode(path))
    if length < ADDRESS_MAX:
        return
    text = f"{path} has {length} bytes; an address of a socket has {ADDRESS_MAX - 1} at most"
    if linux:
        yield ok(f"{text}; it is reached through its folder")
    else:
        yield bad(text, "Set FLYBALL_STATE_DIR to a shorter path.")


def judge_socket(found: Owned, *, listened: object) -> Iterator[Finding]:
    """`listened` is what came of asking there: an answer, an error, or None: nobody listens."""
    if not stat.S_ISSOCK(found.mode):
        yield bad(f"{found.path} is no socket", "Remove it: the daemon makes its own.")
        return
    text = f"{found.path} has the mode {found.shown}"
    if found.mode & 0o077:
        remedy = f"`chmod 0600 {found.path}`; the daemon makes it so, and asks the kernel who connects."
        yield warning(f"{text}: others may connect", remedy)
    elif isinstance(listened, FlyballError):
        yield bad(f"{text}, and nobody answers there: {listened}", listened.remedy)
    elif listened is None:
        yield ok(f"{text}; it was left behind by a daemon that is gone, and the next one replaces it")
    else:
        yield ok(f"{text}, and a daemon answers there")


def is_hidden(path: Path) -> bool:
    """Whether nobody can say if it is there: a folder above it is closed to who asks."""
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def owned(path: Path) -> Owned | None:
    """None: it is not there, or may not be seen."""
    try:
        seen = path.lstat() if path.name == SOCKET else path.stat()
    except OSError:
        return None
    return Owned(str(path), seen.st_mode, seen.st_uid)
