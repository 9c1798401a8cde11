"""The draft of the next checkpoint: a mapping that a session fills, kept with the stage that filled it.

It is written in the transaction that reports the stage: so after a crash it is as it was after the last stage that was
made, never half of one. What a failed stage changed is taken back; but not while other stages are being made, because
what is theirs must not be lost.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from flyball.core.policy import Key
from flyball.core.time import Instant
from flyball.runtimes.agent.memory import Memory
from flyball.store.checkpoints import Checkpoint, Kept, add

log = logging.getLogger(__name__)

LOST: Final = "a checkpoint of %s is not kept: its run was given up as lost, and what it does now another run does too"


class Draft(Memory):
    """What a session goes on from. Used like a dict; values are JSON."""

    WORD = "checkpoint"

    def __init__(
        self,
        unit: str,
        checkpoint: Checkpoint | None,
        index: Sequence[Kept],
        *,
        version: str,
        now: Callable[[], Instant],
        is_live: Callable[[], bool],
    ) -> None:
        super().__init__(unit, None if checkpoint is None else checkpoint.data)
        self.stage = ""
        """The stage whose end is being reported."""
        self.open = 0
        """Stages that are being made."""
        self._index = self._index_before = list(index)
        self._version = version
        self._now = now
        self._is_live = is_live
        self._written = 0

    @property
    def progress(self) -> bool:
        """Whether a new checkpoint was kept since the run began."""
        return self._written > 0

    def check(self) -> None:
        """MemoryRefused if it cannot be kept."""
        self._encoded()

    def changed(self) -> dict[Key, bytes | None]:
        """The rows of the next checkpoint, if there is anything new in it. MemoryRefused if it cannot be kept."""
        if not super().changed():
            return {}
        if not self._is_live():
            log.warning(LOST, self._unit)
            return {}
        before = self._index
        self._index, rows = add(before, self._unit, self.stage, self._saved, self._now(), version=self._version)
        self._index_before = before
        self._written += 1
        return dict(rows)

    def not_kept(self) -> None:
        """What changed could not be written: it is written with the next stage."""
        super().not_kept()
        self._index = self._index_before
        self._written = max(0, self._written - 1)

    def discard(self) -> None:
        """Forget what changed since the last stage, unless that may be of stages that are being made."""
        if self.open <= 1:
            super().discard()
