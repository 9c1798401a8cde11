"""Firings of rules that wait for a run, as records of the store. They are here, below runtimes and views, because both
need them: one runs them, the other shows how many wait."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flyball.core.policy import Key
from flyball.core.time import Instant
from flyball.store import Store

FIRING: Final = "firing"
"""The name of such a record, where policies have theirs."""


class Firing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What waits in the queue."""

    id: str
    rule: str
    trigger: str
    """Which one, for people: `cron`, `webhook price`."""
    at: Instant
    data: dict[str, Any] = {}
    """What the trigger says: `trigger` in conditions and templates."""
    tree: str = ""
    """The firing that began the chain of rules that fired each other; its own id: nobody's."""
    depth: int = 0
    attempt: int = 0
    """How often a run of it was begun."""
    by_person: bool = False
    """A person asked for it: it comes first, and may begin what a safeguard ended."""
    joined: int = 0
    """How many others came while this one waited, and said the same."""

    @property
    def key(self) -> Key:
        """Where it is kept."""
        return Key(FIRING, "unit", f"{self.rule}/{self.id}")

    @property
    def run(self) -> str:
        """The name of the run that was begun last."""
        return f"{self.id}.{self.attempt}"


_decoder: Final = msgspec.json.Decoder(Firing)


def waiting(store: Store) -> Mapping[str, list[Firing]]:
    """What waits, by rule, the oldest first. What cannot be read is left out here: whoever runs it says so."""
    found: defaultdict[str, list[Firing]] = defaultdict(list)
    for data in store.states(FIRING).values():
        try:
            firing = _decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        found[firing.rule].append(firing)
    for queue in found.values():
        queue.sort(key=lambda firing: (firing.at, firing.id))
    return found
