"""What `flyball run` says: one line for each decision, one at the end that says how to go on, and its exit code.

| exit code | meaning |
|---|---|
| 0 | the command is done |
| its own | the command ended by itself and is not restarted; 128 + N: by signal N |
| 2 | bad usage, bad settings, or a store that cannot be used |
| 69 | its budget is used up, or another resource |
| 75 | it is held (quarantined, halted, paused, stopped), or runs already: later, or after an order, it can go on |
| 124 | its last run was ended by a deadline, and is not restarted |
| 126, 127 | the command cannot be executed, is not there |
| 128 + N | flyball itself was ended by signal N: 130 by Ctrl-C, 143 by SIGTERM |
"""

import json
import re
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from flyball.control.news import News
from flyball.control.text import describe, one_line
from flyball.core.decision import Decision, Verb
from flyball.core.event import Cause, Event, Exited
from flyball.core.time import FOREVER, SECOND
from flyball.governor import VERB_NAMES
from flyball.policies.budget import OVER_BUDGET
from flyball.runtimes.foreground import Outcome
from flyball.runtimes.sink import Sink
from flyball.runtimes.terminal import Terminal

STARVED: Final = 69
HELD: Final = 75
TIMED_OUT: Final = 124
CANNOT_EXECUTE: Final = 126
BY_SIGNAL: Final = 128

OF_THE_FLEET: Final = ("storm", "clock")
"""Policies that hold everybody."""

QUESTION: Final = "Enter to restart, q to quit: "

_COMMAND: Final = re.compile(r"`(flyball [^`]+)`")


class Report:
    """Tells a person, or a script, what happens. On stderr: the command's own output has stdout for itself."""

    def __init__(self, unit: str, sink: Sink, terminal: Terminal | None = None, *, as_json: bool = False) -> None:
        self._unit = unit
        self._sink = sink
        self._terminal = terminal
        self._as_json = as_json
        self._news = News()

    def told(self, event: Event, decision: Decision) -> None:
        """One line, if it is news."""
        now = time.time_ns() // 1000
        news = self._news.hear(self._unit, event, decision)
        if isinstance(event, Exited) and event.cause.failed and event.code is None and event.signal is None:
            self.noted(event.detail.removeprefix(f"unit {self._unit} "))  # it never lived: nothing else says why
        if self._as_json:
            self._write_json(event, decision, now)
        elif news:
            self.noted(describe(event, decision, now))

    def noted(self, text: str) -> None:
        """A line about the unit."""
        if self._as_json:
            self._write(json.dumps({"at": time.time(), "unit": self._unit, "note": text}))
        else:
            self._write(f"flyball: {self._unit} {one_line(text)}")

    async def wants_more(self) -> bool:
        """Ask. Where there is no terminal nobody is asked."""
        if self._terminal is None:
            return False
        await self._sink.written()  # a question comes after what was said before it
        answer = await self._terminal.ask(QUESTION)
        while answer not in (None, "", "q", "quit"):
            answer = await self._terminal.ask(QUESTION)
        return answer == ""

    def over(self, outcome: Outcome) -> int:
        """The last line, and the exit code."""
        code = exit_code(outcome)
        if outcome.holder:
            host, pid = (*outcome.holder.split("/"), "?", "?")[:2]
            self.noted(f"runs already: process {pid} on {host} has it")
        how = "; ".join(ways_on(self._unit, outcome))
        if self._as_json:
            self._write(json.dumps({"at": time.time(), "unit": self._unit, "exit": code, "go_on": how}))
        elif how:
            self._write(f"flyball: to go on: {how}")
        return code

    def _write_json(self, event: Event, decision: Decision, now: int) -> None:
        line: dict[str, Any] = {
            "at": now / SECOND,
            "unit": self._unit,
            "verb": VERB_NAMES[decision.verb],
            "until": None if decision.until >= FOREVER else decision.until / SECOND,
            "text": describe(event, decision, now),
            "reasons": msgspec.to_builtins(decision.reasons),
            "event": msgspec.to_builtins(event),
        }
        self._write(json.dumps(line))

    def _write(self, line: str) -> None:
        end = "\r\n" if self._terminal is not None and self._terminal.is_raw else "\n"
        self._sink.write((line + end).encode(errors="replace"))


def exit_code(outcome: Outcome) -> int:
    """From the table above."""
    if outcome.signal is not None:
        return BY_SIGNAL + outcome.signal
    exited, verb = outcome.exited, outcome.decision.verb
    if exited is None or verb >= Verb.STOP:
        return HELD
    if exited.cause is Cause.STARVED or _is_broke(outcome):
        return STARVED
    if exited.cause is Cause.TIMEOUT:
        return TIMED_OUT
    if exited.signal is not None:
        return BY_SIGNAL + exited.signal
    if exited.cause is Cause.STOPPED:
        return exited.code or HELD
    return CANNOT_EXECUTE if exited.code is None else exited.code


def _is_broke(outcome: Outcome) -> bool:
    """It was told to end because its money is spent, or may not start again for that reason."""
    return OVER_BUDGET in outcome.decision.codes or (outcome.exited is not None and outcome.exited.error == OVER_BUDGET)


def ways_on(unit: str, outcome: Outcome) -> Iterator[str]:
    """What a person can do so that it goes on: commands where there are any."""
    decision, again = outcome.decision, "the same line again"
    if outcome.holder:
        yield f"end the other one by `flyball stop {unit}`, or run this one under another --name"
    elif outcome.signal is None and outcome.exited is not None and outcome.exited.cause is Cause.DONE:
        return
    elif decision.verb >= Verb.STOP:
        for reason in decision.reasons:
            if reason.verb >= Verb.STOP:
                found = _COMMAND.search(reason.remedy)
                yield _named(found[1], unit, reason.policy) if found else reason.remedy
        yield again
    elif _is_broke(outcome):
        yield f"{again}, with a higher --budget if that was too low"
    else:
        yield again


def _named(command: str, unit: str, policy: str) -> str:
    """A command with what it is about, where the reason could not know that. Without a unit it is about the fleet."""
    return f"{command} {unit}" if command == "flyball resume" and policy not in OF_THE_FLEET else command
