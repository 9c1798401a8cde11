"""What conditions and templates of rules may name, and of what kind it is: one table, for checks, docs and completion.

What comes from outside (the body of a request, what a person gave, what was remembered) may be anything: nothing is
said about it before it is there.
"""

import difflib
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from flyball.config.rules import Command, Cron, Every, FileChange, Startup, Trigger, UnitEvent, Webhook


class Problem(NamedTuple):
    """What is wrong with a condition or a template, and where."""

    text: str
    column: int
    """From 1, counted from the beginning of its source, over lines."""


class Kind(StrEnum):
    """What a value is, in the words of CEL."""

    ANY = "any"
    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"
    TIMESTAMP = "timestamp"
    DURATION = "duration"
    NULL = "null"
    LIST = "list"
    MAP = "map"
    TYPE = "type"


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a value before it is there."""

    kind: Kind = Kind.ANY
    fields: Mapping[str, "Shape"] | None = None
    """Of a map: all names that it can have; None: they are not known."""
    each: "Shape | None" = None
    """What the values of a list, or of a map without known names, are; None: anything."""
    words: tuple[str, ...] = ()
    """Of a string: all that it can be, if that is known."""


ANY: Final = Shape()
BOOL: Final = Shape(Kind.BOOL)
INT: Final = Shape(Kind.INT)
DOUBLE: Final = Shape(Kind.DOUBLE)
STRING: Final = Shape(Kind.STRING)
TEXTS: Final = Shape(Kind.MAP, each=STRING)


def one_of(*words: str) -> Shape:
    """A string that is one of these."""
    return Shape(Kind.STRING, words=words)


def record(**fields: Shape) -> Shape:
    """A map that has these names and no others."""
    return Shape(Kind.MAP, fields=fields)


OF_SESSIONS: Final = ("pending", "running", "completed", "timed_out", "lost", "budget_exceeded")
STATES: Final = (
    *("healthy", "degraded", "cooling", "quarantined", "halted", "paused", "finished", "stopped", "failed"),
    *OF_SESSIONS,
)
"""What a unit can be, in the words that people see."""
TRIGGERS: Final[Mapping[str, Mapping[str, Shape]]] = {
    "every": {"at": STRING},
    "cron": {"at": STRING, "missed": BOOL},
    "file": {"path": STRING, "name": STRING, "change": one_of("created", "modified", "deleted")},
    "webhook": {"hook": STRING, "id": STRING, "body": ANY, "headers": TEXTS},
    "event": {
        "unit": STRING,
        "on": one_of("started", "done", "failed", "stopped", "held"),
        "run": STRING,
        "cause": STRING,
        "error": STRING,
        "fingerprint": STRING,
    },
    "command": {"by": STRING, "data": ANY},
    "startup": {"at": STRING},
    "rule": {"rule": STRING, "run": STRING},
}
"""What each kind of trigger says, beside its `kind`."""
ALWAYS: Final = ("command", "rule")
"""A person may fire every rule, and so may another rule."""
UNIT: Final = record(state=one_of(*STATES), failures=INT)
ROOTS: Final[Mapping[str, Shape]] = {
    "rule": record(name=STRING, labels=TEXTS, priority=INT),
    "firing": record(id=STRING, attempt=INT, joined=INT, at=STRING),
    "units": Shape(Kind.MAP, each=UNIT),
    "values": Shape(Kind.MAP, each=ANY),
    "time": record(
        now=Shape(Kind.TIMESTAMP),
        hour=INT,
        minute=INT,
        weekday=one_of("mon", "tue", "wed", "thu", "fri", "sat", "sun"),
        date=STRING,
        unix=DOUBLE,
    ),
}
"""What every condition and template may begin with, beside `trigger`."""
NOTHING: Final = record()
STEPS: Final[Mapping[str, Shape]] = {
    "run": record(code=INT, stdout=STRING, stderr=STRING),
    "http": record(status=INT, headers=TEXTS, text=STRING, json=ANY),
    "call": record(result=ANY),
    "start": NOTHING,
    "stop": NOTHING,
    "notify": NOTHING,
    "wait": NOTHING,
    "set": NOTHING,
    "browser": Shape(Kind.MAP, each=STRING),
}
"""The result of each kind of action: `steps.ID` in templates of later ones."""

_KINDS: Final[Mapping[type, str]] = {
    Every: "every",
    Cron: "cron",
    FileChange: "file",
    Webhook: "webhook",
    UnitEvent: "event",
    Command: "command",
    Startup: "startup",
}


def kinds_of(triggers: Iterable[Trigger]) -> tuple[str, ...]:
    """What `trigger.kind` can be in a rule with these triggers."""
    return tuple(sorted({*ALWAYS, *(_KINDS[type(trigger)] for trigger in triggers)}))


def trigger_shape(kinds: Sequence[str]) -> Shape:
    """`trigger`, if it is of one of these kinds: what any of them may say. What two say differently may be anything."""
    fields: dict[str, Shape] = {"kind": one_of(*TRIGGERS)}  # of all: one condition may serve several rules
    for kind in kinds:
        for name, shape in TRIGGERS[kind].items():
            fields[name] = shape if fields.get(name, shape) == shape else ANY
    return Shape(Kind.MAP, fields=fields)


@functools.lru_cache(maxsize=256)  # as many as there are sets of kinds
def names_of(kinds: tuple[str, ...]) -> Mapping[str, Shape]:
    """All names of a condition, by the kinds of its rule's triggers."""
    return {"trigger": trigger_shape(kinds), **ROOTS}


def steps_shape(steps: Iterable[tuple[str, str]]) -> Shape:
    """`steps`, after these actions: the id and the kind of each."""
    return record(**{action: STEPS[kind] for action, kind in steps})


def unknown(name: str, known: Iterable[str], what: str) -> str:
    """The text of a problem: there is no such name, but these."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" did you mean {near[0]!r}?" if near else ""
    there = f" there is {', '.join(names)}" if names else " there is nothing"
    return f"{what} {name!r};{hint}{there}"


def no_such_field(path: str, name: str, shape: Shape) -> str:
    """The text of a problem: something has no such field. It says which triggers would have it."""
    others = [kind for kind, fields in TRIGGERS.items() if name in fields] if path == "trigger" else []
    if others:
        return f"trigger.{name} is only there with {' or '.join(others)}, and this rule has no such trigger"
    return unknown(name, shape.fields or (), f"{path} has no")
