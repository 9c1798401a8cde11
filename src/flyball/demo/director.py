"""The director: puts the cast on stage, waits for what has to become of each, and says how it ended.

Everything is seen through the socket of the daemon, as the command line sees it, and every wait has an end.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from flyball.demo.cast import SETTINGS, Member
from flyball.demo.narrator import BAD, BUSY, GOOD, Line, Narrator
from flyball.demo.shop import Shop
from flyball.scratch import Scratch
from flyball.sweeper import LOOK_EVERY

TOUR_MAX: Final = 180.0
"""Seconds for the whole tour. It takes a quarter of that on a quiet machine."""
BEFORE_OUTAGE_MAX: Final = 100.0
"""Seconds that the shop stays up for the others to end first. Trials that fail for reasons of their own would keep the
circuit open."""
OUTAGE_MAX: Final = 40.0
"""Seconds that the shop is down at most. It is back sooner, when a trial has found it dead."""
LAST: Final = frozenset({"quarantined", "halted", "failed", "finished", "stopped"})
"""States that nothing leaves by itself."""
OPEN: Final = "open"
HALF_OPEN: Final = "half-open"
CLOSED: Final = "closed"
CIRCUIT: Final = "circuit"
SHOP: Final = "shop"
"""Who is told of beside units."""
EVENTS_MAX: Final = 1_000
"""Entries of the journal that are fetched at once."""

Say = Callable[[Line], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one member."""

    member: Member
    states: dict[str, str]
    """Of its units."""
    reason: Mapping[str, Any]
    """The one that ended it; empty: none was given."""
    actions: Sequence[Mapping[str, Any]]
    """What a person can do about it, the one safe thing first."""
    wrong: str = ""
    """What is not as it has to be; nothing: all is."""

    @property
    def waits(self) -> bool:
        """It is not as it has to be, and may still come to it by itself."""
        return bool(self.wrong) and not all(state in LAST for state in self.states.values())


class Tour:
    """One tour, in a scratch folder whose daemon runs."""

    def __init__(self, scratch: Scratch, shop: Shop, members: Sequence[Member], say: Say) -> None:
        self._scratch, self._shop, self._members, self._say = scratch, shop, members, say
        self._narrator = Narrator()
        self._last = 0
        self._circuit = [CLOSED]
        """What the circuit was, one after the other."""

    def run(self) -> list[Outcome]:
        """Until everything has ended, as it has to or not, or the time is over."""
        ends = time.monotonic() + TOUR_MAX
        self._until(lambda all_: not any(one.waits and not one.member.shares_shop for one in all_), BEFORE_OUTAGE_MAX)
        if any(member.shares_shop for member in self._members):
            self._outage()
        return self._until(lambda all_: not any(one.waits for one in all_), ends - time.monotonic())

    def look(self) -> list[Outcome]:
        """Tell what is new; how everybody is."""
        status = self._scratch.ask("status")
        self._tell()
        self._see_circuit(status["fleet"]["breaker"])
        units = {unit["name"]: unit for unit in status["units"]}
        problems = {problem["unit"]: problem for problem in status["problems"]}
        return [self._outcome(member, units, problems) for member in self._members]

    def _until(self, there: Callable[[list[Outcome]], bool], within: float) -> list[Outcome]:
        ends = time.monotonic() + within
        outcomes = self.look()
        while not there(outcomes) and time.monotonic() < ends:
            time.sleep(LOOK_EVERY)
            outcomes = self.look()
        return outcomes

    def _outage(self) -> None:
        """The shop goes down, and comes back when a trial has found it dead: open, half-open, open again."""
        self._shop.go_down()
        self._tell_of(SHOP, "the API stops answering; five imports are in the midst of their work", BAD)
        self._until(lambda _: self._circuit.count(OPEN) > 1, OUTAGE_MAX)
        self._shop.come_back()
        self._tell_of(SHOP, "the API answers again", GOOD)

    def _see_circuit(self, now: str) -> None:
        before = self._circuit[-1]
        if now == before:
            return
        self._circuit.append(now)
        if now == HALF_OPEN:
            self._tell_of(CIRCUIT, "is half-open: three trial runs at a time find out whether it is back", BUSY)
        elif now == CLOSED:
            self._tell_of(CIRCUIT, "closes: the trial runs went well", GOOD)
        elif before == HALF_OPEN:
            self._tell_of(CIRCUIT, "opens again: a trial run failed", BAD)
        else:
            numbers = SETTINGS["circuit_breaker"]
            text = (
                f"opens: {numbers['failure_threshold']} failures of {numbers['min_units']} units within "
                f"{numbers['window_seconds']} s; nothing is started for {numbers['recovery_timeout_seconds']} s"
            )
            self._tell_of(CIRCUIT, text, BAD)

    def _tell_of(self, who: str, text: str, tone: str) -> None:
        self._say(Line(time.time(), who, text, tone))

    def _tell(self) -> None:
        while True:
            said = self._scratch.ask("events", after=self._last, limit=EVENTS_MAX)
            for line in self._narrator.tell(said["events"]):
                self._say(line)
            self._last = said["last"]
            if len(said["events"]) < EVENTS_MAX:
                return

    def _outcome(self, member: Member, units: Mapping[str, Any], problems: Mapping[str, Any]) -> Outcome:
        states = {name: units[name]["state"] if name in units else "unknown" for name in member.names}
        reasons = [self._narrator.given.get(name, {}).get(member.code) for name in member.names]
        reason = next((one for one in reasons if one), {})
        wrong = [f"{name} is {state}, not {member.state}" for name, state in states.items() if state != member.state]
        if member.code and not reason:
            wrong.append(f"the journal has no {member.code} of it")
        if member.shares_shop and not (OPEN in self._circuit and self._circuit[-1] == CLOSED):
            wrong.append(f"the circuit was {', '.join(self._circuit)}; it has to open and to close again")
        problem = problems.get(member.names[0])
        return Outcome(member, states, reason, problem["actions"] if problem else [], "; ".join(wrong))
