"""Exercises with work that does not end by itself: sessions, and agents that report what they do."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from flyball.config import Settings
from flyball.config.money import micro
from flyball.drill.actor import USUAL
from flyball.drill.exercise import STARTS_MAX, STEPS_MAX, Exercise, NotFired, Seen, within
from flyball.drill.exercises.crashes import held_after
from flyball.drill.fleet import Entry, Fleet, actor, telling
from flyball.drill.numbers import PERIOD, WAIT
from flyball.policies import Anomaly, Budget, Convergence, Deadline, Limit, Loop, Rounds, Session, Stall

BOUND: Final = 0.5
"""Seconds of a deadline: enough for a process to begin, and soon over."""
STUBBORN: Final = "trap '' TERM; while :; do sleep 1; done"
"""Does not end when it is asked to."""
PERIODS_MAX: Final = 40
"""Periods that are learned from: ten seconds."""
CIRCLES: Final = 30
"""The same call with the same result so many times: far more than any profile lets pass."""


def granted_above(most: int, what: str = "step") -> Callable[[Sequence[Entry]], str]:
    """Says that more than so many steps were granted, or that the run came to its end without a word."""

    def missed(entries: Sequence[Entry]) -> str:
        steps = sum(entry.event == "step" and entry.granted for entry in entries)
        if steps > most:
            return f"{what} {steps} was granted; the limit is {most}"
        return "it went on to its own end" if _over(entries) else ""

    return missed


def _over(entries: Sequence[Entry]) -> bool:
    return any(entry.event == "exited" for entry in entries) and not any(
        entry.event in ("step", "stepped") and not entry.granted for entry in entries
    )


class _Steps(Exercise):
    """Something that goes on until a step is refused."""

    code: str

    def seen(self, fleet: Fleet, missed: Callable[[Sequence[Entry]], str]) -> Seen:
        """See it refused, and the run ended."""
        refused = fleet.reason(self.name, self.code, missed)
        fleet.gone(self.name)
        return Seen(fleet.since_start(refused), refused.codes[self.code])

    def unit(self, kind: str, *words: str) -> Mapping[str, Any]:
        """Its unit, which is run once."""
        return {"units": {self.name: {"kind": kind, "command": actor(*words), "restart": "never"}}}


class Stepped(_Steps):
    """Layer one: steps."""

    name = "steps"
    policy = Limit
    how = "a session that asks for one step more than it may make"
    code = "max_steps"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        most = within(numbers.graph.recursion_limit, STEPS_MAX, "graph.recursion_limit", "steps")
        return self.unit("session", "steps", str(most + 1))

    def watch(self, fleet: Fleet) -> Seen:
        return self.seen(fleet, granted_above(fleet.numbers.graph.recursion_limit))


class Resumed(Exercise):
    """A session that pauses each time."""

    name = "resumes"
    policy = Limit
    how = "a session that pauses each time it is resumed"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        within(self._most(numbers), STARTS_MAX, "daemon.sessionRecovery.maxResumeAttempts", "runs of a session")
        command = actor("pauses", "rate_limit", str(WAIT))
        return {"units": {self.name: {"kind": "session", "command": command}}}

    def watch(self, fleet: Fleet) -> Seen:
        most = self._most(fleet.numbers)
        limit = f"{most - 1} resumes are the limit"
        return held_after(fleet, self.name, "max_resume_attempts_exceeded", most, limit)

    def _most(self, numbers: Settings) -> int:
        recovery = numbers.daemon.session_recovery
        return 1 + (recovery.max_resume_attempts if recovery.enabled else 0)


class Deliberated(_Steps):
    """Layer three: rounds."""

    name = "rounds"
    policy = Rounds
    how = "a deliberation that wants one round more than it may have"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        return self.unit("session", "rounds", str(numbers.graph.max_rounds))

    def watch(self, fleet: Fleet) -> Seen:
        most = fleet.numbers.graph.max_rounds
        self.code = "hard_cap_15_rounds" if most >= 15 else "max_rounds"
        return self.seen(fleet, granted_above(most, "round"))


class Agreed(_Steps):
    """Layer three: a deliberation that is done."""

    name = "convergence"
    policy = Convergence
    how = "a deliberation that agrees, and goes on"
    code = "consensus"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        return self.unit("session", "agrees")

    def watch(self, fleet: Fleet) -> Seen:
        return self.seen(fleet, granted_above(1))


class Spent(_Steps):
    """Layer five: money."""

    name = "budget"
    policy = Budget
    how = "a session whose next step might cost more than it has left"
    fleet = "money"
    code = "cost_budget_exceeded"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        cost, times = self._steps(numbers)
        return self.unit("session", "steps", str(times + 1), f"{cost // 1_000_000}.{cost % 1_000_000:06}")

    def watch(self, fleet: Fleet) -> Seen:
        return self.seen(fleet, granted_above(self._steps(fleet.numbers)[1]))

    def _steps(self, numbers: Settings) -> tuple[int, int]:
        """What a step costs, and how many of them there is money for."""
        limit = micro(numbers.budget.max_cost_per_session)
        cost = limit // 3 + 1
        return cost, limit // cost


class Paused(Exercise):
    """Work that waits for a person waits for one."""

    name = "session"
    policy = Session
    how = "a session that pauses for a person, and goes on when one says so"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        return {"units": {self.name: {"kind": "session", "command": actor("pauses", "person")}}}

    def watch(self, fleet: Fleet) -> Seen:
        def missed(entries: Sequence[Entry]) -> str:
            return "it was begun again without a person" if sum(entry.begins for entry in entries) > 1 else ""

        waits = fleet.reason(self.name, "waits_for_person", missed)
        fleet.gone(self.name)
        fleet.stays_so()
        if len(fleet.starts(self.name)) > 1:
            raise NotFired("it was begun again without a person")
        if fleet.numbers.daemon.session_recovery.enabled and fleet.numbers.daemon.session_recovery.max_resume_attempts:
            fleet.ask("resume", units=[self.name])
            fleet.wait(lambda: len(fleet.starts(self.name)) > 1, "its resume by a person")
        return Seen(fleet.since_start(waits), waits.codes["waits_for_person"])


class _Bounded(Exercise):
    """Something that hangs, and has to be killed."""

    key: ClassVar[str]
    code: ClassVar[str]

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        return {
            "units": {
                self.name: {"command": telling(self.name, STUBBORN), self.key: BOUND, "grace": WAIT, "restart": "never"}
            }
        }

    def watch(self, fleet: Fleet) -> Seen:
        began = fleet.wait(lambda: fleet.starts(self.name), "its start")[0]
        if began.until is None or began.until > began.at + 2 * BOUND:
            raise NotFired(f"it was let run without a bound; {BOUND:g} s are its {self.key}")
        over = fleet.wait(lambda: fleet.entries(self.name, "exited"), "its exit")[0]
        if (over.data.get("policy"), over.data.get("error")) != (self.key, self.code):
            raise NotFired(f"it ended in another way: {over.text}")
        fleet.gone(self.name)
        return Seen(over.at - began.at, over.text)


class Overdue(_Bounded):
    """Layer four: time."""

    name = "deadline"
    policy = Deadline
    how = "a unit that hangs and does not end when it is asked to"
    key = "deadline"
    code = "timeout"


class Silent(_Bounded):
    """The same of silence."""

    name = "idle"
    policy = Deadline
    how = "a unit that gives no sign of life"
    key = "idle"
    code = "idle_timeout"


class Looped(_Steps):
    """The same step again and again."""

    name = "loop"
    policy = Loop
    how = "an agent that makes the same kind of step again and again"
    code = "loop_detected"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        most = within(numbers.safety.max_loop_iterations, STEPS_MAX, "safety.max_loop_iterations", "steps")
        return self.unit("agent", "steps", str(most), "", "again")

    def watch(self, fleet: Fleet) -> Seen:
        return self.seen(fleet, granted_above(fleet.numbers.safety.max_loop_iterations - 1))


class Stalled(_Steps):
    """The same call with the same result."""

    name = "stall"
    policy = Stall
    how = "a session that makes the same call and gets the same result, again and again"
    code = "going_in_circles"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        return self.unit("session", "circles", str(CIRCLES))

    def watch(self, fleet: Fleet) -> Seen:
        return self.seen(fleet, granted_above(CIRCLES - 1))


class Wild(Exercise):
    """Spending that is not as usual. It is told of, not stopped: budgets do that."""

    name = "anomaly"
    policy = Anomaly
    how = "an agent that suddenly spends far more than it used to"
    fleet = "flapping"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        periods = within(numbers.anomaly.min_periods, PERIODS_MAX, "anomaly.min_periods", "periods")
        much = 2 * max(micro(numbers.anomaly.min_amount), int(numbers.anomaly.factor * USUAL), 10 * USUAL)
        command = actor("spends", str(periods), str(PERIOD), str(much))
        return {"units": {self.name: {"kind": "agent", "command": command, "restart": "never"}}}

    def watch(self, fleet: Fleet) -> Seen:
        def missed(entries: Sequence[Entry]) -> str:
            spent = sum(entry.event == "stepped" for entry in entries)
            known = any("spend_anomaly" in entry.codes for entry in entries)
            return "nobody was told" if spent > fleet.numbers.anomaly.min_periods and not known else ""

        told = fleet.reason(self.name, "spend_anomaly", missed)
        return Seen(fleet.since_start(told), told.codes["spend_anomaly"])
