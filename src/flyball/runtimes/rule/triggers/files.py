"""Files that come, change or go, and fire rules.

What counts is the difference between a listing of the files, which is remembered, and what is there now: so changes
while nobody was there are found as well, and one change fires once. The system's reports say only where to look. A file
that is being written is left in peace until it looks the same twice.
"""

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from flyball.config.rules import FileChange, Rule
from flyball.core.policy import Key
from flyball.core.time import FOREVER, MINUTE, SECOND, Instant, Span
from flyball.governor import Governor
from flyball.runtimes.driver import Sleep
from flyball.runtimes.flag import Flag
from flyball.runtimes.rule.firing import Bell, Fate, Spark
from flyball.runtimes.rule.triggers.fileset import (
    FILE,
    LISTING,
    SETTLES,
    WRITES_MAX,
    File,
    FileSet,
    Listing,
    Rested,
    file_of,
)
from flyball.runtimes.rule.triggers.listing import Pattern, Stamp, TooMany, identity, shown, stamp
from flyball.runtimes.rule.triggers.striker import UNREADABLE, Striker, digest_of, place_of
from flyball.runtimes.rule.triggers.watcher import Change, Watcher, watchfiles

log = logging.getLogger(__name__)

LISTED_MAX: Final = 10_000
"""Files of one trigger that are remembered. Of more than this, only changes that are reported while somebody is there
fire a rule."""
LISTED_ALL_MAX: Final = 100_000
"""The same for all triggers together: they are in memory, too."""
LOOK_EVERY: Final[Span] = 2 * SECOND
"""How often it is looked whether the folders are still the same ones: one that comes later, or again, is watched."""
FULL_WAIT: Final[Span] = 5 * SECOND
"""How long files wait that a rule's queue has no room for, until it is tried again."""
RINGS_MAX: Final = 100
"""Files of one rule that are rung for at the same time: as many as fit into its queue, if nobody said otherwise."""
RULES_MAX: Final = 20
"""Rules that are rung for at the same time."""
TOUCHED_MAX: Final = 100_000
"""Files that wait to come to rest, or for room. Of others, reports are not heard then; a listing finds them later."""
LIST_EVERY: Final[Span] = 1 * MINUTE
"""How often everything is listed, whatever was reported: not every disk reports, and reports can be lost."""

R = TypeVar("R", bound=msgspec.Struct)


class Files:
    """Fires rules by changes of files."""

    def __init__(self, bell: Bell, governor: Governor, sleep: Sleep | None = None) -> None:
        watchfiles()
        self._striker = Striker(bell, governor, sleep)
        self._clock, self._store = governor.clock, governor.store
        self._wanted: dict[Key, tuple[str, FileChange]] = {}
        self._refit = False
        self._fitted = Flag()
        self._sets: dict[Key, FileSet] = {}
        self._by_folder: dict[str, list[FileSet]] = {}
        """By the folder that is really watched, without links."""
        self._folders: dict[str, tuple[int, int] | None] = {}
        """Of each folder, which one it is; None: it is not there."""
        self._rewatches = False
        self._said = False
        self._look_at: Instant = 0
        self._list_at: Instant = FOREVER
        self._poked = Flag()

    def use(self, rules: Sequence[Rule]) -> None:
        """Watch for what fires these rules."""
        self._wanted = {
            place_of(LISTING, rule.name, place): (rule.name, trigger)
            for rule in rules
            for place, trigger in enumerate(rule.triggers)
            if isinstance(trigger, FileChange)
        }
        self._refit = True
        self._fitted.clear()
        self._poked.set()

    async def settled(self) -> None:
        """Returns when it is known what is there already."""
        await self._fitted.wait()

    async def run(self) -> None:
        """Watch, until it is cancelled. What a run before this one knew is read again: it may have failed halfway."""
        self._sets.clear()
        self._refit = False
        watcher = Watcher(self._told, self._up, self._failed)
        try:
            await self._fit(self._store.states(LISTING), self._store.states(FILE))
            while True:
                self._poked.clear()
                if self._refit:
                    self._refit = False
                    await self._fit({}, {})
                if not self._refit:
                    self._fitted.set()
                await self._look(watcher)
                await self._list_those([fileset for fileset in self._sets.values() if fileset.lists])
                await self._fire()
                await self._striker.sleep(self._poked, self._wakes_at())
        finally:
            watcher.close()

    def _wakes_at(self) -> Instant:
        due = (touch.due for fileset in self._sets.values() for touch in fileset.touched.values())
        return min((self._look_at, self._list_at, *due))

    # Which files are watched.

    async def _fit(self, heads: Mapping[Key, bytes], files: Mapping[Key, bytes]) -> None:
        """Watch for every trigger that there is now. One that did not change is not touched."""
        wanted = self._wanted
        rows: dict[Key, bytes | None] = dict.fromkeys(key for key in heads if key not in wanted)
        for key, fileset in list(self._sets.items()):
            if key not in wanted or wanted[key][1] != fileset.trigger:
                del self._sets[key]
                rows |= {key: None, **fileset.forgotten()}
        for key, (rule, trigger) in wanted.items():
            if key not in self._sets:
                digest = digest_of(trigger)
                self._sets[key] = fileset = FileSet(rule, key, trigger, digest, Pattern(trigger.pattern))
                head = _decoded(Listing, heads.get(key))
                if head is not None and head.trigger == digest:
                    fileset.is_new = False
                    fileset.listed = None if head.too_many else {}
        for key, data in files.items():
            subject, _, name = key.subject.rpartition("/")
            known = self._sets.get(Key(LISTING, "unit", subject))
            file = _decoded(File, data)
            if known is None or known.is_new or known.listed is None or file is None:
                rows[key] = None
            else:
                known.listed[name] = file
        await self._striker.keep(rows)
        await self._list_those([fileset for fileset in self._sets.values() if fileset.is_new])
        self._rewatches = True
        self._look_at = 0

    async def _look(self, watcher: Watcher) -> None:
        """Have the folders watched that are there. After that everything is listed: what changed before it is found by
        that, what changes later is told."""
        now = self._clock.now()
        if now >= self._list_at:
            self._up()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY
        folders = {fileset.pattern.folder: fileset.pattern.is_deep for fileset in self._sets.values()}
        for fileset in self._sets.values():
            folders[fileset.pattern.folder] |= fileset.pattern.is_deep
        found = await asyncio.to_thread(_which, folders)
        if found == self._folders and not self._rewatches:
            return
        self._folders, self._rewatches = found, False
        real = await asyncio.to_thread(_real, [folder for folder, which in found.items() if which is not None])
        self._by_folder = {}
        for fileset in self._sets.values():
            if fileset.pattern.folder in real:
                self._by_folder.setdefault(real[fileset.pattern.folder], []).append(fileset)
        flat = {real[folder] for folder in real if not folders[folder]}
        deep = {real[folder] for folder in real if folders[folder]}
        watcher.watch(sorted(flat - deep), sorted(deep))
        self._list_at = now + LIST_EVERY
        if not real:  # nobody will say that they are watched
            self._up()

    # What the watcher tells.

    def _up(self) -> None:
        """All folders are watched, or it is time: list everything."""
        for fileset in self._sets.values():
            fileset.lists = True
        self._list_at = self._clock.now() + LIST_EVERY
        self._poked.set()

    def _failed(self, error: Exception) -> None:
        """They are not watched any more. They are at the next look; what nobody told of meanwhile is listed now."""
        if not self._said and not _is_about_a_name(error):
            self._said = True
            log.warning("files cannot be watched, and are looked at every few seconds instead: %s", error)
        self._rewatches = True
        self._up()

    def _told(self, changes: Sequence[Change]) -> None:
        now = self._clock.now()
        if sum(len(fileset.touched) for fileset in self._sets.values()) >= TOUCHED_MAX:
            log.warning("%d files wait already: what the system tells of others is not heard", TOUCHED_MAX)
            return
        for change in changes:
            if change.path in self._by_folder and change.kind == "deleted":
                self._rewatches, self._look_at = True, 0
            folder = os.path.dirname(change.path)  # noqa: PTH120 - there may be thousands
            while True:
                for fileset in self._by_folder.get(folder, ()):
                    self._hear(fileset, folder, change, now)
                if folder in ("/", ""):
                    break
                folder = os.path.dirname(folder)  # noqa: PTH120 - there may be thousands
        self._poked.set()

    def _hear(self, fileset: FileSet, folder: str, change: Change, now: Instant) -> None:
        relative = change.path[len(folder) :].lstrip("/")
        path = f"{fileset.pattern.folder.rstrip('/')}/{relative}"
        if change.is_folder:
            fileset.lists |= fileset.pattern.is_deep and change.kind == "created"
        elif fileset.pattern.matches(relative):
            fileset.touch(path, change.stamp, now, change.kind)
        elif change.kind == "deleted" and fileset.pattern.is_deep and fileset.listed:
            inside = f"{shown(path)}/"
            fileset.lists |= any(file.path.startswith(inside) for file in fileset.listed.values())

    # What changed.

    async def _list_those(self, watches: Iterable[FileSet]) -> None:
        now = self._clock.now()
        room = LISTED_ALL_MAX - sum(len(fileset.listed or ()) for fileset in self._sets.values())
        for fileset in watches:
            fileset.lists = False
            if fileset.listed is None and not fileset.is_new:
                continue
            known = len(fileset.listed or ())
            try:
                found = await asyncio.to_thread(_listed, fileset.pattern, min(LISTED_MAX, room + known))
            except OSError as error:
                log.warning("%s: %s cannot be listed now: %s", fileset.rule, fileset.trigger.pattern, error)
                continue
            room += known - len(found or ())
            if found is None:
                await self._give_up(fileset)
            elif fileset.is_new:
                fileset.listed = {name: file_of(path, looks) for name, (path, looks) in found.items()}
                rows = {fileset.file_key(name): msgspec.json.encode(file) for name, file in fileset.listed.items()}
                await self._striker.keep({**rows, **fileset.head()})
                fileset.is_new = False
            else:
                fileset.compare(found, now)

    async def _give_up(self, fileset: FileSet) -> None:
        """There are too many files to remember."""
        text = "%s: %s means too many files to remember (%d, and %d for all rules): what changes while nobody is there "
        text += "does not fire it"
        log.warning(text, fileset.rule, fileset.trigger.pattern, LISTED_MAX, LISTED_ALL_MAX)
        rows = fileset.forgotten()
        fileset.listed, fileset.is_new = None, False
        await self._striker.keep({**rows, **fileset.head()})

    async def _fire(self) -> None:
        """Ring for what has come to rest."""
        now = self._clock.now()
        due = [
            (fileset, name, touch)
            for fileset in self._sets.values()
            for name, touch in fileset.touched.items()
            if touch.due <= now
        ]
        if not due:
            return
        looks = await asyncio.to_thread(_stamps, [touch.path for _, _, touch in due])
        now = self._clock.now()
        kept: dict[Key, bytes | None] = {}
        quiet: list[Rested] = []
        loud: dict[str, list[Rested]] = {}
        for (fileset, name, touch), look in zip(due, looks, strict=True):
            if fileset.touched.get(name) is not touch:  # it changed meanwhile: its time comes
                continue
            if isinstance(look, OSError):
                touch.due = now + LOOK_EVERY
                continue
            if look != touch.stamp and now - touch.since < WRITES_MAX:
                touch.stamp, touch.due = look, now + SETTLES
                continue
            del fileset.touched[name]
            change = fileset.change(name, look, touch.reported)
            if change is None:
                continue
            rested = Rested(fileset, name, touch, change, file_of(touch.path, look) if look is not None else None)
            if change in fileset.trigger.on:
                loud.setdefault(fileset.rule, []).append(rested)
            else:
                quiet.append(rested)
                kept |= rested.rows()
        await self._striker.keep(kept)
        for rested in quiet:
            rested.remember()
        rules = iter(loud.values())
        while some := list(islice(rules, RULES_MAX)):
            await asyncio.gather(*(self._ring(found) for found in some))
        for fileset in self._sets.values():
            if fileset.listed is not None and len(fileset.listed) > LISTED_MAX:
                await self._give_up(fileset)

    async def _ring(self, found: "Sequence[Rested]") -> None:
        """Ring for files that one rule is for, the oldest first. Those that its queue has no room for wait where they
        are, on the disk."""
        found = sorted(found, key=lambda rested: rested.file.mtime if rested.file is not None else 0)
        for start in range(0, len(found), RINGS_MAX):
            some = found[start : start + RINGS_MAX]
            fates = await self._striker.ring([_spark(rested) for rested in some])
            full = [rested for rested, fate in zip(some, fates, strict=True) if fate is Fate.FULL]
            for rested in some:
                if rested not in full:
                    rested.remember()
            if full:
                at = self._clock.now() + FULL_WAIT
                for rested in (*full, *found[start + RINGS_MAX :]):
                    rested.touch.due = at
                    rested.fileset.touched.setdefault(rested.name, rested.touch)
                break


def _spark(rested: Rested) -> Spark:
    path, change = shown(rested.touch.path), rested.change
    said: dict[str, Any] = {"kind": "file", "path": path, "name": path.rpartition("/")[2], "change": change}
    trigger = "file deleted" if change == "deleted" else "file"  # a file that goes does not join one that came
    return Spark(rule=rested.fileset.rule, trigger=trigger, data=said, rows=rested.rows(), joins=True, comes_again=True)


def _is_about_a_name(error: Exception) -> bool:
    """Names that are no text cannot be told. The files are found by listing them."""
    return "Unable to decode path" in str(error)


# In a thread: disks may take their time.


def _listed(pattern: Pattern, most: int) -> dict[str, tuple[str, Stamp]] | None:
    try:
        return {identity(path): (path, looks) for path, looks in pattern.files(most)}
    except TooMany:
        return None


def _which(folders: Iterable[str]) -> dict[str, tuple[int, int] | None]:
    return {folder: _identified(folder) for folder in folders}


def _identified(folder: str) -> tuple[int, int] | None:
    try:
        found = os.stat(folder)  # noqa: PTH116 - there may be thousands
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


def _real(folders: Iterable[str]) -> dict[str, str]:
    return {folder: os.path.realpath(folder) for folder in folders}


def _stamps(paths: Iterable[str]) -> list[Stamp | OSError | None]:
    return [_stamp(path) for path in paths]


def _stamp(path: str) -> Stamp | OSError | None:
    try:
        return stamp(path)
    except OSError as error:
        return error


def _decoded(kind: type[R], data: bytes | None) -> R | None:
    try:
        return None if data is None else msgspec.json.decode(data, type=kind)
    except UNREADABLE:
        return None
