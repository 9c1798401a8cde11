"""To take over from an executor of DBOS that is dead: once, though several notice it.

DBOS recovers what an executor had when one with the same id is launched again. On many hosts nobody may do that; so
whoever knows that it is dead puts its workflows back, by DBOS' public API. One at a time: the claim is a record in
flyball's store, and lasts a short while, in case that whoever has it dies as well. Were two to do it in spite of that,
a workflow might be dispatched twice; the second execution would wait for the first, as its unit lives.
"""

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from flyball.core.policy import Key
from flyball.core.time import SECOND, Instant, Span, later
from flyball.errors import FlyballError
from flyball.governor import Governor
from flyball.integrations.dbos.options import EXECUTOR
from flyball.integrations.missing import missing
from flyball.runtimes.holder import is_gone, me
from flyball.store import Draft, Snapshot

try:
    from dbos import DBOS, WorkflowStatus
except ImportError:
    raise missing("DBOS", "dbos") from None

log = logging.getLogger("flyball")

NAME: Final = "dbos_takeover"
"""The name of the record, where policies have theirs."""

CLAIM: Final[Span] = 60 * SECOND
"""How long a claim lasts whose holder cannot be seen. What it is for takes a second."""

AT_ONCE_MAX: Final = 500
"""Workflows put back in one call: a statement of DBOS names them all."""


class Claim(msgspec.Struct, frozen=True):
    """Who takes over, and until when nobody else does."""

    holder: str
    until: Instant


def take_over(governor: Governor, executor: str, names: Sequence[str]) -> list[str]:
    """Put back the workflows of these names that a dead executor had. Their ids; none where another one does it."""
    if executor == DBOS.executor_id:
        text = f"{executor} is this executor itself, and it lives"
        raise FlyballError(text, remedy="Launch each process with an `executor_id` of its own, and name the dead one.")
    key = Key(NAME, EXECUTOR, executor)
    claim = _claimed(governor, key)
    if claim is None:
        return []
    try:
        _report_lost(governor, executor)
        taken: list[str] = []
        while found := _pending(executor, names):
            if governor.clock.now() >= claim.until:
                break  # whoever takes its place puts back the rest
            for queue in {one.queue_name for one in found}:
                ids = [one.workflow_id for one in found if one.queue_name == queue]
                DBOS.resume_workflows(ids, queue_name=queue)
                taken += ids
                log.warning("taken over from %s, which is dead: %s", executor, ", ".join(ids))
        return taken
    finally:
        _let_go(governor, key, claim)


def _pending(executor: str, names: Sequence[str]) -> list[WorkflowStatus]:
    return DBOS.list_workflows(
        status="PENDING",
        executor_id=executor,
        name=list(names),
        limit=AT_ONCE_MAX,
        load_input=False,
        load_output=False,
    )


def _report_lost(governor: Governor, executor: str) -> None:
    """Its runs end now, and not when their leases do."""
    for name, _, live in governor.live_runs():
        if live.labels.get(EXECUTOR) == executor:
            governor.reap(live.holder.__eq__, unit=name)


def _claimed(governor: Governor, key: Key) -> Claim | None:
    """The claim, if it is ours now: at most one caller has it."""
    holder, mine = me(), None

    def draft(snapshot: Snapshot) -> Draft | None:
        nonlocal mine
        mine = None
        now = max(governor.clock.now(), snapshot.at)
        if key in snapshot.records:
            other = msgspec.json.decode(snapshot.records[key], type=Claim)
            if now < other.until and not is_gone(other.holder):
                return None
        mine = Claim(holder, later(now, CLAIM))
        return Draft(now, {key: msgspec.json.encode(mine)}, None)

    governor.store.transact([key], draft)
    return mine


def _let_go(governor: Governor, key: Key, claim: Claim) -> None:
    data = msgspec.json.encode(claim)

    def draft(snapshot: Snapshot) -> Draft | None:
        if snapshot.records.get(key) != data:
            return None
        return Draft(max(governor.clock.now(), snapshot.at), {key: None}, None)

    governor.store.transact([key], draft)
