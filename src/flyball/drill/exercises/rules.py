"""Exercises with what can be known before anything runs, and with rules."""

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from flyball.config import Settings
from flyball.drill.exercise import Exercise, NotFired, Seen
from flyball.drill.exercises.crashes import starts_above
from flyball.drill.fleet import Fleet
from flyball.policies import Rate

RUNS: Final = 2
"""Runs of a rule within a minute, and one more is fired."""


class Rated(Exercise):
    """A rule that fires more often than it may run."""

    name = "rate"
    policy = Rate
    how = "a rule that is fired once more than it may run within a minute"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        rule = {
            "triggers": [{"command": True}],
            "actions": [{"notify": "drill"}],
            "limits": {"rate": f"{self._most(numbers)}/1m"},
        }
        return {"rules": {self.name: rule}}

    def watch(self, fleet: Fleet) -> Seen:
        most = self._most(fleet.numbers)
        for number in range(most + 1):
            fleet.ask("trigger", rule=self.name, data=number)
        limit = f"{most} within a minute are the limit"
        waits = fleet.reason(self.name, "rate_limited", starts_above(most, limit))
        return Seen(fleet.since_start(waits), waits.codes["rate_limited"])

    def _most(self, numbers: Settings) -> int:
        return min(RUNS, numbers.rule.max_runs_per_minute)


class Circled(Exercise):
    """Rules that fire each other are found before they run."""

    name = "preflight"
    how = "`flyball check` of two rules that fire each other for ever"

    def watch(self, fleet: Fleet) -> Seen:
        file = fleet.scratch.folder / "circle.yaml"
        rules = {
            one: {"triggers": [{"event": other}], "actions": [{"notify": "again"}]}
            for one, other in (("ping", "pong"), ("pong", "ping"))
        }
        file.write_text(json.dumps({"rules": rules}), encoding="utf-8")
        began = time.monotonic()
        checked = fleet.scratch.run("check", str(file))
        if checked.returncode != 2 or "ping -> pong" not in checked.stderr:
            raise NotFired(f"`flyball check` ended with {checked.returncode}, and drew no circle")
        return Seen(time.monotonic() - began, "ping -> pong -> ping")


class Endless(Exercise):
    """Layer two: the shape of a graph."""

    name = "preflight-graph"
    how = "a graph from which no end can be reached"
    needs = ("langgraph", "langgraph")

    def watch(self, fleet: Fleet) -> Seen:
        began = time.monotonic()
        with fleet.program("endless_graph") as program:
            if fleet.ended(program, "what is said of the graph"):
                raise NotFired("the graph was let through")
        return Seen(time.monotonic() - began, "no end can be reached")
