"""How a run of a session begins: anew, or from a checkpoint. The one place that says so, for programs and daemon."""

import msgspec

from flyball.core.codec import readable_state
from flyball.core.event import Resume, Start
from flyball.core.policy import Key
from flyball.governor import Governor
from flyball.policies.limit import RESUMES, Limit
from flyball.policies.limit import State as Count
from flyball.policies.session import Session, State


def known(governor: Governor, unit: str) -> State:
    """What is known of a session: whether it was begun and is not done, and whether it is paused. One whose state
    cannot be read was begun: so the governor is asked to resume it, and refuses that, with the reason."""
    key = Key(Session.NAME, "unit", unit)
    data = governor.store.read([key]).records.get(key)
    return State() if data is None else readable_state(State, data) or State(begun=True)


def resumes(governor: Governor, unit: str) -> tuple[int, int]:
    """How often a session was resumed, and how often it may be."""
    key = Key(RESUMES, "unit", unit)
    data = governor.store.read([key]).records.get(key)
    count = (readable_state(Count, data) or Count()).count if data is not None else 0
    limits = [p.most for p in governor.panel.policies_of(unit) if isinstance(p, Limit) and p.name == RESUMES]
    return count, limits[0] if limits else 0


def opening(governor: Governor, start: Start, checkpoint: str = "") -> Start:
    """That start as what it is: of work that was begun and is not done, a resume from the checkpoint (not named: the
    last one)."""
    if not known(governor, start.unit).begun:
        return start
    fields = {name: value for name, value in msgspec.structs.asdict(start).items() if name != "checkpoint"}
    return Resume(**fields, checkpoint=checkpoint)
