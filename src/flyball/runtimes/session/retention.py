"""What is kept of sessions that are over: the newest few thousand. Each piece of work has a name of its own, so without
this a program that serves for months would keep them all.

Only what is over is forgotten, the oldest first: work that is done, and calls of a graph without a thread, which nobody
can resume. What is paused, held, or failed and can be resumed stays. It is forgotten by an order like any other, so the
journal says so, and replays alike.
"""

import logging
import threading
from typing import Final

from flyball.config import definitions
from flyball.core.codec import decode_state
from flyball.core.event import Cause, Released
from flyball.core.policy import Key
from flyball.core.time import Instant
from flyball.governor import Governor, Rows
from flyball.policies import Exclusive, Session
from flyball.policies.restart import State as Restarts
from flyball.policies.session import CALL
from flyball.runtimes.agent.memory import Memory
from flyball.runtimes.session import record
from flyball.store.checkpoints import chosen_key, cleared, read_index

log = logging.getLogger(__name__)

LOOKS_EVERY: Final = 256
"""Ends between two looks: each reads a row per session."""


class Retention:
    """Forgets what is too old, now and then, when something ended."""

    def __init__(self, governor: Governor, kept_max: int) -> None:
        self._governor, self._kept_max = governor, kept_max
        self._ended = 0
        self._looking = threading.Lock()

    def ended(self) -> None:
        """One more is over."""
        self._ended += 1
        if self._ended % LOOKS_EVERY == 1 and self._looking.acquire(blocking=False):
            try:
                forget_old(self._governor, self._kept_max)
            finally:
                self._looking.release()


def forget_old(governor: Governor, kept_max: int) -> int:
    """Forget the oldest sessions that are over, if there are more sessions than that; how many were forgotten."""
    store = governor.store
    kinds = {
        key.subject: policy.of
        for key, data in store.states(definitions.NAME).items()
        if definitions.WORK in data
        for policy in definitions.read(key.subject, data)
        if isinstance(policy, Session)
    }
    too_many = len(kinds) - kept_max
    if too_many <= 0:
        return 0
    busy = {key.subject for name in (Session.NAME, Exclusive.NAME) for key in store.states(name)}
    over: list[tuple[Instant, str]] = []
    for key, data in store.states("restart").items():
        kind = kinds.get(key.subject) if key.by == "unit" else None
        if kind is None:
            continue
        ended = decode_state(Restarts, data)
        done = ended.last is Cause.DONE and key.subject not in busy
        if done or (kind == CALL and ended.last is not None and not governor.live_runs(key.subject)):
            over.append((ended.last_at, key.subject))
    oldest = [unit for _, unit in sorted(over)[:too_many]]
    for unit in oldest:
        order = Released(unit=unit, by="flyball", note=f"over, and more than {kept_max} sessions are kept")
        governor.submit(order, _rows(governor, unit))
    if oldest:
        log.info("%d sessions that are over were forgotten; %d are kept", len(oldest), kept_max)
    return len(oldest)


def _rows(governor: Governor, unit: str) -> Rows:
    """All that is kept of it and is no policy's."""
    keys = (Key(definitions.NAME, "unit", unit), record.key(unit), Memory.key(unit), chosen_key(unit))
    return {**dict.fromkeys(keys), **cleared(read_index(governor.store, unit), unit)}
