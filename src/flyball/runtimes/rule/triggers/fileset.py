"""The files of one trigger: as they are remembered, and what of that has changed. No disk, no clock.

Each file is a record of its own, so that one change writes one, however many files there are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from flyball.config.rules import FileChange
from flyball.core.policy import Key
from flyball.core.time import MILLISECOND, SECOND, Instant, Span
from flyball.runtimes.rule.triggers.listing import Pattern, Stamp, identity, shown

LISTING: Final = "files"
FILE: Final = "file"
"""The names of such records, where policies have theirs: one for each trigger, and one for each file of it."""
SETTLES: Final[Span] = 200 * MILLISECOND
"""A file that looked the same for so long is not being written any more."""
WRITES_MAX: Final[Span] = 10 * SECOND
"""How long a file that is written all the time is waited for: a log never comes to rest."""


class Listing(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of one trigger."""

    trigger: str
    """The digest of it."""
    too_many: bool = False
    """There were more files than are remembered: none is."""


class File(msgspec.Struct, frozen=True):
    """The record of one file."""

    path: str
    mtime: int
    size: int


@dataclass(slots=True, eq=False)
class Touch:
    """A path at which something changed, until it has come to rest."""

    path: str
    stamp: Stamp | None
    """How it looked last; None: there was no file."""
    since: Instant
    due: Instant
    """When to look again."""
    reported: str = ""
    """What the system said happened."""


@dataclass(slots=True, eq=False)
class FileSet:
    """One trigger of one rule."""

    rule: str
    key: Key
    trigger: FileChange
    digest: str
    pattern: Pattern
    listed: dict[str, File] | None = None
    """What is remembered; None: nothing, because there is too much of it."""
    is_new: bool = True
    """Nothing is known of what was there before: what is found now fires nothing."""
    touched: dict[str, Touch] = field(default_factory=dict)
    lists: bool = False
    """It is to be listed again."""

    def head(self) -> Mapping[Key, bytes]:
        """Its row."""
        return {self.key: msgspec.json.encode(Listing(self.digest, self.listed is None))}

    def file_key(self, name: str) -> Key:
        """Where one of its files is kept."""
        return Key(FILE, "unit", f"{self.key.subject}/{name}")

    def forgotten(self) -> dict[Key, bytes | None]:
        """The rows of all files, to be deleted."""
        return dict.fromkeys(self.file_key(name) for name in self.listed or ())

    def touch(self, path: str, looks: Stamp | None, now: Instant, reported: str = "") -> None:
        """Something changed there. Whether it comes to rest is seen from now on; how long that may take, from the first
        time."""
        name = identity(path)
        known = self.touched.get(name)
        since = known.since if known is not None else now
        if known is not None and known.reported == "created":
            reported = "created"
        self.touched[name] = Touch(path, looks, since, min(now + SETTLES, since + WRITES_MAX), reported)

    def compare(self, found: Mapping[str, tuple[str, Stamp]], now: Instant) -> None:
        """Touch whatever is not as it is remembered, and is not being looked at already."""
        listed = self.listed or {}
        for name, (path, looks) in found.items():
            known = listed.get(name)
            if (known is None or (known.mtime, known.size) != looks) and name not in self.touched:
                self.touch(path, looks, now)
        for name in listed.keys() - found.keys() - self.touched.keys():
            self.touched[name] = Touch(listed[name].path, None, now, now + SETTLES)

    def change(self, name: str, look: Stamp | None, reported: str) -> str | None:
        """What happened to a file, all in all. Where nothing is remembered, what was reported."""
        if self.listed is None:
            return "deleted" if look is None else "created" if reported == "created" else "modified"
        known = self.listed.get(name)
        if known is None:
            return "created" if look is not None else None
        if look is None:
            return "deleted"
        return "modified" if (known.mtime, known.size) != look else None


@dataclass(frozen=True, slots=True, eq=False)
class Rested:
    """A file that has come to rest, and is not as it is remembered."""

    fileset: FileSet
    name: str
    touch: Touch
    change: str
    file: File | None

    def rows(self) -> dict[Key, bytes | None]:
        """What is to be written with it."""
        if self.fileset.listed is None:
            return {}
        return {self.fileset.file_key(self.name): msgspec.json.encode(self.file) if self.file is not None else None}

    def remember(self) -> None:
        """It is written down."""
        if self.fileset.listed is None:
            return
        if self.file is None:
            self.fileset.listed.pop(self.name, None)
        else:
            self.fileset.listed[self.name] = self.file


def file_of(path: str, looks: Stamp) -> File:
    """A file as it is remembered."""
    return File(shown(path), looks.mtime, looks.size)
