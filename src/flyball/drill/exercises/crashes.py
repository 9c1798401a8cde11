"""Exercises with units that fail: what they run does nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from flyball.config import Settings
from flyball.drill.exercise import STARTS_MAX, Exercise, NotFired, Seen, within
from flyball.drill.fleet import Entry, Fleet
from flyball.policies import Quarantine

SAME: Final = ("sh", "-c", "exit 3")
"""Fails the same way each time."""


class Quarantined(Exercise):
    """The same failure, until a person has to look."""

    name = "quarantine"
    policy = Quarantine
    how = "a unit that fails the same way each time it is started"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        most = numbers.quarantine.max_failures_before_quarantine
        within(most, STARTS_MAX, "quarantine.max_failures_before_quarantine", "starts of a unit")
        return {"units": {self.name: {"command": SAME}}}

    def watch(self, fleet: Fleet) -> Seen:
        most = fleet.numbers.quarantine.max_failures_before_quarantine

        def missed(entries: Sequence[Entry]) -> str:
            starts = sum(entry.event == "start" and entry.granted for entry in entries)
            return f"it was started a {starts}th time; {most} failures are the limit" if starts > most else ""

        held = fleet.reason(self.name, "quarantined", missed)
        if len(fleet.starts(self.name)) != most:
            raise NotFired(f"held after {len(fleet.starts(self.name))} starts; {most} failures are the limit")
        return Seen(fleet.since_start(held), held.codes["quarantined"])
