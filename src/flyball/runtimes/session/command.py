"""A session that is a command: how its runs open, and the way of its checkpoints between the store and its file.

What was begun and is not done is resumed, from the checkpoint that a person chose or from the last good one; what
begins anew forgets the checkpoints of what is done. All of it blocks, so an event loop has it done in a thread.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from flyball.config.units import Unit
from flyball.core.event import Resume, Start
from flyball.errors import FlyballError
from flyball.governor import NO_ROWS, Governor, Rows
from flyball.runtimes.session.opening import opening, resumes
from flyball.runtimes.session.workfile import WorkFile
from flyball.store import checkpoints

log = logging.getLogger(__name__)

SESSION: Final = "FLYBALL_SESSION"
CHECKPOINT: Final = "FLYBALL_CHECKPOINT"
CHECKPOINT_ID: Final = "FLYBALL_CHECKPOINT_ID"
RESUMED: Final = "FLYBALL_RESUMED"


class CommandSession:
    """One unit's."""

    def __init__(self, unit: Unit, governor: Governor, folder: Path, *, uid: int | None = None) -> None:
        self._unit = unit.name
        self._governor = governor
        self._folder, self._uid = folder, uid
        self._start = Start()
        """The last one that was opened."""

    @property
    def resumes(self) -> bool:
        """The run that was asked for last goes on from a checkpoint."""
        return isinstance(self._start, Resume)

    def open(self, start: Start) -> tuple[Start, Rows]:
        """That start as what it is, and what has to be written if it is granted."""
        store = self._governor.store
        chosen = checkpoints.chosen(store, self._unit)
        self._start = opening(self._governor, start, chosen or "")
        forgets = checkpoints.choose(self._unit, None) if chosen else NO_ROWS
        if not self.resumes:
            forgets = {**forgets, **checkpoints.cleared(checkpoints.read_index(store, self._unit), self._unit)}
        return self._start, forgets

    def begin(self) -> Mapping[str, str]:
        """Make the file for the run that was granted; what its processes have to know. FlyballError if there is no
        checkpoint that could be used."""
        named = self._start.checkpoint if isinstance(self._start, Resume) else ""
        kept = checkpoints.load(self._governor.store, self._unit, named or None) if self.resumes else None
        file = self._file()
        try:
            file.put(kept.data if kept is not None else b"")
        except OSError as error:
            raise FlyballError(
                f"cannot write the checkpoint file {file.path}: {error.strerror or error}",
                remedy="Check the owner and mode of its folder, or use another FLYBALL_STATE_DIR.",
            ) from None
        env = {SESSION: self._unit, CHECKPOINT: str(file.path)}
        if self.resumes:
            count, most = resumes(self._governor, self._unit)
            whence = f"from checkpoint {kept.id}" if kept is not None else "from the beginning"
            log.info("%s: resume %d of %d, %s", self._unit, count, most, whence)
            env[RESUMED] = "1"
        if kept is not None:
            env[CHECKPOINT_ID] = kept.id
        return env

    def take(self) -> bytes:
        """What the run wrote into its file. FlyballError says what is wrong with it."""
        return self._file().take()

    def rows(self, stage: str, data: bytes) -> Rows:
        """What has to be written to keep that as its checkpoint."""
        return checkpoints.rows(self._governor.store, self._unit, stage, data, self._governor.clock.now())

    def close(self) -> None:
        """Done with this unit, for now: what a later run is given comes from the store."""
        self._file().remove()

    def _file(self) -> WorkFile:
        return WorkFile(self._folder, self._unit, uid=self._uid)
