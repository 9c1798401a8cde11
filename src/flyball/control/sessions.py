"""What people see of sessions: pieces of work that can be paused and resumed, and always end. Computed, as all that
people see: from the policies' states, and, where these forget when a run is over, from the journal."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

from flyball.control import story
from flyball.control.context import found, unknown_unit
from flyball.control.shapes import (
    AmountView,
    CheckpointView,
    CostlyView,
    CountView,
    DeadlineView,
    PauseView,
    RoundsView,
    SessionView,
    SessionWord,
    UnitView,
)
from flyball.control.story import Story
from flyball.control.views import Look, Opinion, states_of
from flyball.core.amounts import MONEY
from flyball.core.event import Cause, Exited, Resume, Step
from flyball.core.layers import LAYERS, layer_of
from flyball.core.time import seconds
from flyball.policies import Budget, Deadline, Limit, Restart, Rounds, Session
from flyball.policies.budget import OVER_BUDGET
from flyball.policies.limit import OUT_OF_RESUMES
from flyball.policies.session import PERSON
from flyball.policies.session import State as Known
from flyball.store import checkpoints
from flyball.store.checkpoints import Checkpoint

WORDS: Final = {
    Cause.DONE: SessionWord.COMPLETED,
    Cause.STOPPED: SessionWord.STOPPED,
    Cause.ERROR: SessionWord.FAILED,
    Cause.TIMEOUT: SessionWord.TIMED_OUT,
    Cause.STARVED: SessionWord.FAILED,
    Cause.LOST: SessionWord.LOST,
}
"""What a session is whose last run ended so."""

WANTS_A_PERSON: Final = (
    SessionWord.FAILED,
    SessionWord.TIMED_OUT,
    SessionWord.BUDGET_EXCEEDED,
    SessionWord.LOST,
)
"""What a person should look at, besides what is held."""

COMPARED_MIN: Final = 7
"""Sessions that spent something before they are compared: one, and six to compare it with, as of an agent's hours."""
COSTLY_FACTOR: Final = 4
"""So many times what is usual is far more; as of an agent's hours, too."""
COSTLY_MIN: Final = 100_000
"""Less than a tenth of a dollar is never much."""


def kind_of(look: Look, unit: str) -> str:
    """`session`, `graph` or `call`; nothing if that unit is no piece of work."""
    return look.work(unit)


def known_session(look: Look, unit: str) -> str:
    """The session of that id. CommandError if there is none, or it is a unit of another kind."""
    sessions = [name for name in look.units() if kind_of(look, name)]
    named = found(unit, sessions)
    if named is not None:
        return named
    remedy = "`flyball sessions` lists all sessions."
    if unit in look.units():
        remedy = f"It is a unit of another kind: `flyball why {unit}`."
    raise unknown_unit(unit, sessions, text="Session not found: {}", remedy=remedy)


def fired(look: Look, sessions: Iterable[SessionView]) -> dict[str, int]:
    """How often each layer ended one of these sessions, as far as the journal was read."""
    pasts = [look.past.of(session.id).fired for session in sessions]
    return {str(layer): sum(past.get(layer, 0) for past in pasts) for layer in LAYERS}


def costly(sessions: Sequence[SessionView]) -> tuple[CostlyView, ...]:
    """Those that cost far more than the others of them usually do, the dearest first. Budgets stop them; this finds the
    one to look at."""
    spent = {one.id: one.budget.spent for one in sessions if one.budget is not None and one.budget.spent}
    if len(spent) < COMPARED_MIN:
        return ()
    usual = round(median(spent.values()))
    dear = [name for name, cost in spent.items() if cost > max(COSTLY_MIN, COSTLY_FACTOR * usual)]
    dear.sort(key=lambda name: (-spent[name], name))
    return tuple(CostlyView(id=name, spent=spent[name], usual=usual) for name in dear)


def view(look: Look, unit: str, told: Story | None = None) -> SessionView:
    """All that there is to see of one session."""
    opinions = look.opinions(unit)
    seen = look.unit(unit, opinions)
    told = told or story.read(look.governor.store, unit)
    known = next((state for _, state, _ in states_of(Session, opinions, "unit")), Known())
    past = look.past.of(unit)
    ended = None if seen.running else past.last_exit
    status = _status(seen, known, ended, opinions)
    return SessionView(
        id=unit,
        kind=kind_of(look, unit),
        status=status,
        held=seen.held,
        stop_reason=_stop_reason(ended),
        failure_reason=_failure_reason(status, seen, ended),
        layer=layer_of(ended.error) if ended is not None else None,
        resumes=_count(opinions, Resume),
        steps=_count(opinions, Step, told.steps),
        rounds=_rounds(opinions, told),
        budget=_budget(opinions),
        deadline=_deadline(look, unit, running=seen.running),
        pause=_pause(known),
        checkpoints=kept(look, unit),
        user=seen.labels.get("user", ""),
        tree=seen.labels.get("tree", ""),
        started=None if past.began is None else seconds(past.began),
        ended=seconds(past.exited_at) if ended is not None else None,
    )


def kept(look: Look, unit: str) -> tuple[CheckpointView, ...]:
    """The checkpoints of a session, the oldest first."""
    return tuple(
        CheckpointView(id=one.id, stage=one.stage, at=seconds(one.at), bytes=one.bytes)
        for one in checkpoints.read_index(look.governor.store, unit)
    )


def checkpoint_of(look: Look, unit: str, id: str) -> Checkpoint:  # noqa: A002 - so people call it
    """The checkpoint of that id. CheckpointError if there is none, or it is damaged."""
    # Without an id the last good one would be meant; here somebody named one.
    found = checkpoints.load(look.governor.store, unit, id or "?")
    assert found is not None  # noqa: S101 - for mypy: a named one is there, or that raises
    return found


def _status(seen: UnitView, known: Known, ended: Exited | None, opinions: Sequence[Opinion]) -> SessionWord:
    if seen.running:
        return SessionWord.RUNNING
    if seen.live:
        return SessionWord.LOST
    if OUT_OF_RESUMES in _codes(seen):
        return SessionWord.FAILED
    stopped = any(reason.policy == "manual" and reason.verb == "stop" for reason in seen.reasons)
    if known.pause:
        return SessionWord.STOPPED if stopped else SessionWord.PAUSED
    # The journal may be shorter than the work is old: how it ended last, the restart policy knows too.
    last = ended.cause if ended else next((state.last for _, state, _ in states_of(Restart, opinions, "unit")), None)
    if last is None:
        return SessionWord.STOPPED if known.begun else SessionWord.PENDING
    if ended is not None and ended.error == OVER_BUDGET and not last.done:
        return SessionWord.BUDGET_EXCEEDED
    if last is Cause.STOPPED and any(reason.policy == "manual" and reason.verb == "hold" for reason in seen.reasons):
        return SessionWord.PAUSED
    return WORDS[last]


def _codes(seen: UnitView) -> list[str]:
    return [reason.code for reason in seen.reasons]


def _stop_reason(ended: Exited | None) -> str | None:
    """The code of whoever ended it; none if it ended by itself, or is only paused."""
    if ended is None or ended.pause:
        return None
    if ended.policy or layer_of(ended.error) is not None:
        return ended.error or ended.policy
    return "timeout" if ended.cause is Cause.TIMEOUT else None


def _failure_reason(status: SessionWord, seen: UnitView, ended: Exited | None) -> str | None:
    if status is SessionWord.FAILED and OUT_OF_RESUMES in _codes(seen):
        return OUT_OF_RESUMES
    if status is SessionWord.LOST:
        return "lost"
    if status in WANTS_A_PERSON and ended is not None:
        return _stop_reason(ended) or ended.error.partition(":")[0] or str(ended.cause)
    return None


def _count(opinions: Sequence[Opinion], of: type[Step] | type[Resume], made: int = 0) -> CountView | None:
    """What the limit on steps or resumes counts; where it counts no more because the work is done, what was made."""
    for policy, state, _ in states_of(Limit, opinions, "unit"):
        if policy.of is of:
            return CountView(used=state.count or made, max=policy.most)
    return None


def _rounds(opinions: Sequence[Opinion], told: Story) -> RoundsView | None:
    for policy, state, _ in states_of(Rounds, opinions, "unit"):
        readings = told.gauges()
        return RoundsView(
            reached=max(state.reached, int(told.highest("round"))),
            max=policy.most,
            convergence=readings.get("convergence"),
            agreement=readings.get("agreement"),
        )
    return None


def _budget(opinions: Sequence[Opinion]) -> AmountView | None:
    for policy, state, _ in states_of(Budget, opinions, "unit"):
        if policy.meter == MONEY:
            return AmountView(spent=state.spent, reserved=state.reserved, limit=policy.limit + state.raised)
    return None


def _deadline(look: Look, unit: str, *, running: bool) -> DeadlineView | None:
    past = look.past.of(unit)
    for policy in look.governor.panel.policies_of(unit):
        if isinstance(policy, Deadline) and not policy.idle:
            since = past.started
            until = look.now if running else past.exited_at
            return DeadlineView(
                started=None if since is None else seconds(since),
                lasted=0.0 if since is None else seconds(max(0, until - since)),
                limit=seconds(policy.lasts_max),
            )
    return None


def _pause(known: Known) -> PauseView | None:
    if not known.pause:
        return None
    resume_at = None if known.pause == PERSON else seconds(known.resume_at)
    return PauseView(reason=known.pause, since=seconds(known.paused_at), resume_at=resume_at)
