"""What the tests of all adapters share: a guard that keeps nothing, an agent's tools, and what the journal says."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

import flyball
from flyball.config import Settings
from flyball.core.codec import decode_state
from flyball.core.policy import Key
from flyball.guard import Guard
from flyball.policies.budget import State as Spent
from tests.integrations.model_stub import Reply, Script, always, each

UNIT = "research"
SAYS = "You are repeating yourself"
"""How a nudge begins."""
REFUSES = "this call was made before and nothing came of it"

CIRCLE: Script = always(Reply(tool="look_up", arguments={"place": "attic", "deep": True}))
"""An agent that looks in the same place for ever."""

NORMAL: Script = each(
    *(Reply(tool="look_up", arguments={"place": f"room {number}"}) for number in range(1, 11)),
    Reply(text="It is in room 10."),
)
"""An agent that looks in ten rooms, and finds it."""

MADE_BY_DEFAULT = 4
"""Calls of one tool with one result until a run is stopped: scores 0, 2, 4 (told), 6 (stopped)."""


@dataclass
class House:
    """The world of the agent's tools."""

    looked: list[str] = field(default_factory=list)
    """Where it really looked: what was refused is not here."""
    broken: bool = False
    waited: int = 0

    def look_up(self, place: str, deep: bool = False) -> str:
        """Look in a place."""
        self.looked.append(place)
        if self.broken:
            raise ValueError("the light is out")
        return f"nothing in the {place}" if place == "attic" else f"{len(place)} things in {place}"

    def wait_for_build(self) -> str:
        """See whether the build is done."""
        self.waited += 1
        return "still building" if self.waited < 20 else "done"


@contextmanager
def a_guard(**settings: Any) -> Iterator[Guard]:
    """A guard whose store is gone after the block."""
    with flyball.open("program", settings=Settings(**settings), scratch=True) as guard:
        yield guard


CAUTIOUS: dict[str, Any] = {"stall": {"profile": "cautious"}}
"""Stops at 8: told after the third call, refused from the fifth on, stopped when the sixth is asked for."""


def events(guard: Guard, unit: str = UNIT) -> list[dict[str, Any]]:
    """What the journal says of the unit."""
    found = [entry for entry in guard.governor.store.entries(limit=1000) if entry.unit == unit]
    return [msgspec.json.decode(entry.body) for entry in found]


def reasons(guard: Guard, code: str, unit: str = UNIT) -> list[str]:
    """The texts of that reason in the journal."""
    decisions = [event.get("decision", {}) for event in events(guard, unit)]
    return [
        reason["text"] for decision in decisions for reason in decision.get("reasons", ()) if reason["code"] == code
    ]


def spent(guard: Guard, policy: str, by: str = "unit", subject: str = UNIT) -> int:
    """What a budget counts as spent."""
    record = guard.governor.store.states()[Key(policy, by, subject)]
    return decode_state(Spent, record).spent
