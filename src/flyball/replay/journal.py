"""A journal's events, weighed again, from the states that the journal begins with.

Under the same settings every decision comes out the same, bit for bit: a decision is a function of stored state and the
entry's instant. Under other settings it shows what these would have decided.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from flyball.core.codec import Body, decode_body, decode_state
from flyball.core.decision import Decision
from flyball.core.event import Event
from flyball.core.panel import Docket, Panel
from flyball.core.policy import Key, Outcome, State, Unreadable, weigh
from flyball.core.time import Instant
from flyball.store import Entry, Snapshot

NO_STATES: Snapshot = Snapshot(0, 0, {})


class Weighing:
    """What a governor knows, without a store and a clock: it answers as the governor would, and forgets as it does."""

    def __init__(self, panel: Panel, base: Snapshot = NO_STATES) -> None:
        self._panel = panel
        self._stored = dict(base.records)
        """States that nothing has touched yet, as they were stored."""
        self._states: dict[Key, State] = {}

    def weigh(self, event: Event, at: Instant) -> "tuple[Docket, Outcome]":
        """What would be answered; nothing is changed by it."""
        docket = self._panel.concerning(event)
        return docket, weigh(docket.policies, self._states_of(docket), event, at)

    def keep(self, docket: Docket, outcome: Outcome) -> None:
        """Know what follows from it."""
        for place, state in outcome.changed.items():
            key = docket.keys[place]
            if state == docket.initials[place]:
                self._states.pop(key, None)
            else:
                self._states[key] = state

    def submit(self, event: Event, at: Instant) -> Decision:
        """Report a fact or ask for leave."""
        docket, outcome = self.weigh(event, at)
        self.keep(docket, outcome)
        return outcome.decision

    def _states_of(self, docket: Docket) -> list[State | None]:
        states = list(docket.resting)
        for place, initial in enumerate(docket.initials):
            key = docket.keys[place]
            if key in self._stored:
                self._states[key] = _decoded(key, type(initial), self._stored.pop(key))
            state = self._states.get(key)
            if state is not None:
                states[place] = state
        return states


def _decoded(key: Key, kind: type[State], data: bytes) -> State:
    try:
        return decode_state(kind, data)
    except msgspec.MsgspecError as error:
        return Unreadable(f"{key.policy} by {key.by} of {key.subject!r}: {error}")


class Replayed(NamedTuple):
    """One entry, weighed again."""

    entry: Entry
    body: Body
    decision: Decision

    @property
    def agrees(self) -> bool:
        """The decision is the one that was written down."""
        return self.decision == self.body.decision


def replay(panel: Panel, base: Snapshot, entries: Iterable[Entry]) -> Iterator[Replayed]:
    """Weigh the entries that follow a base, in order.

    What was granted or refused then is granted or refused now by the panel at hand, so from the first difference on the
    histories part: this asks "what would these settings have said to the same events".
    """
    weighing = Weighing(panel, base)
    for entry in entries:
        body = decode_body(entry.body)
        yield Replayed(entry, body, weighing.submit(body.event, entry.at))
