"""What is known of units before they are started: how their last run ended, and whether they are defined as they were.

Records are read by whoever starts the units: of one, or of thousands at once. Here is only what they mean.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from flyball.core.codec import decode_state
from flyball.core.event import Cause, Revise
from flyball.core.policy import Key
from flyball.policies.restart import State as Restarts
from flyball.policies.revision import State as Revisions

REVISIONS: Final = "revision"
RESTARTS: Final = "restart"
"""Names of records, as of the policies that keep them."""


class Defined(Protocol):
    """A unit or a rule, as somebody defined it."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> Mapping[str, str]: ...


def restarts_key(unit: str) -> Key:
    """Where the store has how the last run of a unit ended."""
    return Key(RESTARTS, "unit", unit)


def is_again(restarts: bytes | None, *, after_done: bool) -> bool:
    """Whether the next start is one that nobody asked for: after a failure and after a policy stopped it, yes; after it
    was told to stop by a person, or by the end of its supervisor, no. `after_done`: also after it was done."""
    known = decode_state(Restarts, restarts) if restarts is not None else Restarts()
    failed = known.last not in (None, Cause.STOPPED) and (after_done or known.last is not Cause.DONE)
    return failed or bool(known.ended_for)


def revision_key(unit: str) -> Key:
    """Where the store has the definition of a unit that is in force."""
    return Key(REVISIONS, "unit", unit)


def revised(units: Iterable[tuple[Defined, str]], revisions: Mapping[Key, bytes]) -> list[tuple[Revise, bool]]:
    """What to tell the governor of units with these revisions, where others are in force; and of each whether there was
    one before: what is new is no news."""
    asked = []
    for unit, revision in units:
        data = revisions.get(revision_key(unit.name))
        if data is None or decode_state(Revisions, data).revision != revision:
            asked.append((Revise(unit=unit.name, labels=unit.labels, revision=revision), data is not None))
    return asked
