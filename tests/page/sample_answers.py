"""What a daemon answers about one unit and about the fleet, for the fake server: whole answers, with one text in all
places where units, errors and people write theirs."""

import time
from collections.abc import Mapping
from typing import Any

from tests.page.fake import Answer, FakeServer, problem, row

FINGERPRINT = "7f3a9c2155aa0011"


def reason(text: str, **fields: Any) -> dict[str, Any]:
    """Why, by one policy."""
    shape = {"policy": "quarantine", "by": "unit", "verb": "hold", "code": "quarantined", "until": None}
    return {**shape, "text": text, "remedy": f"To do: {text}", **fields}


def unit_view(name: str, text: str = "TypeError", **fields: Any) -> dict[str, Any]:
    """All that there is to see of one unit that is quarantined."""
    now = time.time()
    return {
        "name": name,
        "kind": "unit",
        "state": "quarantined",
        "held": True,
        "running": False,
        "since": now - 120,
        "until": None,
        "reasons": [reason(text)],
        "restarts": {"last_hour": 5, "total": 12, "by_hand": 1},
        "failures_in_a_row": 6,
        "failures": [],
        "last_exit": None,
        "live": [],
        "host": "",
        "budgets": [],
        "questions": [],
        "revision": "",
        "orders": [],
        "labels": {"user": text[:100], "provider": "x"},
        "waiting": 0,
        **fields,
    }


def why(name: str, text: str = "TypeError", **unit: Any) -> dict[str, Any]:
    """The answer to `why`, with a session and a rule in it too: more than one unit ever has."""
    now = time.time()
    asked = {"id": "q1", "run": "r1", "text": text, "choices": [text[:100], "no"], "default": "no", "at": now - 60}
    return {
        "unit": unit_view(name, text, questions=[{**asked, "until": now + 600}], **unit),
        "says": text,
        "opinions": [
            {"policy": "cooldown", "by": "unit", "verb": "proceed", "reasons": []},
            {"policy": "quarantine", "by": "unit", "verb": "hold", "reasons": [reason(text)]},
        ],
        "start": {"verb": "hold", "codes": ["quarantined"]},
        "detail": f"Traceback (most recent call last):\n{text}\n",
        "events": [],
        "session": session(name, text),
        "post_mortem": {
            "timeline": [],
            "whole": True,
            "times": [
                {
                    "pattern": text[:100],
                    "part": False,
                    "times": 3,
                    "errors": 0,
                    "seconds": 7.5,
                    "longest": 4.0,
                    "spent": 120_000,
                }
            ],
            "between": 1.0,
            "layers": [{"layer": 1, "name": "steps", "text": text, "fired": True}],
            "causes": [text],
            "ways_on": [text],
        },
        "rule": rule(name, text),
        "at": now,
    }


def session(name: str, text: str = "plan", **fields: Any) -> dict[str, Any]:
    """A session that a person has to resume."""
    now = time.time()
    return {
        "id": name,
        "kind": "session",
        "status": "paused",
        "held": True,
        "stop_reason": "over_budget",
        "failure_reason": None,
        "layer": None,
        "resumes": {"used": 1, "max": 3},
        "steps": {"used": 4, "max": 50},
        "rounds": {"reached": 2, "max": 10, "convergence": 0.5, "agreement": None},
        "budget": {"spent": 1_500_000, "reserved": 0, "limit": 2_000_000},
        "deadline": {"started": now - 60, "lasted": 60.0, "limit": 3600.0},
        "pause": {"reason": "person", "since": now - 30, "resume_at": None},
        "checkpoints": [{"id": "1", "stage": text[:100], "at": now - 50, "bytes": 12}],
        "user": text[:100],
        "tree": "",
        "started": now - 90,
        "ended": now - 30,
        **fields,
    }


def rule(name: str, text: str = "every 5m", **fields: Any) -> dict[str, Any]:
    """A rule with a firing that waits."""
    now = time.time()
    firing = {"id": "f1", "trigger": text[:100], "at": now - 9, "attempt": 1, "joined": 2, "depth": 0}
    return {
        "name": name,
        "state": "healthy",
        "held": False,
        "running": False,
        "until": None,
        "reasons": [],
        "defined": True,
        "triggers": [{"text": text, "next": now + 300}],
        "when": text,
        "actions": [text],
        "next": now + 300,
        "queue": [{**firing, "running": False, "by_person": True}],
        "waiting": 1,
        "last_run": None,
        "counts": {"queued": 3},
        "questions": 0,
        "priority": 0,
        "labels": {},
        **fields,
    }


def history(name: str, text: str = "TypeError") -> dict[str, Any]:
    """Sixty exits, a failure on the ladder, and what happened."""
    now = time.time()
    causes = ("error", "done", "timeout", "starved", "lost", "stopped")
    exits = [
        {
            "at": now - 6000 + 100 * place,
            "seq": place,
            "cause": causes[place % len(causes)],
            "error": text if place % 6 == 0 else "",
            "code": 3 if place % 6 == 0 else None,
            "signal": 9 if place % 6 == 4 else None,
            "fingerprint": FINGERPRINT if place % 6 == 0 else "",
            "lasted": 12.0,
            "policy": "",
        }
        for place in range(60)
    ]
    kind = {"fingerprint": FINGERPRINT, "error": text, "count": 3, "until": now + 12, "quarantined": False}
    return {
        "unit": name,
        "exits": exits,
        "ladder": {"steps": [1, 5, 15, 300, 1800], "max": 6, "failures": [kind]},
        "flaps": {"state": "degraded", "consecutive": 2, "in_window": 3},
        "timeline": [{"at": now - 60, "seq": 7, "text": text, "by": text[:100], "tone": "bad"}],
        "at": now,
    }


def spend() -> dict[str, Any]:
    """A curve that comes near its limit."""
    now = time.time()
    points = [[now - 86_400 + 3_600 * hour, 80_000 * hour] for hour in range(25)]
    return {"points": points, "limit": 2_000_000, "spent": 1_920_000, "meter": "usd", "at": now}


def fleet_answers(name: str, text: str = "TypeError") -> dict[str, Any]:
    """The answers about all units."""
    now = time.time()
    failure = {
        "fingerprint": FINGERPRINT,
        "error": text,
        "count": 6,
        "first": now - 900,
        "last": now - 60,
        "quarantined": True,
        "units": [name, "other"],
        "of": 2,
        "until": None,
    }
    budget = {
        "unit": name,
        "meter": "usd",
        "by": "unit",
        "subject": name,
        "spent": 1_920_000,
        "reserved": 0,
        "limit": 2_000_000,
        "raised": 0,
        "every": 86_400,
    }
    ordered = {
        "seq": 9,
        "at": now - 5,
        "by": text[:100],
        "channel": "http",
        "verb": "reset",
        "asked": f"fingerprint={text}",
        "effect": text,
        "refused": "",
    }
    entry = {
        "seq": 7,
        "at": now - 5,
        "unit": name,
        "event": "exited",
        "verb": "wait",
        "until": None,
        "text": text,
        "reasons": [],
        "data": {"error": text},
    }
    return {
        "failures": {"failures": [failure], "left_out": 0, "at": now},
        "budgets": {"budgets": [budget, {**budget, "meter": "tokens", "by": "user", "subject": text, "unit": ""}]},
        "sessions": {
            "sessions": [session(name, text)],
            "layers": {},
            "counts": {"paused": 1},
            "left_out": 0,
            "at": now,
        },
        "rules": {"rules": [rule(name, text)], "at": now},
        "audit": {"audit": [ordered], "last": 9},
        "events": {"events": [entry], "last": 7},
    }


def fake_with(name: str, text: str = "TypeError", *, role: str = "admin") -> FakeServer:
    """A server that knows one unit, of which everything says this text."""
    reset = {"verb": "reset", "args": {"fingerprint": FINGERPRINT}, "label": "Reset 7f3a9c21", "destructive": False}
    wrong = problem(name, text=text, title=text, remedy=text, actions=[reset])
    one = row(name, state="quarantined", held=True, running=False, problem=wrong["id"], reason=text, error=text)
    fake = FakeServer([one, row("other")], role=role)
    fake.problems = [wrong]
    fake.fleet |= {
        "storm": True,
        "breakers": [{"name": "provider:x", "by": "provider", "subject": "x", "state": "open", "until": None}],
        "reasons": [reason(text, by="fleet")],
    }
    answers: Mapping[str, Any] = {
        "why": why(name, text),
        "history": history(name, text),
        "spend": spend(),
        "logs": {"unit": name, "lines": ["begin", text, "end"], "at": time.time()},
        **fleet_answers(name, text),
    }
    fake.answers |= {verb: _saying(said) for verb, said in answers.items()}
    return fake


def _saying(said: Any) -> Answer:
    return lambda _: said
