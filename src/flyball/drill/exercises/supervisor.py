"""Exercises with the supervisor itself: its clock, and its death."""

import time
from collections.abc import Mapping
from typing import Any, Final

from flyball.config import Settings
from flyball.drill.actor import ESCAPED
from flyball.drill.exercise import STARTS_MAX, Exercise, NotFired, Seen, within
from flyball.drill.exercises.crashes import starts_above
from flyball.drill.fleet import WITNESS, Fleet, actor
from flyball.policies import Clock
from flyball.sweeper import is_alive

HOUR: Final = 3600.0


class Jumped(Exercise):
    """A clock that cannot be right."""

    name = "clock"
    policy = Clock
    how = "a daemon that starts with a clock far behind the last line of the journal"
    fleet = "clock"

    def prepare(self, fleet: Fleet) -> None:
        ahead = fleet.numbers.safety.clock_back_seconds + HOUR
        with fleet.program("from_the_future", "earlier", str(ahead)) as program:
            fleet.ended(program, "a line of the journal")

    def watch(self, fleet: Fleet) -> Seen:
        began = fleet.wait(lambda: fleet.entries(event="booted"), "the daemon")[0]
        held = fleet.reason(
            WITNESS, "clock_jumped", starts_above(0, "the clock is an hour further back than it may be")
        )
        return Seen(held.at - began.at, held.codes["clock_jumped"])


class Counted(Exercise):
    """Nothing is forgotten with the daemon, not even what it was about to do."""

    name = "count-before-act"
    how = "kill -9 of the daemon while a unit runs that keeps failing"
    fleet = "kill"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        most = numbers.quarantine.max_failures_before_quarantine
        within(most, STARTS_MAX, "quarantine.max_failures_before_quarantine", "starts of a unit")
        hangs = max(1, most // 2)
        command = f"echo x >>tally; [ $(wc -l <tally) -ne {hangs} ] || exec sleep 600; exit 3"
        return {"units": {self.name: {"command": ["sh", "-c", command]}}}

    def watch(self, fleet: Fleet) -> Seen:
        most = fleet.numbers.quarantine.max_failures_before_quarantine

        def hangs() -> bool:
            fleet.again(self.name)
            return len(self._tally(fleet)) == max(1, most // 2)

        fleet.wait(hangs, "a run that hangs")
        fleet.scratch.kill_daemon()
        began = time.time()
        fleet.up()
        limit = f"{most} failures are the limit, and one run was lost"
        held = fleet.reason(self.name, "quarantined", starts_above(most + 1, limit), again=True)
        made, counted = len(self._tally(fleet)), len(fleet.starts(self.name))
        if made != counted:
            raise NotFired(f"it ran {made} times, and {counted} starts were counted")
        if not any(entry.data["cause"] == "lost" for entry in fleet.entries(self.name, "exited")):
            raise NotFired("the run that was killed with the daemon is not counted")
        return Seen(held.at - began, f"{counted} starts counted and made, over two daemons")

    def _tally(self, fleet: Fleet) -> list[str]:
        file = fleet.scratch.folder / "tally"
        return file.read_text().splitlines() if file.exists() else []


class Gone(Exercise):
    """Nothing outlives the daemon."""

    name = "nothing-left"
    how = "kill -9 of the daemon while a unit runs whose child has run away from it"
    fleet = "left"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        return {"units": {self.name: {"command": actor("escapes")}}}

    def watch(self, fleet: Fleet) -> Seen:
        escaped = fleet.scratch.folder / ESCAPED
        fleet.wait(escaped.exists, "a child that ran away")
        began = time.monotonic()
        fleet.scratch.kill_daemon()
        left = {*fleet.scratch.processes(), *filter(is_alive, [int(escaped.read_text())])}
        if left:
            raise NotFired(f"still there after the daemon: {len(left)} processes")
        return Seen(time.monotonic() - began, "no process is left")
