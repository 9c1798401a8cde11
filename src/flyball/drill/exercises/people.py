"""Exercises with people, and with programs that use flyball themselves."""

import http.server
import json
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from flyball.config import Settings
from flyball.drill.actor import CIRCUIT, YES
from flyball.drill.exercise import STEPS_MAX, Exercise, NotFired, Seen, within
from flyball.drill.exercises.crashes import QUARANTINED, crashing, starts_above
from flyball.drill.fleet import Fleet, telling
from flyball.drill.numbers import WAIT
from flyball.policies import Breaker, Exclusive, Manual, Question, Reservations

TOLD_MAX: Final = 64 * 1024
"""Bytes of one message that are read."""


class Ordered(Exercise):
    """A person's order is obeyed."""

    name = "manual"
    policy = Manual
    how = "`flyball pause` of a unit that runs"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        return {"units": {self.name: {"command": telling(self.name, "exec sleep 600")}}}

    def watch(self, fleet: Fleet) -> Seen:
        fleet.wait(lambda: fleet.starts(self.name), "its start")
        began = time.monotonic()
        (unit,) = fleet.ask("pause", units=[self.name])["units"]
        said = {reason["code"]: reason["text"] for reason in unit["reasons"]}
        if not unit["held"] or "paused" not in said:
            raise NotFired("it was paused by a person, and is not held")
        fleet.gone(self.name)
        took = time.monotonic() - began
        fleet.stays_so()
        if len(fleet.starts(self.name)) != 1:
            raise NotFired("it was started while a person held it")
        return Seen(took, said["paused"])


class Asked(Exercise):
    """What is asked of a person is kept until it is answered."""

    name = "question"
    policy = Question
    how = "a program that asks a person, who answers with `flyball answer`"

    def watch(self, fleet: Fleet) -> Seen:
        with fleet.program("asks_a_person", self.name) as program:
            asked = fleet.wait(lambda: fleet.entries(self.name, "asked"), "its question")[0]
            questions = fleet.ask("questions", units=[])["questions"]
            mine = [question for question in questions if question["unit"] == self.name]
            if not mine:
                raise NotFired("it asked a person, and no person can see it")
            fleet.ask("answer", unit=self.name, answer=YES)
            if fleet.ended(program, "that it goes on"):
                raise NotFired("it did not get the answer")
        answered = fleet.wait(lambda: fleet.entries(self.name, "answered"), "its answer")[0]
        return Seen(answered.at - asked.at, f"{mine[0]['text']} {YES}")


class Taken(Exercise):
    """One live run of a unit, over all processes."""

    name = "exclusive"
    policy = Exclusive
    how = "two programs that run the same agent at once"

    def watch(self, fleet: Fleet) -> Seen:
        with fleet.program("holds", self.name):
            fleet.wait(lambda: fleet.starts(self.name), "its start")
            with fleet.program("holds", self.name):
                second = fleet.reason(self.name, "already_running", starts_above(1, "one lived already"))
        return Seen(fleet.since_start(second), second.codes["already_running"])


class Reserved(Exercise):
    """What a dead run holds is known."""

    name = "reservations"
    policy = Reservations
    how = "kill -9 of a program that had reserved money"

    def watch(self, fleet: Fleet) -> Seen:
        with fleet.program("reserves", self.name):
            fleet.wait(lambda: fleet.entries(self.name, "step"), "its reservation")
        began = time.monotonic()
        said = fleet.ask("settle", unit=self.name, dry_run=True)
        if not said["settled"]:
            raise NotFired("nobody knows what the dead run holds")
        (held,) = said["settled"]
        return Seen(time.monotonic() - began, f"held by the dead run: {json.dumps(held['reserved'])}")


class Called(Exercise):
    """What is called is down, for all who call it."""

    name = "breaker-calls"
    policy = Breaker
    how = "guarded calls that fail, and one more in another program"
    fleet = "breaker"

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        within(numbers.circuit_breaker.failure_threshold, STEPS_MAX, "circuit_breaker.failure_threshold", "calls")
        return {}

    def watch(self, fleet: Fleet) -> Seen:
        most = fleet.numbers.circuit_breaker.failure_threshold
        began = time.monotonic()
        for times in (most + 1, 1):
            with fleet.program("calls", str(times)) as program:
                if fleet.ended(program, "that calls are refused"):
                    raise NotFired(f"{most} calls failed, and another one was let through")
        took = time.monotonic() - began
        known = {one["name"]: one["state"] for one in fleet.ask("status")["fleet"]["breakers"]}
        if known.get(CIRCUIT) != "open":
            raise NotFired(f"the circuit {CIRCUIT} is not known to be open")
        return Seen(took, f"the circuit {CIRCUIT} is open")


class Alerted(Exercise):
    """What waits for a person is told."""

    name = "alert"
    how = "a unit that is quarantined; a receiver on this machine waits for the message"
    fleet = "crashes"

    def __init__(self) -> None:
        self._got: list[tuple[float, Mapping[str, Any]]] = []
        self._server: http.server.ThreadingHTTPServer | None = None

    def settings(self, numbers: Settings) -> Mapping[str, Any]:
        return {
            **crashing(numbers),
            "alerts": {
                "channels": {"drill": {"type": "webhook", "url": f"http://127.0.0.1:{self._listen()}/"}},
                "rules": [{"units": [QUARANTINED], "channels": ["drill"]}],
                "group_wait_seconds": WAIT,
            },
        }

    def watch(self, fleet: Fleet) -> Seen:
        most = fleet.numbers.quarantine.max_failures_before_quarantine
        held = fleet.reason(QUARANTINED, "quarantined", starts_above(most, "it should be quarantined"), again=True)
        at, message = fleet.wait(lambda: self._got[:1], "the message")[0]
        return Seen(at - held.at, str(message["data"]["title"]))

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _listen(self) -> int:
        got = self._got

        class Receiver(http.server.BaseHTTPRequestHandler):
            """Takes whatever comes."""

            def do_POST(self) -> None:
                body = self.rfile.read(min(TOLD_MAX, int(self.headers.get("content-length") or 0)))
                got.append((time.time(), json.loads(body)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - so http.server has it
                """Nobody wants to know."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return int(self._server.server_address[1])
