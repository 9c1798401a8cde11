"""Exercises with units that fail: what they run does nothing else."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from flyball.config import Settings
from flyball.drill.exercise import RELOADS_MAX, STARTS_MAX, Exercise, NotFired, Seen, within
from flyball.drill.fleet import WITNESS, Entry, Fleet
from flyball.drill.numbers import restarts
from flyball.policies import Breaker, Cooldown, Flapping, Quarantine, Restart, Revision, Storm

SAME: Final = ("sh", "-c", "exit 3")
"""Fails the same way each time."""
ONCE: Final = ("sh", "-c", "[ ! -e once ] || exec sleep 600; touch once; exit 3")
"""Fails the first time."""
QUARANTINED: Final = "crashes"
"""The unit that is quarantined, and that is told of."""


def different(unit: str) -> Sequence[str]:
    """Fails in another way each time."""
    return ("sh", "-c", f"n=$(($(cat {unit}.n || echo 0) + 1)); echo $n >{unit}.n; exit $((n % 100 + 1))")


def crashing(numbers: Settings) -> Mapping[str, Any]:
    """The settings of the unit that is quarantined."""
    most = numbers.quarantine.max_failures_before_quarantine
    within(most, STARTS_MAX, "quarantine.max_failures_before_quarantine", "starts of a unit")
    return {"units": {QUARANTINED: {"command": SAME}}}


def starts_above(most: int, limit: str) -> Callable[[Sequence[Entry]], str]:
    """Says that a unit was started more than so often."""

    def missed(entries: Sequence[Entry]) -> str:
        starts = sum(entry.begins for entry in entries)
        return f"start {starts} was granted; {limit}" if starts > most else ""

    return missed


def held_after(fleet: Fleet, unit: str, code: str, most: int, limit: str) -> Seen:
    """See a unit held after just so many starts, and not started any more."""
    held = fleet.reason(unit, code, starts_above(most, limit), again=True)
    fleet.stays_so()
    starts = len(fleet.starts(unit))
    if starts != most:
        raise NotFired(f"{code} after {starts} starts; {limit}")
    return Seen(fleet.since_start(held), held.codes[code])


class Quarantined(Exercise):
    """The same failure, until a person has to look."""

    name = "quarantine"
    policy = Quarantine
    how = "a unit that fails the same way each time it is started"
    fleet = "crashes"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        return crashing(numbers)

    def watch(self, fleet: Fleet) -> Seen:
        most = fleet.numbers.quarantine.max_failures_before_quarantine
        return held_after(fleet, QUARANTINED, "quarantined", most, f"{most} failures are the limit")


class Cooled(Exercise):
    """A failure, and the wait after it."""

    name = "cooldown"
    policy = Cooldown
    how = "a unit that fails, and is not to be started again at once"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        return {"units": {self.name: {"command": ONCE}}}

    def watch(self, fleet: Fleet) -> Seen:
        def missed(entries: Sequence[Entry]) -> str:
            ended = [entry for entry in entries if entry.event == "exited"]
            return "it failed, and no wait was imposed" if ended and "cooling" not in ended[0].codes else ""

        cools = fleet.reason(self.name, "cooling", missed)
        if fleet.restarts:
            again = fleet.wait(lambda: fleet.starts(self.name)[1:2], "its second start")
            if cools.until is None or again[0].at < cools.until:
                raise NotFired("it was started again before the wait was over")
        return Seen(fleet.since_start(cools), cools.codes["cooling"])


class Flaps(Exercise):
    """A unit that never stays up."""

    name = "flapping"
    policy = Flapping
    how = "a unit that exits right after each start, with another error each time"
    fleet = "flapping"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        within(self._most(numbers), STARTS_MAX, "crash_policy.halt_threshold", "starts of a unit")
        return {"units": {self.name: {"command": different(self.name)}}}

    def watch(self, fleet: Fleet) -> Seen:
        most = self._most(fleet.numbers)
        return held_after(fleet, self.name, "halted", most, f"it flapped often enough after {most}")

    def _most(self, numbers: Settings) -> int:
        """The exit with which the last flap is there: the first one takes a few exits, each further one is one."""
        crash = numbers.crash_policy
        return crash.flap_threshold + crash.halt_threshold - 1


class Restarted(Exercise):
    """Restarts that are used up; or, where nothing is restarted by itself, that it is not."""

    name = "restart"
    policy = Restart
    how = "a unit that fails in another way each time, until its restarts are used up"
    fleet = "restart"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        if restarts(numbers):
            within(self._most(numbers), STARTS_MAX, "restart_policy.max_restarts_per_hour", "starts of a unit")
        return {"units": {self.name: {"command": different(self.name)}}}

    def watch(self, fleet: Fleet) -> Seen:
        if not fleet.restarts:
            ended = fleet.reason(self.name, "ended_error", starts_above(1, "nothing is to be restarted by itself"))
            return Seen(fleet.since_start(ended), ended.codes["ended_error"])
        most, policy = self._most(fleet.numbers), fleet.numbers.restart_policy
        in_a_row = policy.max_restarts_in_a_row < min(policy.max_restarts_per_hour, policy.max_total_restarts_per_hour)
        code = "restarts_in_a_row" if in_a_row else "too_many_restarts"
        return held_after(fleet, self.name, code, most, f"{most - 1} restarts are the limit")

    def _most(self, numbers: Settings) -> int:
        policy = numbers.restart_policy
        return 1 + min(policy.max_restarts_per_hour, policy.max_restarts_in_a_row, policy.max_total_restarts_per_hour)


class Revised(Exercise):
    """A definition that changes by itself, once too often."""

    name = "revision"
    policy = Revision
    how = "a definition that changes more often than may clear its failures"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        most = numbers.safety.max_changes_per_day
        within(most + 1, RELOADS_MAX, "safety.max_changes_per_day", "changes of a definition")
        return self._definition(0)

    def watch(self, fleet: Fleet) -> Seen:
        most = fleet.numbers.safety.max_changes_per_day
        first = fleet.wait(lambda: fleet.entries(self.name, "revise"), "its definition")[0]
        for number in range(1, most + 2):
            fleet.add(self._definition(number))
            fleet.ask("reload")

        last = fleet.wait(lambda: fleet.entries(self.name, "revise")[most + 1 :], "its last change")[0]
        if "revised_too_often" not in last.codes:
            raise NotFired(f"change {most + 1} cleared its failures; {most} are the limit")
        return Seen(last.at - first.at, last.codes["revised_too_often"])

    def _definition(self, number: int) -> Mapping[str, Any]:
        return {"units": {self.name: {"command": SAME, "restart": "never", "env": {"CHANGE": number}}}}


class Broken(Exercise):
    """Something that all units share is down."""

    name = "breaker"
    policy = Breaker
    how = "several units that fail at once"
    fleet = "breaker"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        breaker = numbers.circuit_breaker
        within(breaker.failure_threshold, STARTS_MAX, "circuit_breaker.failure_threshold", "units")
        units = within(breaker.min_units, STARTS_MAX, "circuit_breaker.min_units", "units")
        many = max(units, breaker.failure_threshold)
        return {"units": {f"{self.name}-{number}": {"command": SAME} for number in range(many)}}

    def watch(self, fleet: Fleet) -> Seen:
        breaker = fleet.numbers.circuit_breaker

        def look() -> Entry | None:
            failing: list[Entry] = []
            for entry in fleet.entries():
                if entry.event == "exited":
                    failing.append(entry)
                    many, units = len(failing), len({one.unit for one in failing})
                    if "circuit_open" in entry.codes:
                        return entry
                    if many >= breaker.failure_threshold and units >= breaker.min_units:
                        raise NotFired(f"{many} failures of {units} units, and more may be started")
            return None

        opened = fleet.wait(look, "circuit_open")
        if (state := fleet.ask("status")["fleet"]["breaker"]) != "open":
            raise NotFired(f"the circuit is {state}")
        fleet.stays_so()
        if [entry for entry in fleet.entries(event="start") if entry.granted and entry.at > opened.at]:
            raise NotFired("a unit was started while the circuit was open")
        return Seen(opened.at - fleet.entries(event="start")[0].at, opened.codes["circuit_open"])


class Stormed(Exercise):
    """A supervisor that starts into a heap of failures."""

    name = "storm"
    policy = Storm
    how = "more failures than the fleet may have, then kill -9 of the daemon and another one"
    fleet = "storm"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        many = within(self._many(numbers), STARTS_MAX, "safety.global_failure_threshold", "failures")
        if numbers.safety.global_failure_share:
            return {"units": {self.name: {"command": different(self.name)}}}
        once = {"command": SAME, "restart": "never"}
        return {"units": {f"{self.name}-{number}": once for number in range(many)}}

    def watch(self, fleet: Fleet) -> Seen:
        many = self._many(fleet.numbers)
        fleet.wait(lambda: len(fleet.entries(event="exited")) >= many, f"{many} failures")
        fleet.wait(lambda: fleet.starts(WITNESS), "a unit that runs")
        fleet.scratch.kill_daemon()
        fleet.up()
        code = "restart_storm_detected"
        held = fleet.reason(WITNESS, code, starts_above(1, f"{many} failures came before"))
        if not fleet.ask("status")["fleet"]["storm"]:
            raise NotFired("the fleet is not paused")
        fleet.stays_so()
        if len(fleet.starts(WITNESS)) > 1:
            raise NotFired("a unit was started while the fleet was paused")
        return Seen(held.at - fleet.entries(event="exited")[0].at, held.codes[code])

    def _many(self, numbers: Settings) -> int:
        """One more than are allowed; with a share, of the two units that there are then."""
        share = numbers.safety.global_failure_share
        return 1 + (max(1, int(share * 2)) if share else numbers.safety.global_failure_threshold)
