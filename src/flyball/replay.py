"""Replay: weigh a journal's events again, from the states that the journal begins with.

Under the same settings every decision comes out the same, bit for bit: a decision is a function of stored state and the
entry's instant. Under other settings it shows what these would have decided. It needs no store and no clock.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from flyball.core.codec import Body, decode_body, decode_state
from flyball.core.decision import Decision
from flyball.core.panel import Docket, Panel
from flyball.core.policy import Key, State, weigh
from flyball.store import Entry, Snapshot


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
    stored = dict(base.records)
    states: dict[Key, State] = {}
    for entry in entries:
        body = decode_body(entry.body)
        docket = panel.concerning(body.event)
        outcome = weigh(docket.policies, _states_of(docket, states, stored), body.event, entry.at)
        for place, state in outcome.changed.items():
            states[docket.keys[place]] = state
        yield Replayed(entry, body, outcome.decision)


def _states_of(docket: Docket, states: dict[Key, State], stored: dict[Key, bytes]) -> list[State | None]:
    known = []
    for place, initial in enumerate(docket.initials):
        key = docket.keys[place]
        if key not in states and key in stored:
            states[key] = decode_state(type(initial), stored[key])
        state = states.get(key, initial)
        known.append(docket.resting[place] if state == initial else state)
    return known
