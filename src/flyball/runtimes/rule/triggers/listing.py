"""Which files there are that a pattern means, and what they look like from outside: when they were changed, and their
size. Nothing of a file is ever read.

`*` and `?` stand for letters of one part of a path, `**` for any folders. As in a shell, none of them stands for a name
that begins with a dot: what is half-written has such a name, as a rule. Links to files are files; links to folders are
not followed, because they may lead round in circles.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

VISITED_MAX: Final = 200_000
"""Files and folders that are looked at for one listing, whether they are meant or not. A second, or a few."""
ABSENT: Final = (FileNotFoundError, NotADirectoryError, PermissionError)
"""What is not there, for us. Any other error says nothing about whether it is: a disk that does not answer."""

ANY: Final = "**"


class Stamp(NamedTuple):
    """What a file looks like from outside: if this changes, it was changed."""

    mtime: int
    size: int


class TooMany(Exception):
    """There are more files than are listed."""


class Pattern:
    """Files by their path, with `*`, `?` and `**`."""

    def __init__(self, text: str) -> None:
        parts = [part for part in text.split("/") if part not in ("", ".")]
        fixed = next((n for n, part in enumerate(parts) if _is_wild(part)), len(parts))
        fixed = min(fixed, len(parts) - 1)
        self.folder = os.path.normpath("/" + "/".join(parts[:fixed]))
        """Where all of them are."""
        self._parts = tuple(parts[fixed:])
        self.is_deep = len(self._parts) > 1 or ANY in self._parts
        """They may be in folders within that folder."""

    def matches(self, relative: str) -> bool:
        """Whether a path within the folder is meant."""
        places = self._begin()
        for name in relative.split("/"):
            places = self._step(places, name)
        return len(self._parts) in places

    def files(self, most: int) -> Iterator[tuple[str, Stamp]]:
        """The files that are there now, with their paths. TooMany if there are more; OSError if that cannot be said."""
        left = VISITED_MAX
        waiting = [(self.folder, self._begin())]
        while waiting:
            folder, places = waiting.pop()
            for entry in _entries(folder):
                left -= 1
                after = self._step(places, entry.name)
                if not after:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, after))
                elif len(self._parts) in after and (found := stamp(entry.path)) is not None:
                    most -= 1
                    yield entry.path, found
                if min(left, most) < 0:
                    raise TooMany

    def _begin(self) -> frozenset[int]:
        return self._with_none(frozenset((0,)))

    def _step(self, places: frozenset[int], name: str) -> frozenset[int]:
        """How many parts of the pattern may be used up after one more name of the path."""
        after = set()
        for place in places:
            if place == len(self._parts):
                continue
            part = self._parts[place]
            if part == ANY and not name.startswith("."):
                after.add(place)
            elif part != ANY and _stands_for(part, name):
                after.add(place + 1)
        return self._with_none(frozenset(after))

    def _with_none(self, places: frozenset[int]) -> frozenset[int]:
        """`**` may stand for no folder at all."""
        found = set(places)
        for place, part in enumerate(self._parts):
            if part == ANY and place in found:
                found.add(place + 1)
        return frozenset(found)


def _is_wild(part: str) -> bool:
    return "*" in part or "?" in part


def _stands_for(part: str, name: str) -> bool:
    if not _is_wild(part):
        return part == name
    if name.startswith(".") and not part.startswith("."):
        return False
    return fnmatchcase(name, part.replace("[", "[[]"))


def _entries(folder: str) -> Sequence["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except ABSENT:
        return ()


def stamp(path: str) -> Stamp | None:
    """How a file looks now; None: there is no file of that name."""
    try:
        found = os.stat(path)  # noqa: PTH116 - ten thousand of them
    except ABSENT:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            return None
        raise
    return Stamp(found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else None


def identity(path: str) -> str:
    """A short name for a path of any length, of any bytes."""
    return hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()


def shown(path: str) -> str:
    r"""A path as text. Bytes in it that are none are shown like this: `\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
